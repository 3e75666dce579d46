"""Theorem budget-filter: noise chosen adaptively within a privacy filter."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from lethe.calculus.guarantees import ZCDP
from lethe.certificates.findings import Finding, fails, holds
from lethe.certificates.parts import Citation
from lethe.run.participation import BatchSizes
from lethe.run.run import Run
from lethe.run.schedules.base import Array
from lethe.theorems.base import Bound, Theorem
from lethe.theorems.clip_methods import Clipping
from lethe.theorems.requirements import each_gradient_bounded

# The filter forgives this much rounding of a budget that is spent exactly, and so does its guarantee.
_ROUNDING = 1e-9


class BudgetFilterTheorem(Theorem):
    r"""A filter with budget $\rho$ makes everything released $\rho$-zCDP, though each noise was chosen in view of what came before.

    The budget is what counts, not what happened to be spent: how much was spent may itself depend on the data's noisy past. A record
    of a fixed design pays only when its own batch is visited (the filter keeps an account for each batch slot, or, where every pass has
    another secret order, one account that pays at every step); random batches pay at every step, or at each of a public group that they
    are drawn from, without credit for the sampling.
    """

    name: ClassVar[str] = "budget-filter"
    statement: ClassVar[str] = "A zCDP budget filter: the noise of each step may depend on all that was released before."
    formula: ClassVar[str] = r"\rho,\ \text{where a step is refused that would bring } \sum_t s_t^2/(2\tau_t^2) \text{ above } \rho"
    needs: ClassVar[str] = "training under a budget filter"
    covers: ClassVar[Literal["last", "all"]] = "all"
    sizes: ClassVar[frozenset[BatchSizes]] = frozenset(BatchSizes)
    clipping: ClassVar[Clipping] = "any"
    adaptive: ClassVar[bool] = True
    record_groups: ClassVar[bool] = True
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            key="feldman-zrnic-2021",
            text="Feldman, Zrnic 2021, Individual privacy accounting via a Rényi filter, arXiv:2008.11193 (Rényi filters; fixed bounds).",
        ),
        Citation(key="hong-2022", text="Hong, Wang, Zhou 2022, Dynamic privacy budget allocation, FAccT 2022, Theorem 3.5 (the loop)."),
    )

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        if run.noise_budget is None:
            return (
                fails(
                    "budget filter",
                    "it needs training under a budget filter; this run's noise was fixed in advance",
                    source="noise_budget = null",
                    remedy="use composition, or set noise_budget and train with a noise policy.",
                ),
            )
        spent = float(spent_budgets(run).max())
        if not spent <= run.noise_budget * (1 + _ROUNDING):
            return (
                fails(
                    "budget filter",
                    f"it needs steps that spend no more than noise_budget = {run.noise_budget:g}; the recorded steps spend {spent:g}",
                    source="noise_budget and noise_multiplier",
                    remedy="do not rely on this run: no filter with this budget let it through.",
                ),
            )
        kept = holds("budget filter", "a step that would overspend was refused before its noise was drawn", evidence="declared")
        return (kept, holds("budget", f"the recorded steps spend {spent:.6g} of {run.noise_budget:.6g}"), each_gradient_bounded(run))

    def _bound(self, run: Run) -> Bound:
        assert run.noise_budget is not None
        return Bound(guarantee=ZCDP(run.noise_budget * (1 + _ROUNDING)))


def spent_budgets(run: Run) -> Array:
    r"""$\sum_t s_t^2/(2\tau_t^2)$ of each account of the run's filter, shape (accounts,); inf where a step has no noise."""
    slots = run.batches.accounts(run.records)
    with np.errstate(divide="ignore", over="ignore"):
        costs = 0.5 / np.square(run.relative_noise)
        return np.array([costs[slot::slots].sum() for slot in range(min(slots, len(costs)))])
