"""plan: fill in the smallest noise that meets a privacy target.

`lethe.plan`, the command line, jobs, trainers and `allocate` call it with a Run whose noise is open, and a target.
"""

from typing import Literal

from lethe.accounting.best_steps import run_with_best_steps
from lethe.accounting.certify import Verdict, certificate_of, evaluate_theorems
from lethe.calculus.any_guarantee import drawn_afresh, noise_scaled
from lethe.calculus.composition import overshoot, require_target
from lethe.calculus.crossing import smallest
from lethe.calculus.domains import require_positive
from lethe.calculus.guarantees import ApproxDP, Guarantee
from lethe.calculus.large_delta import delta_for
from lethe.certificates.certificate import Certificate
from lethe.errors import CalibrationError, InputError
from lethe.errors.names import in_other_words
from lethe.run.known_fields import require_run
from lethe.run.run import Run
from lethe.theorems.truncation import require_room, truncation_slack

# Relative width to which the noise is found, and where each look takes a third of a second; the answer is its upper end.
_TOLERANCE, _TOLERANCE_IF_SLOW, _ROUGHLY = 1e-7, 5e-7, 1e-4
# Where iterates are hidden and their precision is not known yet: training counts their rounding, which costs float64 less than this.
_ROOM_FOR_ROUNDING = 1e-5


@in_other_words  # takes American spellings of arguments, and names what another library's argument is called here
def plan(
    run: Run,
    epsilon: float | None = None,
    delta: float | None = None,
    *,
    target: Guarantee | None = None,
    allow_large_delta: bool = False,
    steps: Literal["best"] | None = None,
    dimension: int | None = None,
    initial_gap: float | None = None,
) -> Run:
    """The same run with the smallest noise whose certificate meets (epsilon, delta), or a target of another kind.

    A number (or null) as noise_multiplier is replaced; a list or a schedule keeps its shape and is scaled. `allocate` finds the shape.

    Args:
        run: the run; its noise is only a shape.
        epsilon: the target, > 0.
        delta: in (0, 1), and below 1/records.
        target: instead of epsilon and delta: a GDP, ZCDP, RDPCurve or ApproxDP to be met.
        allow_large_delta: whether a delta >= 1/records is meant; it is then shown with the number.
        steps: "best": of 1 to the run's own number of steps the one whose `excess_risk_bound` is least at this target, where it applies.
        dimension: of that bound, with steps="best": the number of parameters.
        initial_gap: of that bound, with steps="best", loss units: how far the start is above the minimum at most; public.
    Returns:
        The run with its noise filled in. That some theorem's guarantee meets the target has been evaluated of this run, not assumed.
    Raises:
        InputError: a target out of range, or two or none, a noise schedule that is zero everywhere, or a seeded run.
        CalibrationError: no amount of noise of this shape meets the target, or no number of steps has a bound below the initial gap.
        HypothesisError: steps="best", and there is no bound of the excess risk of such runs; the error says why.

    Examples:
        >>> run = lethe.Run(
        ...     records=1000, batches=lethe.batches.Cyclic(100), passes=5, step_size=0.1, clip_norm=1.0, noise_multiplier=None,
        ...     release="all")
        >>> round(lethe.plan(run, epsilon=1.0, delta=1e-5).noise_multiplier, 2)
        8.34
    """
    goal = as_target(run, epsilon, delta, target, allow_large_delta=allow_large_delta)
    if any(one is not None for one in (steps, dimension, initial_gap)):
        run = run_with_best_steps(run, lambda one: planned(one, goal)[0], steps=steps, dimension=dimension, initial_gap=initial_gap)
    return planned(run, goal)[0]


def plan_with_certificate(run: Run, epsilon: float, delta: float, *, allow_large_delta: bool = False) -> tuple[Run, Certificate]:
    """As `plan`, with the certificate of the planned run."""
    target = as_target(run, epsilon, delta, None, allow_large_delta=allow_large_delta)
    planned_run, verdicts = planned(run, target)
    return planned_run, certificate_of(planned_run, float(delta), verdicts)


def as_target(
    run: Run, epsilon: float | None, delta: float | None, target: Guarantee | None, *, allow_large_delta: bool = False
) -> Guarantee:
    """The one target that was given for `run`; InputError where none or two were, or a delta that is too large for so many records."""
    records = require_run(run, correlated=True).records
    if target is not None and epsilon is None and delta is None:
        guarantee = require_target(target)
        if isinstance(guarantee, ApproxDP) and guarantee.delta_bound > 0.0:
            delta_for(records, guarantee.delta_bound, allow_large_delta=allow_large_delta)
        return guarantee
    if target is None and epsilon is not None and delta is not None:
        return ApproxDP(require_positive("epsilon", epsilon), delta_for(records, delta, allow_large_delta=allow_large_delta))
    raise InputError(
        f"epsilon: got {epsilon}, delta: {delta}, target: {target}; it needs epsilon and delta, or a target alone.",
        remedy="write plan(run, epsilon=1.0, delta=1e-5), or plan(run, target=lethe.guarantees.GDP(1.0)).",
    )


def planned(run: Run, target: Guarantee) -> tuple[Run, tuple[Verdict, ...]]:
    """The run with the smallest noise that meets `target`, and what the theorems say of it; errors as of `plan`."""
    refuse_seeded(run)
    if run.noise_budget is not None:
        raise InputError(
            f"noise_budget: got {run.noise_budget:g}; noise that is chosen along the way cannot be planned, only its budget.",
            source="noise_budget",
            remedy="take the rho with lethe.guarantees.ZCDP(rho).epsilon(delta) <= epsilon for noise_budget, or drop noise_budget.",
        )
    shape = _shape(run)
    # Every guarantee scales with the noise in closed form, so each theorem judges the run once, whatever the number of trials.
    factor: float | None = None
    for verdict in evaluate_theorems(shape):
        if verdict.usable and verdict.bound is not None:
            factor = _smaller_factor(verdict.bound.guarantee, target, factor)
    if factor is None:
        if isinstance(target, ApproxDP):
            require_room(run, target.delta_bound)
        elif (slack := truncation_slack(run)) > 0.0:  # a target below what a cap on batches costs, whatever the noise
            raise InputError(
                f"target: got {target.describe()}; batches cut at {run.batches.cap} records cost {slack:.4g} in delta, "
                "which no such target has.",
                source=f"batches.truncate_at = {run.batches.cap}",
                remedy="give epsilon and delta, or drop truncate_at.",
            )
        raise CalibrationError(
            f"no noise of this shape makes run {run.run_id} meet {target.describe()}: some touch is followed by no noise at all, "
            "or the target is out of reach.",
            source=f"noise_multiplier and noise_at = {run.noise_at}",
            remedy="put noise after the last touch of every record, or at every step.",
        )
    if run.release == "last" and run.precision is None and run.noise is None:
        factor *= 1 + _ROOM_FOR_ROUNDING
    growth = _TOLERANCE
    while True:
        verdicts = evaluate_theorems(scaled := shape.with_noise_scaled(factor))
        if any(verdict.usable and verdict.bound and overshoot(verdict.bound.guarantee, target) <= 1.0 for verdict in verdicts):
            return scaled, verdicts
        factor *= 1 + growth  # the scaled run's own rounding, or another choice of windows, can cost the last digits
        growth *= 2


def refuse_seeded(run: Run) -> Run:
    """`run` itself; InputError if it is no Run, or a seeded one, which no amount of noise makes private."""
    if require_run(run, correlated=True).seeded:
        raise InputError(
            "seeded: true; whoever has the seed knows the noise, so that no amount of it meets a target.",
            source="seeded",
            remedy="set seeded to false (run.replace(seeded=False)), and train without seed or generator.",
        )
    return run


def _smaller_factor(guarantee: Guarantee, target: Guarantee, known_factor: float | None) -> float | None:
    """The smallest factor with which this guarantee meets the target, if it is smaller than the one known; else the one known."""
    # One look spares the search where another theorem needs less noise already.
    if known_factor is not None and not _meets(noise_scaled(guarantee, known_factor * (1 - _TOLERANCE)), target):
        return known_factor

    def smallest_factor(shape: Guarantee, start: float, tolerance: float) -> float:
        return smallest(lambda factor: overshoot(noise_scaled(shape, factor), target), 1.0, start=start, tolerance=tolerance)

    start, quicker = known_factor or 1.0, drawn_afresh(guarantee)
    try:
        if quicker == guarantee:
            return smallest_factor(guarantee, start, _TOLERANCE)
        return smallest_factor(guarantee, smallest_factor(quicker, start, _ROUGHLY), _TOLERANCE_IF_SLOW)
    except CalibrationError:
        return known_factor


def _meets(guarantee: Guarantee, target: Guarantee) -> bool:
    """Whether it is seen to imply the target: of epsilon and delta by one delta, which is much quicker than the epsilon of some."""
    if isinstance(target, ApproxDP):
        return guarantee.delta(target.epsilon_bound) <= target.delta_bound
    return overshoot(guarantee, target) <= 1.0


def _shape(run: Run) -> Run:
    """The run with its noise brought to a largest multiplier of 1, whatever its scale was."""
    if run.noise_multiplier is None or isinstance(run.noise_multiplier, float):
        return run.replace(noise_multiplier=1.0)
    largest = float(run.noise_multipliers.max())
    if largest == 0:
        raise InputError(
            "noise_multiplier: a schedule of zeros has no shape to scale.", remedy="give positive values, or null for a constant."
        )
    return run.with_noise_scaled(1.0 / largest)
