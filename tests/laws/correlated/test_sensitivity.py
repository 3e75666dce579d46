"""The sensitivity of a strategy: never below what contributions reach, in a slot that is kept and in any steps far enough apart."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from how_many import by_night
from strategies import COLUMNS, contributions_of, random_triangular

from lethe.calculus.correlated.matrices import as_matrix, binary_tree, require_strategy, square_root
from lethe.calculus.correlated.sensitivity import sensitivity, separated_sensitivity, slot_sensitivities
from lethe.errors import InputError


def length_of(matrix: np.ndarray, slot: int, slots: int, vectors: np.ndarray) -> float:
    return float(np.linalg.norm(matrix @ contributions_of(slot, slots, len(matrix), vectors)))


def by_signs(matrix: np.ndarray, slot: int, slots: int) -> float:
    """The largest over contributions of +1 and -1 in one dimension: brute force."""
    count = len(range(slot, len(matrix), slots))
    patterns = (np.array((1.0, *rest))[:, None] for rest in itertools.product((-1.0, 1.0), repeat=count - 1))
    return max(length_of(matrix, slot, slots, pattern) for pattern in patterns)


@pytest.mark.parametrize("slots", [1, 2, 3, 5, 12, 40])
@pytest.mark.parametrize("name", COLUMNS)
def test_of_entries_that_are_not_negative_it_is_what_the_worst_signs_reach(name: str, slots: int) -> None:
    """Exact in both directions: a bound 1 % too small, or too large, fails; as a column and as a matrix."""
    column = COLUMNS[name]
    matrix = as_matrix(column)
    exact = [by_signs(matrix, slot, slots) for slot in range(min(slots, 12))]
    for said in (slot_sensitivities(column, slots), slot_sensitivities(matrix, slots)):
        assert said == pytest.approx(exact, rel=1e-10)
        assert (said >= exact).all()


def test_it_is_never_below_what_vectors_reach() -> None:
    """Random strategies and contributions, by unit vectors of random dimension, brute signs among them for the signed ones."""
    random = np.random.default_rng(0)
    closest = 0.0
    for case in range(5000 if by_night() else 1000):
        steps, signed = int(random.integers(1, 9)), bool(random.integers(2))
        slots = int(random.integers(1, steps + 1))
        matrix = random_triangular(random, steps, signed=signed)
        bounds = slot_sensitivities(matrix, slots)
        slot = int(random.integers(min(slots, steps)))
        vectors = random.normal(size=(steps, int(random.integers(1, 5))))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        # Turned towards the worst: each vector along what the others make of it, a few times.
        gram = matrix.T @ matrix
        used = np.arange(slot, steps, slots)
        for _ in range(case % 4):
            for place, step in enumerate(used):
                pull = gram[step, used] @ vectors[: len(used)] - gram[step, step] * vectors[place]
                length = np.linalg.norm(pull)
                vectors[place] = pull / length if length > 1e-9 else vectors[place]
        worst = length_of(matrix, slot, slots, vectors)
        assert worst <= bounds[slot]
        closest = max(closest, worst / bounds[slot])
        if not signed:
            assert by_signs(matrix, slot, slots) == pytest.approx(bounds[slot], rel=1e-9)
    assert closest > 0.9999


def test_the_largest_eigenvalue_bounds_signed_entries_too() -> None:
    """Three equal angles of 120 degrees: the Gram matrix has -1/2 off its diagonal, and vectors in the plane reach 3 x 1.5."""
    gram = np.full((3, 3), -0.5) + 1.5 * np.eye(3) + 1e-9 * np.eye(3)
    matrix = np.linalg.cholesky(gram[::-1, ::-1]).T[::-1, ::-1]
    angles = 2 * np.pi * np.arange(3) / 3
    vectors = np.stack((np.cos(angles), np.sin(angles)), axis=1)
    assert sensitivity(matrix, 1) == pytest.approx(length_of(matrix, 0, 1, vectors), rel=1e-6) == pytest.approx(math.sqrt(4.5), rel=1e-6)
    assert np.abs(gram).sum() > 5.9


def test_known_values() -> None:
    assert sensitivity(square_root(1000, 1), 10) == pytest.approx(10.0, rel=1e-12)  # independent noise, 100 participations
    assert sensitivity(binary_tree(8), 8) == pytest.approx(2.0, rel=1e-12)  # one participation: a leaf and its 3 ancestors
    assert sensitivity(square_root(4), 4) == pytest.approx(math.sqrt(1 + 1 / 4 + 9 / 64 + 25 / 256), rel=1e-12)


@pytest.mark.parametrize(
    "strategy",
    [
        [],
        [0.0, 1.0],
        [1.0, -0.1],
        [1.0, math.nan],
        [1.0, math.inf],
        [1e-70],
        "strategy",
        np.ones((2, 3)),
        np.ones((2, 2)),
        np.zeros((2, 2)),
        np.array([[1.0, 0.0], [1.0, -1.0]]),
        np.array([[1.0, 0.0], [math.nan, 1.0]]),
        np.zeros((0, 0)),
        np.eye(4097),
        np.eye(2) * 1j,
        np.ma.array(np.eye(2), mask=np.eye(2, k=-1)),
        np.eye(2, dtype=bool),
        [["1", "0"], ["0", "1"]],
        np.array(["2020-01-01"], dtype="datetime64[D]"),
    ],
)
def test_what_is_no_strategy_is_refused(strategy: object) -> None:
    with pytest.raises(InputError):
        require_strategy(strategy)  # pyright: ignore[reportArgumentType]


def patterns(steps: int, separation: int, count: int) -> list[tuple[int, ...]]:
    sets = itertools.chain.from_iterable(itertools.combinations(range(steps), size) for size in range(1, count + 1))
    return [one for one in sets if all(later - earlier >= separation for earlier, later in itertools.pairwise(one))]


def reached(matrix: np.ndarray, separation: int, count: int) -> float:
    """The most over all sets and signs, in one dimension."""
    most = 0.0
    for places in patterns(len(matrix), separation, count):
        for signs in itertools.product((-1.0, 1.0), repeat=len(places) - 1):
            most = max(most, float(np.linalg.norm(matrix[:, list(places)] @ np.array((1.0, *signs)))))
    return most


@pytest.mark.parametrize(("separation", "count"), [(1, 3), (2, 12), (3, 2), (5, 3), (12, 1)])
@pytest.mark.parametrize("name", ["identity", "two bands", "square root", "buffers"])
def test_of_columns_that_do_not_rise_it_is_what_the_worst_steps_reach(name: str, separation: int, count: int) -> None:
    """Exact: 1 % less would fail, and so would 1 % more; as a matrix, whose bound is another, never less."""
    column = COLUMNS[name]
    exact = reached(as_matrix(column), separation, min(count, -(-12 // separation)))
    assert exact <= separated_sensitivity(column, separation, count) <= exact * (1 + 1e-10)
    assert exact <= separated_sensitivity(as_matrix(column), separation, count) <= 1.3 * exact


def test_it_is_never_below_what_any_steps_reach_and_exact_of_few_bands() -> None:
    random, ratios = np.random.default_rng(0), list[float]()
    for _ in range(150):
        steps, signed = int(random.integers(1, 9)), bool(random.integers(2))
        separation, count = int(random.integers(1, steps + 1)), int(random.integers(1, 5))
        matrix = random_triangular(random, steps, signed=signed)
        exact = reached(matrix, separation, count)
        found = separated_sensitivity(matrix, separation, count)
        assert exact <= found
        if not signed:
            ratios.append(found / exact)
        matrix[np.subtract.outer(np.arange(steps), np.arange(steps)) >= separation] = 0.0
        assert separated_sensitivity(matrix, separation, count) == pytest.approx(reached(matrix, separation, count), rel=1e-10)
        if not signed:  # the column of the first rows, which may rise and fall
            column = matrix[:, 0].copy()
            assert reached(as_matrix(column), separation, count) <= separated_sensitivity(column, separation, count)
    assert np.median(ratios) < 1.05


@pytest.mark.parametrize("column", [(1.0, 0.0, 1.0, 0.0, 0.0), (1.0, 0.2, 0.7, 0.0, 0.6)])
def test_of_a_column_that_rises_on_its_way_the_first_steps_are_not_the_worst(column: tuple[float, ...]) -> None:
    """It falls at its end, and two steps further apart than they must be meet each other where it is high again."""
    matrix, first = as_matrix(np.array(column)), np.zeros(5)
    first[:2] = 1.0
    exact = reached(matrix, 1, 2)
    assert float(np.linalg.norm(matrix @ first)) < 0.97 * exact
    assert exact <= separated_sensitivity(column, 1, 2) <= 1.2 * exact


def test_fixed_slots_are_such_steps() -> None:
    for slots in (1, 3, 5):
        for column in (square_root(40), square_root(40, 8)):
            assert sensitivity(column, slots) == pytest.approx(separated_sensitivity(column, slots), rel=1e-12)
    assert separated_sensitivity(square_root(100_000), 100, 5) < separated_sensitivity(square_root(100_000), 100)


@pytest.mark.parametrize(
    ("strategy", "separation", "participations", "said"),
    [
        ([1.0, 0.5], 0, None, "separation"),
        ([1.0, 0.5], 1.5, None, "separation"),
        ([1.0, 0.5], 1, 0, "participations"),
        ([1.0, -0.5], 1, None, "strategy"),
        (np.linspace(1.0, 2.0, 5000), 10, None, "5000 steps of a column that rises"),
    ],
)
def test_what_has_no_such_sensitivity_is_refused(strategy, separation, participations, said: str) -> None:
    with pytest.raises(InputError, match=said):
        separated_sensitivity(strategy, separation, participations)


def test_long_columns_of_few_bands_that_rise_take_no_time() -> None:
    column = np.zeros(100_000)
    column[:3] = 0.5, 1.0, 0.25
    assert separated_sensitivity(column, 100) == pytest.approx(np.sqrt(1000 * (0.25 + 1.0 + 0.0625)), rel=1e-9)
