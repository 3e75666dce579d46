"""Canaries: what each is, and what is refused."""

from typing import Any

import numpy as np
import pytest

from lethe.audit.games.canaries import blank, least_moved_direction, mislabelled, random_directions, replaced
from lethe.errors import InputError

DATA = (np.arange(12.0).reshape(4, 3), np.array([0, 1, 2, 2]))


def test_a_wrong_label_is_the_next_one() -> None:
    features, label = mislabelled(DATA, 3, classes=3)
    assert (features.tolist(), label) == ([9.0, 10.0, 11.0], 0)
    assert mislabelled((DATA[0], np.array([0.0, 1.0, 0.0, 1.0])), 1, classes=2)[1] == 0


def test_a_blank_record_is_zeros() -> None:
    features, label = blank(DATA, label=1)
    assert (features.tolist(), label) == ([0.0, 0.0, 0.0], 1)


def test_neighbours_differ_in_one_record_and_the_data_stay() -> None:
    before = [column.copy() for column in DATA]
    changed = replaced(DATA, {1: (np.ones(3), 2)})
    assert [row for row in range(4) if (changed[0][row] != DATA[0][row]).any() or changed[1][row] != DATA[1][row]] == [1]
    assert all((old == new).all() for old, new in zip(before, DATA, strict=True))


def test_random_directions_are_orthonormal_as_far_as_there_is_room() -> None:
    few = random_directions(5, 8, seed=1)
    assert np.allclose(few @ few.T, np.eye(5))
    many = random_directions(20, 8, seed=1)
    assert np.allclose(np.linalg.norm(many, axis=1), 1.0)
    assert np.allclose(many[8:16] @ many[8:16].T, np.eye(8))
    assert not np.allclose(few, random_directions(5, 8, seed=2))


@pytest.mark.slow
def test_random_directions_favour_no_side() -> None:
    """The mean of 2000 independent unit vectors of dimension 2 has coordinates of standard deviation 0.016."""
    first = np.array([random_directions(1, 2, seed=seed)[0] for seed in range(2000)])
    assert np.abs(first.mean(axis=0)).max() < 0.08


def test_the_least_moved_coordinate() -> None:
    moved = np.random.default_rng(0).normal(size=(100, 4)) * [3.0, 1.0, 0.2, 2.0]
    assert least_moved_direction(moved).tolist() == [0.0, 0.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: replaced(DATA, {4: (np.ones(3), 2)}), "position"),
        (lambda: replaced(DATA, {0: (np.ones(2), 2)}), "shape"),
        (lambda: replaced(DATA, {0: (np.ones(3),)}), "2 entries"),
        (lambda: replaced((DATA[0], DATA[1][:2]), {0: (np.ones(3), 1)}), "length"),
        (lambda: replaced(5, {}), "tuple"),  # pyright: ignore[reportArgumentType]
        (lambda: mislabelled(DATA, 0, classes=1), "classes"),
        (lambda: mislabelled(DATA, 3, classes=2), "label"),
        (lambda: mislabelled((DATA[0], DATA[0][:, 0] + 0.5), 0, classes=2), "label"),
        (lambda: random_directions(0, 3, seed=0), "count"),
        (lambda: random_directions(1, True, seed=0), "dimension"),
        (lambda: least_moved_direction([[1.0, 2.0]]), "two simulated"),
        (lambda: least_moved_direction([[1.0, float("nan")], [0.0, 1.0]]), "finite"),
    ],
)
def test_what_is_refused(call: Any, word: str) -> None:
    with pytest.raises(InputError, match=word):
        call()
