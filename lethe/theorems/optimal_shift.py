r"""Only the last iterate released: the optimal shift.

`certify` tries it for every run that releases the last iterate alone; it is Lethe's main theorem. Two runs on neighbouring data drift apart
at each touch (a step whose batch holds the record), each step contracts or stretches their distance by its Lipschitz constant, and noise
hides the rest: the shift engine finds the cheapest way. $\lambda_T$, C, $\tau_T$ are the last step's size, gradient bound and noise, D the
domain's diameter.
"""

from typing import ClassVar

import numpy as np

from lethe.calculus.guarantees import GDP, GDPMixture, Tightest, WithSlack
from lethe.calculus.rounding import above, round_up
from lethe.certificates.findings import Finding, fails, holds
from lethe.certificates.parts import Citation
from lethe.errors import InputError
from lethe.run.batches import Batches
from lethe.run.effective_loss import descended_curvature
from lethe.run.participation import Participation, unknown_participation
from lethe.run.run import Run
from lethe.run.schedules.shapes import Array
from lethe.theorems import requirements as require
from lethe.theorems.base import Bound, Clipping, Theorem, arithmetic
from lethe.theorems.citations import cite
from lethe.theorems.shuffled import positions
from lethe.theorems.shuffled.positions import averaged_mus, averaged_worst
from lethe.theorems.shuffled.reshuffled import reshuffled
from lethe.theorems.steps import Steps, errors_mu, largest_batch, step_constants


class OptimalShift(Theorem):
    r"""Privacy of the last iterate by the cheapest shift.

    $$\mu^2 = \min \sum_t a_t^2/\tau_t^2 \quad\text{subject to}\quad z_t = L_t z_{t-1} + s_t - a_t \ge 0,\ z_0 = z_T = 0,$$

    solved exactly for each position of the record: full batches (touched at every step), cyclic (the worst batch slot), shuffled_once and
    balls_in_bins (the average of $\delta$ over slots), shuffled and random_allocation (the law of $\mu^2$ over slots, rounded up). Random
    batches get it without credit for the sampling. On a bounded domain the shift may be reset to the diameter at any one time, and with
    exact batch sizes one step alone proves $\mu = (D + 2\lambda_T C)/\tau_T$ with no smoothness at all (and $\lambda_T C/b$ more under
    add_or_remove).
    """

    name: ClassVar[str] = "optimal-shift"
    statement: ClassVar[str] = "The cheapest way to hide one record's shift in the noise of later steps; last iterate only."
    formula: ClassVar[str] = r"\mu^2 = \min_a \sum_t a_t^2/\tau_t^2,\ z_t = L_t z_{t-1} + s_t - a_t \ge 0,\ z_0 = z_T = 0"
    needs: ClassVar[str] = "smooth losses (or a bounded domain and batches of exact size); any batch design"
    given_the_others: ClassVar[bool] = True
    counts_rounding: ClassVar[bool] = True
    clipping: ClassVar[Clipping] = "projections and envelopes"
    averages: ClassVar[bool] = True
    citations: ClassVar[tuple[Citation, ...]] = (
        cite("lethe", ", docs/theory.md: optimal shift (greatest convex minorant), positions, clipped-step constant"),
        cite("feldman-2018", ", Theorem 22"),
        cite("kong-ribero-2024"),
        cite("bok-2024", ", Lemma C.3"),
        cite("balle-wang-2018"),
    )

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        findings = [
            require.last_iterate(run),
            *require.solvable_length(run),
            require.gradient_bound(run),
            *_steps(run),
            _design(run),
            arithmetic(run),
        ]
        if run.batches.secret:
            findings.append(require.secrecy(run))
        return tuple(findings)

    def _bound(self, run: Run) -> Bound:
        steps = step_constants(run)
        one_step = _one_step(run)
        if steps is None:
            return Bound(guarantee=GDP(one_step))
        guarantee = _with_errors(_by_position(run, steps), errors_mu(run, steps))
        if steps.slack > 0:
            guarantee = WithSlack(guarantee, steps.slack)
        if isinstance(guarantee, GDP):
            guarantee = GDP(min(guarantee.mu, one_step))
        elif one_step < float("inf"):
            guarantee = Tightest((guarantee, GDP(one_step)))
        return Bound(guarantee=guarantee, lipschitz=steps.constant)


def _by_position(run: Run, steps: Steps) -> GDP | GDPMixture:
    """The bound by the design: worst position, mean over a secret one, or the law over fresh orders."""
    if run.pass_averages is not None:
        return _averaged(run, steps, run.pass_averages)
    arrays, slots = (steps.lipschitz, run.sensitivities, run.noise_stds), run.steps_per_pass
    match run.batches.participation:
        case Participation.EVERY_STEP | Participation.INDEPENDENT_DRAW | Participation.DRAW_IN_PUBLIC_GROUP:
            return GDP(positions.every_step(*arrays, diameter=steps.diameter))
        case Participation.PUBLIC_SLOT:
            return GDP(positions.worst_position(*arrays, slots, diameter=steps.diameter)[0])
        case Participation.SECRET_SLOT:
            return _mixture(*positions.shuffled_once(*arrays, slots, diameter=steps.diameter))
        case Participation.FRESH_SECRET_SLOT:
            return _mixture(*reshuffled(*arrays, slots, diameter=steps.diameter))
    raise unknown_participation(run.batches.design, run.batches.participation)


def _with_errors(guarantee: GDP | GDPMixture, extra: float) -> GDP | GDPMixture:
    r"""The guarantee of a run whose steps are off by what costs `extra` to hide: given the record's place, $\mu$ plus that."""
    if extra == 0.0:
        return guarantee
    if isinstance(guarantee, GDP):
        return GDP(round_up(guarantee.mu + extra))
    return GDPMixture(mus=tuple(round_up(mu + extra) for mu in guarantee.mus), weights=guarantee.weights)


def _averaged(run: Run, steps: Steps, shares: Array) -> GDP | GDPMixture:
    """Where passes end at an average: a Run refuses that for batches without slots, two or more a pass."""
    averaged = (steps.lipschitz, run.sensitivities, run.noise_stds, shares, steps.diameter)
    match run.batches.participation:
        case Participation.PUBLIC_SLOT:
            return GDP(float(averaged_mus(*averaged).max()))
        case Participation.SECRET_SLOT:
            return _mixture(averaged_mus(*averaged), np.full(run.steps_per_pass, 1.0 / run.steps_per_pass))
        case Participation.FRESH_SECRET_SLOT:
            return GDP(averaged_worst(*averaged))
        case Participation.EVERY_STEP | Participation.INDEPENDENT_DRAW | Participation.DRAW_IN_PUBLIC_GROUP:
            raise InputError(
                f"pass_weights: got {run.batches.design} batches; averaging needs slots.", source="pass_weights, batches.design"
            )
    raise unknown_participation(run.batches.design, run.batches.participation)


def _mixture(mus: Array, weights: Array) -> GDP | GDPMixture:
    r"""A mean over positions, each with its $\mu$."""
    if mus.min() == mus.max():
        return GDP(float(mus[0]))
    return GDPMixture(mus=tuple(mus.tolist()), weights=tuple(weights.tolist()))


def _one_step(run: Run) -> float:
    r"""$(D + 2\lambda_T C)/\tau_T$: whatever the two iterates were, one step brings them no further apart; inf when it does not apply.

    Where passes end at an average, the average of this over the steps of the last pass: each of them starts inside the domain.
    """
    noise = float(run.noise_stds[-1])
    if not run.batches.exact_size or np.isinf(run.diameter) or noise == 0 or run.bounds_differences_only:
        return float("inf")
    # Each of the b clipped gradients moves by at most 2C; under add_or_remove one side has one gradient more.
    moves = 2.0 + (1.0 / run.batch_size if run.neighbours == "add_or_remove" else 0.0)
    step_size = float(run.step_sizes[-1])
    if run.pass_averages is not None:
        step_size = float(run.pass_averages @ run.step_sizes[-run.steps_per_pass :])
    apart = run.diameter + moves * step_size * run.record_bound
    if run.rounding_errors is not None:
        apart += float(run.rounding_errors[-1 if run.pass_averages is None else -run.steps_per_pass :].sum())
    return float(above(apart / noise, (run.steps_per_pass + 4) * 2.0**-52))


def _steps(run: Run) -> list[Finding]:
    """The hypotheses on the step: curvature, step size and, if there is one, the domain."""
    domain = [] if np.isinf(run.diameter) else [require.bounded_domain(run)]
    if run.loss.curvature is None:
        if domain and run.batches.exact_size:
            return domain
        return [
            fails(
                "smoothness",
                f"it needs smooth losses, or a bounded domain with batches of exact size; loss.kind is {run.loss.kind}",
                source=f"loss.kind = {run.loss.kind}",
                remedy="state the loss's smoothness, or add a ball regulariser, or certify by composition.",
            )
        ]
    return [require.smooth(run), _step_size(run), *domain]


def _step_size(run: Run) -> Finding:
    """The finding on the step size: one above 2/M makes a step expand, which its constant counts."""
    curvature = descended_curvature(run)
    assert curvature is not None
    smoothness = curvature[1]
    batch_limit, _ = largest_batch(run)
    largest = float(run.step_sizes.max()) * batch_limit / run.batch_size
    limit = 2 / smoothness if smoothness > 0 else float("inf")
    size = f"{largest:.6g}"
    if batch_limit != run.batch_size:
        size += f" (as if, for batches of up to {batch_limit} records divided by {run.batch_size})"
    if largest <= limit:
        return holds("step size", f"{size} <= 2/smoothness = {limit:.6g}")
    return holds("step size", f"{size} > 2/smoothness = {limit:.6g}: such a step expands, and its constant says by how much")


def _design(run: Run) -> Finding:
    return holds("batches", _counted(run.batches))


def _counted(batches: Batches) -> str:
    """How the touches of a record are counted."""
    match batches.participation:
        case Participation.EVERY_STEP:
            return "full batches: every record at every step"
        case Participation.PUBLIC_SLOT:
            return "fixed batches, disjoint, every record once a pass, worst slot"
        case Participation.SECRET_SLOT if batches.exact_size:
            return "one secret order of disjoint batches, average over slots"
        case Participation.SECRET_SLOT:
            return "one secret bin for each record, average over bins"
        case Participation.FRESH_SECRET_SLOT if batches.exact_size:
            return "a fresh secret order each pass, law over slots"
        case Participation.FRESH_SECRET_SLOT:
            return "a fresh secret batch of each pass for each record, law over batches"
        case Participation.INDEPENDENT_DRAW | Participation.DRAW_IN_PUBLIC_GROUP:
            return "drawn afresh; as if touched at every step, no credit for the sampling"
    raise unknown_participation(batches.design, batches.participation)
