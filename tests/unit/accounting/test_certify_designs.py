"""Certificates of batches that are drawn: fresh orders, sampling, secret slots, and how large a batch may become."""

import math
from typing import Any

import numpy as np
import pytest
from certified_theorems import epsilon_by
from helpers import EVERY_STEP_DESIGNS, batches, make_run
from scipy import special

import lethe
from lethe.theorems.shift import engine as shift
from lethe.theorems.steps import OVERFILL_SLACK, largest_batch, step_constants


def test_the_slack_of_overfull_batches_is_part_of_the_guarantee() -> None:
    ridge = {"kind": "ridge", "strength": 5.0}
    certificate = lethe.certify(
        make_run(records=2000, batches=batches("balls_in_bins", 100), regulariser=ridge, noise_multiplier=50.0), 1e-5, ["optimal-shift"]
    )
    assert certificate.delta_at(1000.0) >= OVERFILL_SLACK


@pytest.mark.slow
def test_poisson_sampling_end_to_end() -> None:
    # peers_accounting: q = .01, z = 1, T = 1e4, delta = 1e-5 by privacy loss distributions: 6.1877 for zero out, 10.8808 for replace one.
    run = make_run(records=1000, batches=batches("poisson", 10), steps=10_000, noise_multiplier=1.0, release="all")
    for relation, epsilon in (("zero_out", 6.1877), ("add_or_remove", 6.1877), ("replace_one", 10.8808)):
        assert lethe.certify(run.replace(neighbours=relation), 1e-5).epsilon == pytest.approx(epsilon, rel=2e-4)


@pytest.mark.slow
def test_fresh_orders_cost_more_than_one() -> None:
    run = make_run(batches=batches("shuffled", 10), passes=5, step_size=0.05, clip_norm=1.0, loss={"kind": "convex", "smoothness": 1.0})
    once = lethe.certify(run.replace(batches=lethe.batches.ShuffledOnce(10)), 1e-5).epsilon
    assert lethe.certify(run, 1e-5).epsilon > 1.005 * once


@pytest.mark.slow
@pytest.mark.nightly(by_day="test_fresh_orders_cost_more_than_one")
def test_fresh_orders_are_not_taken_for_one() -> None:
    """Clipped steps, 100 batches, 20 passes, h = .05, s/tau = .1: averaged over 1500 random paths the optimum of each gives .2595
    (standard error .0005); one shuffle, another mechanism, gives .2457."""
    run = make_run(
        records=1000,
        batches=batches("shuffled", 10),
        passes=20,
        step_size=0.05,
        clip_norm=1.0,
        noise_multiplier=20.0,
        loss={"kind": "convex", "smoothness": 1.0},
    )
    assert 0.258 <= lethe.certify(run, 1e-5).epsilon <= 1.03 * 0.2595
    assert lethe.certify(run.replace(batches=lethe.batches.ShuffledOnce(10)), 1e-5).epsilon == pytest.approx(0.24575, rel=1e-3)


def test_the_step_constant_allows_for_overfull_random_batches() -> None:
    """A random batch is divided by the nominal size: K records act as a step size times K/b, so L = 1 needs room above b."""
    run = make_run(records=2000, batches=batches("poisson", 100), step_size=3.0, passes=5)
    steps = step_constants(run)
    assert steps is not None
    assert steps.slack == OVERFILL_SLACK
    fixed = step_constants(run.replace(batches=lethe.batches.WithoutReplacement(100)))
    assert fixed is not None
    assert fixed.slack == 0
    assert fixed.constant.constant == 1.0
    # h = 3 * .5 = 1.5 at the nominal size; the largest batch allowed for is K with P(Bin(2000, .05) > K) * 100 steps <= 1e-18.
    counts = np.arange(100, 400)
    largest = counts[np.flatnonzero(special.bdtrc(counts, 2000, 0.05) * 100 <= OVERFILL_SLACK)[0]] + 1
    assert steps.constant.constant == pytest.approx(abs(1 - 1.5 * largest / 100), rel=1e-12)
    assert steps.constant.constant > 1


def test_balls_in_bins_is_the_average_over_bins() -> None:
    run = make_run(records=2000, batches=batches("balls_in_bins", 100), step_size=0.5)
    bins = lethe.certify(run, 1e-5, ["optimal-shift"])
    once = lethe.certify(make_run(records=2000, batches=batches("shuffled_once", 100), step_size=0.5), 1e-5)
    # Same positions; only the slack for overfull bins separates them.
    assert once.epsilon <= bins.epsilon <= once.epsilon * (1 + 1e-9)


def test_composition_of_one_secret_order_is_the_average_over_slots() -> None:
    noises = [4.0, 8.0, 2.0, 16.0] * 3
    for design in ("shuffled_once", "balls_in_bins"):
        run = make_run(records=40, batches=batches(design, 10), passes=3, noise_multiplier=noises, release="all")
        certificate = lethe.certify(run, 1e-5, ["composition"])
        for epsilon in (0.1, 1.0, 3.0):
            average = np.mean([lethe.guarantees.GDP(math.sqrt(3) * 2 / noise).delta(epsilon) for noise in noises[:4]])
            assert certificate.delta_at(epsilon) == pytest.approx(average, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("design", EVERY_STEP_DESIGNS)
def test_random_batches_are_touched_at_every_step_without_credit(design: str) -> None:
    run = make_run(batches=batches(design, 10), regulariser={"kind": "ridge", "strength": 0.4}, steps=50)
    contraction = 1 / (1 + 0.5 * 0.4)
    engine = shift.solve([contraction] * 50, run.sensitivities, run.noise_stds).mu
    epsilon = epsilon_by(lethe.certify(run, 1e-5), "optimal-shift")
    assert epsilon == pytest.approx(lethe.guarantees.GDP(engine).epsilon(1e-5), rel=1e-9)


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("relation", ["replace_one", "zero_out"])
def test_sampling_without_replacement_end_to_end(relation: str) -> None:
    """No better than Poisson batches of the noise that a batch's contents are apart (2/z when a record is replaced, 1/z when it is zeroed
    out), and not as bad as the Rényi bound, which dp_accounting's conversion gives as 118.7."""
    run = make_run(records=1000, batches=batches("without_replacement", 10), steps=10_000, noise_multiplier=1.0, release="all")
    noise = 0.5 if relation == "replace_one" else 1.0
    poisson = run.replace(batches=batches("poisson", 10), noise_multiplier=noise, neighbours="zero_out")
    epsilon = lethe.certify(run.replace(neighbours=relation), 1e-5).epsilon
    assert lethe.certify(poisson, 1e-5).epsilon <= epsilon < 118.7 / 2


@pytest.mark.parametrize(("relation", "most"), [("zero_out", 5), ("replace_one", 5), ("add_or_remove", 6)])
def test_the_largest_batch_counts_a_record_that_may_be_added(relation: Any, most: int) -> None:
    for size in (3, 5):  # 1e-18 is not to be had with so few records
        run = make_run(records=5, batches=batches("poisson", size), neighbours=relation)
        assert largest_batch(run) == (most, 0.0)


def test_the_largest_batch_is_the_smallest_that_is_safe() -> None:
    run = make_run(records=2000, batches=batches("poisson", 20), steps=100)
    largest, slack = largest_batch(run)
    # The other 1999 records fill it, with the record in question besides.
    assert 100 * float(special.bdtrc(largest - 1, 1999, 0.01)) <= slack == OVERFILL_SLACK
    assert 100 * float(special.bdtrc(largest - 2, 1999, 0.01)) > slack
