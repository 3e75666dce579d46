"""Composition of guarantees of one kind: what several mechanisms on the same data cost together.

Every rule here holds for adaptive composition: a step may depend on what the steps before it released.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.conversions import gdp_rho
from lethe.calculus.domains import FloatArray, outside, require_vector
from lethe.calculus.guarantees import GDP, ZCDP, Guarantee, RDPCurve
from lethe.calculus.rounding import raised, round_up
from lethe.errors import InputError


def compose_gdp(mus: ArrayLike) -> float:
    r"""$\mu = \sqrt{\sum_t \mu_t^2}$: exact for Gaussian mechanisms, an upper bound for any GDP ones; rounded up, no overflow on the way.

    Args:
        mus: $\mu_t \in [0, \infty]$, shape (T,).
    Returns:
        $\mu$; the one $\mu_t$ itself, unrounded, when the others are 0.
    Raises:
        InputError: the list is empty or an entry is outside its range.
    Reference: Dong, Roth, Su 2019, arXiv:1905.02383, Corollary 3.3.
    """
    values = require_vector("mus", mus, low=0.0, allow_infinity=True)
    largest = float(values.max())
    if largest in (0.0, math.inf) or np.count_nonzero(values) == 1:
        return largest
    with np.errstate(under="ignore"):
        squares = np.square(values / largest)
    return round_up(largest * math.sqrt(math.fsum(squares.tolist())), 1e-15)


def compose_gdp_columns(mus: FloatArray) -> FloatArray:
    r"""$\mu$ of each column of $\mu_{tj} \in [0, \infty]$, shape (T, J), as `compose_gdp`; rounded up, no over- or underflow on the way.

    Returns:
        Shape (J,); 0 only for a column of zeros.
    """
    largest = mus.max(axis=0)
    unit = np.where((largest > 0.0) & np.isfinite(largest), largest, 1.0)
    with np.errstate(under="ignore", over="ignore"):
        return raised(unit * np.sqrt(np.sum(np.square(mus / unit), axis=0)), (mus.shape[0] + 4) * 2.0**-52)


def compose_zcdp(rhos: ArrayLike) -> float:
    r"""$\rho = \sum_t \rho_t$, rounded up.

    Args:
        rhos: $\rho_t \in [0, \infty]$, shape (T,).
    Returns:
        $\rho$; the one $\rho_t$ itself when the others are 0.
    Raises:
        InputError: the list is empty or an entry is outside its range.
    Reference: Bun & Steinke 2016, arXiv:1605.02065, Lemma 1.7.
    """
    values = require_vector("rhos", rhos, low=0.0, allow_infinity=True)
    if np.count_nonzero(values) <= 1 or np.any(np.isinf(values)):
        return float(values.max())
    with np.errstate(over="ignore"):
        return round_up(math.fsum(values.tolist()) if values.max() < 1e290 else float(values.sum()), 1e-15)


def compose_rdp(curves: Sequence[RDPCurve]) -> RDPCurve:
    r"""$\epsilon(\alpha) = \sum_t \epsilon_t(\alpha)$, order by order, rounded up; all curves at the same orders.

    Args:
        curves: at least one curve; all with equal `orders`.
    Returns:
        The curve of the composition, at those orders.
    Raises:
        InputError: there is no curve, or the orders differ.
    Reference: Mironov 2017, arXiv:1702.07476, Proposition 1.
    """
    if not curves:
        raise outside("curves", curves, "at least one Rényi curve")
    orders = curves[0].orders
    if any(curve.orders != orders for curve in curves):
        raise InputError(
            "the Rényi curves have different orders; their sum needs the same ones.",
            source="the argument curves",
            remedy="compute every curve at one list of orders",
        )
    return RDPCurve(orders, tuple(compose_zcdp(column) for column in zip(*(curve.values for curve in curves), strict=True)))


def compose(guarantees: Sequence[Guarantee]) -> GDP | ZCDP | RDPCurve:
    r"""Compose GDP, zCDP and Rényi guarantees in the strongest kind that all of them imply.

    All GDP stay GDP, all zCDP stay zCDP, all Rényi curves stay a curve: nothing is lost. Mixed lists lose what the conversions lose:
    $\mu$-GDP implies $(\mu^2/2)$-zCDP, and $\rho$-zCDP implies $\epsilon(\alpha) = \rho\alpha$ at the orders of the curves present.

    Args:
        guarantees: at least one, each GDP, ZCDP or RDPCurve (all curves at the same orders).
    Returns:
        One guarantee of the composition.
    Raises:
        InputError: the list is empty, holds another kind, or its curves have different orders.
    Reference: Dong, Roth, Su 2019, arXiv:1905.02383; Bun & Steinke 2016, arXiv:1605.02065, Proposition 1.6 and Lemma 1.7.
    """
    gaussian = [guarantee for guarantee in guarantees if isinstance(guarantee, GDP)]
    concentrated = [guarantee for guarantee in guarantees if isinstance(guarantee, ZCDP)]
    curves = [guarantee for guarantee in guarantees if isinstance(guarantee, RDPCurve)]
    if not guarantees or len(gaussian) + len(concentrated) + len(curves) != len(guarantees):
        kinds = [getattr(guarantee, "kind", repr(guarantee)) for guarantee in guarantees]
        raise outside("guarantees", kinds, "at least one guarantee, each of kind gdp, zcdp or rdp")
    if len(gaussian) == len(guarantees):
        return GDP(compose_gdp([guarantee.mu for guarantee in gaussian]))
    rhos = [guarantee.rho for guarantee in concentrated]
    if gaussian:
        mu = compose_gdp([guarantee.mu for guarantee in gaussian])
        rhos.append(gdp_rho(mu))
    if not curves:
        return ZCDP(compose_zcdp(rhos))
    if rhos:
        rho = compose_zcdp(rhos)
        curves.append(RDPCurve(curves[0].orders, tuple(round_up(rho * order) if rho > 0.0 else 0.0 for order in curves[0].orders)))
    return compose_rdp(curves)
