"""The number of steps whose excess risk has the least bound, at the privacy that its noise is planned for.

`plan` and `allocate` call it for a full-batch run and `steps="best"`: more steps descend further, and each needs more noise.
"""

from collections.abc import Callable

from lethe.calculus.crossing import least_whole
from lethe.errors import CalibrationError, InputError
from lethe.run.run import Run
from lethe.run.schedules import Influence
from lethe.run.schedules.shapes import Explicit
from lethe.utility import excess_risk_bound


def run_with_best_steps(run: Run, planned: Callable[[Run], Run], *, steps: object, dimension: int | None, initial_gap: float | None) -> Run:
    """`run` with the best number of steps from 1 to its own, its noise not planned yet.

    Args:
        run: one that `excess_risk_bound` applies to.
        planned: a run of some number of steps to the same run with its noise.
        steps: "best".
        dimension: of `excess_risk_bound`.
        initial_gap: of `excess_risk_bound`.
    Raises:
        InputError: steps is something else, or a number is missing or out of range, or step sizes or noise are listed step by step.
        HypothesisError: there is no bound of the excess risk of such runs; the error names the hypothesis that fails.
        CalibrationError: no number of steps has a bound below the initial gap.
    """
    if steps != "best" or dimension is None or initial_gap is None:
        raise InputError(
            f"steps: got {steps!r}, dimension: {dimension}, initial_gap: {initial_gap}; it needs 'best' and both numbers, or none.",
            remedy="write plan(run, ..., steps='best', dimension=650, initial_gap=2.303), with public numbers.",
        )
    listed = [name for name in ("step_size", "noise_multiplier") if isinstance(getattr(run, name), Explicit)]
    if listed:
        raise InputError(f"{listed[0]}: listed step by step; it needs what any number of steps can have.", remedy="give a number.")
    influence_of_risk(run, dimension=dimension, initial_gap=initial_gap)  # says at once what fails

    def bound(count: int) -> float:
        return excess_risk_bound(planned(run.replace(steps=count)), dimension=dimension, initial_gap=initial_gap).value

    best = least_whole(bound, run.total_steps)
    if not bound(best) < initial_gap:
        raise CalibrationError(
            f"no number of steps up to {run.total_steps} has a bound of the excess risk below {initial_gap:g}, the initial gap.",
            source=f"the least is {bound(best):g}, of {best} steps",
            remedy="ask for less privacy, or bring more records or fewer parameters.",
        )
    return run.replace(steps=best)


def influence_of_risk(run: Run, *, dimension: int, initial_gap: float) -> Influence:
    """What the noise of each step weighs in the bound of the excess risk; the run's own noise is not looked at."""
    return excess_risk_bound(run.replace(noise_multiplier=1.0), dimension=dimension, initial_gap=initial_gap).influence
