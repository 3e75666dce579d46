"""The field `precision` of a run, and the lemma on rounding that it stands for."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from helpers import make_run
from hypothesis import given
from hypothesis import strategies as st

import lethe
from lethe.run.precision import Precision


def run_of(precision: Any) -> lethe.Run:
    fields: dict[str, Any] = {"records": 10, "batches": lethe.batches.Full(), "loss": {"kind": "unknown"}, "clip_norm": 1.0}
    return make_run(**fields, steps=3, step_size=[0.1, 0.2, 0.4], noise_multiplier=1.0, precision=precision)


def test_a_run_tells_its_precision_and_reads_it_back() -> None:
    run = run_of(Precision(dtype="float32", parameter_norm=2.0, gradient_error=1e-6))
    assert lethe.Run.from_document(run.to_document()) == run
    assert run.to_document()["precision"] == {"dtype": "float32", "parameter_norm": 2.0, "gradient_error": 1e-6, "roundings": 1.0}
    without = run_of(None)
    assert "precision" not in without.to_document()
    assert without.run_id != run.run_id
    assert without.rounding_errors is None


PARTS = [
    (lethe.regularisers.L2(0.1), 3),
    (lethe.regularisers.L1(0.1), 2),
    (lethe.regularisers.L1L2(l1_strength=0.1, ridge_strength=0.1), 5),
    (lethe.regularisers.GroupL1(0.1), 32),
    (lethe.regularisers.NuclearNorm(0.1), 128),
    (lethe.regularisers.Ball(2.0), 32),
    (lethe.regularisers.Box(half_width=2.0, dimension=3), 0),
    (lethe.regularisers.Simplex(2.0), 80),
]


@pytest.mark.parametrize("roundings", [None, 18.0])
def test_the_update_s_roundings_the_regularisers_and_the_gradient_s_error(roundings: float | None) -> None:
    """Each count is of docs/theory.md, section 14."""
    said = {} if roundings is None else {"roundings": roundings}
    run = run_of({"dtype": "float32", "parameter_norm": 4.0, "gradient_error": 1e-3, **said})
    for parts in ((), *combinations(PARTS, 1), PARTS):
        rounded = run.replace(regulariser=[part for part, _ in parts] or None)
        expected = ((roundings or 1.0) + sum(count for _, count in parts)) * 4.0 * 2.0**-23 + 2e-3 * run.step_sizes
        assert rounded.rounding_errors == pytest.approx(expected, rel=1e-12)
        assert (rounded.rounding_errors >= expected).all()


@given(
    dimension=st.integers(1, 300),
    seed=st.integers(0, 2**32 - 1),
    scale=st.integers(-20, 20),
    apart=st.sampled_from([0.0, 1e-9, 1e-7, 1e-3, 1.0]),
)
def test_one_rounding_brings_two_vectors_no_further_apart(dimension: int, seed: int, scale: int, apart: float) -> None:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=dimension) * 2.0**scale
    y = x + apart * 2.0**scale * generator.normal(size=dimension)
    norm = max(np.linalg.norm(x), np.linalg.norm(y))
    rounded = np.linalg.norm(x.astype(np.float32).astype(np.float64) - y.astype(np.float32).astype(np.float64))
    allowed = np.linalg.norm(x - y) + Precision(dtype="float32", parameter_norm=float(norm)).rounding
    assert rounded <= allowed * (1 + 1e-12)


def test_the_bound_on_one_rounding_is_met() -> None:
    """Weights halfway between two numbers of float32, just above 1: two vectors a hair apart end one unit apart in every coordinate."""
    middle, hair = 1.0 + 2.0**-24, 2.0**-50
    x, y = np.full(1000, middle - hair), np.full(1000, middle + hair)
    rounded = np.linalg.norm(x.astype(np.float32).astype(np.float64) - y.astype(np.float32).astype(np.float64))
    bound = Precision(dtype="float32", parameter_norm=float(np.linalg.norm(y))).rounding
    assert 0.999 * bound < rounded <= bound + np.linalg.norm(x - y)
