"""Exact truths of small shuffled runs: every sequence of positions, in rational arithmetic, so that no number is too large or too small."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise, product
from math import inf, isqrt

import numpy as np
from numpy.typing import ArrayLike
from oracles import gaussian_delta


def positions(steps: int, size: int) -> Iterator[list[int]]:
    """The steps that touch the record, from 0, for each equally likely sequence of its positions."""
    for places in product(range(size), repeat=-(-steps // size)):
        yield [t for t in (e * size + place for e, place in enumerate(places)) if t < steps]


def path_mus(lipschitz: ArrayLike, sensitivity: ArrayLike, noise_std: ArrayLike, size: int) -> list[float]:
    """The optimal shift of each sequence of positions."""
    factors, touches, noise = ([Fraction(float(x)) for x in np.asarray(values, float)] for values in (lipschitz, sensitivity, noise_std))
    across, rises, weight = [Fraction(0)], list[Fraction](), Fraction(1)
    for t in range(len(factors) - 1, -1, -1):  # from the end of the run, where the weight is 1, backward
        across.append(across[-1] - (weight * noise[t]) ** 2)
        rises.append(weight * touches[t])
        weight *= factors[t]
    return [_path_mu(across[::-1], rises[::-1], touched) for touched in positions(len(factors), size)]


def _path_mu(across: Sequence[Fraction], rises: Sequence[Fraction], touched: Sequence[int]) -> float:
    """One path, rounded down by less than 1e-15: the convex minorant of its points; inf where a rise has no run."""
    points = [(across[-1], Fraction(0))]
    for t in range(len(rises) - 1, -1, -1):
        points.append((across[t], points[-1][1] - rises[t] if t in touched else points[-1][1]))
    points.reverse()
    hull: list[tuple[Fraction, Fraction]] = []
    for place, (x, y) in enumerate(points):
        # A touch without noise is a vertical line, of which the minorant keeps the lower end, but for the last point of all.
        if hull and hull[-1][0] == x and place < len(points) - 1:
            continue
        while len(hull) > 1 and (hull[-1][1] - hull[-2][1]) * (x - hull[-1][0]) >= (y - hull[-1][1]) * (hull[-1][0] - hull[-2][0]):
            hull.pop()
        hull.append((x, y))
    squared = Fraction(0)
    for (x, y), (u, v) in pairwise(hull):
        if v > y and u == x:
            return inf
        squared += (v - y) ** 2 / (u - x) if v > y else 0
    # A root of 60 bits, whatever the size of the number.
    bits = max(0, 130 - (squared.numerator.bit_length() - squared.denominator.bit_length())) // 2 * 2 if squared else 0
    root = Fraction(isqrt((squared.numerator << bits) // squared.denominator), 1 << (bits // 2))
    return float(root) if root < Fraction(1e308) else inf


def least_delta(mus: Sequence[float], epsilon: float) -> float:
    """The mean over all paths of the delta of the optimal shift: below it no accounting by shifts may go."""
    return float(gaussian_delta(mus, epsilon).mean())
