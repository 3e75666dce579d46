r"""The excess risk of a run: a proved bound of how far its last iterate stays above the minimum, or the reason why there is none."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from lethe.calculus.domains import require_count, require_positive
from lethe.calculus.rounding import round_up
from lethe.calculus.upward_formatting import shown
from lethe.certificates.findings import Finding, first_failure, holds
from lethe.errors import HypothesisError
from lethe.run.known_fields import require_run
from lethe.run.run import Run
from lethe.utility.requirements import (
    Curvature,
    full_batches,
    noise_chosen_in_advance,
    only_ridge,
    pl_constant_known,
    smoothness_known,
    step_does_not_overshoot,
    unclipped,
)

_EPS = 2.0**-52
_FORMULA = r"E F(x_T) - F^* \le f_1\prod_t c_t + \frac{MD}{2}\sum_t \tau_t^2\prod_{s>t}c_s,\quad c_t = 1 - \mu\lambda_t(2 - M\lambda_t)"


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskBound:
    r"""A bound of $E F(x_T) - \min F$, F the mean loss plus the ridge, over the noise, for the data and the start there were.

    Args:
        run: the run.
        value: the bound, loss units, rounded up; inf says nothing.
        initial_gap: $f_1$; a value above it says that the bound promises less than not training.
        unlearned: the part of `value` that is left of the initial gap.
        noise: the part that the noise adds.
        findings: the hypotheses, all holding.
        formula: the bound in LaTeX.
    """

    run: Run
    value: float
    initial_gap: float
    unlearned: float
    noise: float
    findings: tuple[Finding, ...]
    formula: str = _FORMULA

    @property
    def worthwhile(self) -> bool:
        """Whether the bound promises less risk than the starting point has."""
        return self.value < self.initial_gap

    def explain(self) -> str:
        """The bound as text for a person: what holds, and from what."""
        head = f"excess risk <= {shown(self.value)} in expectation over the noise"
        lines = [f"{head:<72}run {self.run.run_id}, {self.run.total_steps} steps"]
        lines.append(f"left of the initial gap {shown(self.unlearned)}, added by the noise {shown(self.noise)}")
        if not self.worthwhile:
            lines.append(f"note: not below the initial gap {self.initial_gap:g}: fewer steps, less noise or more records are needed.")
        width = max(len(finding.name) for finding in self.findings)
        lines += [f"    {finding.evidence:<8}   {finding.name:<{width}}   {finding.words}" for finding in self.findings]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The bound as plain data that JSON can hold; an infinite value is the text "inf"."""
        return {
            "value": _finite(self.value),
            "initial_gap": self.initial_gap,
            "unlearned": _finite(self.unlearned),
            "noise": _finite(self.noise),
            "hypotheses": [finding.to_dict() for finding in self.findings],
            "formula": self.formula,
            "standing": "proved",
            "run": self.run.to_document(),
        }


def excess_risk_bound(
    run: Run, *, dimension: int, initial_gap: float, pl_constant: float | None = None, smoothness: float | None = None
) -> RiskBound:
    r"""Bound how far the last iterate of a full-batch run stays above the minimum of its objective, in expectation over the noise.

    $$E F(x_T) - F^* \le f_1\prod_{t=1}^T c_t + \frac{MD}{2}\sum_{t=1}^T\tau_t^2\prod_{s>t}c_s,
    \qquad c_t = 1 - \mu\lambda_t(2 - M\lambda_t)$$

    for an M-smooth F with $\|\nabla F\|^2 \ge 2\mu(F - F^*)$ and steps $\lambda_t \le 2/M$, any noise schedule. At $\lambda_t = 1/M$ it is
    $\gamma^T + R\alpha\sum\gamma^{T-t}z_t^2$ times $f_1$ (`gradient_descent.erub`), with G the clip bound and N the records.

    *Proof.* Given $x_{t-1}$, smoothness bounds the mean of $F(x_t)$ by
    $F(x_{t-1}) - \lambda(1 - \frac{M\lambda}2)\|\nabla F(x_{t-1})\|^2 + \frac M2 D\tau_t^2$; the condition on the gradient gives $c_t$.
    A ridge of strength $\kappa$ taken by its proximal step is itself such a step: with $a = 1 + \lambda\kappa$,
    $x_t = (x_{t-1} - \lambda\nabla f + \nu)/a = x_{t-1} - \frac\lambda a\nabla F(x_{t-1}) + \frac\nu a$ for
    $F = f + \frac\kappa2\|x\|^2$, which is $(M + \kappa)$-smooth and, if f is $\mu$-strongly convex, $(\mu + \kappa)$-strongly convex.
    $\square$

    Args:
        run: full batches, no clipping active, no regulariser but ridges, noise set in advance.
        dimension: $D \ge 1$, number of parameters that get noise.
        initial_gap: $f_1 \ge F(x_0) - F^*$, loss units; public.
        pl_constant: $\mu > 0$ of the objective, ridge included, loss per squared parameter unit; None: from the loss and the ridge.
        smoothness: M of the mean loss, ridge not included; None: from the loss.
    Returns:
        The bound, rounded up, with its hypotheses.
    Raises:
        InputError: a number is outside its range, or the run's noise is still to be planned.
        HypothesisError: a hypothesis fails; the error names it.
    Reference: Hong, Wang, Zhou 2022, FAccT, Theorem 4.2 (stated for $\lambda = 1/M$, no ridge); doi:10.1145/3531146.3533070.
    """
    size, gap = require_count("dimension", dimension), require_positive("initial_gap", initial_gap)
    curvature = Curvature.of(require_run(run), pl_constant=pl_constant, smoothness=smoothness)
    findings = _examine(run, curvature)
    findings += (
        holds("dimension", f"noise in {size} parameters", evidence="declared"),
        holds("initial gap", f"the start is at most {gap:g} above the minimum", evidence="declared"),
    )
    failure = first_failure(findings)
    if failure is not None:
        what = f"no bound of the excess risk for run {run.run_id}: {failure.detail}"
        raise HypothesisError(what, source=failure.source, remedy=failure.remedy)
    unlearned, noise = _parts(run, curvature, size, gap)
    return RiskBound(run=run, value=round_up(unlearned + noise), initial_gap=gap, unlearned=unlearned, noise=noise, findings=findings)


def _examine(run: Run, curvature: Curvature) -> tuple[Finding, ...]:
    plain = holds("steps", "plain gradient steps: no momentum, no averaging, no stopping by looking at the loss", evidence="declared")
    findings = (full_batches(run), plain, noise_chosen_in_advance(run), only_ridge(run), unclipped(run), smoothness_known(run, curvature))
    if curvature.smoothness is None:
        return findings
    return (*findings, pl_constant_known(run, curvature), step_does_not_overshoot(run, curvature))


def _parts(run: Run, curvature: Curvature, dimension: int, gap: float) -> tuple[float, float]:
    """What is left of the gap and what the noise adds, each rounded up; a plain recursion of nonnegative numbers loses no digits."""
    assert curvature.smoothness is not None
    assert curvature.pl_constant is not None
    ridge = run.strong_convexity
    smooth, convex = (curvature.smoothness + ridge) * (1.0 + _EPS), curvature.pl_constant * (1.0 - _EPS)
    half = 0.5 * dimension * smooth
    left, noise = gap, 0.0
    for step, std in zip(run.step_sizes.tolist(), run.noise_stds.tolist(), strict=True):
        length = 1.0 + step * ridge
        step, std = step / length, std / length
        # Rounding in 1 - u(2 - v), u <= v <= 2: a dozen units of 2^-53 at most.
        kept = max(1.0 - convex * step * (2.0 - smooth * step), 0.0) + 16.0 * _EPS
        left, noise = left * kept, noise * kept + half * std * std
    allowance = 4.0 * (run.total_steps + 8) * _EPS
    return _outward(left, allowance), _outward(noise, allowance)


def _outward(value: float, allowance: float) -> float:
    # Below the range of doubles a product is 0, which it is not.
    return round_up(max(value, 1e-300) if not math.isnan(value) else math.inf, allowance)


def _finite(value: float) -> float | str:
    return "inf" if math.isinf(value) else value
