"""A proximal step, and the projection that iterates are kept within, round as often as is counted, however many numbers a norm is of.

The vectors are those whose squares a sum in one order rounds all the same way; the exact steps are in rational numbers and 40 digits.
"""

import math
from decimal import Decimal, getcontext
from fractions import Fraction

import numpy as np
import pytest
import torch

from lethe.calculus.rounding import pairwise_sum
from lethe.heavy_tailed import sets
from lethe.run.regularisers import L1, L1L2, L2, Ball, Box, GroupL1, NuclearNorm, Regulariser, Simplex
from lethe.train.core.iterates import inward, keep_within
from lethe.train.core.proximal import NetworkProximal, ProximalGroup, proximal_step

UNIT = 2.0**-53
ONE_WAY = 1.0 + 1.3 * 2.0**-27  # its square is rounded down by a third of a unit; added one to another, so is every other sum
WIDTHS = [2**10, 2**20]


def norm_of(values: dict[float, int]) -> Decimal:
    """Of so many numbers of each value."""
    getcontext().prec = 40
    square = sum((Fraction(value) ** 2 * count for value, count in values.items()), Fraction(0))
    return (Decimal(square.numerator) / Decimal(square.denominator)).sqrt()


def off(computed: np.ndarray, values: dict[float, int], factor: Decimal) -> float:
    """How far from `factor` times the vector of these values, in that order, relative to u and the vector's norm."""
    total, first = Decimal(0), 0
    for value, count in values.items():
        part, error = computed[first : first + count], Decimal(value) * factor
        total += sum((Decimal(float(one)) - error) ** 2 * int(many) for one, many in zip(*np.unique(part, return_counts=True), strict=True))
        first += count
    return float(total.sqrt() / norm_of(values)) / UNIT


def network(part: Regulariser, point: np.ndarray, step_size: float = 1.0) -> np.ndarray:
    tensor = torch.tensor(point)
    NetworkProximal({"all": tensor}, [ProximalGroup(regularisers=(part,), blocks="tensors")]).step(step_size)
    return tensor.numpy()


def linear(part: Regulariser, point: np.ndarray, step_size: float = 1.0) -> np.ndarray:
    return proximal_step([part])(torch.tensor(point), step_size).numpy()


def kept(part: Ball, point: np.ndarray) -> np.ndarray:
    halves = list(torch.tensor(point).split(len(point) // 2 + 1))
    keep_within(halves, part.radius)
    return torch.cat(halves).numpy()


def in_a_set(part: Ball, point: np.ndarray) -> np.ndarray:
    return sets.BallDomain(radius=part.radius).project(point)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("door", "rounded_inward"), [(network, True), (linear, True), (kept, False), (in_a_set, False)])
def test_a_step_of_a_ball_and_of_a_group(door: object, *, rounded_inward: bool, width: int) -> None:
    values = {1.5: 1, ONE_WAY: width - 1}
    point = np.repeat(list(values), list(values.values()))
    radius = 0.75 * float(norm_of(values))
    limit = inward(radius, width, torch.float64) if rounded_inward else radius
    computed = door(Ball(radius=radius), point)  # pyright: ignore[reportCallIssue]
    assert off(computed, values, Decimal(limit) / norm_of(values)) < Ball.roundings
    for share in (0.3, 0.9) if door is network else ():
        strength = share * float(norm_of(values))
        assert off(network(GroupL1(strength=strength), point), values, 1 - Decimal(strength) / norm_of(values)) < GroupL1.roundings


@pytest.mark.parametrize("width", WIDTHS)
def test_a_simplex_step_onto_all_its_coordinates(width: int) -> None:
    """One coordinate is large beside the others: whoever takes it off them all first loses sqrt(d) roundings."""
    entries = np.append(1.0, 2.0**-12 * np.random.default_rng(0).random(width // 256))
    many = [1] + [256] * (width // 256)
    total = 1.0 + width * 2.0**-12
    threshold = (sum(Fraction(one) * count for one, count in zip(entries.tolist(), many, strict=True)) - Fraction(total)) / sum(many)
    share = Fraction(inward(total, sum(many), torch.float64) / total)
    every = network(Simplex(total=total), np.repeat(entries, many))
    computed = [Fraction(every[first]) for first in np.cumsum([0, *many[:-1]])]
    apart, norm = (
        float(sum(one**2 * count for one, count in zip(numbers, many, strict=True))) ** 0.5
        for numbers in (
            [float(one - (Fraction(other) - threshold) * share) for one, other in zip(computed, entries.tolist(), strict=True)],
            entries.tolist(),
        )
    )
    assert sum(one * count for one, count in zip(computed, many, strict=True)) <= total
    assert apart / UNIT < Simplex.roundings * norm


def exact_simplex(point: np.ndarray, total: float) -> list[Fraction]:
    ordered, running, threshold = sorted(map(Fraction, point.tolist()), reverse=True), Fraction(0), Fraction(0)
    for count, entry in enumerate(ordered, 1):
        running += entry
        if entry * count <= running - Fraction(total):
            break
        threshold = (running - Fraction(total)) / count
    return [max(Fraction(entry) - threshold, Fraction(0)) for entry in point.tolist()]


RANDOM = np.random.default_rng(1)
POINTS = {
    "equal": np.full(300, ONE_WAY),
    "far": 1e12 + 1e-3 * RANDOM.normal(size=300),
    "negative": -np.exp(4 * RANDOM.normal(size=300)),
    "next to the threshold": np.append(7.0 + 1 / 3, 1 / 3 - 2.0**-40 * RANDOM.random(299)),
    "halves": -(2.0 ** np.arange(-150, 150)),
}


@pytest.mark.parametrize("total", [1e-8, 0.1, 7.0, 1e4])
@pytest.mark.parametrize("name", POINTS)
def test_a_simplex_step(name: str, total: float) -> None:
    point = POINTS[name]
    share = Fraction(inward(total, len(point), torch.float64) / total)
    computed = [Fraction(entry) for entry in network(Simplex(total=total), point).tolist()]
    exact = [entry * share for entry in exact_simplex(point, total)]
    assert sum(computed) <= total
    apart = float(sum((one - other) ** 2 for one, other in zip(computed, exact, strict=True))) ** 0.5
    norm = max(np.linalg.norm(point), float(sum(entry**2 for entry in exact)) ** 0.5)
    assert apart / UNIT < Simplex.roundings * norm


@pytest.mark.parametrize("door", [network, linear])
@pytest.mark.parametrize(
    ("part", "l1", "ridge"),
    [(L2(strength=0.3), 0.0, 0.3), (L1(strength=0.3), 0.3, 0.0), (L1L2(l1_strength=0.2, ridge_strength=0.9), 0.2, 0.9)],
)
def test_a_step_of_each_coordinate(door: object, part: Regulariser, l1: float, ridge: float) -> None:
    point, step_size = np.random.default_rng(2).normal(size=500), 0.7
    cut, divisor = Fraction(l1) * Fraction(step_size), 1 + Fraction(ridge) * Fraction(step_size)
    computed = door(part, point, step_size)  # pyright: ignore[reportCallIssue]
    shrunk = [max(abs(Fraction(entry)) - cut, Fraction(0)) / divisor * (1 if entry > 0 else -1) for entry in point.tolist()]
    apart = [float(Fraction(one) - other) for one, other in zip(computed.tolist(), shrunk, strict=True)]
    assert 0 < np.linalg.norm(apart) / UNIT < part.roundings * np.linalg.norm(point)
    assert Box.roundings == 0.0
    assert (network(Box(half_width=0.7, dimension=500), point) == np.clip(point, -0.7, 0.7)).all()


def test_singular_values_are_far_better_than_is_declared() -> None:
    """Of a matrix whose singular values and vectors are numbers of float64: Hadamard's."""
    size, strength = 64, 1.5
    signs = np.array([[1.0]])
    while len(signs) < size:
        signs = np.block([[signs, signs], [signs, -signs]])
    signs /= np.sqrt(size)
    values = np.random.default_rng(4).integers(1, 2**20, size=size) / 2.0**18
    computed = network(NuclearNorm(strength=strength), (signs * values) @ signs)
    exact = (signs * np.maximum(values - strength, 0.0)) @ signs
    assert np.linalg.norm(computed - exact) / UNIT < NuclearNorm.roundings / 4 * np.linalg.norm(values)


@pytest.mark.parametrize("width", [1, 2, 3, 5, 1000, 2**17])
def test_a_pairwise_sum_is_off_by_its_depth(width: int) -> None:
    numbers = np.random.default_rng(width).random((2, width)) ** 8
    exact = [math.fsum(row) for row in numbers]  # rounded once
    in_torch = pairwise_sum(torch.tensor(numbers)).tolist()
    assert in_torch == pairwise_sum(numbers).tolist()
    for one, other in zip(in_torch, exact, strict=True):
        assert abs(one - other) <= (math.ceil(math.log2(width)) + 1) * UNIT * other
