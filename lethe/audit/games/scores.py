"""The scores of a game that was played to its end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lethe.audit.statistics.inputs import Booleans
from lethe.calculus.domains import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TwoWorldScores:
    """Scores of trainings in two worlds, or of the steps of one training in each.

    Args:
        out_scores: without the record, shape (n0,); higher where it seems to have been there.
        in_scores: with it, shape (n1,).
        seed: from which all seeds were drawn.
    """

    out_scores: FloatArray
    in_scores: FloatArray
    seed: int

    @property
    def repeats(self) -> bool:
        """Whether no more than half of a world's scores are distinct: with continuous noise, that noise was used again."""
        return min(np.unique(world).size / world.size for world in (self.out_scores, self.in_scores)) <= 0.5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OneRunScores:
    """Scores of the canaries of one run.

    Args:
        scores: one a canary, shape (m,), higher where it seems to have been there.
        included: the coins, shape (m,), in the order in which they fell.
        seed: of the coins and of the training.
    """

    scores: FloatArray
    included: Booleans
    seed: int
