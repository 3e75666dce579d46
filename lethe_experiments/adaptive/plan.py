"""The constants of DP-AGD, gradient descent with a privacy budget for each iteration that adapts (Lee & Kifer 2018)."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

from lethe.calculus import conversions
from lethe.calculus.domains import outside, require_positive
from lethe.calculus.filters import BudgetFilter
from lethe.certificates.findings import holds
from lethe.certificates.parts import Citation
from lethe.certificates.statement import Statement
from lethe.errors import InputError
from lethe.errors.names import in_other_words
from lethe.run.participation import Neighbours, apart

_CITATIONS = (
    Citation(
        key="lee-kifer-2018",
        text="Lee, Kifer 2018, Concentrated differentially private gradient descent with adaptive per-iteration privacy budget, "
        "arXiv:1808.09501.",
    ),
    Citation(
        key="feldman-zrnic-2021",
        text="Feldman, Zrnic 2021, Individual privacy accounting via a Rényi filter, arXiv:2008.11193 (Rényi filters; fixed bounds).",
    ),
)


@in_other_words
@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveDescent:
    r"""The constants of DP-AGD; all of them public, fixed before training.

    Args:
        rho: the zCDP budget of the whole run.
        gradient_rho: the cost of the first noisy gradient; it grows when a gradient turns out too noisy to descend along.
        selection_rho: the cost of choosing one step length.
        gradient_clip: $C_g > 0$ on one record's gradient, in loss per parameter unit.
        loss_clip: $C > 0$: one record's loss counts as at most this when step lengths are compared.
        candidates: how many step lengths are compared, 0 among them; >= 2.
        longest_step: the longest step length ever, along a direction of norm 1.
        growth: > 0; a gradient that is too noisy is averaged with a fresh one until it has cost 1 + growth times as much.
        refresh: after how many steps the longest candidate is set to 1.1 times the longest step among them.
        neighbours: the relation that the guarantee is about.
        most_steps: after so many steps it ends anyway.
    Raises:
        InputError: a number is out of range, or the budget does not reach for one gradient and one choice.
    Reference: Lee & Kifer 2018, arXiv:1808.09501.
    """

    rho: float
    gradient_rho: float
    selection_rho: float
    gradient_clip: float
    loss_clip: float
    candidates: int = 20
    longest_step: float = 2.0
    growth: float = 0.1
    refresh: int = 10
    neighbours: Neighbours = "replace_one"
    most_steps: int = 10_000

    def __post_init__(self) -> None:
        for name in ("rho", "gradient_rho", "selection_rho", "gradient_clip", "loss_clip", "longest_step", "growth"):
            object.__setattr__(self, name, require_positive(name, getattr(self, name)))
        for name, least in (("candidates", 2), ("refresh", 1), ("most_steps", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise outside(name, value, f"an integer >= {least}")
        if self.neighbours not in ("replace_one", "zero_out", "add_or_remove"):
            raise outside("neighbours", self.neighbours, "replace_one, zero_out or add_or_remove")
        if not BudgetFilter(self.rho).allows(self.gradient_rho + self.selection_rho):
            raise InputError(
                f"rho = {self.rho:g}; one gradient and one choice of a step cost {self.gradient_rho + self.selection_rho:g}.",
                source="gradient_rho and selection_rho",
                remedy="give the run a larger budget, or its parts smaller ones.",
            )

    @classmethod
    def for_target(cls, epsilon: float, delta: float, *, splits: int = 60, **constants: Any) -> AdaptiveDescent:
        r"""The costs as Lee and Kifer set them for a target $(\epsilon, \delta)$.

        With $\epsilon_0 = \epsilon/(2\,\mathrm{splits})$: a choice costs $\epsilon_0^2/2$; the first gradient is a Gaussian mechanism
        that is $(\epsilon_0, \delta)$-DP; the budget is the largest $\rho$ with $\rho + 2\sqrt{\rho\log(1/\delta)} \le \epsilon$.

        Args:
            epsilon: > 0.
            delta: in (0, 1).
            splits: >= 1; more of them make every cost smaller, and the run longer.
            constants: the other fields.
        Raises:
            InputError: an argument is outside its range.
        """
        if isinstance(splits, bool) or not isinstance(splits, int) or splits < 1:
            raise outside("splits", splits, "an integer >= 1")
        share = require_positive("epsilon", epsilon) / (2 * splits)
        require_positive("delta", delta)
        mu = conversions.gdp_mu(share, delta)
        rho = conversions.zcdp_rho_simple(epsilon, delta)
        return cls(rho=rho, gradient_rho=0.5 * mu * mu, selection_rho=0.5 * share * share, **constants)

    def statement(self, records: int, *, seeded: bool) -> Statement:
        """What one training by this descent costs, and what that rests on: the certificate of a release that is no run.

        Args:
            records: n, the public number of records.
            seeded: whether somebody can make its noise again.
        """
        return Statement(
            name="adaptive descent",
            guarantee=BudgetFilter(self.rho).guarantee(),
            neighbours=self.neighbours,
            findings=(
                holds(
                    "budget filter",
                    f"every gradient and every choice of a step length is paid for before it is computed, out of rho = {self.rho:g}; what "
                    "cannot be paid ends the training",
                    evidence="enforced",
                ),
                holds("gradient bound", f"every record's gradient is clipped to norm {self.gradient_clip:g}", evidence="enforced"),
                holds("loss bound", f"every record's loss counts as a number in [0, {self.loss_clip:g}] in a choice", evidence="enforced"),
            ),
            citations=_CITATIONS,
            seeded=seeded,
            records=records,
            release_id=secrets.token_hex(16),
        )

    @property
    def touch_factor(self) -> float:
        """How many clip norms apart one record's two contributions can be: 2 when it is replaced, else 1."""
        return apart(self.neighbours)
