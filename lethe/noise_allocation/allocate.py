"""allocate: spread the noise of a run over its steps where it does least harm, at the same certified privacy.

`lethe.allocate` and `lethe plan --schedule` call it with a Run whose noise is open, and a target; `noise_shapes` makes the shapes,
`accounting.plan` scales each.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from lethe.accounting.best_steps import influence_of_risk, run_with_best_steps
from lethe.accounting.certify import Verdict, certificate_of, evaluate_theorems
from lethe.accounting.plan import as_target, planned, refuse_seeded
from lethe.calculus.composition import overshoot
from lethe.calculus.conversions import gdp_mu
from lethe.calculus.crossing import smallest
from lethe.calculus.guarantees import GDP, ZCDP, ApproxDP, Guarantee, RDPCurve
from lethe.calculus.large_delta import delta_for, usual_delta
from lethe.calculus.upward_formatting import shown
from lethe.errors import CalibrationError, InputError, require_finite
from lethe.errors.names import in_other_words
from lethe.noise_allocation.candidates import Allocation, Candidate, other_designs
from lethe.noise_allocation.noise_shapes import SHAPES, Shape, harm_of, influence_of_curvature, shaped, with_fewer_bands
from lethe.run.known_fields import require_run
from lethe.run.run import Run
from lethe.run.schedules import Influence

Schedule = Literal["auto", "uniform", "pass_ends", "exponential", "influence", "joint", "correlated"]
SCHEDULES: tuple[Schedule, ...] = ("auto", *SHAPES)

# Harms this near count as equal, and the simpler shape is taken.
_TIE = 1e-3


@in_other_words
def allocate(
    run: Run,
    epsilon: float | None = None,
    delta: float | None = None,
    *,
    target: Guarantee | None = None,
    schedule: Schedule = "auto",
    influence: Influence | float | Sequence[float] | None = None,
    floor: float = 0.0,
    allow_large_delta: bool = False,
    progress: Callable[[int, int], None] | None = None,
    steps: Literal["best"] | None = None,
    dimension: int | None = None,
    initial_gap: float | None = None,
) -> Allocation:
    r"""Choose the shape of a run's noise, and the smallest scale at which its certificate meets the target.

    Every shape is certified by the same theorems, so at equal privacy the one with the smaller harm $\sum_t q_t\tau_t^2$ is better, as
    far as the influence $q_t$ is right. Harm of correlated noise: `harm_of`.

    Args:
        run: its own noise is not looked at; `noise_at` says where noise may be.
        epsilon: the target, > 0, with `delta`.
        delta: in (0, 1), and below 1/records; beside a `target` it only says where epsilons are shown; the default is the smaller of
            1e-5 and 1/(10 records).
        target: instead of epsilon: a GDP, ZCDP, RDPCurve or ApproxDP to be met.
        schedule: a shape, or "auto": the best of all that the run's release and batches allow; it also says what another batch design
            would have given.
        influence: $q_t$: an Influence, or by hand a rate r for $r^{T-t}$ or a list of one number a step; None: what curvature proves,
            which without strong convexity is that all steps count alike.
        floor: a least noise multiplier at every step that may have noise, as a protection of what may leak besides.
        allow_large_delta: whether a delta >= 1/records is meant; it is then shown with the number.
        progress: told (shapes tried, shapes in all).
        steps, dimension, initial_gap: as of `plan`, for one schedule, not "auto"; influence None is then that of the risk's bound.
    Returns:
        The Allocation; its run's certificate was evaluated against the target.
    Raises:
        InputError: an argument out of range, or a shape that this run cannot have.
        CalibrationError: no amount of noise meets the target, or no number of steps has a bound below the initial gap.
        HypothesisError: steps="best", and there is no bound of the excess risk of such runs; the error says why.

    Examples:
        >>> run = lethe.Run(
        ...     records=1000, batches=lethe.batches.Cyclic(100), passes=5, step_size=0.1, clip_norm=1.0, noise_multiplier=None,
        ...     release="all")
        >>> lethe.allocate(run, epsilon=1.0, delta=1e-5, schedule='influence', influence=0.9).chosen.shape
        'influence'
    """
    records = require_run(refuse_seeded(run)).records
    if schedule not in SCHEDULES:
        raise InputError(f"schedule: got {schedule!r}; it needs one of {', '.join(SCHEDULES)}.")
    goal = as_target(run, epsilon, delta if target is None else None, target, allow_large_delta=allow_large_delta)
    if isinstance(goal, ApproxDP) and target is None:
        shown_delta = goal.delta_bound
    else:
        shown_delta = usual_delta(records) if delta is None else delta_for(records, delta, allow_large_delta=allow_large_delta)
    noise_floor = require_finite("floor", floor, low=0.0)
    if any(argument is not None for argument in (steps, dimension, initial_gap)):
        if schedule == "auto":
            raise InputError("steps: 'best' needs one schedule; got auto.", remedy="write schedule='influence'.")

        def weighed(timed: Run) -> Influence:
            if influence is not None:
                return _as_influence(timed, influence)
            assert dimension is not None
            assert initial_gap is not None
            return influence_of_risk(timed, dimension=dimension, initial_gap=initial_gap)

        def scaled(timed: Run) -> Run:
            start = shaped(timed, schedule, weighed(timed), mu=_gaussian(goal), floor=noise_floor)
            return (planned(start, goal) if noise_floor == 0 else _planned_above(start, goal, noise_floor))[0]

        bare = run.replace(noise_multiplier=None)
        run = run_with_best_steps(bare, scaled, steps=steps, dimension=dimension, initial_gap=initial_gap)
        influence = weighed(run)
    weights = _as_influence(run, influence)
    if run.noise_budget is not None:
        planned(run, goal)  # says why it cannot be planned
    auto = schedule == "auto"
    requests: list[tuple[str, Run, Shape, str]] = [(shape, run, shape, "") for shape in (SHAPES if auto else (schedule,))]
    requests += other_designs(run) if auto and noise_floor == 0.0 else []
    candidates: list[Candidate] = []
    if progress is not None:
        progress(0, len(requests))
    for name, of, shape, needs in requests:
        candidate = _candidate(of, shape, weights, goal, shown_delta, noise_floor, forgiving=auto)
        candidates.append(replace(candidate, shape=name, needs=needs))
        if progress is not None:
            progress(len(candidates), len(requests))
    harms = [candidate.harm for candidate in candidates if not candidate.needs]
    if min(harms) == math.inf:
        raise CalibrationError(f"no schedule meets {goal.describe()}: {candidates[0].why}.", remedy="allow noise at every step.")
    chosen = next(candidate for candidate in candidates if not candidate.needs and candidate.harm <= min(harms) * (1 + _TIE))
    notes = (*_notes(candidates, weights), *_other_batches(candidates, chosen), *_cautions(chosen, goal, noise_floor))
    return Allocation(chosen=chosen, candidates=tuple(candidates), influence=weights, notes=notes)


def _as_influence(run: Run, influence: object) -> Influence:
    if influence is None:
        return influence_of_curvature(run)
    if isinstance(influence, Influence):
        return influence
    if isinstance(influence, int | float | np.integer | np.floating) and not isinstance(influence, bool):
        return Influence(rate=float(influence), basis="assumed", detail="given by hand")
    if isinstance(influence, Sequence | np.ndarray) and not isinstance(influence, str):
        return Influence(weights=tuple(influence), basis="assumed", detail="given by hand")
    raise InputError(
        f"influence: got {type(influence).__name__}; it needs a rate, one number a step, or a lethe.schedules.Influence.",
        remedy="write influence=0.99.",
    )


def _candidate(run: Run, shape: Shape, influence: Influence, goal: Guarantee, delta: float, floor: float, *, forgiving: bool) -> Candidate:
    try:
        starts = [shaped(run, shape, influence, mu=_gaussian(goal), floor=floor)]
        starts += with_fewer_bands(run, influence) if shape == "correlated" else []
        tried = [planned(start, goal) if floor == 0 else _planned_above(start, goal, floor) for start in starts]
        best, verdicts = min(tried, key=lambda trial: harm_of(trial[0], influence))
    except (InputError, CalibrationError) as error:
        if not forgiving:
            raise
        return Candidate(
            shape=shape, run=None, certificate=None, harm=math.inf, why=error.what.rstrip(".").removeprefix(f"schedule: got {shape}; ")
        )
    return Candidate(shape=shape, run=best, certificate=certificate_of(best, delta, verdicts), harm=harm_of(best, influence))


def _planned_above(start: Run, goal: Guarantee, floor: float) -> tuple[Run, tuple[Verdict, ...]]:
    """The smallest scale of a shape, with every step raised to the floor, that meets the goal."""
    shape = start.uncorrelated.noise_multipliers[start.noisy_steps]

    def raised(scale: float) -> Run:
        if start.noise is not None:  # which adds to a step's own draw, as C has ones on its diagonal
            return start.replace(noise_multiplier=max(scale, floor))
        return start.replace(noise_multiplier=np.maximum(scale * shape, floor).tolist())

    def misses(scale: float) -> float:
        return min(
            overshoot(verdict.bound.guarantee, goal) for verdict in evaluate_theorems(raised(scale)) if verdict.usable and verdict.bound
        )

    planned = raised(smallest(misses, 1.0, start=1.0, tolerance=1e-5))
    return planned, evaluate_theorems(planned)


def _gaussian(goal: Guarantee) -> float:
    r"""The largest $\mu$ for which $\mu$-GDP meets the goal."""
    if isinstance(goal, ApproxDP):
        return gdp_mu(goal.epsilon_bound, goal.delta_bound)
    if isinstance(goal, GDP):
        return goal.mu
    if isinstance(goal, ZCDP):
        return math.sqrt(2.0 * goal.rho)
    assert isinstance(goal, RDPCurve)
    return math.sqrt(min(2.0 * value / order for order, value in zip(goal.orders, goal.values, strict=True)))


def _cautions(chosen: Candidate, goal: Guarantee, floor: float) -> list[str]:
    """What the chosen noise does not protect, and what the floor alone decides."""
    run, certificate = chosen.run, chosen.certificate
    assert run is not None
    assert certificate is not None
    multipliers = run.uncorrelated.noise_multipliers
    silent = int(np.count_nonzero(multipliers == 0))
    cautions: list[str] = []
    if run.noise is not None and run.release == "last":
        cautions.append("Correlated noise protects every iterate: release: all costs no more.")
    if silent:
        cautions.append(
            f"{silent} of {run.total_steps} steps have no noise: an intermediate iterate that leaks has no guarantee; a floor keeps some."
        )
    if floor > 0 and isinstance(goal, ApproxDP) and multipliers[run.noisy_steps].max() <= floor:
        cautions.append(f"The floor alone gives epsilon = {shown(certificate.epsilon)}: less noise than that was never tried.")
    return cautions


def _other_batches(candidates: Sequence[Candidate], chosen: Candidate) -> list[str]:
    """A note that the best was not taken because the run's batches are others."""
    best = min((candidate for candidate in candidates if candidate.needs), key=lambda one: one.harm, default=chosen)
    if not best.harm < chosen.harm * (1 - _TIE):
        return []
    return [
        f"With {best.needs} the noise would be {best.noise / chosen.noise:.3g} times that of {chosen.shape}; the run has other batches."
    ]


def _notes(candidates: Sequence[Candidate], influence: Influence) -> tuple[str, ...]:
    harms = {candidate.shape: candidate.harm for candidate in candidates}
    notes: list[str] = []
    if influence.basis == "curvature" and influence.rate == 1.0:
        notes.append("No influence was given and no contraction is known, so noise counts alike at every step; measure it on public data.")
    joint, composed = harms.get("joint", math.inf), harms.get("influence", math.inf)
    if joint < math.inf and composed < math.inf:
        gain = composed / joint
        notes.append(
            "The schedule that is optimal under composition is already optimal for the last iterate."
            if gain <= 1 + _TIE
            else f"For the last iterate the joint schedule does 1/{gain:.3g} of the harm of the one that is optimal under composition."
        )
    return tuple(notes)
