"""Proximal maps of the regulariser and the domain together, in NumPy."""

from __future__ import annotations

import numpy as np

from lethe.errors import InputError
from lethe.heavy_tailed.inputs import Array
from lethe.heavy_tailed.sets import BallDomain, BoxDomain, ConvexSet, WholeSpace
from lethe.run.regularisers import L1, L1L2, L2, Regulariser


def proximal_map(point: Array, step: float, regulariser: Regulariser | None, domain: ConvexSet) -> Array:
    r"""$\arg\min_y\ \eta h(y) + \frac12\|y - z\|^2$ over the domain.

    None: the projection. Ridge: the projection of $z/(1 + \eta\kappa)$, on any domain. L1 and elastic net: soft threshold
    $\mathrm{sign}(z)\max(|z| - \eta\kappa_1, 0)/(1 + \eta\kappa_2)$, then the projection: exact on the whole space, on boxes (coordinate by
    coordinate) and on balls about 0 (whose constraint adds a ridge).

    Args:
        point: z, shape (d,).
        step: $\eta > 0$.
        regulariser: h.
        domain: closed and convex.
    Raises:
        InputError: a pair whose map is not one of these.
    """
    require_pair(regulariser, domain)
    if regulariser is None:
        return domain.project(point)
    shrunk = np.sign(point) * np.maximum(np.abs(point) - step * _l1_strength(regulariser), 0.0)
    return domain.project(shrunk / (1.0 + step * regulariser.strong_convexity))


def require_pair(regulariser: object, domain: ConvexSet) -> None:
    """Refuse, with an InputError, a regulariser whose proximal map on this domain is not known in closed form."""
    sparse = isinstance(regulariser, L1 | L1L2)
    centred = isinstance(domain, BallDomain) and (domain.centre is None or not any(domain.centre))
    if regulariser is None or isinstance(regulariser, L2) or (sparse and (centred or isinstance(domain, WholeSpace | BoxDomain))):
        return
    raise InputError(
        f"regulariser: got {regulariser!r} on {type(domain).__name__}, whose proximal map is not known.",
        source="the arguments regulariser and problem",
        remedy="take None or Ridge; or L1 or ElasticNet on the whole space, a box or a ball about 0.",
    )


def _l1_strength(regulariser: Regulariser | None) -> float:
    if isinstance(regulariser, L1L2):
        return regulariser.l1_strength
    return regulariser.strength if isinstance(regulariser, L1) else 0.0
