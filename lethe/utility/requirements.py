"""Hypotheses of excess-risk bounds, each checked in one place."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from lethe.calculus.domains import require_positive
from lethe.calculus.upward_formatting import shown, shown_down
from lethe.certificates.findings import Evidence, Finding, fails, holds, holds_by_declaration
from lethe.run.regularisers import L2
from lethe.run.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Curvature:
    r"""What is known of the objective's curvature.

    Args:
        smoothness: M of the mean loss, without the ridge; None: unknown.
        smoothness_evidence: who vouches for it.
        pl_constant: $\mu$ of the objective, ridge included; None: unknown.
        pl_evidence: who vouches for it.
        pl_reason: where it comes from.
    """

    smoothness: float | None
    smoothness_evidence: Evidence
    pl_constant: float | None
    pl_evidence: Evidence
    pl_reason: str

    @classmethod
    def of(cls, run: Run, *, pl_constant: float | None, smoothness: float | None) -> Curvature:
        r"""What the run's loss and ridge imply; a number that is given is used instead.

        Args:
            run: gives the loss and the ridge.
            pl_constant: $\mu > 0$ of the objective; None: from the run.
            smoothness: M > 0 of the mean loss; None: from the run.
        Raises:
            InputError: a given number is not positive and finite.
        """
        known = run.loss.curvature
        evidence: Evidence = run.loss.evidence
        # Exact, then rounded once: a ridge that only just outweighs weak convexity leaves little.
        convexity = 0.0 if known is None else float(sum(map(Fraction, _strengths(run)), -Fraction(known[0])))
        from_loss = None if known is None else known[1]
        return cls(
            smoothness=from_loss if smoothness is None else require_positive("smoothness", smoothness),
            smoothness_evidence=evidence if smoothness is None else "declared",
            pl_constant=(convexity if convexity > 0.0 else None) if pl_constant is None else require_positive("pl_constant", pl_constant),
            pl_evidence=evidence if pl_constant is None else "declared",
            pl_reason=_reason(run) if pl_constant is None else "squared gradients are at least twice it times the gap",
        )


def _strengths(run: Run) -> list[float]:
    return [part.strong_convexity for part in run.regularisers]


def _reason(run: Run) -> str:
    parts = [f"curvature of the {run.loss.summary}"] if run.loss.curvature is not None and run.loss.curvature[0] != 0.0 else []
    parts += [f"ridge {run.strong_convexity:g}"] if run.strong_convexity > 0.0 else []
    return "strong convexity, from the " + " and the ".join(parts)


def full_batches(run: Run) -> Finding:
    """Every record at every step."""
    got = run.batches.design
    if run.batches.exact_size and run.batch_size == run.records:
        return holds("batches", f"{got}: all {run.records} records at every step")
    return fails(
        "batches",
        f"it needs full batches; batches are {got} of {run.batch_size}, whose own randomness or order adds to the risk",
        source=f"batches.design = {got}",
        remedy="take full batches; for the size of what drawn batches add see lethe_experiments.risk.mini_batches.",
    )


def noise_chosen_in_advance(run: Run) -> Finding:
    """The noise may not react to the iterates."""
    if run.noise_budget is None:
        return holds("noise", "its size at each step was set in advance, independent of the iterates")
    return fails(
        "noise",
        "it needs noise set in advance; with a noise budget it may have been chosen along the way, and the run may have stopped early",
        source=f"noise_budget = {run.noise_budget:g}",
        remedy="plan a schedule without noise_budget.",
    )


def only_ridge(run: Run) -> Finding:
    """A proximal step must be a gradient step in disguise, as that of a ridge is."""
    others = [part.kind for part in run.regularisers if not isinstance(part, L2)]
    if not others:
        strength = run.strong_convexity
        return holds("regulariser", f"ridge {strength:g}: its proximal step is a shorter gradient step" if strength else "none")
    return fails(
        "regulariser",
        f"it needs no regulariser but ridges; there is {' and '.join(others)}",
        source="regulariser",
        remedy="drop it, or use a ridge.",
    )


def unclipped(run: Run) -> Finding:
    """Steps must follow the gradient: a clipped one is another direction."""
    if not run.clips:
        return holds_by_declaration("clipping", "never acts: steps follow the gradient of the mean loss", evidence=run.loss.evidence)
    return fails(
        "clipping",
        "it needs the gradient itself; clipping is active and bends it",
        source=f"clip_norm = {run.clip_norm:g}",
        remedy="take a loss with a known gradient bound, and a clip norm not below it.",
    )


def smoothness_known(run: Run, curvature: Curvature) -> Finding:
    """The mean loss must be M-smooth."""
    if curvature.smoothness is not None:
        return holds_by_declaration("smoothness", f"of the mean loss: {curvature.smoothness:.6g}", evidence=curvature.smoothness_evidence)
    return fails(
        "smoothness",
        f"it needs a smooth mean loss; nothing is known of the curvature of the {run.loss.summary}",
        source=f"loss.kind = {run.loss.kind}, smoothness = None",
        remedy="state the loss's smoothness.",
    )


def pl_constant_known(run: Run, curvature: Curvature) -> Finding:
    """The objective must be steep wherever it is not minimal."""
    total = (curvature.smoothness or 0.0) + run.strong_convexity
    if curvature.pl_constant is None:
        return fails(
            "PL constant",
            "it needs an objective whose squared gradient grows with the gap (strongly convex or PL); no constant is known",
            source=f"loss.kind = {run.loss.kind}, regulariser, pl_constant = None",
            remedy="add regulariser: {kind: ridge, strength: ...} to a convex loss, or give pl_constant.",
        )
    if curvature.pl_constant > total:
        return fails(
            "PL constant",
            f"it needs a PL constant of at most the smoothness {total:g} of the objective; it is {curvature.pl_constant:g}",
            source=f"pl_constant = {curvature.pl_constant:g}",
            remedy="check both: no function is steeper than it is smooth.",
        )
    return holds_by_declaration("PL constant", f"{curvature.pl_constant:.6g}: {curvature.pl_reason}", evidence=curvature.pl_evidence)


def step_does_not_overshoot(run: Run, curvature: Curvature) -> Finding:
    r"""$\lambda/(1 + \lambda\kappa) \le 2/(M + \kappa)$, which is $\lambda(M - \kappa) \le 2$, at every step, decided exactly."""
    assert curvature.smoothness is not None
    excess = Fraction(curvature.smoothness) - Fraction(run.strong_convexity)
    largest = float(run.step_sizes.max())
    limit = float(2 / excess) if excess > 0 else float("inf")
    name = "2/smoothness" if run.strong_convexity == 0.0 else "2/(smoothness - ridge)"
    if Fraction(largest) * excess <= 2:
        return holds("step size", f"{largest:.6g} <= {name} = {limit:.6g}")
    return fails(
        "step size",
        f"it needs a step size <= {name} = {shown_down(limit, 6)}; the largest is {shown(largest, 6)}",
        source="step_size",
        remedy="take smaller steps; 1/smoothness is best.",
    )
