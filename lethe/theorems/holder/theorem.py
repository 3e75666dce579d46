"""Only the last iterate released, losses with a Hölder gradient: the optimal shift under a concave growth of distances."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from lethe.calculus.guarantees import GDP, GDPMixture, Guarantee
from lethe.certificates.findings import Finding, fails, holds, holds_by_declaration
from lethe.certificates.parts import Citation
from lethe.run.batches import Batches
from lethe.run.participation import Participation, unknown_participation
from lethe.run.run import Run
from lethe.run.schedules.base import Array
from lethe.theorems.base import Bound, Theorem
from lethe.theorems.clip_methods import Clipping
from lethe.theorems.holder.paths import HolderPath
from lethe.theorems.holder.search import every_step_mu, position_mus
from lethe.theorems.known_words import arithmetic
from lethe.theorems.requirements import bounded_domain, gradient_bound, holder_gradient, last_iterate, secrecy
from lethe.theorems.steps import step_constants


class HolderShift(Theorem):
    r"""The optimal shift for $\|\nabla f(x) - \nabla f(y)\| \le H\|x-y\|^p$, clipped or not.

    One step brings two runs z apart to at most $h_t(z) = \min(z + \lambda_tHz^p,\ z + 2\lambda_tG)$, so any $a_t \ge 0$ with

    $$z_t = h_t(c_{t-1}z_{t-1}) + s_t - a_t \ge 0, \qquad z_T = 0$$

    proves $\mu^2 = \sum a_t^2/\tau_t^2$, where $c_{t-1}$ is the contraction of a proximal ridge. $h_t$ is concave: it lies below its
    tangents, $z + 2\lambda_tG$ among them, and with a tangent in its place the step is $L_t$-Lipschitz with a touch larger by the
    tangent's height at 0, which is added whether or not the record is touched. For given tangents the shift engine finds the optimum.
    Tangents are then laid along that optimum, which can only improve it, and so on; whatever tangents are used, the result is a bound.

    A record is touched at every step by full batches and by batches without replacement, and once a pass by fixed ones: cyclic, the worst
    place; shuffled_once, the average of $\delta$ over places; shuffled, the same over the place in the last pass. Smooth losses whose
    steps expand are the case p = 1, with their own constant for $1 + \lambda_tH$.
    """

    name: ClassVar[str] = "holder-shift"
    statement: ClassVar[str] = "The cheapest shift where gradients are Hölder continuous only; last iterate, bounded domain."
    formula: ClassVar[str] = (
        r"\mu^2 = \min_a \sum_t a_t^2/\tau_t^2,\ z_t = h_t(c_{t-1}z_{t-1}) + s_t - a_t \ge 0,\ "
        r"h_t(z) = \min(z + \lambda_t H z^p, z + 2\lambda_t G)"
    )
    needs: ClassVar[str] = "losses with a Hölder gradient, a bounded domain, batches of exact size"
    covers: ClassVar[Literal["last", "all"]] = "last"
    clipping: ClassVar[Clipping] = "projections"
    counts_rounding: ClassVar[bool] = True
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(key="lethe", text="Lethe, docs/theory.md: the shift engine with a concave growth of distances."),
        Citation(
            key="chien-li-2024",
            text="Chien, Li 2024, Convergent privacy loss of noisy-SGD without convexity and smoothness, arXiv:2410.01068 "
            "(Hölder gradients, full batches).",
        ),
    )

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        """Hölder gradients, a bounded domain, batches of exact size."""
        findings = [last_iterate(run), gradient_bound(run), _growth(run), bounded_domain(run), _exact_size(run), arithmetic(run)]
        if run.batches.secret:
            findings.append(secrecy(run))
        return tuple(findings)

    def _bound(self, run: Run) -> Bound:
        path = HolderPath(run)
        if not np.isfinite(path.widest):  # contracted by so much that what it was before is beyond the range of numbers
            return Bound(guarantee=GDP(np.inf))
        return Bound(guarantee=_by_position(run, path))


def _by_position(run: Run, path: HolderPath) -> Guarantee:
    if path.batches == 1:
        return GDP(every_step_mu(path))
    match run.batches.participation:
        case Participation.EVERY_STEP | Participation.INDEPENDENT_DRAW | Participation.DRAW_IN_PUBLIC_GROUP:
            return GDP(every_step_mu(path))
        case Participation.PUBLIC_SLOT:
            return GDP(float(position_mus(path, afresh=False)[0].max()))
        case Participation.SECRET_SLOT:
            return _average(run, *position_mus(path, afresh=False))
        case Participation.FRESH_SECRET_SLOT:
            mus, sizes = position_mus(path, afresh=True)
            # A last pass that is cut short may not touch the record: the place of its last touch has another law, and the worst counts.
            return _average(run, mus, sizes) if run.total_steps % run.steps_per_pass == 0 else GDP(float(mus.max()))
    raise unknown_participation(run.batches.design, run.batches.participation)


def _average(run: Run, mus: Array, sizes: Array) -> Guarantee:
    if mus.min() == mus.max():
        return GDP(float(mus.max()))
    return GDPMixture(mus=tuple(mus.tolist()), weights=tuple((sizes / run.steps_per_pass).tolist()))


def _touched(batches: Batches) -> str:
    match batches.participation:
        case Participation.EVERY_STEP | Participation.INDEPENDENT_DRAW | Participation.DRAW_IN_PUBLIC_GROUP:
            return "as if touched at every step"
        case Participation.PUBLIC_SLOT:
            return "one touch a pass, at the worst place"
        case Participation.SECRET_SLOT:
            return "one touch a pass, average over places"
        case Participation.FRESH_SECRET_SLOT:
            return "one touch a pass, anywhere"
    raise unknown_participation(batches.design, batches.participation)


def _growth(run: Run) -> Finding:
    """A Hölder gradient; a smooth loss's is one with exponent 1, and tells something where a step expands."""
    steps = step_constants(run)
    if steps is None:
        return holder_gradient(run)
    if steps.constant.constant > 1.0:
        return holds_by_declaration("Hölder gradient", f"smooth, exponent 1: {steps.constant.certificate}", evidence=run.loss.evidence)
    return fails(
        "Hölder gradient",
        "it adds nothing where the gradient is Lipschitz and no step expands",
        source=f"loss.kind = {run.loss.kind}",
        remedy="use optimal-shift, which says all of such steps.",
    )


def _exact_size(run: Run) -> Finding:
    if run.batches.exact_size:
        return holds("batches", f"{run.batches.design}: batches of exact size, {_touched(run.batches)}")
    return fails(
        "batches",
        f"it needs batches of exact size; {run.batches.design} batches vary",
        source=f"batches.design = {run.batches.design}",
        remedy="use a design with batches of exact size, in the training too.",
    )
