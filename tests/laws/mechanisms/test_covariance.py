"""Analyze Gauss: sensitivities by brute force, the law of the symmetric noise, and principal components."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from gaussian_guarantees import mu_of
from hypothesis import given
from hypothesis import strategies as st

from lethe.calculus.guarantees import GDP, ApproxDP
from lethe.errors import InputError
from lethe.mechanisms.moments import _symmetric_noise, moment_sensitivity, second_moment

SMALL_NOISE = GDP(1e9)


def coordinates(matrix):
    """In the orthonormal basis of symmetric matrices: diagonal entries, and those above it times the root of 2."""
    rows, columns = np.triu_indices(len(matrix), 1)
    return np.concatenate([np.diag(matrix), math.sqrt(2.0) * matrix[rows, columns]])


@given(st.integers(1, 4), st.integers(0, 10_000), st.floats(0.1, 10.0))
def test_no_pair_of_rows_moves_the_matrix_further(columns, seed, norm):
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(2, columns)) * 10.0 ** generator.uniform(-3, 3)
    one, other = (second_moment(row[None, :], norm=norm, target=SMALL_NOISE, generator=generator).matrix for row in rows)
    rounding = 1e-7 * norm**2  # the small noise
    assert np.linalg.norm(one - other) <= moment_sensitivity(norm, columns, "replace_one") + rounding
    assert np.linalg.norm(one) <= moment_sensitivity(norm, columns, "zero_out") + rounding


@pytest.mark.parametrize("columns", [1, 2, 5])
def test_the_sensitivities_are_reached(columns):
    axes = np.eye(columns) * 3.0
    one = np.outer(axes[0], axes[0])
    other = np.outer(axes[-1], axes[-1]) if columns > 1 else np.zeros((1, 1))
    assert np.linalg.norm(one - other) == pytest.approx(moment_sensitivity(3.0, columns, "replace_one"), rel=1e-12)
    assert np.linalg.norm(one) == pytest.approx(moment_sensitivity(3.0, columns, "zero_out"), rel=1e-12)
    assert np.linalg.norm(coordinates(one - other)) == pytest.approx(np.linalg.norm(one - other))


def test_the_mirrored_triangle_is_no_less_sensitive():
    """The norm in which a mirrored upper triangle of equal noise is isotropic has the same largest change."""
    generator = np.random.default_rng(0)
    units = generator.normal(size=(2, 4000, 3))
    units /= np.linalg.norm(units, axis=2, keepdims=True)
    changes = np.einsum("ni,nj->nij", units[0], units[0]) - np.einsum("ni,nj->nij", units[1], units[1])
    triangle = np.triu(changes)
    assert np.sqrt(np.square(triangle).sum(axis=(1, 2))).max() <= math.sqrt(2.0)
    assert np.linalg.norm(np.triu(np.diag([1.0, -1.0, 0.0]))) == pytest.approx(math.sqrt(2.0))


@pytest.mark.slow
def test_the_noise_is_isotropic_in_the_frobenius_norm():
    generator = np.random.default_rng(1)
    draws = np.array([coordinates(_symmetric_noise(3, 2.0, generator)) for _ in range(1_000)])
    covariance = draws.T @ draws / len(draws)
    assert covariance == pytest.approx(4.0 * np.eye(6), abs=5.0 * 4.0 * math.sqrt(2.0 / 1_000))  # five standard errors
    # Of one of very many entries five standard errors are less than two per cent of a variance, one of a deviation.
    large = _symmetric_noise(600, 2.0, generator)
    for entries in (math.sqrt(2.0) * large[np.triu_indices(600, 1)], np.diag(large)):
        assert np.mean(entries**2) == pytest.approx(4.0, rel=5.0 * math.sqrt(2.0 / len(entries)))


class OneEntry(np.random.Generator):
    """Draws that are 0 but for one, which is 1."""

    def __init__(self, place):
        super().__init__(np.random.PCG64(0))
        self._place = place

    def standard_normal(self, size: Any = None, *args: Any, **kwargs: Any) -> Any:
        drawn = np.zeros(size)
        drawn.flat[self._place] = 1.0
        return drawn


def test_the_covariance_of_the_noise_is_exact():
    """The noise is linear in the draws, so what each makes of it gives the covariance without any sampling."""
    moved = np.array([coordinates(_symmetric_noise(3, 2.0, OneEntry(place))) for place in range(9)])
    assert moved.T @ moved == pytest.approx(4.0 * np.eye(6))


@pytest.mark.parametrize(("neighbours", "sensitivity"), [("replace_one", math.sqrt(2.0) * 9.0), ("zero_out", 9.0)])
def test_the_noise_is_the_sensitivity_over_mu(neighbours, sensitivity):
    made = second_moment(np.zeros((4, 2)), norm=3.0, target=GDP(0.5), neighbours=neighbours, records=4)
    assert made.noise_std == pytest.approx(sensitivity / 0.5, rel=1e-9)
    assert made.noise_std >= sensitivity / 0.5
    assert mu_of(made.statement.planned) <= 0.5
    assert mu_of(made.statement.planned) == pytest.approx(0.5)
    seeded = second_moment(
        np.zeros((4, 2)), norm=3.0, target=GDP(0.5), neighbours=neighbours, records=4, generator=np.random.default_rng(5)
    )
    assert seeded.matrix == pytest.approx(_symmetric_noise(2, made.noise_std, np.random.default_rng(5)))


def test_rows_are_projected():
    made = second_moment([[3.0, 4.0], [0.3, 0.4]], norm=1.0, target=SMALL_NOISE)
    expected = np.outer([0.6, 0.8], [0.6, 0.8]) + np.outer([0.3, 0.4], [0.3, 0.4])
    assert made.matrix == pytest.approx(expected, abs=1e-7)
    assert np.array_equal(made.matrix, made.matrix.T)


def test_principal_components_are_found_and_orthonormal():
    generator = np.random.default_rng(2)
    rows = generator.normal(size=(20_000, 3)) * [3.0, 1.0, 0.3] @ np.linalg.qr(generator.normal(size=(3, 3)))[0]
    made = second_moment(rows, norm=10.0, target=GDP(1.0), generator=generator)
    found = made.components(2)
    truth = np.linalg.eigh(rows.T @ rows)[1][:, ::-1][:, :2].T
    assert found @ found.T == pytest.approx(np.eye(2), abs=1e-12)
    assert np.abs(np.sum(found * truth, axis=1)) == pytest.approx(np.ones(2), abs=1e-2)


def test_all_records_may_be_zeroed_out():
    made = second_moment(np.zeros((0, 2)), norm=1.0, target=SMALL_NOISE, neighbours="zero_out", records=5)
    assert made.matrix == pytest.approx(np.zeros((2, 2)), abs=1e-6)


@pytest.mark.parametrize(
    "changes",
    [
        {"norm": 0.0},
        {"norm": math.nan},
        {"norm": math.inf},
        {"norm": True},
        {"target": ApproxDP(1.0, 0.0)},
        {"target": None},
        {"neighbours": "add_or_remove"},
        {"neighbours": "zero_out"},
        {"records": 7},
        {"generator": 1},
    ],
)
def test_bad_arguments_are_refused(changes):
    with pytest.raises(InputError):
        second_moment(np.zeros((3, 2)), **{"norm": 1.0, "target": GDP(1.0), **changes})


@pytest.mark.parametrize("rows", [np.zeros(2), np.zeros((0, 2)), [[math.nan]], [["x"]], [[1j]]])
def test_bad_rows_are_refused(rows):
    with pytest.raises(InputError):
        second_moment(rows, norm=1.0, target=GDP(1.0))


@pytest.mark.parametrize("count", [0, 3, 1.0, True, None])
def test_bad_counts_of_components_are_refused(count):
    with pytest.raises(InputError):
        second_moment(np.zeros((3, 2)), norm=1.0, target=GDP(1.0)).components(count)
