"""SparseSelection: which rows of large tables get noise and a step, chosen by noisy counts of the records that contribute to them. An
option for embeddings, whose few used rows noise would drown; `clipper_of` reads it. z is the noise multiplier, s the choice's share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

from torch import nn

from lethe.calculus.rounding import raised
from lethe.errors import InputError, require_finite
from lethe.train.clip.groups import checked_norm


class SelectedTables(NamedTuple):
    """Tables with the norm of a record's contributions to each, and above which sum of these a row is selected."""

    tables: dict[nn.Parameter, float]
    threshold: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseSelection:
    r"""Large tables of which only some rows get noise and a step.

    A record contributes $\min(1, C_1/\sqrt k)$ to each of the k rows of a table in which its clipped gradient is not 0. The contributions
    of a batch get noise, and the rows where they then exceed the threshold are selected; gradients in other rows are dropped.

    Args:
        parameters: names of embedding tables, or patterns, as of `Group`.
        threshold: contributions, noise included, above which a row is selected. Of the rows that no record looks up a share of about
            $\Phi(-\text{threshold}/\tau_1)$ is selected, $\tau_1 = zC_1\sqrt{J/s}$ with J tables and the share s.
        share: $s \in (0, 1)$ of each step's privacy $1/z^2$ that the choice takes, as the run's `sparse_selection` then says.
        contribution_norm: $C_1 > 0$, the norm that each record's contributions to a table are clipped to.
    Raises:
        InputError: an argument is none of these.
    Reference: Ghazi et al. 2023, arXiv:2311.08357, Algorithm 1 (DP-AdaFEST); here gradients are clipped before rows are dropped.
    """

    parameters: tuple[str, ...]
    threshold: float
    share: float = 0.1
    contribution_norm: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.parameters, tuple) or not all(isinstance(pattern, str) for pattern in self.parameters or (None,)):
            raise InputError(f"SparseSelection.parameters: got {self.parameters!r}; it needs a tuple of names, such as ('table.weight',).")
        norm = checked_norm("SparseSelection.contribution_norm", self.contribution_norm)
        object.__setattr__(self, "contribution_norm", norm)
        object.__setattr__(self, "threshold", require_finite("SparseSelection.threshold", self.threshold, low=0.0))
        object.__setattr__(self, "share", require_finite("SparseSelection.share", self.share, low=0.0, strict=True, high=0.999))

    def of(self, named: Mapping[str, nn.Parameter]) -> SelectedTables:
        """The trained tables that are meant, of a model's parameters."""
        trained = {name: parameter for name, parameter in named.items() if parameter.requires_grad}
        selected = {
            name: parameter for name, parameter in trained.items() if any(fnmatchcase(name, pattern) for pattern in self.parameters)
        }
        unused = [pattern for pattern in self.parameters if not any(fnmatchcase(name, pattern) for name in trained)]
        wrong = [name for name, parameter in selected.items() if parameter.dim() != 2]
        if unused or wrong:
            raise InputError(
                f"SparseSelection.parameters: {unused[0] if unused else wrong[0]} is no trained table (rows, width).",
                remedy="name weights of nn.Embedding or nn.EmbeddingBag, as model.named_parameters() gives them.",
            )
        return SelectedTables(dict.fromkeys(selected.values(), self.contribution_norm), self.threshold)


def selection_multipliers(multiplier: float, share: float) -> tuple[float, float]:
    r"""$z_1 = z/\sqrt s$ of the choice of rows and $z_2 = z/\sqrt{1-s}$ of the gradients, rounded up: $1/z_1^2+1/z_2^2 \le 1/z^2$."""
    rows, gradients = raised([multiplier / math.sqrt(share), multiplier / math.sqrt(1.0 - share)], 2.0**-50)
    return float(rows), float(gradients)
