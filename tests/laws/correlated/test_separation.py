"""Any steps that lie far enough apart: against brute force over all sets of steps and all signs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from strategies import COLUMNS, random_triangular

from lethe.calculus.correlated.matrices import as_matrix, square_root
from lethe.calculus.correlated.sensitivity import sensitivity, separated_sensitivity
from lethe.errors import InputError


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


@pytest.mark.slow
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
