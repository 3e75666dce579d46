r"""Only the last iterate released, losses with a Hölder gradient: the optimal shift under a concave growth of distances.

For any choice of tangents, one a step, a step is $z \mapsto L_tz + e_t$: a Lipschitz constant, and something that is added to the
distance whether or not the record is touched. Where the record is only known to lie in some stretch of a pass, it counts as touched at the
end of the stretch, by what a touch anywhere in it has grown to by then (docs/theory.md, Theorem 4 and section 8).
"""

from itertools import pairwise
from typing import ClassVar, NamedTuple

import numpy as np

from lethe.calculus.guarantees import GDP, GDPMixture, Guarantee
from lethe.calculus.rounding import above
from lethe.certificates.findings import Finding, fails, holds, holds_by_declaration
from lethe.certificates.parts import Citation
from lethe.run.losses import Holder
from lethe.run.participation import Participation, unknown_participation
from lethe.run.run import Run
from lethe.run.schedules.shapes import Array
from lethe.theorems.base import Bound, Clipping, Theorem, arithmetic
from lethe.theorems.citations import cite
from lethe.theorems.lipschitz import ridge_contraction
from lethe.theorems.requirements import bounded_domain, gradient_bound, holder_gradient, last_iterate, secrecy
from lethe.theorems.shift import engine as shift
from lethe.theorems.steps import step_constants

# A window of at most this many last steps is looked at; on a bounded domain any start is sound, and longer ones seldom pay.
_LONGEST = 20_000
_UP = 1.0 + 2.0**-48
_EPS = float(np.finfo(np.float64).eps)
# A tangent so near 0 that its height there is this share of a touch: for paths that pay for each touch at once, as composition does.
_AT_ONCE = 1e-6


_AT_EVERY_STEP = (Participation.EVERY_STEP, Participation.INDEPENDENT_DRAW, Participation.DRAW_IN_PUBLIC_GROUP)
_TOUCHED = dict.fromkeys(_AT_EVERY_STEP, "as if touched at every step") | {
    Participation.PUBLIC_SLOT: "one touch a pass, at the worst place",
    Participation.SECRET_SLOT: "one touch a pass, average over places",
    Participation.FRESH_SECRET_SLOT: "one touch a pass, anywhere",
}


class PassStretch(NamedTuple):
    """Positions `first` to `last` of a pass, from 0, both included."""

    first: int
    last: int


class Touched(NamedTuple):
    """Where in its passes the record is touched: somewhere in `own` in the last pass, somewhere in `earlier` in those before."""

    own: PassStretch
    earlier: PassStretch


class HolderPath:
    """The last steps of a run, from a start at the diameter unless all of it fits."""

    def __init__(self, run: Run) -> None:
        steps = min(run.total_steps, _LONGEST)
        self._first = run.total_steps - steps
        self.batches = run.steps_per_pass
        last = slice(self._first, None)
        contraction = np.asarray(ridge_contraction(run.step_sizes, run.strong_convexity))
        self._before = np.concatenate(([1.0], contraction))[:-1][last]
        with np.errstate(over="ignore"):
            self._diameter = (run.diameter / contraction)[last]
        # How far apart the runs can be when the window begins, before the proximal step of the step before it.
        self._start = run.diameter / float(self._before[0])
        self._touch, self._noise = run.sensitivities[last], run.noise_stds[last]
        self._rounding = np.zeros(steps) if run.rounding_errors is None else run.rounding_errors[last]
        # A difference of two records' gradients may be smaller than what one record's gradient moves by.
        with np.errstate(over="ignore"):
            flat = 2.0 * run.step_sizes[last] * run.record_bound * _UP
        self._flat = np.full(steps, np.inf) if run.bounds_differences_only else flat
        constants = step_constants(run)
        self._straight = None if constants is None else constants.lipschitz[last]
        self._exponent, self._growth = 1.0, np.zeros(steps)
        if constants is None:
            assert isinstance(run.loss, Holder)  # examine has refused the rest
            with np.errstate(over="ignore"):
                self._exponent, self._growth = run.loss.exponent, run.step_sizes[last] * run.loss.constant

    @property
    def steps(self) -> int:
        """How many steps are looked at."""
        return self._touch.size

    @property
    def passes(self) -> range:
        """The passes, from 0, with a step among them."""
        return range(self._first // self.batches, -(-(self._first + self.steps) // self.batches))

    @property
    def widest(self) -> float:
        """The largest distance there can be."""
        return float(self._diameter.max())

    @property
    def straight(self) -> bool:
        """Whether the growth is a straight line, as for smooth losses, before it is flat."""
        return self._straight is not None

    @property
    def nearest(self) -> float:
        """The nearest tangent to 0, in the largest distance."""
        if self._exponent == 1.0 or not self._growth.max() > 0.0:
            return 1.0
        # It only says which tangents are tried.
        with np.errstate(over="ignore", under="ignore", divide="ignore"):
            height = np.float64(_AT_ONCE * float(self._touch.min())) / ((1.0 - self._exponent) * float(self._growth.max()))
            return min(1.0, max(float(height ** (1.0 / self._exponent)) / self.widest, 1e-290))

    def along(self, solved: shift.Shift) -> Array:
        """The distances at which each step begins, on the path that was found."""
        shifts = solved.shifts[-self.steps :]
        begun = self._before * np.concatenate(([self._start], shifts[:-1]))
        return np.maximum(begun, self.nearest * self.widest)

    def solve(self, at: Array, touched: Touched | None) -> shift.Shift:
        """The engine with the tangents at these distances; at infinity the line z + 2 lambda G.

        `at` has shape (steps,); the record is touched where `touched` says; None: at every step.
        """
        lipschitz, height = self._tangents(at)
        with np.errstate(over="ignore", invalid="ignore"):  # what the step before was rounded by goes through this one
            height = height + np.maximum(lipschitz / self._before, 1.0) * self._rounding * _UP
        touch, begins = (self._touch, 0) if touched is None else self._touches(lipschitz, touched)
        noise, diameter = self._noise, self._diameter
        if self._first == 0:
            height = np.where(np.arange(self.steps) < begins, 0.0, height)  # until the record is touched, the runs are one
            added = touch + height
        else:  # a start at the diameter, as a touch before the first step
            lipschitz, noise = np.concatenate(([1.0], lipschitz)), np.concatenate(([0.0], noise))
            added, diameter = np.concatenate(([self._start], touch + height)), np.concatenate(([self._start], diameter))
        if not (np.isfinite(added).all() and np.isfinite(lipschitz).all()):  # beyond the range of numbers: these tangents bound nothing
            return shift.solve([1.0], [1.0], [0.0])
        return shift.solve(lipschitz, added, noise, diameter)

    def _tangents(self, at: Array) -> tuple[Array, Array]:
        """Slope, proximal step before included, and height at 0."""
        with np.errstate(over="ignore", divide="ignore", invalid="ignore", under="ignore"):
            if self._straight is not None:
                flat = np.isfinite(self._flat) & (~(self._straight * at <= self._before * at + self._flat) | np.isinf(at))
                return np.where(flat, self._before, self._straight), np.where(flat, self._flat, 0.0)
            slope = 1.0 + self._growth * self._exponent * at ** (self._exponent - 1.0)
            height = (1.0 - self._exponent) * self._growth * at**self._exponent
            # The flat line where it is the lower one, and where the tangent is too steep for numbers.
            flat = ~(slope < 1e300) | ~(slope * at + height <= at + self._flat) | np.isinf(at)
        return np.where(flat, 1.0, slope * _UP) * self._before, np.where(flat, self._flat, height * _UP)

    def _touches(self, lipschitz: Array, touched: Touched) -> tuple[Array, int]:
        """One touch a pass, at the end of its stretch; and the first step at which the record may be touched at all."""
        touch = np.zeros(self.steps)
        passes = np.array(self.passes)
        begins = self.steps
        for stretch, turns in ((touched.earlier, passes[:-1]), (touched.own, passes[-1:])):
            if turns.size == 0:
                continue
            arrived = np.zeros(turns.size)
            for position in range(stretch.first, stretch.last + 1):
                step = turns * self.batches + position - self._first
                inside = (step >= 0) & (step < self.steps)
                if inside.any():
                    begins = min(begins, int(step[inside].min()))
                step = np.where(inside, step, 0)
                with np.errstate(over="ignore"):
                    # What was there before this step is no larger than the domain; what this step adds is paid before it is projected.
                    carried = np.minimum(arrived, self._diameter[step - 1]) * lipschitz[step]
                arrived = np.where(inside, np.maximum(carried, self._touch[step]), arrived)
            found = arrived != 0.0  # what is no number is touched, and cannot be paid
            ends = np.minimum(turns * self.batches + stretch.last - self._first, self.steps - 1)[found]
            touch[ends] = above(arrived[found], (stretch.last - stretch.first + 4) * _EPS)
        return touch, begins


# Distances at which tangents are laid first, and how often they are laid anew along the best path found.
_FIRST_TANGENTS, _DESCENTS, _ROUNDS = 14, 4, 12
_STILL = 1e-6
# Stretches of a pass told apart: more where the run is short.
_MOST_STRETCHES, _STEPS_IN_ALL = 32, 20_000


def _best(path: HolderPath, touched: Touched | None) -> tuple[float, Array | None]:
    """The smallest mu of many tangents, and the distances at which they were laid; None if none bounds anything."""
    tried = [(at, path.solve(at, touched)) for at in (np.full(path.steps, at) for at in _first_tangents(path))]
    tried.sort(key=lambda pair: pair[1].mu)
    # From several starts, because each descends to a stationary point of its own.
    descents = [_descended(path, at, solved, touched, _ROUNDS) for at, solved in tried[:_DESCENTS]]
    return min(descents, key=lambda pair: pair[0])


def _first_tangents(path: HolderPath) -> list[float]:
    widest, nearest = path.widest, path.nearest
    if path.straight:
        return [0.0, widest, np.inf]
    first = np.geomspace(nearest, 1.0, _FIRST_TANGENTS) * widest if nearest < 1.0 else np.array([widest])
    return [*(np.geomspace(1e-6, 1.0, _FIRST_TANGENTS) * widest).tolist(), *first.tolist(), np.inf]


def _near(path: HolderPath, starts: list[Array], touched: Touched) -> float:
    """The smallest mu from tangents that were good for another place of the record."""
    tried = [(at, path.solve(at, touched)) for at in starts]
    at, solved = min(tried, key=lambda pair: pair[1].mu)
    return _descended(path, at, solved, touched, _DESCENTS)[0]


def _descended(path: HolderPath, at: Array, best: shift.Shift, touched: Touched | None, rounds: int) -> tuple[float, Array | None]:
    for _ in range(rounds):
        if best.mu in (0.0, np.inf):
            break
        along = path.along(best)
        better = path.solve(along, touched)
        if not better.mu < best.mu * (1 - _STILL):
            break
        at, best = along, better
    return best.mu, None if best.mu == np.inf else at


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
    places = [Touched(own=own, earlier=whole if afresh else own) for own in stretches]
    # The last place is the dearest where steps are alike; its tangents are tried for the others.
    dearest, good = _best(path, places[-1])
    starts = [at for at in (good, at_every_step) if at is not None]
    mus = [_near(path, starts, place) if starts else dearest for place in places[:-1]]
    mus.append(min(dearest, _near(path, starts, places[-1])) if starts else dearest)
    return np.minimum(np.array(mus), everywhere), np.array([own.last - own.first + 1 for own in stretches], dtype=np.float64)


def _stretches(path: HolderPath) -> list[PassStretch]:
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
    clipping: ClassVar[Clipping] = "projections"
    counts_rounding: ClassVar[bool] = True
    citations: ClassVar[tuple[Citation, ...]] = (
        cite("lethe", ", docs/theory.md: the shift engine with a concave growth of distances"),
        cite("chien-li-2024", " (Hölder gradients, full batches)"),
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
        return holds("batches", f"{run.batches.design}: batches of exact size, {_TOUCHED[run.batches.participation]}")
    return fails(
        "batches",
        f"it needs batches of exact size; {run.batches.design} batches vary",
        source=f"batches.design = {run.batches.design}",
        remedy="use a design with batches of exact size, in the training too.",
    )
