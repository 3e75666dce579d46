r"""Chien and Li 2024: the last iterate of full-batch DP-SGD, convex or not, by a window and a split of every noise.

Kept to compare: `lethe.compare` shows it beside Lethe's own bounds, and `certify` tries it only if asked by name. A touch is a step whose
batch holds the record; $s$ is how far it moves the iterate.

Of each noise in the window $\tau \le t < T$ a share $\beta_t$ hides the record and the rest hides how far apart the runs were at its
start; over all $\beta_t$ that costs $(s + a_t)^2$ for a touch s and a payment $a_t$. So

$$\epsilon(\alpha) = \frac\alpha{2\tau_{noise}^2}\min_{\tau}\min_{a \ge 0}\sum_{t=\tau}^{T-1}(s + a_t)^2
  \quad\text{where the payments } a \text{ bring the distance } D_\tau \text{ to } 0: z_{t+1} = h(z_t) - a_t.$$

$D_\tau$ is the diameter or, if smaller, the distance tracked forward, $D_{t+1} = h(D_t) + s$. $h(z) = cz$ for smooth losses, and
$h(z) = z + \lambda Hz^p$ for Hölder gradients. The shift engine also allows payments below s, so it is never looser.
"""

import math
from typing import ClassVar

import numpy as np

from lethe.calculus.guarantees import ZCDP
from lethe.calculus.rounding import above, square_above
from lethe.certificates.findings import Finding
from lethe.certificates.parts import Citation, StepConstant
from lethe.run.effective_loss import clipped_along_a_line
from lethe.run.losses import Holder
from lethe.run.run import Run
from lethe.run.schedules.shapes import Array
from lethe.theorems import requirements as require
from lethe.theorems.base import Bound, Standing, Theorem
from lethe.theorems.citations import cite
from lethe.theorems.lipschitz import clipped_step, generalised_linear_step, plain_step

# Every window is a bound; of more than this many, evenly spaced ones in the logarithm are tried.
_MOST_WINDOWS = 200_000
# First payments tried at once, how often the best of them is looked at more closely, and the longest window followed step by step.
_SHOTS, _ROUNDS, _LONGEST = 96, 3, 20_000

_CITATION = cite("chien-li-2024", " (statement reconstructed)")


def smooth_cost(lipschitz: float, steps: int, diameter: float = math.inf) -> float:
    r"""$\mu^2$ in units of $(s/\tau_{noise})^2$ for steps that are c-Lipschitz: the best window, water filled.

    $$\min_{\tau < T}\ \min_{a \ge 0} \sum_{t=\tau}^{T-1} (1 + a_t)^2 \quad\text{subject to}\quad
      \sum_{t=\tau}^{T-1} c^{T-1-t}a_t = c^{T-\tau}D_\tau, \qquad D_\tau = \min\Big(D, \sum_{i<\tau} c^i\Big)$$

    The optimum is $1 + a_t = \max(1, \kappa c^{T-1-t})$, so payments are positive on one stretch at an end of the window, whose length is
    found by bisection, for all windows at once. c may be above 1; the diameter is $D/s$, in units of one touch, infinite where there is
    none. Not rounded outward, relative error at most 1e-12; T, composition, if no window beats it.
    """
    if lipschitz == 0.0:
        return 1.0
    log_c = math.log(lipschitz)
    window = np.arange(1.0, steps + 1.0) if steps <= _MOST_WINDOWS else np.unique(np.geomspace(1.0, steps, _MOST_WINDOWS).round())
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        tracked = np.minimum(diameter, _powers(log_c, steps - window))
        # Weights relative to the largest of the window: its last step for c < 1, its first for c > 1.
        budget = tracked * (np.exp(window * log_c) if lipschitz < 1.0 else lipschitz)
        paying = _paying(-abs(log_c), window, budget)
        cost = window - paying + np.square(budget + _powers(-abs(log_c), paying)) / _powers(-2.0 * abs(log_c), paying)
    return float(np.min(np.where(np.isnan(cost), np.inf, cost)))


def holder_cost(growth: float, exponent: float, steps: int, diameter: float = math.inf) -> float:
    r"""$\mu^2$ in units of $(s/\tau_{noise})^2$ for steps that bring a distance z (in touches) to at most $h(z) = z + gz^p$.

    As $h(z) \ge z$, a window that starts before the diameter is reached pays at least $T$ in all and so costs at least composition:
    only windows from D on matter, and one of R steps costs at least R. The first payment is tried on a grid, refined around the best;
    the next ones follow from stationarity, $1 + a_{t+1} = (1 + a_t)/h'(z_{t+1})$, cut at $a \ge 0$; and after every step paying all
    that is left is tried. Whatever is tried is feasible, hence a bound, that may lie above the minimum. On domains too wide to follow
    windows step by step, tangents $h(z) \le h'(y)z + (1-p)gy^p$ make it smooth, with touches of $1 + (1-p)gy^p$: again a bound.

    $g = \lambda H s^{p-1} \ge 0$ is the growth, $0 < p \le 1$ the exponent (at 1 this is `smooth_cost` with $c = 1 + g$), $D/s$ the
    diameter. Not rounded outward; T, composition, if nothing tried beats it.
    """
    if exponent == 1.0:
        return smooth_cost(1.0 + growth, steps, diameter) if math.isfinite(growth) else float(steps)
    # Even without growth, (D + R)^2 / R >= 4D for every R.
    if not 4.0 * diameter < steps or not math.isfinite(growth):
        return float(steps)
    # Nothing tried depends on the number of steps, so the bound cannot fall as they grow.
    best = float(square_above(1.0 + diameter + growth * diameter**exponent))
    if 2.0 * diameter > _LONGEST:
        best = min(best, *(_tangent_cost(growth, exponent, steps, diameter, at) for at in np.geomspace(1.0, diameter, 16).tolist()))
        return min(float(steps), best)
    # How much of the distance the first step takes away: all of it, down to a fraction of what the longest window would take.
    low, high = 1e-6, 1.0
    for _ in range(_ROUNDS):
        shares = np.geomspace(low, high, _SHOTS)
        costs = _shoot(growth, exponent, diameter, shares)
        best = min(best, float(costs.min()))
        middle = int(np.argmin(costs))
        low, high = float(shares[max(middle - 1, 0)]), float(shares[min(middle + 1, _SHOTS - 1)])
    return min(float(steps), best)


def _tangent_cost(growth: float, exponent: float, steps: int, diameter: float, at: float) -> float:
    """The concave h replaced by its tangent at a distance."""
    touch = 1.0 + (1.0 - exponent) * growth * at**exponent
    return float(square_above(touch)) * smooth_cost(1.0 + growth * exponent * at ** (exponent - 1.0), steps, diameter / touch)


def _powers(log_ratio: float, count: Array) -> Array:
    """1 + r + ... + r^(k-1)."""
    return count if log_ratio == 0.0 else np.expm1(count * log_ratio) / math.expm1(log_ratio)


def _paying(log_ratio: float, window: Array, budget: Array) -> Array:
    """How many of the steps with the largest weights 1, r, r^2, ... pay more than their touch."""
    low, high = np.ones_like(window), window.copy()
    while bool(np.any(low < high)):
        middle = np.ceil(0.5 * (low + high))
        # What the first k - 1 have paid when the k-th begins to: the sum of r^i (r^i / r^(k-1) - 1).
        needed = _powers(2.0 * log_ratio, middle) * np.exp(-(middle - 1.0) * log_ratio) - _powers(log_ratio, middle)
        enough = needed <= budget
        low, high = np.where(enough, middle, low), np.where(enough, high, middle - 1.0)
    return low


def _shoot(growth: float, exponent: float, diameter: float, shares: Array) -> Array:
    """The cost of each first payment, as far as it is followed."""
    result = np.full(shares.shape, np.inf)
    shot = np.arange(shares.size)
    distance, price = np.full(shares.shape, diameter), 1.0 + growth * diameter**exponent + shares * diameter
    spent = np.zeros(shares.shape)
    best = math.inf
    with np.errstate(over="ignore"):
        for _ in range(_LONGEST):
            arriving = distance + growth * distance**exponent
            result[shot] = np.minimum(result[shot], spent + np.square(1.0 + arriving))
            best = min(best, float(result[shot].min()))
            reached = arriving + 1.0 - price
            spent = spent + np.square(price)
            # At 0 all was paid; not falling, it never ends; and every further step costs at least 1.
            going = (reached > 0.0) & (reached < distance) & (spent + 1.0 < best)
            shot, distance, spent, price = shot[going], reached[going], spent[going], price[going]
            if not shot.size:
                break
            price = np.maximum(1.0, price / (1.0 + growth * exponent * distance ** (exponent - 1.0)))
    return result


def smooth_constant(run: Run) -> float:
    r"""c of one step: $\max(|1-\lambda m|, |1-\lambda M|)$ for convex losses and steps up to $2/M$, else $1 + \lambda M$; rounded up.

    For smooth losses and one step size.
    """
    assert run.loss.curvature is not None
    weak_convexity, smoothness = run.loss.curvature
    size = float(run.step_sizes[0])
    if weak_convexity <= 0.0 and size * smoothness <= 2.0:
        return plain_step(size, weak_convexity, smoothness)
    steepest = max(weak_convexity, smoothness)
    return plain_step(size, steepest, steepest)


class ChienLi2024(Theorem):
    r"""Full batches, convex or not, bounded domain or not, for smooth losses: `smooth_cost`.

    Stated with per-record clipping for one record replaced, $s = 2\lambda K/n$; its proof needs only how far a step moves, so under
    zero_out s is half as large. Clipping may make a step expand by more than c: sound only where c allows for that, which
    $1 + \lambda M$ always does.
    """

    name: ClassVar[str] = "chien-li-2024"
    statement: ClassVar[str] = "Full batches and smooth losses, convex or not: each noise split between the record and an earlier distance."
    formula: ClassVar[str] = (
        r"\epsilon(\alpha) = \frac{\alpha}{2\tau^2}\min_{R}\min_{a \ge 0}\sum_{r=1}^{R}(s + a_r)^2,\ "
        r"\sum_{r=1}^{R} c^{R-r}a_r = c^R\min\left(D, s\sum_{i<T-R}c^i\right)"
    )
    needs: ClassVar[str] = "full batches, smooth losses, constant noise"
    citations: ClassVar[tuple[Citation, ...]] = (_CITATION,)
    standing: ClassVar[Standing] = Standing(soundness="dominated", why="optimal-shift minimises over more payments, of any size >= 0")

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        return (*_shared(run), require.smooth(run))

    def standing_on(self, run: Run) -> Standing:
        """Sound unless clipping acts and may make a step expand by more than the constant used."""
        if not run.clips:
            return self.standing
        assert run.loss.curvature is not None
        clipped = (generalised_linear_step if clipped_along_a_line(run) else clipped_step)(float(run.step_sizes[0]), *run.loss.curvature)
        constant = smooth_constant(run)
        if constant >= clipped:
            return self.standing
        return Standing(
            soundness="proof-gap", why=f"it takes a step to be {constant:.6g}-Lipschitz; clipped, it is {clipped:.6g}-Lipschitz"
        )

    def _bound(self, run: Run) -> Bound:
        constant = smooth_constant(run)
        cost = smooth_cost(constant, run.total_steps, run.diameter / float(run.sensitivities[0]))
        step = StepConstant(constant=constant, certificate=f"{run.loss.summary}, as if unclipped" if run.clips else run.loss.summary)
        return Bound(guarantee=_zcdp(run, cost), lipschitz=step)


class ChienLi2024Holder(Theorem):
    r"""Full batches on a bounded domain for losses with a Hölder gradient, $\|\nabla f(x) - \nabla f(y)\| \le H\|x-y\|^p$.

    As `ChienLi2024`, with $z + \lambda Hz^p$ in place of $cz$ in both recursions: see `holder_cost` for how it is minimised. Clipping, a
    projection, keeps the Hölder bound, so it holds clipped as well. On an unbounded domain it is composition.
    """

    name: ClassVar[str] = "chien-li-2024-holder"
    statement: ClassVar[str] = "Full batches and Hölder gradients: each noise split between the record and an earlier distance."
    formula: ClassVar[str] = (
        r"\epsilon(\alpha) = \frac{\alpha}{2\tau^2}\min_{R}\min_{a \ge 0}\sum_{r=1}^{R}(s + a_r)^2,\ "
        r"z_r = z_{r-1} + \lambda H z_{r-1}^p - a_r \ge 0,\ z_0 = D,\ z_R = 0"
    )
    needs: ClassVar[str] = "full batches, losses with a Hölder gradient, constant noise"
    citations: ClassVar[tuple[Citation, ...]] = (_CITATION,)

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        return (*_shared(run), require.holder_gradient(run))

    def _bound(self, run: Run) -> Bound:
        assert isinstance(run.loss, Holder)
        touch, exponent = float(run.sensitivities[0]), run.loss.exponent
        growth = float(run.step_sizes[0]) * run.loss.constant * touch ** (exponent - 1.0)
        return Bound(guarantee=_zcdp(run, holder_cost(growth, exponent, run.total_steps, run.diameter / touch)))


def _zcdp(run: Run, cost: float) -> ZCDP:
    """The guarantee of a cost in units of a touch over the noise, rounded up."""
    ratio = float(run.relative_noise[0])
    return ZCDP(float(above(0.5 * cost / ratio / ratio, 1e-11)))


def _shared(run: Run) -> tuple[Finding, ...]:
    """The hypotheses of both theorems."""
    return (
        require.last_iterate(run),
        require.design(run, ("full",), "every record at every step"),
        require.gradient_bound(run),
        require.constant_noise_and_step(run),
    )
