"""What one of several secret bins reveals, known without the transforms under test: by quadrature, and from below."""

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

Direction = Literal["P against Q", "Q against P", "replaced"]
Floats = NDArray[np.float64]

# Odds that a correct bound fails one Monte Carlo test.
_ODDS = 1e-6


def densities(mu: float, normals: Floats) -> tuple[Floats, Floats]:
    """Of N(mu, 1) and N(-mu, 1) against N(0, 1)."""
    return np.exp(mu * normals - 0.5 * mu * mu), np.exp(-mu * normals - 0.5 * mu * mu)


def excess(direction: Direction, epsilon: float, plus: Floats, minus: Floats) -> Floats:
    """The integrand of the hockey-stick divergence, from the means of the densities over bins."""
    order = math.exp(epsilon)
    if direction == "P against Q":
        return np.maximum(plus - order, 0.0)
    if direction == "Q against P":
        return np.maximum(1.0 - order * plus, 0.0)
    return np.maximum(plus - order * minus, 0.0)


def in_the_plane(
    direction: Direction, epsilon: float, means: Callable[[Floats, Floats], tuple[Floats, Floats]], most: float, nodes: int = 2001
) -> float:
    """A divergence of two laws in the plane by the rectangle rule, which is off by what a kink costs: some 1e-5 of it.

    Args:
        direction: which divergence.
        epsilon: its order.
        means: of two standard normal numbers, the densities of both laws against theirs.
        most: how far from 0 the laws are centred at most.
        nodes: in each direction.
    """
    normals = np.linspace(-9.0 - most, 9.0 + most, nodes)
    weights = np.exp(-0.5 * normals**2) * ((normals[1] - normals[0]) / math.sqrt(2.0 * math.pi))
    total = 0.0
    for rows in np.array_split(np.arange(normals.size), 40):
        total += float(weights[rows] @ excess(direction, epsilon, *means(normals[rows, None], normals)) @ weights)
    return total


def two_bins(direction: Direction, epsilon: float, mus: tuple[float, float]) -> float:
    """The exact divergence of the pair with two bins."""

    def means(first: Floats, second: Floats) -> tuple[Floats, Floats]:
        (a, b), (c, d) = densities(mus[0], first), densities(mus[1], second)
        return 0.5 * (a + c), 0.5 * (b + d)

    return in_the_plane(direction, epsilon, means, max(mus))


def contracted(direction: Direction, epsilon: float, mu: float, doublings: int, interval: float, most: float) -> float:
    r"""A number below the divergence for $2^k$ equal bins, close to it: second order in the interval.

    The divergence is the mean of a convex function of $\sum_j V_j$. By Jensen it falls when the values of V in an interval are replaced by
    their mean; the ends of intervals are chosen so that these means are multiples of the grid's interval. Sums are convolved directly,
    all terms being positive, and what leaves the grid is dropped.

    Args:
        direction: which divergence.
        epsilon: its order.
        mu: what one bin costs.
        doublings: k.
        interval: of the grid, for V, where $V = X$, or $X - e^\epsilon X'$ for a replaced record.
        most: sums above it, or below minus it, are dropped.
    """
    order, bins = math.exp(epsilon), 2**doublings
    down = order if direction == "replaced" else 0.0

    def value(g: float) -> float:
        plus, minus = densities(mu, np.array(g))
        return float(plus - down * minus)

    def moment(low: float, high: float) -> tuple[float, float]:
        """Mass and first moment of V between two values of g."""
        mass, plus, minus = (special.ndtr(high - shift) - special.ndtr(low - shift) for shift in (0.0, mu, -mu))
        return float(mass), float(plus - down * minus)

    low, end, places, masses = -9.0, 9.0 + mu, list[int](), list[float]()
    while value(low) < -most:
        low += 0.01
    place = math.floor(value(low) / interval) + 1
    while True:
        left, right = low, end
        mass, first = moment(left, right)
        if mass <= 0.0 or first < place * interval * mass or place * interval > most:
            break
        for _ in range(60):
            middle = 0.5 * (left + right)
            mass, first = moment(low, middle)
            left, right = (middle, right) if first < place * interval * mass else (left, middle)
        places.append(place)
        masses.append(moment(low, left)[0])
        low = left
        place = max(place + 1, math.floor(value(low) / interval) + 1)
    law = np.zeros(places[-1] - places[0] + 1)
    law[np.array(places) - places[0]] = masses
    lowest = places[0]
    for _ in range(doublings):
        law, lowest = np.convolve(law, law), 2 * lowest
        cut = max(0, -math.floor(most / interval) - lowest)
        law, lowest = law[cut : math.floor(most / interval) - lowest + 1], lowest + cut
    sums = interval * (lowest + np.arange(law.size)) / bins
    return float(law @ excess("P against Q" if direction == "replaced" else direction, epsilon, sums + (order if down else 0.0), sums))


def at_least(direction: Direction, epsilon: float, mu: float, bins: int, draws: int, seed: int) -> float:
    r"""A number that the divergence exceeds but with odds of 1e-6, by an empirical Bernstein bound (Maurer & Pontil 2009).

    Of P against Q, and of a replaced record, the mean under P of $(1 - e^\epsilon q/p)_+$, with the record in the first bin and that bin's
    output integrated; of Q against P the mean under Q of $(1 - e^\epsilon p/q)_+$, with the first bin's output integrated too. Numbers
    above 20 times their mean are cut, which only lowers them.
    """
    generator, order = np.random.default_rng(seed), math.exp(epsilon)
    means: list[Floats] = []
    shift = 0.0 if direction == "Q against P" else mu
    outputs = shift + np.linspace(-8.0, 8.0, 161)
    weights = np.exp(-0.5 * (outputs - shift) ** 2)
    weights /= weights.sum()
    first_plus, first_minus = densities(mu, outputs)
    for _ in range(1 + draws // 1000):
        plus, minus = (part.sum(axis=1)[:, None] for part in densities(mu, generator.standard_normal((1000, bins - 1))))
        ours, theirs = (first_plus + plus) / bins, (first_minus + minus) / bins if direction == "replaced" else np.ones(1)
        kept = 1.0 - order * ours if direction == "Q against P" else 1.0 - order * theirs / ours
        means.append(np.maximum(kept, 0.0) @ weights)
    values = np.concatenate(means)
    most = 20.0 * float(values[:1000].mean())  # known before the others are drawn
    values = np.minimum(values[1000:], most)
    odds, count = math.log(2.0 / _ODDS), values.size
    return float(values.mean() - math.sqrt(2.0 * values.var(ddof=1) * odds / count) - 7.0 * most * odds / (3.0 * (count - 1)))
