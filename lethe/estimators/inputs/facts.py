"""PublicFacts: all that a mechanism may look at before it is chosen. Nothing here depends on a record, nor on what was released.

`PrivateLinearModel` makes it in `fit` from shapes, public bounds and options; `choose`, the risk model and every mechanism plan from it
alone, which is why the choice of a mechanism costs no privacy.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from lethe.calculus.domains import outside
from lethe.mechanisms.base import require_swap
from lethe.run.losses.linear import LinearLoss, require_linear_loss
from lethe.run.participation import Unit
from lethe.run.run import Neighbours, Release

# The feature of the intercept, for rows of norm 1. Of size 1 it would be half of all gradients, so of the noise; smaller ones learn slowly.
CONSTANT = 0.3

BatchDesign = Literal["auto", "cyclic", "poisson", "cyclic_poisson", "full"]
NoiseShape = Literal["auto", "uniform", "pass_ends", "correlated"]


def longest_row(intercept: bool) -> float:
    """The largest norm of a row of features of norm at most 1, the constant feature included where there is one."""
    return math.sqrt(1.0 + CONSTANT * CONSTANT) * (1.0 + 2.0**-50) if intercept else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicFacts:
    """A problem as the public sees it, in units in which every row of features has norm at most 1."""

    records: int  # n, public
    columns: int  # d, without the intercept
    loss: LinearLoss  # l, with k scores; kept as the loss on rows of norm at most `norm`, whatever norm it came with
    intercept: bool = True  # whether a constant feature of size `CONSTANT` is appended to the rows of norm 1
    neighbours: Neighbours = "replace_one"  # "replace_one" or "zero_out"
    ridge: float = (
        0.0  # $\kappa \ge 0$ of $\frac\kappa2\|W\|^2$ beside the mean loss, the intercept included; 0 where it depends on a release
    )
    l1: float = 0.0  # $\ge 0$, of $\|W\|_1$ beside the mean loss; where that depends on a release, any number above 0
    target_bound: float | None = None  # B > 0 of the targets of a regression; None for classes
    keeps_loss: bool = False  # whether the loss was asked for by name, so that neither a cut one nor squares may stand for it
    weighted: bool = False  # whether records come with weights (in [0, 1] after division by their public bound)
    batches: BatchDesign = "auto"  # the batch design asked for, or "auto"
    passes: int | None = None  # the passes asked for; None: by the rule
    schedule: NoiseShape = "auto"  # the shape of noise asked for, or "auto"
    unit: Unit = "record"  # of privacy; of users n is their number, and l the mean loss of a user's records
    # C > 0, where a run descends the Lipschitz envelope of each record's loss, of that bound; None: the loss itself
    envelope: float | None = None
    in_blocks: bool = False  # whether the records are a table in blocks, which is read in its stored order
    release: Release = "last"  # "all": the certificate is to cover every iterate of a run, which is asked for; "last": the result

    def __post_init__(self) -> None:
        object.__setattr__(self, "loss", require_linear_loss(self.loss).on_rows(self.norm))
        require_swap(self.neighbours)
        for name, value, literal in (
            ("batches", self.batches, BatchDesign),
            ("schedule", self.schedule, NoiseShape),
            ("release", self.release, Release),
        ):
            if value not in get_args(literal):
                raise outside(name, value, "one of " + ", ".join(get_args(literal)))

    @property
    def rows(self) -> int:
        """D, the weights of one score, the intercept's included."""
        return self.columns + (1 if self.intercept else 0)

    @property
    def weights(self) -> int:
        """Dk, all weights."""
        return self.rows * self.loss.outputs

    @property
    def norm(self) -> float:
        """The largest norm of a row, the constant feature included."""
        return longest_row(self.intercept)

    @property
    def gradient_bound(self) -> float:
        """G, of one record."""
        return self.loss.row_gradient_bound if self.envelope is None else min(self.envelope, self.loss.row_gradient_bound)

    @property
    def smoothness(self) -> float:
        r"""$\beta$, of one record's loss or its envelope, rounded up."""
        return self.loss.smoothness if self.envelope is None else min(self.loss.envelope_smoothness(self.envelope), self.loss.smoothness)

    @property
    def wants_run(self) -> bool:
        """Whether something was asked for that only a run has: batches, passes, a schedule, iterates, weights of records, l1, or users."""
        needs_run = self.weighted or self.l1 > 0.0 or self.unit != "record"
        return needs_run or self.batches != "auto" or self.passes is not None or self.schedule != "auto" or self.release == "all"
