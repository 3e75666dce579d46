r"""Composition of guarantees of one kind, Rényi curves of any, and by what factor a guarantee exceeds a target.

Theorems, totals and filters compose with it. Planners (`plan`, `allocate`, mechanisms given a target) ask `overshoot` by what factor a
guarantee misses its target, to find the smallest noise that meets it. Columns of $\mu$ are the records' slots: one column for each place of
a record in a pass, one row a pass.

Every rule here holds for adaptive composition: a step may depend on what the steps before it released.
"""

import math
from collections.abc import Mapping
from typing import Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from lethe.calculus.conversions import gdp_rho
from lethe.calculus.domains import FloatArray, outside, require_vector
from lethe.calculus.guarantees import GDP, ZCDP, ApproxDP, GDPMixture, Guarantee, RDPCurve, Tightest, WithSlack
from lethe.calculus.rounding import raised, round_up, square_above


def compose_gdp(mus: ArrayLike) -> float:
    r"""$\mu = \sqrt{\sum_t \mu_t^2}$: exact for Gaussian mechanisms, an upper bound for any GDP ones; rounded up, no overflow on the way.

    The one $\mu_t$ itself, unrounded, when the others are 0. Reference: Dong, Roth, Su 2019, arXiv:1905.02383, Corollary 3.3.
    """
    values = require_vector("mus", mus, low=0.0, allow_infinity=True)
    largest = float(values.max())
    if largest in (0.0, math.inf) or np.count_nonzero(values) == 1:
        return largest
    with np.errstate(under="ignore"):
        squares = np.square(values / largest)
    return round_up(largest * math.sqrt(math.fsum(squares.tolist())), 1e-15)


def compose_gdp_columns(mus: FloatArray) -> FloatArray:
    r"""$\mu$ of each column of $\mu_{tj} \in [0, \infty]$, shape (T, J), as `compose_gdp`; 0 only for a column of zeros."""
    largest = mus.max(axis=0)
    unit = np.where((largest > 0.0) & np.isfinite(largest), largest, 1.0)
    with np.errstate(under="ignore", over="ignore"):
        return raised(unit * np.sqrt(np.sum(np.square(mus / unit), axis=0)), (mus.shape[0] + 4) * 2.0**-52)


def compose_zcdp(rhos: ArrayLike) -> float:
    r"""$\rho = \sum_t \rho_t$, rounded up; the one $\rho_t$ itself when the others are 0.

    Reference: Bun & Steinke 2016, arXiv:1605.02065, Lemma 1.7.
    """
    values = require_vector("rhos", rhos, low=0.0, allow_infinity=True)
    if np.count_nonzero(values) <= 1 or np.any(np.isinf(values)):
        return float(values.max())
    with np.errstate(over="ignore"):
        return round_up(math.fsum(values.tolist()) if values.max() < 1e290 else float(values.sum()), 1e-15)


_ORDERS = 1.0 + np.geomspace(0.01, 1e5, 300)


@runtime_checkable
class _HasCurve(Protocol):
    """A guarantee that computes its own curve."""

    def renyi_curve(self) -> RDPCurve: ...


def renyi_curve(parts: Mapping[Guarantee, int]) -> RDPCurve | None:
    r"""The sum of the Rényi curves of parts, each as often as said, order by order, rounded up; None when some part has none.

    A divergence of any order is an integral of the hockey-stick divergences of both directions with positive weights, so whatever dominates
    a mechanism there dominates it here. A mixture is dominated by the Gaussian pairs with their component revealed: $\epsilon(\alpha) =
    \frac{1}{\alpha-1}\log\sum_j w_j e^{\alpha(\alpha-1)\mu_j^2/2}$. Reference: Mironov 2017, arXiv:1702.07476; Zhu, Dong, Wang 2022,
    arXiv:2106.08567.
    """
    curves: dict[Guarantee, RDPCurve] = {guarantee: guarantee.renyi_curve() for guarantee in parts if isinstance(guarantee, _HasCurve)}
    listed = [*curves.values(), *(guarantee for guarantee in parts if isinstance(guarantee, RDPCurve))]
    orders = np.array(listed[0].orders) if listed else _ORDERS
    total = np.zeros(orders.size)
    for guarantee, count in parts.items():
        values = _values(curves.get(guarantee, guarantee), orders)
        if values is None:
            return None
        # As a float: a whole number may be too large for numpy.
        with np.errstate(over="ignore"):
            total = total + float(count) * values
    return RDPCurve(tuple(orders.tolist()), tuple(raised(total, 1e-12).tolist()))


def renyi_at(guarantee: Guarantee, orders: FloatArray) -> FloatArray | None:
    r"""The guarantee's Rényi divergences at the given orders, shape (K,), rounded up; None if it has none."""
    curve = renyi_curve({guarantee: 1})
    if curve is None:
        return None
    has_orders = isinstance(guarantee, _HasCurve | RDPCurve)  # known at its own orders only; a formula is known at all
    values = _at(curve, orders) if has_orders else _values(guarantee, orders)
    return None if values is None else raised(values, 1e-12)


def _values(guarantee: Guarantee, orders: FloatArray) -> FloatArray | None:
    """A guarantee's divergences at these orders, not rounded yet; None if it has none."""
    with np.errstate(over="ignore", divide="ignore"):
        if isinstance(guarantee, GDP):
            return 0.5 * orders * square_above(guarantee.mu)
        if isinstance(guarantee, ZCDP):
            return orders * guarantee.rho
        if isinstance(guarantee, RDPCurve):
            return _at(guarantee, orders)
        if isinstance(guarantee, GDPMixture):
            return _mixture(guarantee, orders)
        if isinstance(guarantee, ApproxDP) and guarantee.delta_bound == 0.0:
            # Pure DP: Bun & Steinke 2016, arXiv:1605.02065, Proposition 3.3.
            return np.minimum(guarantee.epsilon_bound, 0.5 * orders * square_above(guarantee.epsilon_bound))
        if isinstance(guarantee, Tightest):
            curves = [values for part in guarantee.parts if (values := _values(part, orders)) is not None]
            return np.min(curves, axis=0) if curves else None
    return None


def _at(curve: RDPCurve, orders: FloatArray) -> FloatArray:
    """A curve at other orders: divergences grow with the order, so each listed one bounds all orders below it."""
    listed, values = np.array(curve.orders), np.array(curve.values)
    return np.array([np.min(values, initial=np.inf, where=listed >= order) for order in orders.tolist()])


def _mixture(guarantee: GDPMixture, orders: FloatArray) -> FloatArray:
    """The Rényi divergences of a mixture of Gaussian pairs, rounded up: by the mean of its components' moments."""
    mus, weights = np.array(guarantee.mus), np.array(guarantee.weights)
    mus, weights = mus[weights > 0.0], weights[weights > 0.0]
    # Weight that is left out of the mixture belongs to equal distributions.
    mus, weights = np.append(mus, 0.0), np.append(weights, max(1.0 - float(weights.sum()), 0.0) + 1e-15)
    with np.errstate(over="ignore", invalid="ignore"):
        exponents = 0.5 * (orders * (orders - 1.0))[:, None] * np.square(mus)
        moments = logsumexp(exponents, b=weights, axis=1)
    # log sum w e^x >= 0 up to rounding; infinite components make it infinite.
    return np.where(np.isnan(moments), np.inf, np.maximum(moments, 0.0) + 1e-15 * weights.size) / (orders - 1.0)


def require_target(target: Guarantee) -> Guarantee:
    """`target` itself if noise can be calibrated to it.

    Raises:
        InputError: it is no guarantee, of a kind no noise is calibrated to, or one that only infinite noise meets, or any noise.
    """
    names: dict[type[Guarantee], str] = {ApproxDP: "epsilon_bound", GDP: "mu", ZCDP: "rho", RDPCurve: "values"}
    size = float(np.min(cast(float, getattr(target, names.get(type(target), ""), math.nan))))
    if not 0.0 < size < math.inf or (isinstance(target, ApproxDP) and target.delta_bound >= 1.0):
        description = target.describe() if isinstance(target, Guarantee) else target  # pyright: ignore[reportUnnecessaryIsInstance]
        raise outside("target", description, "an (epsilon, delta), mu-GDP, rho-zCDP or Rényi curve, finite and above 0")
    return target


def overshoot(guarantee: Guarantee, target: Guarantee) -> float:
    r"""By what factor the guarantee exceeds the target, in the target's own unit: $\epsilon$ at its $\delta$, $\mu$, $\rho$, or the largest
    ratio of Rényi divergences over its orders. At most 1 if and only if the guarantee is seen to imply the target; inf if nothing is.

    Raises:
        InputError: as `require_target`.
    """
    require_target(target)
    if isinstance(target, ApproxDP):
        return guarantee.epsilon(target.delta_bound) / target.epsilon_bound
    if isinstance(target, GDP):
        return gaussian_mu(guarantee) / target.mu
    if isinstance(target, ZCDP):
        return concentrated_rho(guarantee) / target.rho
    assert isinstance(target, RDPCurve)
    values = renyi_at(guarantee, np.asarray(target.orders))
    if values is None:
        return math.inf
    limits = np.asarray(target.values)
    binding = np.isfinite(limits)
    return float((values[binding] / limits[binding]).max(initial=0.0))


def gaussian_mu(guarantee: Guarantee) -> float:
    r"""The smallest $\mu$ for which the guarantee is known to be $\mu$-GDP; inf if for none.

    A mixture whose component is drawn in the same way on both sides is no easier to tell apart than its worst component.
    """
    if isinstance(guarantee, GDP):
        return guarantee.mu
    if isinstance(guarantee, GDPMixture):
        return max((mu for mu, weight in zip(guarantee.mus, guarantee.weights, strict=True) if weight > 0.0), default=0.0)
    if isinstance(guarantee, Tightest):
        return min(gaussian_mu(part) for part in guarantee.parts)
    if isinstance(guarantee, WithSlack) and guarantee.slack == 0.0:
        return gaussian_mu(guarantee.guarantee)
    return math.inf


def concentrated_rho(guarantee: Guarantee) -> float:
    r"""The smallest $\rho$ for which the guarantee is known to be $\rho$-zCDP; inf if for none."""
    if isinstance(guarantee, ZCDP):
        return guarantee.rho
    if isinstance(guarantee, Tightest):
        return min(concentrated_rho(part) for part in guarantee.parts)
    return gdp_rho(gaussian_mu(guarantee))
