r"""The excess risk of a run: a proved bound of how far its last iterate stays above the minimum, or why there is none.

`lethe.utility.excess_risk_bound` is called with a Run; `accounting.best_steps` and the studio use it to weigh steps against noise.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from lethe.calculus.domains import require_count, require_positive
from lethe.calculus.rounding import round_up
from lethe.calculus.upward_formatting import shown, shown_down
from lethe.certificates.findings import Evidence, Finding, fails, holds, holds_by_declaration, require_all
from lethe.run.known_fields import require_run
from lethe.run.regularisers import L2
from lethe.run.run import Run
from lethe.run.schedules import Influence

_EPS = 2.0**-52


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskBound:
    r"""A bound of $E F(x_T) - \min F$, F the mean loss plus the ridge, over the noise, for the data and the start there were."""

    run: Run
    value: float  # in loss units, rounded up; inf says nothing
    initial_gap: float
    unlearned: float  # what is left of the initial gap
    noise: float  # what the noise adds
    findings: tuple[Finding, ...]  # the hypotheses, which all hold
    influence: Influence  # of each step's noise in the bound

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


def excess_risk_bound(
    run: Run, *, dimension: int, initial_gap: float, pl_constant: float | None = None, smoothness: float | None = None
) -> RiskBound:
    r"""Bound how far the last iterate of a full-batch run stays above the minimum of its objective, in expectation over the noise.

    $$E F(x_T) - F^* \le f_1\prod_{t=1}^T c_t + \frac{MD}{2}\sum_{t=1}^T\tau_t^2\prod_{s>t}c_s,
    \qquad c_t = 1 - \mu\lambda_t(2 - M\lambda_t)$$

    for an M-smooth F with $\|\nabla F\|^2 \ge 2\mu(F - F^*)$ and steps $\lambda_t \le 2/M$, any noise schedule. At $\lambda_t = 1/M$ it is
    $\gamma^T + R\alpha\sum\gamma^{T-t}z_t^2$ times $f_1$ (`gradient_descent.erub`), with G the clip bound and N the records.

    Proof: docs/theory.md, section 17.

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

    Examples:
        >>> from lethe.utility import excess_risk_bound
        >>> loss = lethe.losses.Convex(smoothness=1.0, gradient_bound=1.0)
        >>> run = lethe.Run(
        ...     records=1000, batches=lethe.batches.Full(), steps=100, step_size=0.5, clip_norm=None, noise_multiplier=10.0,
        ...     loss=loss, regulariser=lethe.regularisers.L2(0.1), release="last")
        >>> round(excess_risk_bound(run, dimension=5, initial_gap=1.0).value, 3)
        0.002
    """
    size, gap = require_count("dimension", dimension), require_positive("initial_gap", initial_gap)
    curvature, evidence = require_run(run).loss.curvature, run.loss.evidence
    # Exact, then rounded once: a ridge that only just outweighs weak convexity leaves little.
    strengths = [Fraction(part.strong_convexity) for part in run.regularisers]
    convexity = 0.0 if curvature is None else float(sum(strengths, -Fraction(curvature[0])))
    steep = require_positive("pl_constant", pl_constant) if pl_constant is not None else convexity if convexity > 0.0 else None
    smooth = require_positive("smoothness", smoothness) if smoothness is not None else None if curvature is None else curvature[1]
    smooth_by = evidence if smoothness is None else "declared"
    findings = _hypotheses(run, smooth, smooth_by)
    findings += [] if smooth is None else _of_curvature(run, steep, smooth, pl_constant is not None)
    findings.append(holds("dimension", f"noise in {size} parameters", evidence="declared"))
    findings.append(holds("initial gap", f"the start is at most {gap:g} above the minimum", evidence="declared"))
    require_all(findings, f"no bound of the excess risk for run {run.run_id}")
    assert smooth is not None
    assert steep is not None
    unlearned, noise, weights = _parts(run, smooth=smooth, steep=steep, dimension=size, gap=gap)
    parts = {"initial_gap": gap, "unlearned": unlearned, "noise": noise, "influence": Influence(weights=weights, basis="curvature")}
    return RiskBound(run=run, value=round_up(unlearned + noise), findings=tuple(findings), **parts)


def _parts(run: Run, *, smooth: float, steep: float, dimension: int, gap: float) -> tuple[float, float, tuple[float, ...]]:
    """What is left of the gap and what the noise adds, each rounded up, and what each step weighs: sums of numbers >= 0."""
    ridge = run.strong_convexity
    smooth, steep = (smooth + ridge) * (1.0 + _EPS), steep * (1.0 - _EPS)
    gap_left, noise, rests, lengths = gap, 0.0, [], 1.0 + run.step_sizes * ridge
    for step, std in zip(run.step_sizes.tolist(), run.noise_stds.tolist(), strict=True):
        length = 1.0 + step * ridge
        step, std = step / length, std / length
        # Rounding in 1 - u(2 - v), u <= v <= 2: a dozen units of 2^-53 at most.
        rest = max(1.0 - steep * step * (2.0 - smooth * step), 0.0) + 16.0 * _EPS
        rests.append(rest)
        gap_left, noise = gap_left * rest, noise * rest + 0.5 * dimension * smooth * std * std
    allowance = 4.0 * (run.total_steps + 8) * _EPS
    # Below the range of doubles a product is 0, which it is not.
    gap_left, noise = (round_up(math.inf if math.isnan(part) else max(part, 1e-300), allowance) for part in (gap_left, noise))
    weights = np.maximum(np.append(np.cumprod(rests[:0:-1])[::-1], 1.0), 1e-24) / lengths**2  # no noise a million times another
    return gap_left, noise, tuple(weights.tolist())


def _hypotheses(run: Run, smooth: float | None, smooth_by: Evidence) -> list[Finding]:
    """Full batches, plain steps, noise set in advance, ridges alone, no clipping, and a smooth mean loss."""
    design, strength = run.batches.design, run.strong_convexity
    other_kinds = [part.kind for part in run.regularisers if not isinstance(part, L2)]
    return [
        _either(
            run.batches.exact_size and run.batch_size == run.records,
            holds("batches", f"{design}: all {run.records} records at every step"),
            f"it needs full batches; batches are {design} of {run.batch_size}, whose own randomness or order adds to the risk",
            source=f"batches.design = {design}",
            remedy="take full batches; for the size of what drawn batches add see lethe_experiments.risk.mini_batches.",
        ),
        holds("steps", "plain gradient steps: no momentum, no averaging, no stopping by looking at the loss", evidence="declared"),
        _either(
            run.noise_budget is None and run.sparse_selection is None,
            holds("noise", "its size at each step was set in advance, independent of the iterates"),
            "it needs noise set in advance, in all numbers; with a noise budget it may have been chosen along the way, and the run may "
            "have stopped early; of a selection of rows some get none",
            source=f"noise_budget = {run.noise_budget}, sparse_selection = {run.sparse_selection}",
            remedy="plan a schedule without noise_budget and sparse_selection.",
        ),
        _either(
            not other_kinds,
            holds("regulariser", f"ridge {strength:g}: its proximal step is a shorter gradient step" if strength else "none"),
            f"it needs no regulariser but ridges; there is {' and '.join(other_kinds)}",
            source="regulariser",
            remedy="drop it, or use a ridge.",
        ),
        _either(
            not run.clips,
            holds_by_declaration("clipping", "never acts: steps follow the gradient of the mean loss", evidence=run.loss.evidence),
            "it needs the gradient itself; clipping is active and bends it",
            source=f"clip_norm = {run.clip_norm}",
            remedy="take a loss with a known gradient bound, and a clip norm not below it.",
        ),
        _either(
            smooth is not None,
            holds_by_declaration("smoothness", f"of the mean loss: {smooth or 0.0:.6g}", evidence=smooth_by),
            f"it needs a smooth mean loss; nothing is known of the curvature of the {run.loss.summary}",
            source=f"loss.kind = {run.loss.kind}, smoothness = None",
            remedy="state the loss's smoothness.",
        ),
    ]


def _either(holding: bool, finding: Finding, otherwise: str, *, source: str, remedy: str) -> Finding:
    return finding if holding else fails(finding.name, otherwise, source=source, remedy=remedy)


def _of_curvature(run: Run, steep: float | None, smooth: float, stated: bool) -> list[Finding]:
    r"""A PL constant, and $\lambda/(1 + \lambda\kappa) \le 2/(M + \kappa)$, or $\lambda(M - \kappa) \le 2$, at every step, exactly."""
    ridge, curvature = run.strong_convexity, run.loss.curvature
    if steep is None:
        pl_constant = fails(
            "PL constant",
            "it needs an objective whose squared gradient grows with the gap (strongly convex or PL); no constant is known",
            source=f"loss.kind = {run.loss.kind}, regulariser, pl_constant = None",
            remedy="add regulariser: {kind: ridge, strength: ...} to a convex loss, or give pl_constant.",
        )
    else:
        parts = [f"curvature of the {run.loss.summary}"] if curvature is not None and curvature[0] != 0.0 else []
        parts += [f"ridge {ridge:g}"] if ridge > 0.0 else []
        why = "squared gradients are at least twice it times the gap" if stated else "strong convexity, from the " + " and the ".join(parts)
        pl_constant = _either(
            steep <= smooth + ridge,
            holds_by_declaration("PL constant", f"{steep:.6g}: {why}", evidence="declared" if stated else run.loss.evidence),
            f"it needs a PL constant of at most the smoothness {smooth + ridge:g} of the objective; it is {steep:g}",
            source=f"pl_constant = {steep:g}",
            remedy="check both: no function is steeper than it is smooth.",
        )
    excess = Fraction(smooth) - Fraction(ridge)
    largest, limit = float(run.step_sizes.max()), float(2 / excess) if excess > 0 else math.inf
    name = "2/smoothness" if ridge == 0.0 else "2/(smoothness - ridge)"
    step_size = _either(
        Fraction(largest) * excess <= 2,
        holds("step size", f"{largest:.6g} <= {name} = {limit:.6g}"),
        f"it needs a step size <= {name} = {shown_down(limit, 6)}; the largest is {shown(largest, 6)}",
        source="step_size",
        remedy="take smaller steps; 1/smoothness is best.",
    )
    return [pl_constant, step_size]
