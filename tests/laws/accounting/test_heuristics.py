"""The heuristic for the last iterate: exact where the loss is linear, silent where it says nothing, and never part of a certificate."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers import make_run
from scipy.stats import binom, norm

import lethe
from lethe.accounting.heuristics import HEURISTIC, last_iterate_heuristic
from lethe.run.run import Run

DELTA = 1e-4


def network(**changes: object) -> Run:
    fields = {"loss": {"kind": "unknown"}, "clip_norm": 1.0, "noise_multiplier": 1.0, "neighbours": "zero_out"}
    return make_run(**{**fields, **changes})


def by_quadrature(run: Run, counts: np.ndarray, chances: np.ndarray) -> float:
    """The smallest epsilon at which both hockey-stick divergences of the two densities, on a fine grid, are at most delta."""
    noise = math.sqrt(run.total_steps) * run.noise_multipliers[0]
    points = np.linspace(-15 * noise - counts.max(), 15 * noise + counts.max(), 20_001)
    moved, turned = (chances @ norm.pdf(points, loc=sign * counts[:, None], scale=noise) for sign in (1, -1))
    other, width = turned if run.neighbours == "replace_one" else norm.pdf(points, scale=noise), points[1] - points[0]
    failing, passing = 0.0, 50.0
    for _ in range(40):
        epsilon = 0.5 * (failing + passing)
        deltas = [float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum()) * width for p, q in ((moved, other), (other, moved))]
        failing, passing = (failing, epsilon) if max(deltas) <= DELTA else (epsilon, passing)
    return passing


@pytest.mark.parametrize("neighbours", ["zero_out", "replace_one", "add_or_remove"])
@pytest.mark.parametrize(("passes", "noise"), [(1, 0.7), (5, 1.0), (40, 3.0)])
def test_of_poisson_batches_it_is_that_of_a_binomial_number_of_visits(neighbours: str, passes: int, noise: float) -> None:
    run = network(batches={"design": "poisson", "size": 10}, passes=passes, noise_multiplier=noise, neighbours=neighbours)
    counts = np.arange(run.total_steps + 1.0)
    chances = binom.pmf(counts, run.total_steps, 0.1)
    exact = by_quadrature(run, counts[chances > 1e-15], chances[chances > 1e-15])
    assert last_iterate_heuristic(run, DELTA) == pytest.approx(exact, rel=1e-4)


@pytest.mark.parametrize("design", ["random_allocation", "balls_in_bins", "shuffled", "cyclic"])
def test_of_an_epoch_it_is_a_gaussian_with_one_visit_a_pass(design: str) -> None:
    run = network(batches={"design": design, "size": 10}, passes=4)
    assert last_iterate_heuristic(run, DELTA) == pytest.approx(lethe.guarantees.GDP(4 / math.sqrt(40)).epsilon(DELTA), rel=1e-5)


@pytest.mark.parametrize("neighbours", ["zero_out", "replace_one"])
def test_of_full_batches_and_of_a_single_step_it_is_what_is_proved(neighbours: str) -> None:
    full = network(batches={"design": "full"}, passes=9, noise_multiplier=7.0, neighbours=neighbours)
    once = network(batches={"design": "poisson", "size": 10}, passes=None, steps=1, neighbours=neighbours)
    for run, room in ((full, 1e-6), (once, 1e-3)):
        found, proved = last_iterate_heuristic(run, DELTA), lethe.certify(run, DELTA).epsilon
        assert found is not None
        assert proved * (1 - room) <= found <= proved * (1 + 1e-9)


SILENT = {
    "every iterate": {"release": "all"},
    "a seed": {"seeded": True},
    "a regulariser": {"regulariser": {"kind": "ridge", "strength": 0.1}},
    "steps of several sizes": {"step_size": {"schedule": "exponential", "first": 0.5, "ratio": 0.9}},
    "correlated noise": {"noise": {"kind": "banded_toeplitz", "coefficients": [1.0, 0.5]}, "batches": {"design": "cyclic", "size": 10}},
    "batches that hold another instead": {"batches": {"design": "without_replacement", "size": 10}},
    "a pass that is cut short": {"batches": {"design": "random_allocation", "size": 10}, "passes": None, "steps": 15},
    "batches that are cut": {"batches": {"design": "poisson", "size": 10, "truncate_at": 40}},
    "noise to be planned": {"noise_multiplier": None},
}


@pytest.mark.parametrize("why", SILENT)
def test_where_the_last_iterate_is_no_sum_it_says_nothing(why: str) -> None:
    fields = {"batches": {"design": "poisson", "size": 10}} | SILENT[why]
    assert last_iterate_heuristic(network(**fields), DELTA) is None


def test_without_noise_nothing_is_hidden_and_a_delta_is_needed() -> None:
    assert last_iterate_heuristic(network(noise_multiplier=0.0), DELTA) == math.inf
    little = last_iterate_heuristic(network(noise_multiplier=0.01), DELTA)
    assert little == pytest.approx(lethe.guarantees.GDP(5 / math.sqrt(50) / 0.01).epsilon(DELTA), rel=1e-3)
    with pytest.raises(lethe.InputError, match="delta"):
        last_iterate_heuristic(network(), 0.0)


def test_no_certificate_rests_on_it() -> None:
    run = network(batches={"design": "poisson", "size": 10}, passes=40)
    certificate, guess = lethe.certify(run, DELTA), last_iterate_heuristic(run, DELTA)
    assert guess is not None
    assert guess < 0.8 * certificate.epsilon
    assert HEURISTIC not in certificate.explain(every=True)
    assert "heuristic" not in str(certificate.to_dict())
