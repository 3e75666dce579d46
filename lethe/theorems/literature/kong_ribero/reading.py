"""How the papers' letters and hypotheses are read off a run, for all theorems of both versions."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.guarantees import ZCDP
from lethe.calculus.rounding import round_up
from lethe.calculus.upward_formatting import shown, shown_down
from lethe.certificates.findings import Finding, fails, holds
from lethe.certificates.parts import Citation, StepConstant
from lethe.run.run import Run
from lethe.theorems.base import SOUND, Standing
from lethe.theorems.literature.kong_ribero.constants import (
    FloatArray,
    PassNumbers,
    StepFormula,
    StepNumbers,
    first_lipschitz_constant,
    lipschitz_constant,
    step_limit,
)
from lethe.theorems.requirements import (
    constant_noise_and_step,
    design,
    gradient_bound,
    last_iterate,
    noise_at_the_end,
    relation,
    smooth,
    step_at_most,
)

# Every product and quotient of the closed forms and of the run's own arrays, with room to spare.
_ROUNDING = 1e-14
_SMALLEST = 5e-324

GAP = Standing(soundness="proof-gap", why="its proof takes a clipped step to be L_lambda-Lipschitz, which it is not")
SAME_ORDER = ("cyclic", "shuffled_once", "full")
EXACT_SIZE = (*SAME_ORDER, "shuffled", "without_replacement")

FIRST = Citation(
    key="kong-ribero-2024",
    text="Kong, Ribero 2024, Privacy of the last iterate in cyclically-sampled DP-SGD on nonconvex composite losses, "
    "arXiv:2407.05237, first version (July 2024)",
)
SECOND = Citation(
    key="kong-ribero-2025",
    text="Kong, Ribero 2025, Privacy of the last iterate in cyclically-traversed DP-SGD on nonconvex composite losses, "
    "arXiv:2407.05237, revised version",
)


def cited(paper: Citation, where: str) -> Citation:
    """The paper, at one of its theorems."""
    return Citation(key=paper.key, text=f"{paper.text}, {where}.")


def last_step_numbers(run: Run) -> StepNumbers:
    r"""The letters of a run's last step; C is halved under zero_out, where a touch is $\lambda C/b$ and not $2\lambda C/b$."""
    weak_convexity, smoothness = curvature(run)
    return {
        "step_size": float(run.step_sizes[-1]),
        "clip_norm": max(run.record_bound * (0.5 * run.touch_factor), _SMALLEST),
        "batch_size": run.batch_size,
        "noise_std": float(run.noise_stds[-1]),
        "weak_convexity": weak_convexity,
        "smoothness": smoothness,
    }


def pass_numbers(run: Run) -> PassNumbers:
    """The letters of a run with one step size and one noise level."""
    return {**last_step_numbers(run), "steps": run.total_steps, "steps_per_pass": run.steps_per_pass}


def curvature(run: Run) -> tuple[float, float]:
    """(m, M) as the papers have them, both at least 0; (0, 0) where nothing is known, which `smooth` refuses."""
    weak_convexity, smoothness = run.loss.curvature or (0.0, 0.0)
    return max(weak_convexity, 0.0), smoothness


def zcdp(rho: FloatArray) -> ZCDP:
    """The guarantee, rounded up; a rho that underflowed is not 0."""
    return ZCDP(round_up(max(float(rho), _SMALLEST), _ROUNDING))


def step_constant(run: Run, formula: StepFormula, name: str, factor: float = 1.0) -> StepConstant:
    """The step constant of a paper, as certificates show it.

    Args:
        run: gives the last step size and the curvature.
        formula: (step size, m, M) -> L.
        name: of the formula, for the certificate.
        factor: multiplies it, >= 1.
    """
    constant = factor * float(formula(float(run.step_sizes[-1]), *curvature(run)))
    return StepConstant(constant=round_up(constant, _ROUNDING), certificate=f"{run.loss.summary}, {name}")


def first_constant(run: Run) -> StepConstant:
    """That of the first version."""
    return step_constant(run, first_lipschitz_constant, "L_lambda of equation (12)")


def revised_constant(run: Run) -> StepConstant:
    """That of the revised version, without clipping."""
    return step_constant(run, lipschitz_constant, "L_lambda of equation (13)")


def unless_clipped(run: Run) -> Standing:
    r"""Sound where clipping never acts; else a step need not be $L_\lambda$-Lipschitz."""
    return GAP if run.clips else SOUND


def one_step(run: Run) -> tuple[Finding, ...]:
    """Hypotheses of the bounds that look at the last step only: they hold for any earlier step, schedule and order."""
    return (
        last_iterate(run),
        relation(run, ("replace_one", "zero_out")),
        design(run, EXACT_SIZE, "every batch holds exactly the nominal number of records"),
        gradient_bound(run),
        smooth(run),
        noise_at_the_end(run),
    )


def several_passes(run: Run) -> tuple[Finding, ...]:
    """Hypotheses of the bounds that follow the record through several passes."""
    return (
        last_iterate(run),
        relation(run, ("replace_one", "zero_out")),
        design(run, SAME_ORDER, "the same batches in the same order every pass; worst batch"),
        gradient_bound(run),
        smooth(run),
        constant_noise_and_step(run),
    )


def small_steps(run: Run, times: float = 1.0) -> Finding:
    r"""Every step size at most `times` $1/(2(m+M))$."""
    name = "1/(2(m + M))" if times == 1.0 else "1/(m + M)"
    return step_at_most(run, times * float(step_limit(*curvature(run))), name)


def small_last_step(run: Run) -> Finding:
    r"""The last step size at most $1/(2(m+M))$."""
    limit, last = float(step_limit(*curvature(run))), float(run.step_sizes[-1])
    if last <= limit:
        return holds("step size", f"last step {last:.6g} <= 1/(2(m + M)) = {limit:.6g}")
    return fails(
        "step size",
        f"it needs a last step size <= 1/(2(m + M)) = {shown_down(limit, 6)}; it is {shown(last, 6)}",
        source="step_size",
        remedy="take smaller steps, or use optimal-shift, which has no such limit.",
    )


def one_full_pass(run: Run) -> Finding:
    r"""$T \ge \ell$."""
    steps, needed = run.total_steps, run.steps_per_pass
    if steps >= needed:
        return holds("passes", f"{steps} steps, at least one pass of {needed}")
    return fails(
        "passes",
        f"it needs at least one whole pass of {needed} steps; there are {steps}",
        source=f"steps = {steps}",
        remedy="use optimal-shift, which takes any number of steps.",
    )


def passes(steps: ArrayLike, steps_per_pass: ArrayLike) -> FloatArray:
    r"""$E = \lfloor T/\ell\rfloor$."""
    return np.floor_divide(np.asarray(steps, dtype=np.float64), np.asarray(steps_per_pass, dtype=np.float64))
