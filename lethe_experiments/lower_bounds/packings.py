r"""Packings of directions, and testing lower bounds derived from them."""

from __future__ import annotations

import math
from functools import lru_cache

_MOST_DIMENSIONS = 4000


@lru_cache(maxsize=64)
def packings(dimension: int) -> tuple[tuple[float, float], ...]:
    r"""Pairs $(h/d, \ln|V|)$: sets V of signs in $\{\pm1\}^d$, any two of which differ in at least h places.

    $|V| \ge 2^d/\sum_{i < h}\binom di$ (Gilbert and Varshamov: points are added while there is room), for h up to d/2; the last pair is
    $\nu, -\nu$. Beyond 4000 coordinates: $\ln|V| \ge d(\ln2 - H(h/d))$ for h up to d/2, on a grid.

    Args:
        dimension: d >= 1.
    """
    antipodal = (1.0, math.log(2.0))
    if dimension > _MOST_DIMENSIONS:
        shares = [i / 64 for i in range(1, 31)]
        entropies = [-share * math.log(share) - (1.0 - share) * math.log1p(-share) for share in shares]
        pairs = [
            (math.floor(share * dimension) / dimension, dimension * (math.log(2.0) - entropy))
            for share, entropy in zip(shares, entropies, strict=True)
        ]
        return (*pairs, antipodal)
    found, ball, term = list[tuple[float, float]](), 0, 1
    for places in range(1, dimension // 2 + 1):
        ball += term
        term = term * (dimension - places + 1) // places
        found.append((places / dimension, dimension * math.log(2.0) - math.log(ball)))
    thinned = found[:: max(len(found) // 64, 1)]
    return (*((share, size * (1.0 - 1e-12)) for share, size in thinned if size > 2.0 * math.log(2.0)), antipodal)


def error_probability(divergence: float, log_size: float) -> float:
    r"""How often any estimate of $\nu \in V$ is wrong on average, at least, if two laws of the output differ by a KL divergence of K.

    Fano: $1 - (K + \ln2)/\ln|V|$; for two directions $\frac12(1 - \sqrt{K/2})$ by Pinsker's inequality; 0 if that is negative.

    Args:
        divergence: K >= 0.
        log_size: $\ln|V|$; ln 2 for two directions.
    """
    if log_size <= math.log(2.0):
        return max(0.5 * (1.0 - math.sqrt(0.5 * divergence)), 0.0)
    return max(1.0 - (divergence + math.log(2.0)) / log_size, 0.0)


def private_divergence(records: int, chance: float, rho: float) -> float:
    r"""KL divergence bound $\rho\,(n^2p^2 + np(1-p))$ of a $\rho$-zCDP algorithm's outputs, each of n records replaced with probability p.

    Group privacy: data sets that differ in N records have outputs with divergence at most $\rho N^2$; KL is jointly convex, and
    $N \sim \mathrm{Bin}(n, p)$.

    Args:
        records: n.
        chance: p in [0, 1].
        rho: $\rho \ge 0$.
    """
    return rho * ((records * chance) ** 2 + records * chance * (1.0 - chance))


def coin_divergence(records: int, dimension: int, bias: float) -> float:
    r"""KL divergence bound $n\,d\,\delta\ln\frac{1+\delta}{1-\delta}$ of n records of d coins of bias $\delta$, whichever signs these have.

    Args:
        records, dimension: n and d.
        bias: $\delta \in [0, 1)$.
    """
    return records * dimension * bias * (math.log1p(bias) - math.log1p(-bias))
