r"""Only the last iterate released, losses with a Hölder gradient: the optimal shift under a growth of distances that is no straight line.

`certify` tries it for losses with $\|\nabla f(x) - \nabla f(y)\| \le H\|x-y\|^p$: p < 1 where they are not smooth. z is the distance of two
runs on neighbouring data; a touch is a step whose batch holds the record.

For any choice of tangents, one a step, a step is $z \mapsto L_tz + e_t$: a Lipschitz constant, and something that is added to the
distance whether or not the record is touched. The growth of convex losses is not below its tangents: there they only find a path, and the
growth itself says what each step of it pays. Where the record is only known to lie in some stretch of a pass, it counts as touched at the
end of the stretch, by what a touch anywhere in it has grown to by then (docs/theory.md, Theorem 4 and section 8).
"""

from itertools import pairwise
from typing import ClassVar

import numpy as np

from lethe.calculus.guarantees import GDP, GDPMixture, Guarantee
from lethe.certificates.findings import Finding, fails, holds, holds_by_declaration
from lethe.certificates.parts import Citation
from lethe.run.participation import Participation, unknown_participation
from lethe.run.run import Run
from lethe.run.schedules.shapes import Array
from lethe.theorems.base import Bound, Clipping, Theorem, arithmetic
from lethe.theorems.citations import cite
from lethe.theorems.holder.path import Followed, HolderPath, PassStretch, Touched
from lethe.theorems.requirements import bounded_domain, gradient_bound, holder_gradient, last_iterate, secrecy
from lethe.theorems.steps import step_constants

_AT_EVERY_STEP = (Participation.EVERY_STEP, Participation.INDEPENDENT_DRAW, Participation.DRAW_IN_PUBLIC_GROUP)
_TOUCHED = dict.fromkeys(_AT_EVERY_STEP, "as if touched at every step") | {
    Participation.PUBLIC_SLOT: "one touch a pass, at the worst place",
    Participation.SECRET_SLOT: "one touch a pass, average over places",
    Participation.FRESH_SECRET_SLOT: "one touch a pass, anywhere",
}

# Distances at which tangents are laid first, and how often they are laid anew along the best path found.
_FIRST_TANGENTS, _DESCENTS, _ROUNDS, _HALVINGS = 14, 4, 12, 4
_STILL = 1e-6
# Stretches of a pass told apart: more where the run is short.
_MOST_STRETCHES, _STEPS_IN_ALL = 32, 20_000


def _best(path: HolderPath, touched: Touched | None) -> tuple[float, Array | None]:
    """The smallest mu of many tangents, and the distances at which they were laid; None if none bounds anything."""
    tried = [path.at_once(touched), *(path.follow(np.full(path.steps, at), touched) for at in _first_tangents(path))]
    tried.sort(key=lambda followed: followed.mu)
    # From several starts, because each descends to a stationary point of its own.
    descents = [_descended(path, followed, touched, _ROUNDS) for followed in tried[:_DESCENTS]]
    return min(descents, key=lambda pair: pair[0])


def _first_tangents(path: HolderPath) -> list[float]:
    """Distances at which the search begins to lay tangents."""
    widest, nearest = path.widest, path.nearest
    if path.straight:
        return [0.0, widest, np.inf]
    first = np.geomspace(nearest, 1.0, _FIRST_TANGENTS) * widest if nearest < 1.0 else np.array([widest])
    return [*(np.geomspace(1e-6, 1.0, _FIRST_TANGENTS) * widest).tolist(), *first.tolist(), np.inf]


def _near(path: HolderPath, starts: list[Array], touched: Touched) -> float:
    """The smallest mu from tangents that were good for another place of the record."""
    nearest = min((path.at_once(touched), *(path.follow(at, touched) for at in starts)), key=lambda followed: followed.mu)
    return _descended(path, nearest, touched, _DESCENTS)[0]


def _descended(path: HolderPath, best: Followed, touched: Touched | None, rounds: int) -> tuple[float, Array | None]:
    """A search from these tangents: each round lays them where the last path went."""
    for _ in range(rounds):
        if best.mu in (0.0, np.inf):
            break
        before, better = best.mu, path.follow(best.begins, touched)
        for _ in range(_HALVINGS if path.convex else 0):
            if better.mu < before:
                break
            better = path.halfway(best.begins, better.begins, touched)
        best = min(best, better, key=lambda followed: followed.mu)
        if not best.mu < before * (1 - _STILL):
            break
    return best.mu, None if best.mu == np.inf else best.begins


def every_step_mu(path: HolderPath) -> float:
    r"""$\mu$ of a record that takes part in every step."""
    return _best(path, None)[0]


def position_mus(path: HolderPath, *, afresh: bool) -> tuple[Array, Array]:
    r"""$\mu$ of a record that takes part once a pass: one for each stretch of positions, with the number of positions in it.

    `afresh`: each pass has an order of its own, so that only the place in the last pass is told apart.
    """
    everywhere, at_every_step = _best(path, None)
    stretches = _stretches(path)
    whole = PassStretch(0, path.batches - 1)
    positions = [Touched(own=stretch, earlier=whole if afresh else stretch) for stretch in stretches]
    # The last place is the dearest where steps are alike; its tangents are tried for the others.
    dearest, good = _best(path, positions[-1])
    starts = [at for at in (good, at_every_step) if at is not None]
    mus = [_near(path, starts, position) if starts else dearest for position in positions[:-1]]
    mus.append(min(dearest, _near(path, starts, positions[-1])) if starts else dearest)
    return np.minimum(np.array(mus), everywhere), np.array([stretch.last - stretch.first + 1 for stretch in stretches], dtype=np.float64)


def _stretches(path: HolderPath) -> list[PassStretch]:
    """The positions of a pass, cut into stretches that are few enough to solve one by one."""
    count = min(path.batches, _MOST_STRETCHES, max(4, _STEPS_IN_ALL // path.steps))
    edges = [path.batches * part // count for part in range(count + 1)]
    return [PassStretch(low, high - 1) for low, high in pairwise(edges)]


class HolderShift(Theorem):
    r"""The optimal shift for $\|\nabla f(x) - \nabla f(y)\| \le H\|x-y\|^p$, clipped or not.

    One step brings two runs z apart to at most $h_t(z) = \min(z + \lambda_tHz^p,\ z + 2\lambda_tG)$, so any $a_t \ge 0$ with

    $$z_t = h_t(c_{t-1}z_{t-1}) + s_t - a_t \ge 0, \qquad z_T = 0$$

    proves $\mu^2 = \sum a_t^2/\tau_t^2$, where $c_{t-1}$ is the contraction of a proximal ridge. $h_t$ is concave: it lies below its
    tangents, $z + 2\lambda_tG$ among them, and with a tangent in its place the step is $L_t$-Lipschitz with a touch larger by the
    tangent's height at 0, which is added whether or not the record is touched. For given tangents the shift engine finds the optimum.
    Tangents are then laid along that optimum, which can only improve it, and so on; whatever tangents are used, the result is a bound.

    Of convex losses that clipping leaves alone $h_t(z)^2 = z^2 + \max_{u \le z}\lambda_tHu^p(\lambda_tHu^p - \frac{4p}{1+p}u)$ with
    $\lambda_tHu^p \le 2\lambda_tG$, which is never more; $z^2 + 4\lambda_t^2G^2$ at p = 0. It is no concave function: tangents find a path,
    and what $h_t$ itself asks on it is paid.

    A record is touched at every step by full batches and by batches without replacement, and once a pass by fixed ones: cyclic, the worst
    place; shuffled_once, the average of $\delta$ over places; shuffled, the same over the place in the last pass. Smooth losses whose
    steps expand are the case p = 1, with their own constant for $1 + \lambda_tH$.
    """

    name: ClassVar[str] = "holder-shift"
    statement: ClassVar[str] = (
        "The cheapest shift where gradients are Hölder continuous only, or jump, of convex losses; last iterate, bounded domain."
    )
    formula: ClassVar[str] = (
        r"\mu^2 = \min_a \sum_t a_t^2/\tau_t^2,\ z_t = h_t(c_{t-1}z_{t-1}) + s_t - a_t \ge 0,\ "
        r"h_t(z) = \min(z + \lambda_t H z^p, z + 2\lambda_t G);\ "
        r"\text{convex: } h_t(z)^2 = z^2 + \max_{u \le z} \lambda_t H u^p (\lambda_t H u^p - \tfrac{4p}{1+p} u)"
    )
    needs: ClassVar[str] = "losses with a Hölder gradient, a bounded domain, batches of exact size"
    clipping: ClassVar[Clipping] = "projections"
    counts_rounding: ClassVar[bool] = True
    citations: ClassVar[tuple[Citation, ...]] = (
        cite("lethe", ", docs/theory.md: the shift engine with a concave growth of distances"),
        cite("chien-li-2024", " (Hölder gradients, full batches)"),
        cite("bravo-2025", " (convex losses; the constants here are proved in docs/theory.md)"),
    )

    def _examine(self, run: Run) -> tuple[Finding, ...]:
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
    """The bound by the design: the worst position, or the mean over a secret one."""
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
    r"""The mean over positions, one $\mu$ a stretch, weighted by its size."""
    if mus.min() == mus.max():
        return GDP(float(mus.max()))
    return GDPMixture(mus=tuple(mus.tolist()), weights=tuple((sizes / run.steps_per_pass).tolist()))


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
    """Batches must have an exact size."""
    if run.batches.exact_size:
        return holds("batches", f"{run.batches.design}: batches of exact size, {_TOUCHED[run.batches.participation]}")
    return fails(
        "batches",
        f"it needs batches of exact size; {run.batches.design} batches vary",
        source=f"batches.design = {run.batches.design}",
        remedy="use a design with batches of exact size, in the training too.",
    )
