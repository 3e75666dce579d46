"""CommonOptions: the options of every training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from lethe.run.run import Run
from lethe.train.callbacks.telling import Telling
from lethe.train.core.budgeted_noise import NoisePolicy
from lethe.train.core.progress import Callback


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CommonOptions:
    """The options of every training. `lethe.train.fit` says what each field is."""

    noise_policy: NoisePolicy | None = None
    seed: int | None = None
    batch_generator: torch.Generator | None = None
    noise_generator: np.random.Generator | torch.Generator | None = None
    progress: bool | Callback = False
    callbacks: Telling = field(default_factory=Telling)

    @property
    def randomness(self) -> dict[str, Any]:
        """The three that say where batches and noise come from."""
        return {"seed": self.seed, "batch_generator": self.batch_generator, "noise_generator": self.noise_generator}

    def seeded(self, run: Run) -> bool:
        """Whether noise or secret batches of `run` can be made again by somebody: under a seed, or from a generator that was given.

        Nobody can tell how a given generator was seeded, or who has a copy of it. One for the batches alone tells nothing where the design
        keeps nothing secret: all is as certified, whoever knows the batches.
        """
        drawn = self.noise_generator is not None or (self.batch_generator is not None and bool(run.batches.secret))
        return self.seed is not None or drawn
