"""Balls in bins with every iterate released: which runs it covers, from which costs of a bin, and what certificates make of it."""

import math
from typing import Any

import numpy as np
import pytest
from helpers import batches, make_run

import lethe
from lethe.calculus.balls_in_bins.profile import BallsInBinsGaussian
from lethe.calculus.guarantees import WithSlack
from lethe.certificates.certificate import Certificate
from lethe.theorems.sampling import BallsInBinsTheorem


def bins_run(**changes: Any) -> lethe.Run:
    """1000 records in 100 bins, one pass, every iterate released."""
    fields: dict[str, Any] = {
        "records": 1000,
        "batches": batches("balls_in_bins", 10),
        "passes": 1,
        "release": "all",
        "neighbours": "replace_one",
    }
    fields |= {"neighbours": "zero_out", "noise_multiplier": 1.0, "loss": {"kind": "unknown"}, "clip_norm": 1.0}
    if "steps" in changes:
        fields.pop("passes")
    return make_run(**{**fields, **changes}) if "steps" not in changes else lethe.Run(step_size=0.5, **{**fields, **changes})


def pair(run: lethe.Run) -> BallsInBinsGaussian:
    guarantee = BallsInBinsTheorem().bound(run).guarantee
    assert isinstance(guarantee, BallsInBinsGaussian)
    return guarantee


@pytest.mark.sampled(2)
@pytest.mark.parametrize("release", ["all", "last"])
@pytest.mark.parametrize(("neighbours", "epsilon"), [("zero_out", 0.6210), ("add_or_remove", 0.6210), ("replace_one", 0.8255)])
def test_a_hundred_bins_are_certified(neighbours: str, epsilon: float, release: str) -> None:
    certificate = lethe.certify(bins_run(neighbours=neighbours, release=release), 1e-5)
    assert certificate.theorem == "balls-in-bins"
    assert certificate.epsilon == pytest.approx(epsilon, abs=1e-3)
    composed = next(other for other in certificate.others if other.theorem == "composition")
    assert composed.epsilon == pytest.approx(lethe.guarantees.GDP(2.0 if neighbours == "replace_one" else 1.0).epsilon(1e-5), rel=1e-9)
    assert "balls-in-bins" in certificate.explain()
    assert Certificate.from_dict(certificate.to_dict()).epsilon == certificate.epsilon


def test_what_a_bin_costs_is_the_root_of_the_sum_of_squares_over_its_visits() -> None:
    # Four bins; two whole passes and one bin more. G / C = 1/2 where the loss bounds the gradient below the clip norm.
    noises = [1.0, 2.0, 1.0, 2.0, 1.0, 1.0, 1.0, 2.0, 4.0]
    run = bins_run(records=40, steps=9, noise_multiplier=noises, clip_norm=2.0, loss={"kind": "unknown", "gradient_bound": 1.0})
    found = dict(zip(pair(run).mus, pair(run).counts, strict=True))
    expected = sorted(0.5 * math.sqrt(value) for value in (1 + 1 + 1 / 16, 1 / 4 + 1, 1 + 1, 1 / 4 + 1 / 4))
    assert list(found) == pytest.approx(expected, rel=1e-12)
    assert set(found.values()) == {1}
    replaced = pair(run.replace(neighbours="replace_one"))
    assert replaced.mus == pair(run).mus
    assert replaced.relation == "replace_one"
    never = pair(bins_run(records=40, steps=3))
    assert (never.mus, never.counts) == ((0.0, pytest.approx(1.0)), (1, 3))


def test_many_costs_are_rounded_up() -> None:
    noises = np.linspace(1.0, 2.0, 100)
    few = pair(bins_run(noise_multiplier=noises.tolist()))
    assert len(few.mus) <= 17
    assert sum(few.counts) == 100
    rounded = np.sort(np.repeat(few.mus, few.counts))
    assert np.all(rounded >= np.sort(1 / noises) * (1 - 1e-15))
    assert np.all(rounded <= np.sort(1 / noises) * 1.07)
    assert max(few.mus) == pytest.approx(1.0)


def test_one_bin_is_full_batches() -> None:
    for neighbours in ("zero_out", "add_or_remove", "replace_one"):
        run = bins_run(records=10, passes=7, neighbours=neighbours)
        full = lethe.certify(run.replace(batches=lethe.batches.Full()), 1e-5).epsilon
        assert lethe.certify(run, 1e-5).epsilon == pytest.approx(full, rel=1e-12)
        assert BallsInBinsTheorem().bound(run).guarantee.epsilon(1e-5) == pytest.approx(full, rel=1e-12)


def test_a_step_without_noise_is_not_private() -> None:
    assert lethe.certify(bins_run(noise_multiplier=[1.0] * 99 + [0.0]), 1e-5).epsilon == math.inf
    assert lethe.certify(bins_run(noise_multiplier=0.0), 1e-5).epsilon == math.inf


def test_batches_that_are_cut_pay_for_it() -> None:
    cut = bins_run(batches={"design": "balls_in_bins", "size": 10, "truncate_at": 40})
    guarantee = BallsInBinsTheorem().bound(cut).guarantee
    assert isinstance(guarantee, WithSlack)
    assert 0.0 < guarantee.slack < 1e-8
    assert guarantee.guarantee == pair(bins_run())
