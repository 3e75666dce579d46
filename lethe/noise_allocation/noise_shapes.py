r"""How noise may be spread over the steps of a run: shapes, whose scale `plan` finds afterwards.

`allocate` asks `shaped` for each candidate. $\tau_t$ is the noise of step t in parameter units, $q_t$ the harm that a unit of its variance
does.

All minimise $\sum_t q_t\tau_t^2$, the harm of the noise, under some account of its privacy: equal noise under none; the exponential and
the influence schedule under composition, where each step pays for itself; the joint one for the last iterate. Equal noise at pass ends
alone needs that nothing else is released; correlated noise, a fixed order.
"""

from typing import Literal

import numpy as np

from lethe.calculus.correlated.sensitivity import output_square, sensitivity
from lethe.errors import InputError
from lethe.noise_allocation.correlate import correlate
from lethe.noise_allocation.joint.cyclic import joint_cyclic, joint_problem
from lethe.noise_allocation.joint.position import joint_passes, joint_schedule
from lethe.run.known_fields import require_run
from lethe.run.participation import BatchSizes, Participation
from lethe.run.run import Run
from lethe.run.schedules import Influence
from lethe.run.schedules.allocation import optimal_schedule
from lethe.run.schedules.shapes import Array
from lethe.theorems.shuffled.positions import as_passes, worst_position
from lethe.theorems.steps import Steps, step_constants

Shape = Literal["uniform", "pass_ends", "exponential", "influence", "joint", "correlated"]
SHAPES: tuple[Shape, ...] = ("uniform", "pass_ends", "exponential", "influence", "joint", "correlated")

# Where curvature forgets noise faster than this, more of it gains nothing: no noise is more than a million times another.
_LEAST_INFLUENCE = 1e-24
# Noise below these shares of the largest is dropped, most first, if the harm at equal privacy grows by no more than the last number.
_RESIDUES, _RESIDUE_COST = (1e-2, 1e-3, 1e-4, 1e-6), 1e-6
# A Toeplitz strategy has the same numbers at every step; those that are best for so many steps are taken for longer runs too.
_LONGEST = 50_000
# Passes of more steps are more than a banded strategy of usual width reaches back.
_LONG_PASS = 64
_HALVED = 6


def harm_of(run: Run, influence: Influence) -> float:
    r"""$\sum_t q_t\tau_t^2$; of correlated noise $\|C^{-\top}a\|^2$ with $a_t = \sqrt{q_t}\,\tau_t$, $\tau_t$ that of the draws.

    With flat $q$ it is the variance that the noise gives to each coordinate of the sum of all steps, for both kinds of noise. Else an
    influence says how much the noise of each step matters by itself. That of two steps together is taken to be $\sqrt{q_sq_t}$, which is
    exact where all directions forget noise at one rate, and is the largest that it can be.

    Returns:
        In squared parameter units, since the largest $q_t$ is 1; infinity where it overflows.
    """
    weights, stds = influence.values(run.total_steps), run.uncorrelated.noise_stds
    if run.noise is None:
        return float(np.sum(weights * np.square(stds)))
    return output_square(run.noise.strategy(run.total_steps), np.sqrt(weights) * stds)


def shaped(run: Run, shape: Shape, influence: Influence, *, mu: float = 1.0, floor: float = 0.0) -> Run:
    r"""The run with noise of a shape, whose scale `plan` has still to find.

    Args:
        run: its own noise is not looked at.
        shape: "uniform": one multiplier. "influence": $\tau_t^2 \propto s_t/\sqrt{q_t}$ within each batch slot, the optimum under
            composition. "exponential": the same for the nearest $q_t = r^{T-t}$. "joint": the optimum for the last iterate, with
            noise_at = pass_ends where there is no other noise. "pass_ends": one multiplier at the ends of passes, and no other noise.
            "correlated": later steps take back part of it, by a Toeplitz strategy.
        influence: $q_t$ of the run's steps.
        mu: with a floor the joint optimum depends on the scale; it is found for $\mu$-GDP.
        floor: a least noise multiplier at every step that may have noise; the other shapes do not look at it.
    Raises:
        InputError: there is no joint schedule for this run (the message says why), or an influence of another length.
    """
    require_run(run)
    if shape == "uniform":
        return run.replace(noise_multiplier=1.0)
    if shape == "pass_ends":
        return _only_at_pass_ends(run, floor)
    if shape == "correlated":
        return correlated(run, influence)
    weights = influence.values(run.total_steps)
    if shape == "exponential":
        weights = _exponential_weights(weights)
    stds = _joint(run, weights, mu, floor) if shape == "joint" else _composed(run, weights)
    units = run.step_sizes * (run.clip_bound / run.batch_size)
    spread = run.replace(noise_multiplier=(stds / units[run.noisy_steps]).tolist())
    return _at_pass_ends(spread) if shape == "joint" else spread


def influence_of_curvature(run: Run) -> Influence:
    r"""$q_t = \prod_{k>t}L_k^2$ with the contraction of each step that curvature and regulariser prove, 1 where they prove none.

    For a quadratic it bounds how fast its slowest direction forgets noise. Without strong convexity all steps count alike.
    """
    steps = step_constants(run)
    factors = np.ones(run.total_steps) if steps is None else np.minimum(steps.lipschitz, 1.0)
    if factors[1:].min(initial=1.0) >= 1.0:
        return Influence(rate=1.0, basis="curvature", detail="no contraction is known: noise at every step counts alike")
    with np.errstate(divide="ignore"):
        logs = np.cumsum(np.append(0.0, 2.0 * np.log(factors[:0:-1])))[::-1]
    weights = np.exp(np.maximum(logs, np.log(_LEAST_INFLUENCE)))
    return Influence(weights=tuple(weights.tolist()), basis="curvature", detail="what each later step contracts by")


def _exponential_weights(weights: Array) -> Array:
    r"""The nearest $r^{T-t}$: a least-squares line through $\log q_t$."""
    if weights.size == 1:
        return weights
    steps_left = np.arange(weights.size - 1, -1, -1, dtype=np.float64)
    slope = float(np.polyfit(steps_left, np.log(weights), 1)[0])
    return np.exp(slope * steps_left - max(slope * steps_left[0], 0.0))


def _composed(run: Run, weights: Array) -> Array:
    """Lemma 4.4 in each slot of a pass, where the touches of one record stand; noise at pass ends pays for the pass before it."""
    noisy = run.noisy_steps
    if run.noise_at == "pass_ends":
        # The largest touch of each pass, as it stands at the pass's end if no step expands.
        touches = np.maximum.reduceat(run.sensitivities, np.append(0, noisy[:-1] + 1))
        return np.sqrt(optimal_schedule(weights[noisy], 1.0, touches).variances)
    slots = run.steps_per_pass if run.batches.repeats else 1
    variances = np.empty(run.total_steps)
    for slot in range(min(slots, run.total_steps)):
        slot_steps = slice(slot, None, slots)
        variances[slot_steps] = optimal_schedule(weights[slot_steps], 1.0, run.sensitivities[slot_steps]).variances
    return np.sqrt(variances)


def _only_at_pass_ends(run: Run, floor: float) -> Run:
    """The run with equal noise at pass ends alone; InputError where that does not fit it."""
    why = (
        f"release is {run.release}, and iterates between the pass ends would be shown without noise"
        if run.release != "last"
        else f"{run.batches.design} batches are drawn afresh, and have no passes"
        if not run.batches.fixed
        else "a pass is one step, so that this is uniform noise"
        if run.steps_per_pass == 1
        else "the run has its noise there already: that is uniform noise"
        if run.noise_at == "pass_ends"
        else f"the floor of {floor:g} asks for noise at every step"
        if floor > 0
        else ""
    )
    if why:
        raise InputError(f"schedule: got pass_ends; {why}.", source="schedule, release, batches", remedy="take schedule uniform or auto.")
    return run.replace(noise_at="pass_ends", noise_multiplier=1.0)


def _at_pass_ends(run: Run) -> Run:
    """The same noise, said more simply, where there is none but at pass ends."""
    ends = run.replace(noise_at="pass_ends", noise_multiplier=1.0).noisy_steps
    if run.steps_per_pass == 1 or np.delete(run.noise_multipliers, ends).any():
        return run
    return run.replace(noise_at="pass_ends", noise_multiplier=run.noise_multipliers[ends].tolist())


def _joint(run: Run, weights: Array, mu: float, floor: float) -> Array:
    """The schedule of least harm for the last iterate."""
    steps = _joint_steps(run)
    units = run.step_sizes * (run.clip_bound / run.batch_size)
    floors = np.square(floor * units)
    if run.pass_averages is not None:
        silent = np.zeros(run.total_steps)
        passes, touches, bound = as_passes(steps.lipschitz, run.sensitivities, silent, run.pass_averages, steps.diameter)
        return _one_slot(weights[run.noisy_steps], passes.lipschitz, touches.max(axis=0), bound, mu, floors[run.noisy_steps])
    if run.steps_per_pass == 1:
        return _one_slot(weights, steps.lipschitz, run.sensitivities, steps.diameter, mu, floors)
    mask = np.zeros(run.total_steps, dtype=np.bool_)
    mask[run.noisy_steps] = True
    by_passes = joint_passes(weights, steps.lipschitz, run.sensitivities, run.steps_per_pass, mu * mu)
    if by_passes is not None and steps.diameter is None and floor == 0 and mask[by_passes > 0].all():
        return np.sqrt(by_passes[run.noisy_steps])
    arrays = (steps.lipschitz, run.sensitivities)
    problem = joint_problem(
        weights, *arrays, run.steps_per_pass, mu=mu, noisy=mask, floor=np.where(mask, floors, 0.0), diameter=steps.diameter
    )
    solution = joint_cyclic(problem)
    stds = solution.noise_stds if floor > 0 else _without_residue(weights, arrays, solution.noise_stds, run.steps_per_pass, steps.diameter)
    return stds[run.noisy_steps]


def _without_residue(weights: Array, arrays: tuple[Array, Array], stds: Array, slots: int, diameter: Array | None) -> Array:
    """The same noise without what a solver leaves where none is meant, if that costs nothing."""

    def cost(noise: Array) -> float:
        return float(weights @ np.square(noise)) * worst_position(*arrays, noise, slots, diameter)[0] ** 2

    limit = cost(stds) * (1 + _RESIDUE_COST)
    for share in _RESIDUES:
        trimmed = np.where(stds < share * stds.max(), 0.0, stds)
        if cost(trimmed) <= limit:
            return trimmed
    return stds


def _one_slot(weights: Array, lipschitz: Array, touches: Array, diameter: Array | None, mu: float, floors: Array) -> Array:
    """One record touched at every step: closed form, unless there is a floor."""
    if floors.any():
        return joint_cyclic(joint_problem(weights, lipschitz, touches, 1, mu=mu, floor=floors, diameter=diameter)).noise_stds
    bound = np.inf if diameter is None else diameter
    return np.sqrt(joint_schedule(weights, touches, lipschitz, mu * mu, diameter=bound).variances)


def _joint_steps(run: Run) -> Steps:
    """The Lipschitz constants of the run's steps, or the error that says why there are none."""
    steps = step_constants(run)
    why = (
        f"release is {run.release}; every iterate pays for itself"
        if run.release != "last"
        else f"{run.batches.design} batches are drawn afresh"
        if not run.batches.fixed
        else f"nothing is known of the curvature of the {run.loss.summary}"
    )
    if steps is None or run.release != "last" or not run.batches.fixed:
        raise InputError(
            f"schedule: got joint; {why}: there is no joint optimum to compute.",
            source="release, batches, loss",
            remedy="take schedule influence, or a run with fixed batches, a smooth loss and release: last.",
        )
    return steps


def correlated(run: Run, influence: Influence) -> Run:
    r"""The run with Toeplitz noise, banded or, where a pass is long, buffered; of noise multiplier 1.

    Each is the best for the mean of all iterates, by `correlate`; of the two the one is taken whose last iterate has less harm at equal
    privacy, $\mathrm{harm}\cdot\mathrm{sens}^2$.

    The strategy is that of equal steps, and the run's own noise is not looked at.
    """
    plain = run.replace(noise_multiplier=1.0)
    steps, slots = plain.total_steps, plain.batches.period(plain.records) or 1
    if steps > _LONGEST:
        last = np.maximum(influence.values(steps)[-_LONGEST:], np.finfo(np.float64).tiny)
        searched, fading = plain.replace(step_size=1.0, steps=_LONGEST), Influence(weights=tuple(last.tolist()), basis=influence.basis)
    else:
        searched, fading = plain.replace(step_size=1.0), influence
    noises = [correlate(searched, influence=fading).noise]
    if slots > _LONG_PASS and plain.batches.participation is not Participation.DRAW_IN_PUBLIC_GROUP:  # else few bands alone are amplified
        noises.append(correlate(searched, "buffered_toeplitz", influence=fading).noise)
    correlated_runs = [plain.replace(noise=noise) for noise in noises]
    sensitivities = [sensitivity(noise.strategy(steps), slots) for noise in noises if noise is not None]
    return min(zip(correlated_runs, sensitivities, strict=True), key=lambda pair: harm_of(pair[0], influence) * pair[1] ** 2)[0]


def with_fewer_bands(run: Run, influence: Influence) -> list[Run]:
    """The run with banded noise of a half, a quarter and so on of the bins of a pass, where a secret bin then hides more; else none."""
    batches = run.batches
    if batches.participation is not Participation.SECRET_SLOT or batches.sizes is not BatchSizes.BINOMIAL or run.total_steps > _LONGEST:
        return []
    plain = run.replace(noise_multiplier=1.0)
    most_bands = min(_LONG_PASS, plain.total_steps)
    tried = [bands for halved in range(1, _HALVED + 1) if 2 <= (bands := plain.steps_per_pass >> halved) <= most_bands]
    noises = [correlate(plain.replace(step_size=1.0), bands=bands, influence=influence).noise for bands in tried]
    return [plain.replace(noise=noise) for noise in noises]
