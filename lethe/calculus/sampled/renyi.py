r"""Rényi divergence of one sampled Gaussian step at one public grid of orders, for many noise levels at once.

Noise levels $z$ are noise multipliers: the standard deviation of the noise on the batch SUM is $z$ times one record's gradient bound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.domains import FloatArray, outside, require_probability, require_vector
from lethe.calculus.normal import log_mixture
from lethe.calculus.sampled.dominated_renyi import replaced_excess, zeroed_excess
from lethe.calculus.sampled.fixed_size import fixed_size_log_moments
from lethe.calculus.sampled.fractional import fractional_log_moments, quadrature_levels, quadrature_orders
from lethe.calculus.sampled.integer import integer_log_moments
from lethe.calculus.sampled.pair_renyi import pair_log_moments
from lethe.errors import InputError

Design = Literal["poisson", "without_replacement"]
Relation = Literal["replace_one", "zero_out", "add_or_remove"]

# Tenths up to 11, where the best order of a useful guarantee is; then ever sparser. Between 64 and 512 divergences jump where a rare draw
# begins to dominate, and small deltas are answered just below.
ORDERS: tuple[float, ...] = tuple(
    [1.0 + k / 10 for k in range(1, 100)]
    + [float(k) for k in [*range(11, 20), *range(20, 32, 2), *range(32, 64, 4), *range(64, 128, 16), *range(128, 256, 32)]]
    + [256.0, 320.0, 512.0, 1024.0, 2048.0]
)

_Bound = Callable[[float, FloatArray, FloatArray], FloatArray]
_Moments = Callable[[float, FloatArray, tuple[int, ...]], FloatArray]
_EPS = float(np.finfo(np.float64).eps)
WEAKEST_NOISE, _STRONGEST_NOISE = 1e-100, 1e100
_HIGHEST_ORDER = 8192.0
# A quadrature takes 1 to 30 milliseconds a level.
_MOST_QUADRATURES = 256


def require_design(design: object, relation: object) -> None:
    """Raise InputError unless design and relation are known and go together."""
    if design not in ("poisson", "without_replacement"):
        raise outside("design", design, "poisson or without_replacement")
    if relation not in ("replace_one", "zero_out", "add_or_remove"):
        raise outside("relation", relation, "replace_one, zero_out or add_or_remove")
    if design == "without_replacement" and relation == "add_or_remove":
        raise InputError(
            "relation = 'add_or_remove' with batches of fixed size; it needs Poisson batches, because adding a record changes every batch.",
            source="the arguments design and relation",
            remedy="use replace_one or zero_out, or Poisson batches",
        )


def distance(relation: Relation) -> float:
    """How far one step moves between neighbours, in units of one record's gradient bound."""
    return 2.0 if relation == "replace_one" else 1.0


def renyi_values(probability: float, noise_multipliers: ArrayLike, relation: Relation, design: Design) -> FloatArray:
    r"""Rényi divergence of one step at `ORDERS`, the worse of both directions, rounded up.

    Poisson, zero_out or add_or_remove: exact, `poisson_renyi`. Poisson, replace_one: exact, the pair of +1 and -1 (`sampled_pair_renyi`).
    Without replacement: from the profiles that dominate a step (`sampled_dominated_renyi`). Where those would take too long (high orders
    with little noise, more than 256 levels, which are rounded down), and where it is smaller: joint convexity,
    $\log(1 - q + q e^{2\alpha(\alpha-1)/z^2})/(\alpha-1)$, and Theorem 27 with noise $z/2$, linear in $\alpha$ between whole orders. Never
    above the step without sampling, $\alpha d^2/(2z^2)$ with $d = 2$ for replace_one and else 1.

    Args:
        probability: $q \in [0, 1]$: each record's chance to enter a batch, or the share of the records in one.
        noise_multipliers: $z \ge 0$, finite, shape (levels,).
        relation: replace_one, zero_out or add_or_remove (Poisson only).
        design: poisson or without_replacement.
    Returns:
        Shape (levels, len(ORDERS)); 0 for q = 0, infinity for q > 0 = z, never nan.
    Raises:
        InputError: an argument is outside its range, or add_or_remove meets batches of fixed size.
    Reference: Mironov, Talwar, Zhang 2019, arXiv:1908.10530; Wang, Balle, Kasiviswanathan 2019, arXiv:1808.00087, Theorem 27.
    """
    sampling, noise = require_probability("probability", probability), require_vector("noise_multipliers", noise_multipliers, low=0.0)
    require_design(design, relation)
    orders = np.array(ORDERS)
    unsampled = _gaussian_renyi(noise / distance(relation), orders)
    if sampling == 0.0:
        return np.zeros_like(unsampled)
    if sampling == 1.0:
        return unsampled
    if design == "without_replacement":
        dominated = _zeroed_logs if relation == "zero_out" else _replaced_logs
        bound = np.fmin(_each_level(_fixed_size_logs, sampling, 0.5 * noise, orders), _at_few_levels(dominated, sampling, noise, orders))
    elif relation == "replace_one":
        with np.errstate(over="ignore", divide="ignore"):
            exponents = 2.0 * orders * (orders - 1.0) / np.square(noise[:, None]) * (1.0 + 4.0 * _EPS)
            bound = log_mixture(sampling, exponents) / (orders - 1.0) * (1.0 + 8.0 * _EPS) + 5e-324
        bound = np.fmin(bound, _at_few_levels(_opposite_logs, sampling, noise, orders))
    else:
        bound = poisson_renyi(sampling, noise, orders)
    # The divergence grows with its order, so a bound at a higher one holds at a lower one too.
    return np.minimum.accumulate(np.fmin(unsampled, bound)[:, ::-1], axis=1)[:, ::-1]


def poisson_renyi(probability: float, noise_multipliers: ArrayLike, orders: ArrayLike) -> FloatArray:
    r"""Rényi divergence of one Poisson-sampled Gaussian step for zero_out or add_or_remove, rounded up.

    $$D_\alpha\{(1-q)N(0,z^2) + qN(1,z^2) \,\|\, N(0,z^2)\} = \frac{\log A_\alpha}{\alpha-1},$$

    never below the other direction. Whole orders: the binomial sum. Others: quadrature with a proven error, where it fits in floating
    point (z at least 0.15 up to order 11); elsewhere $\log A_\alpha$, convex in $\alpha$, is bounded by its chord between whole orders.

    Args:
        probability: $q \in [0, 1]$.
        noise_multipliers: $z \ge 0$, finite, shape (levels,).
        orders: $\alpha > 1$, at most 8192, shape (orders,).
    Returns:
        Shape (levels, orders): above the exact value by at most 1e-11 of it, except on chords; infinity for q > 0 = z; never nan.
    Raises:
        InputError: an argument is outside its range.
    Reference: Mironov, Talwar, Zhang 2019, arXiv:1908.10530, Section 3.3 and Theorem 5.
    """
    sampling, noise = require_probability("probability", probability), require_vector("noise_multipliers", noise_multipliers, low=0.0)
    alphas = require_vector("orders", orders, low=1.0, strict=True)
    if float(alphas.max()) > _HIGHEST_ORDER:
        raise outside("orders", float(alphas.max()), f"orders at most {_HIGHEST_ORDER:g}")
    unsampled = _gaussian_renyi(noise, alphas)
    if sampling in (0.0, 1.0):
        return unsampled if sampling == 1.0 else np.zeros_like(unsampled)
    return np.fmin(unsampled, _each_level(_poisson_logs, sampling, noise, alphas))


def _gaussian_renyi(noise: FloatArray, orders: FloatArray) -> FloatArray:
    """The step without sampling: alpha / (2 z^2), rounded up."""
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        return 0.5 * orders * np.square(1.0 / noise)[:, None] * (1.0 + 8.0 * _EPS) + 5e-324


def _each_level(bound: _Bound, probability: float, noise: FloatArray, orders: FloatArray) -> FloatArray:
    """`bound` at each distinct level that floating point can hold, infinity below them; more noise than 1e100 counts as 1e100."""
    levels, where = np.unique(np.minimum(noise, _STRONGEST_NOISE), return_inverse=True)
    values = np.full((levels.size, orders.size), np.inf)
    held = levels >= WEAKEST_NOISE
    if np.any(held):
        with np.errstate(over="ignore", under="ignore"):
            values[held] = bound(probability, levels[held], orders) / (orders - 1.0) * (1.0 + 2.0 * _EPS) + 5e-324
    return values[where]


def _at_few_levels(bound: _Bound, probability: float, noise: FloatArray, orders: FloatArray) -> FloatArray:
    """`_each_level` at no more than a few levels: of many, each is lowered to the smallest in its bin of the logarithm."""
    levels = np.unique(noise[noise >= WEAKEST_NOISE])
    if levels.size <= _MOST_QUADRATURES:
        return _each_level(bound, probability, noise, orders)
    logs = np.log(levels)
    bins = np.minimum(np.floor(_MOST_QUADRATURES * (logs - logs[0]) / (logs[-1] - logs[0])), _MOST_QUADRATURES - 1)
    kept = levels[np.flatnonzero(np.diff(bins, prepend=-1.0) > 0.0)]
    lower = np.searchsorted(kept, noise, side="right") - 1
    return _each_level(bound, probability, np.where(lower < 0, 0.0, kept[lower]), orders)


def _opposite_logs(probability: float, noise: FloatArray, orders: FloatArray) -> FloatArray:
    return pair_log_moments(probability, noise, orders, "opposite")


def _replaced_logs(probability: float, noise: FloatArray, orders: FloatArray) -> FloatArray:
    plain = _poisson_logs(probability, 0.5 * noise, orders)
    return np.logaddexp(plain, np.log(replaced_excess(probability, noise, orders) + 5e-324)) * (1.0 + 4.0 * _EPS)


def _zeroed_logs(probability: float, noise: FloatArray, orders: FloatArray) -> FloatArray:
    plain = pair_log_moments(probability, noise, orders, "in front")
    return np.logaddexp(plain, np.log(zeroed_excess(probability, noise, orders) + 5e-324)) * (1.0 + 4.0 * _EPS)


def _poisson_logs(probability: float, noise: FloatArray, orders: FloatArray) -> FloatArray:
    logs = np.empty((noise.size, orders.size))
    quadrature = (orders % 1.0 != 0.0) & quadrature_orders(orders)
    inside = quadrature_levels(noise, orders[quadrature])
    for levels, chords in ((inside, ~quadrature), (~inside, np.ones_like(quadrature))):
        if np.any(levels) and np.any(chords):
            logs[np.ix_(levels, chords)] = _chords(integer_log_moments, probability, noise[levels], orders[chords])
    if np.any(inside) and np.any(quadrature):
        logs[np.ix_(inside, quadrature)] = fractional_log_moments(probability, noise[inside], orders[quadrature])
    return logs


def _fixed_size_logs(probability: float, noise: FloatArray, orders: FloatArray) -> FloatArray:
    return _chords(fixed_size_log_moments, probability, noise, orders)


def _chords(moments: _Moments, probability: float, noise: FloatArray, orders: FloatArray) -> FloatArray:
    """Whole orders as `moments` gives them; others by the chord, between the whole orders next to them, of a logarithm convex in order."""
    below, above = np.floor(orders).astype(int), np.ceil(orders).astype(int)
    wholes = np.unique(np.concatenate((below, above)))
    # The logarithm is 0 at order 1, exactly.
    known = np.zeros((noise.size, wholes.size))
    known[:, wholes > 1] = moments(probability, noise, tuple(wholes[wholes > 1].tolist()))
    low, high = known[:, np.searchsorted(wholes, below)], known[:, np.searchsorted(wholes, above)]
    share = orders - below
    with np.errstate(invalid="ignore"):
        chord = ((1.0 - share) * low + share * high) * (1.0 + 8.0 * _EPS)
    return np.where(share == 0.0, low, chord)
