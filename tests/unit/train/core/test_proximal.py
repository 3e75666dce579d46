"""Proximal steps and projections: the argmin, never outside in exact arithmetic, and they round as often as is counted.

The vectors that are rounded are those whose squares a sum in one order rounds all the same way; exact steps are in rational numbers.
"""

import math
from collections.abc import Sequence
from decimal import Decimal, getcontext
from fractions import Fraction
from typing import Any

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
import torch
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.calculus.rounding import pairwise_sum
from lethe.heavy_tailed import sets
from lethe.run.regularisers import L1, L1L2, L2, Ball, Box, GroupL1, NuclearNorm, Regulariser, Simplex
from lethe.train.core.iterates import inward, keep_within, onto_ball
from lethe.train.core.proximal import NetworkProximal, ProximalGroup, proximal_step

SHAPES = {"a": (3, 4), "b": (2, 2, 2)}
BOX, RIDGE, BALL, GROUP = Box(half_width=0.6, dimension=20), L2(strength=0.7), Ball(radius=0.9), GroupL1(strength=0.8)
SUMS: tuple[tuple[Regulariser, ...], ...] = (
    (),
    (RIDGE,),
    (L1(strength=0.5), L1(strength=0.1)),
    (L1L2(l1_strength=0.3, ridge_strength=0.9),),
    (BALL, Ball(radius=0.7)),
    (L1(strength=0.2), RIDGE, BALL),
    (GROUP,),
    (GROUP, L1(strength=0.2), RIDGE, BALL),
    (NuclearNorm(strength=0.6),),
    (NuclearNorm(strength=0.4), RIDGE, BALL),
    (BOX,),
    (BOX, Box(half_width=0.5, dimension=20), L1L2(l1_strength=0.2, ridge_strength=0.3)),
    (Simplex(total=1.5),),
    (Simplex(total=1.5), RIDGE),
)


def tensors_of(vector: np.ndarray, dtype: torch.dtype = torch.float64) -> dict[str, torch.Tensor]:
    parts = np.split(vector, [12])
    return {name: torch.tensor(part.reshape(shape), dtype=dtype) for (name, shape), part in zip(SHAPES.items(), parts, strict=True)}


def flat(tensors: dict[str, torch.Tensor]) -> np.ndarray:
    return np.concatenate([tensor.detach().double().numpy().ravel() for tensor in tensors.values()])


def penalty(parts: Sequence[Regulariser], vector: np.ndarray, blocks: str) -> float:
    """h, read off the definitions in lethe.run.regularisers; domains left aside."""
    matrices = [vector[:12].reshape(3, 4), vector[12:].reshape(2, 4)]
    groups = matrices if blocks == "tensors" else [row for matrix in matrices for row in matrix]
    total = 0.0
    for part in parts:
        if isinstance(part, L1):
            total += part.strength * np.abs(vector).sum()
        elif isinstance(part, L1L2):
            total += part.l1_strength * np.abs(vector).sum() + part.ridge_strength / 2 * (vector**2).sum()
        elif isinstance(part, L2):
            total += part.strength / 2 * (vector**2).sum()
        elif isinstance(part, GroupL1):
            total += part.strength * sum(float(np.linalg.norm(group)) for group in groups)
        elif isinstance(part, NuclearNorm):
            total += part.strength * sum(float(np.linalg.svd(matrix, compute_uv=False).sum()) for matrix in matrices)
    return float(total)


def inside(parts: Sequence[Regulariser], vector: np.ndarray) -> np.ndarray:
    """Some point of the domain made of the vector."""
    for part in parts:
        if isinstance(part, Ball):
            vector = vector * min(1.0, part.radius / max(float(np.linalg.norm(vector)), 1e-300))
        elif isinstance(part, Box):
            vector = np.clip(vector, -part.half_width, part.half_width)
        elif isinstance(part, Simplex):
            vector = np.abs(vector) * part.total / np.abs(vector).sum()
    return vector


def prox(parts: tuple[Regulariser, ...], vector: np.ndarray, step_size: float, blocks: Any = "rows") -> np.ndarray:
    tensors = tensors_of(vector)
    NetworkProximal(tensors, [ProximalGroup(regularisers=parts, blocks=blocks)]).step(step_size)
    return flat(tensors)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("blocks", ["rows", "tensors"])
@pytest.mark.parametrize("parts", SUMS)
@settings(max_examples=examples(30))
@given(seed=st.integers(0, 10**6), size=st.floats(0.05, 4), step_size=st.floats(0.05, 2), near=st.sampled_from([1e-3, 0.1, 1.0]))
def test_it_is_the_argmin(parts: Any, blocks: str, seed: int, size: float, step_size: float, near: float) -> None:
    """The objective is (1/lambda + kappa)-strongly convex: its argmin p, and only p, has q(z) >= q(p) + (1/lambda + kappa)/2 |z - p|^2."""
    random = np.random.default_rng(seed)
    vector = size * random.standard_normal(20)
    result = prox(parts, vector, step_size, blocks)
    np.testing.assert_allclose(result, inside(parts, result), rtol=0, atol=1e-13)  # rounding of a sum of 20 numbers below 10

    def objective(z: np.ndarray) -> float:
        return penalty(parts, z, blocks) + float(((z - vector) ** 2).sum()) / (2 * step_size)

    convexity = 1 / step_size + sum(part.strong_convexity for part in parts)
    for rival in (inside(parts, result + near * random.standard_normal(20)), inside(parts, vector), inside(parts, result * 1.01)):
        growth = convexity / 2 * float(((rival - result) ** 2).sum())
        assert objective(rival) >= objective(result) + growth - 1e-9  # objectives are below 1e4: rounding is below 1e-11


@given(
    parts=st.sampled_from([parts for parts in SUMS if all(isinstance(part, L1 | L2 | L1L2 | Ball) for part in parts)]),
    seed=st.integers(0, 10**6),
    size=st.floats(0.05, 4),
    step_size=st.floats(0.05, 2),
)
def test_a_linear_model_s_step_is_the_same(parts: Any, seed: int, size: float, step_size: float) -> None:
    vector = size * np.random.default_rng(seed).standard_normal(20)
    stepped = proximal_step(parts)(torch.tensor(vector), step_size).numpy()
    np.testing.assert_allclose(stepped, prox(parts, vector, step_size), rtol=0, atol=1e-13)
    ball = proximal_step((BALL,))(torch.tensor(vector), step_size).numpy()
    assert exact_square(ball) <= Fraction(BALL.radius) ** 2


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("radius", [1e-3, 0.7, 1e3])
def test_the_joint_ball_is_never_left_and_hardly_shrunk(dtype: torch.dtype, radius: float) -> None:
    """Also where (d + 16) eps of float32 is 0.24 of the radius, for two million entries."""
    generator = torch.Generator().manual_seed(2)
    tensors = [torch.randn(1000, 2000, generator=generator, dtype=dtype), torch.randn(7, generator=generator, dtype=dtype)]
    NetworkProximal({"first": tensors[0], "second": tensors[1]}, [ProximalGroup(regularisers=(Ball(radius=radius),))]).step(1.0)
    norm = np.linalg.norm(np.concatenate([tensor.numpy().ravel().astype(np.longdouble) for tensor in tensors]))
    assert radius * (1 - 1e-6) < norm <= radius


def test_float32_boxes_and_simplices_are_rounded_inward_and_zeros_stay_zeros() -> None:
    box, simplex = tensors_of(np.full(20, 9.0), torch.float32), tensors_of(np.random.default_rng(2).random(20) * 1e6, torch.float32)
    NetworkProximal(box, [ProximalGroup(regularisers=(Box(half_width=0.1, dimension=20),))]).step(1.0)
    NetworkProximal(simplex, [ProximalGroup(regularisers=(Simplex(total=0.1),))]).step(1.0)
    assert 0.0999999 < flat(box).max() <= 0.1
    assert 0.0999999 < flat(simplex).sum() <= 0.1
    zeros = tensors_of(np.zeros(20), torch.float32)
    for blocks in ("rows", "tensors"):
        NetworkProximal(zeros, [ProximalGroup(regularisers=(GroupL1(strength=1e-40),), blocks=blocks)]).step(1e-40)
    assert not flat(zeros).any()


ROWS = arrays.arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 9)), elements=st.floats(-1e300, 1e300))
RADII = st.floats(1e-6, 1e6)


def exact_square(row: np.ndarray) -> Fraction:
    return sum((Fraction(float(entry)) ** 2 for entry in row), Fraction(0))


@given(rows=ROWS, radius=RADII)
def test_no_row_leaves_the_ball_in_exact_arithmetic_and_each_keeps_its_direction(rows: np.ndarray, radius: float) -> None:
    for dtype in (torch.float64, torch.float32):
        for row in onto_ball(torch.tensor(rows), radius, dtype=dtype)[0].to(dtype).to(torch.float64).numpy():
            assert exact_square(row) <= Fraction(radius) ** 2
    projected, outside = onto_ball(torch.tensor(rows), radius)
    for row, result, out in zip(rows, projected.numpy(), outside.tolist(), strict=True):
        true_norm = float(np.linalg.norm(row / max(1e-300, np.abs(row).max()))) * np.abs(row).max()
        if true_norm < radius * 0.999:
            assert (result == row).all()
            assert not out
        elif true_norm > radius * 1.001:
            assert out
            # (d + 16) eps below the radius and d roundings of the norm: below 1e-13 for d <= 9
            assert np.linalg.norm(result / radius) == pytest.approx(1.0, rel=1e-13)
            scale = np.abs(row).max()
            assert np.allclose(result / np.abs(result).max(), row / scale, rtol=1e-14, atol=1e-300)


def test_rows_of_exactly_the_radius_or_of_zeros_are_not_counted_as_projected() -> None:
    angles = np.linspace(0, 6, 500)
    rows = torch.tensor(np.stack([np.cos(angles), np.sin(angles)], axis=1))  # norm 1 up to rounding
    assert not onto_ball(rows, 1.0)[1].any()
    assert onto_ball(rows * (1 + 1e-12), 1.0)[1].all()
    projected, outside = onto_ball(torch.zeros(2, 3, dtype=torch.float64), 1.0)
    assert (projected == 0).all()
    assert not outside.any()


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
