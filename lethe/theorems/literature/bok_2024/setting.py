r"""Common assumptions of Bok, Su and Altschuler: noise in every gradient, nonexpansive steps, a bounded gradient difference.

Their L bounds the difference of two records' gradients and their $\sigma$ is the noise inside the gradient, so that with the
sensitivity $s = \lambda L/b$ and the noise $\tau = \lambda\sigma$ of a run, in parameter units, $L/(b\sigma) = s/\tau$.
"""

from __future__ import annotations

from lethe.calculus.guarantees import GDP
from lethe.calculus.rounding import round_up
from lethe.certificates.findings import Finding
from lethe.certificates.parts import Citation, StepConstant
from lethe.run.run import Run
from lethe.theorems.lipschitz import plain_step
from lethe.theorems.requirements import (
    constant_noise_and_step,
    convex,
    gradient_bound,
    last_iterate,
    step_at_most,
    two_over_smoothness,
    unclipped,
)

_PAPER = "Bok, Su, Altschuler 2024, Shifted interpolation for differential privacy, arXiv:2403.00278"


def citation(what: str) -> tuple[Citation, ...]:
    """The paper, and which of its results."""
    return (Citation(key="bok-2024", text=f"{_PAPER}, {what}."),)


def shared_hypotheses(run: Run, batches: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Only the last iterate seen, convex smooth losses, steps that do not expand, a constant schedule."""
    return (
        last_iterate(run),
        *batches,
        gradient_bound(run),
        convex(run),
        unclipped(run),
        step_at_most(run, two_over_smoothness(run), "2/smoothness"),
        constant_noise_and_step(run),
    )


def contraction(run: Run) -> float:
    r"""$c = \max(|1 - \lambda m|, |1 - \lambda M|)$ for losses of curvature in $[m, M]$, $m \ge 0$, rounded up.

    Args:
        run: a run whose loss is convex and smooth and whose steps have one size, at most 2/M.
    """
    assert run.loss.curvature is not None  # `convex` has seen to it
    return plain_step(float(run.step_sizes[0]), *run.loss.curvature)


def gdp(mu: float) -> GDP:
    """`mu` of a run whose steps do not expand, rounded outward."""
    return GDP(round_up(mu, 1e-14))


def step_constant(run: Run) -> StepConstant:
    """`contraction`, and why it holds."""
    return StepConstant(constant=contraction(run), certificate=f"{run.loss.summary}, no clipping active")


def touch(run: Run) -> float:
    r"""$s/\tau$, of a run with a constant schedule."""
    return 1.0 / float(run.relative_noise[0])
