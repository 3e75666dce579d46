"""Every iterate released, independent noise: the costs of all steps that use a record add up, or a budget filter keeps them below its own.

It applies to all independent noise that was fixed in advance, so that `certify` always has an answer there. A touch is a step whose batch
holds the record; a slot is the place in a pass of a record's batch.
"""

from typing import ClassVar

import numpy as np

from lethe.calculus.composition import compose_gdp, compose_gdp_columns
from lethe.calculus.guarantees import GDP, ZCDP, GDPMixture, Guarantee
from lethe.calculus.rounding import above
from lethe.certificates.findings import Finding, fails, holds
from lethe.certificates.parts import Citation
from lethe.run.participation import BatchSizes, Participation, unknown_participation
from lethe.run.run import Run
from lethe.run.schedules.shapes import Array
from lethe.theorems.base import Bound, Clipping, Covers, Theorem
from lethe.theorems.citations import cite
from lethe.theorems.requirements import each_gradient_bounded, gradient_bound


class GaussianComposition(Theorem):
    r"""Gaussian composition over the steps that touch a record.

    A record touched at steps $t \in A$ is protected by $\mu$-GDP, $\mu^2 = \sum_{t\in A} (s_t/\tau_t)^2$, even if every iterate is seen.

    - a public slot (cyclic): the worst one. A secret slot that is kept (shuffled_once, balls_in_bins) is uniform, so
      $\delta(\varepsilon) \le \frac1\ell\sum_j \delta_{\mu_j}(\varepsilon)$. A fresh one each pass (shuffled): the worst of each pass.
    - every step (full), and an independent draw (poisson, without_replacement; no credit for the sampling): touched at every step. A draw
      in a public group (cyclic_poisson; no credit either): at every step of the group, the worst one.

    How many records a batch holds does not matter: the sum of their gradients is divided by the nominal size.
    """

    name: ClassVar[str] = "composition"
    statement: ClassVar[str] = "Gaussian composition over all steps that touch a record; holds whatever is released."
    formula: ClassVar[str] = r"\mu^2 = \sum_{t \in A} s_t^2/\tau_t^2"
    needs: ClassVar[str] = "a bounded gradient"
    covers: ClassVar[Covers] = "all"
    sizes: ClassVar[frozenset[BatchSizes]] = frozenset(BatchSizes)
    given_the_others: ClassVar[bool] = True
    clipping: ClassVar[Clipping] = "any"
    averages: ClassVar[bool] = True
    record_groups: ClassVar[bool] = True
    citations: ClassVar[tuple[Citation, ...]] = (
        cite("dong-2022", ", Corollary 3.3 (composition)"),
        cite("balle-wang-2018"),
    )

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        return (gradient_bound(run),)

    def _bound(self, run: Run) -> Bound:
        return Bound(guarantee=_guarantee(run))


def touch_mus(run: Run) -> Array:
    r"""$s_t/\tau_t$ of every step as a Gaussian mechanism of its own, rounded up, shape (T,); infinity where a step has no noise."""
    with np.errstate(divide="ignore", over="ignore"):
        return above(1.0 / run.relative_noise, 2.0**-51)


def _guarantee(run: Run) -> Guarantee:
    r"""The bound by the design: $\mu$ of the worst slot, or its mean where the slot is uniform and secret."""
    if run.pass_weights is not None:
        return GDP(np.inf)  # what is averaged has no noise of its own
    touches, slots = touch_mus(run), run.steps_per_pass
    match run.batches.participation:
        case Participation.EVERY_STEP | Participation.INDEPENDENT_DRAW:
            return GDP(compose_gdp(touches))
        case Participation.PUBLIC_SLOT:
            return GDP(float(slot_mus(touches, slots).max()))
        case Participation.DRAW_IN_PUBLIC_GROUP:
            return GDP(float(slot_mus(touches, run.batches.groups_of_records).max()))
        case Participation.SECRET_SLOT:
            return averaged_over_slots(slot_mus(touches, slots), slots)
        case Participation.FRESH_SECRET_SLOT:
            return GDP(worst_of_each_pass(touches, slots))
    raise unknown_participation(run.batches.design, run.batches.participation)


def averaged_over_slots(mus: Array, slots: int) -> Guarantee:
    r"""The guarantee of a record whose slot is uniform and secret: $\delta \le \frac1\ell\sum_j\delta_{\mu_j}$.

    `mus` are of each slot that some step reaches, shape (min(l, T),).
    """
    if mus.size == slots and mus.min() == mus.max():
        return GDP(float(mus.max()))
    weights = (1.0 / slots,) * mus.size
    if mus.size < slots:  # a pass that is longer than the run: the slots that no step reaches stand together
        return GDPMixture(mus=(*mus.tolist(), 0.0), weights=(*weights, (slots - mus.size) / slots))
    return GDPMixture(mus=tuple(mus.tolist()), weights=weights)


def slot_mus(touches: Array, slots: int) -> Array:
    r"""$\mu_j$ of a record whose batch is the j-th of every pass: the root of the sum of squares over its touches.

    Touches $s_t/\tau_t$ have shape (T,). Rounded up, one for each slot that some step reaches, shape (min(l, T),).
    """
    return compose_gdp_columns(_by_slot(touches, slots))


def worst_of_each_pass(touches: Array, slots: int) -> float:
    r"""$\mu$ of a record that may be in any batch of each pass, rounded up; arguments as for `slot_mus`."""
    return compose_gdp(_by_slot(touches, slots).max(axis=1))


def _by_slot(touches: Array, slots: int) -> Array:
    """Shape (passes, slots), zero where the last pass is cut short; of a pass longer than the run only the slots that are reached."""
    slots = min(slots, len(touches))
    passes = -(-len(touches) // slots)
    padded = np.zeros(passes * slots)
    padded[: len(touches)] = touches
    return padded.reshape(passes, slots)


# The filter forgives this much rounding of a budget that is spent exactly, and so does its guarantee.
_ROUNDING = 1e-9


class BudgetFilterTheorem(Theorem):
    r"""A filter with budget $\rho$ makes everything released $\rho$-zCDP, though each noise was chosen in view of what came before.

    The budget is what counts, not what happened to be spent: how much was spent may itself depend on the data's noisy past. A record
    of a fixed design pays only when its own batch is visited: the filter keeps an account for each batch slot, or, where a record comes
    once a pass in a place that is new each time, one that pays for the dearest step of each pass. Random batches pay at every step, or at
    each of a public group that they are drawn from, without credit for the sampling.
    """

    name: ClassVar[str] = "budget-filter"
    statement: ClassVar[str] = "A zCDP budget filter: the noise of each step may depend on all that was released before."
    formula: ClassVar[str] = r"\rho,\ \text{where a step is refused that would bring } \sum_t s_t^2/(2\tau_t^2) \text{ above } \rho"
    needs: ClassVar[str] = "training under a budget filter"
    covers: ClassVar[Covers] = "all"
    sizes: ClassVar[frozenset[BatchSizes]] = frozenset(BatchSizes)
    clipping: ClassVar[Clipping] = "any"
    adaptive: ClassVar[bool] = True
    record_groups: ClassVar[bool] = True
    citations: ClassVar[tuple[Citation, ...]] = (
        cite("feldman-zrnic-2021"),
        cite("hong-2022"),
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
        filter_kept = holds("budget filter", "a step that would overspend was refused before its noise was drawn", evidence="declared")
        return (filter_kept, holds("budget", f"the recorded steps spend {spent:.6g} of {run.noise_budget:.6g}"), each_gradient_bounded(run))

    def _bound(self, run: Run) -> Bound:
        assert run.noise_budget is not None
        return Bound(guarantee=ZCDP(run.noise_budget * (1 + _ROUNDING)))


def spent_budgets(run: Run) -> Array:
    r"""$\sum_t s_t^2/(2\tau_t^2)$ of each account of the run's filter, shape (accounts,); inf where a step has no noise."""
    slots = run.batches.accounts(run.records)
    with np.errstate(divide="ignore", over="ignore"):
        costs = 0.5 / np.square(run.relative_noise)
    if run.batches.participation is Participation.FRESH_SECRET_SLOT:
        costs = np.maximum.reduceat(costs, np.arange(0, len(costs), run.steps_per_pass))
    with np.errstate(over="ignore"):
        return np.array([costs[slot::slots].sum() for slot in range(min(slots, len(costs)))])
