"""Noisy moments of columns: sensitivities by brute force, noise by its sample, and what standardised rows are."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from constant_noise import Constant
from gaussian_guarantees import mu_of
from hypothesis import given
from hypothesis import strategies as st

from lethe.calculus.guarantees import GDP
from lethe.mechanisms.standardise import contributions, moment_weight, standardise

FINE = np.linspace(-1.0, 1.0, 801)
SMALL_NOISE = GDP(1e6)


def one_column(values, neighbours):
    return contributions(np.asarray(values, dtype=float)[:, None], np.array([-1.0]), np.array([1.0]), neighbours)[:, :, 0]


def widest(phi):
    """The largest distance of two of the rows."""
    return math.sqrt(max(np.square(phi - phi[index]).sum(axis=1).max() for index in range(len(phi))))


def test_the_weight_of_the_second_moment_is_the_largest_that_is_free():
    phi = one_column(FINE, "replace_one") * np.array([1.0, 1.01])
    assert widest(phi) > 2.0001
    assert moment_weight("replace_one") ** 2 == pytest.approx(((1 + math.sqrt(5)) / 2) ** 5 / 4)
    lengths = np.linalg.norm(one_column(FINE, "zero_out") * np.array([1.0, 1.01]), axis=1)
    assert lengths.max() > 1.009


CORNERS = np.array(list(itertools.product([-3.0, 0.0, 1.0, 9.0], repeat=3)))


@pytest.mark.parametrize(("neighbours", "stated"), [("replace_one", 2.0 * math.sqrt(3.0)), ("zero_out", math.sqrt(3.0))])
def test_all_columns_together(neighbours, stated):
    phi = contributions(CORNERS, np.array([-3.0, 0.0, 0.5]), np.array([9.0, 1.0, 1.0]), neighbours).reshape(len(CORNERS), -1)
    moved = widest(phi) if neighbours == "replace_one" else np.linalg.norm(phi, axis=1).max()
    assert 0.999 * stated < moved <= stated * (1.0 + 1e-12)


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=4),
    st.sampled_from(["replace_one", "zero_out"]),
    st.floats(-1e3, 1e3),
    st.floats(1e-3, 1e3),
)
def test_no_pair_moves_further(values, neighbours, low, width):
    rows = np.array(values).reshape(2, 2)
    phi = contributions(rows, np.full(2, low), np.full(2, low + width), neighbours).reshape(2, -1)
    moved = np.linalg.norm(phi[0] - phi[1]) if neighbours == "replace_one" else np.linalg.norm(phi, axis=1).max()
    assert moved <= (2.0 if neighbours == "replace_one" else 1.0) * math.sqrt(2.0) * (1.0 + 1e-14)


@pytest.mark.parametrize(("neighbours", "sensitivity"), [("replace_one", 2.0), ("zero_out", 1.0)])
def test_the_noise_is_the_sensitivity_over_mu(neighbours, sensitivity):
    rows = np.zeros((100, 4))
    rows[:50] = 1.0
    options = {"low": -2.0, "high": 2.0, "target": GDP(0.5), "neighbours": neighbours, "records": 100}
    quiet, noisy = (standardise(rows, generator=Constant(value), **options) for value in (0.0, 1.0))
    assert noisy.mean - quiet.mean == pytest.approx(2.0 * sensitivity * math.sqrt(4.0) / 0.5 / 100.0, rel=1e-9)
    assert mu_of(noisy.statement.planned) == pytest.approx(0.5, rel=1e-12)
    assert mu_of(noisy.statement.planned) <= 0.5


@pytest.mark.parametrize("neighbours", ["replace_one", "zero_out"])
def test_without_noise_it_is_the_usual_standardisation(neighbours):
    rows = np.random.default_rng(0).normal([1.0, -2.0], [0.5, 3.0], size=(5000, 2))
    made = standardise(rows, low=[-5, -30], high=[5, 30], target=SMALL_NOISE, neighbours=neighbours, records=5000)
    assert made.mean == pytest.approx(rows.mean(axis=0), abs=1e-3)
    assert made.scale == pytest.approx(rows.std(axis=0), rel=1e-2)


def test_zeroed_records_are_absent_and_n_stays():
    rows = np.random.default_rng(0).uniform(-1.0, 1.0, size=(400, 1))
    options = {"low": -1.0, "high": 1.0, "target": SMALL_NOISE, "neighbours": "zero_out", "records": 400}
    whole, fewer = (standardise(table, **options).mean for table in (rows, rows[1:]))
    assert whole - fewer == pytest.approx(rows[0] / 400, abs=1e-6)
    assert np.isfinite(standardise(rows[:0], **options).scale).all()


def test_the_floor_holds_whatever_the_noise():
    for seed in range(20):
        made = standardise(np.zeros((3, 2)), low=-1.0, high=1.0, target=GDP(0.01), generator=np.random.default_rng(seed), least_scale=0.05)
        assert (made.scale >= 0.05 * (1.0 - 1e-12)).all()
        assert (made.scale <= 1.0).all()
        assert (np.abs(made.mean) <= 1.0).all()
