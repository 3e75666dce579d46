"""Numbers from one end of the floats to the other: no warning, no crash, no nan, and never less than what linear losses reveal."""

from __future__ import annotations

import math

import pytest
from extreme_runs import least_delta, may_be_linear, random_run
from how_many import by_night

import lethe
from lethe.certificates.findings import first_failure
from lethe.theorems.registry import ALL

DELTA = 1e-5
EPSILONS = (0.0, 1.0, 5.0)


def assert_sane(run: lethe.Run) -> None:
    """Of every theorem that applies; warnings are errors in all tests."""
    silent = run.noise_multipliers[-1] == 0
    truth = least_delta(run, EPSILONS) if may_be_linear(run) else [0.0] * len(EPSILONS)
    for theorem in ALL:
        findings = theorem.examine(run)
        if first_failure(findings) is not None:
            continue
        guarantee = theorem.bound(run, findings).guarantee
        epsilon = guarantee.epsilon(DELTA)
        where = theorem.name, run.to_document()
        assert epsilon >= 0.0, where
        deltas = [guarantee.delta(level) for level in EPSILONS]
        assert all(0.0 <= delta <= 1.0 for delta in deltas), where
        assert deltas == sorted(deltas, reverse=True), where
        assert guarantee.describe()
        if theorem.standing_on(run).usable:
            assert deltas[0] > 0.0, where
            assert epsilon == math.inf or not silent, where
            assert all(delta >= least * (1 - 1e-9) - 1e-12 for delta, least in zip(deltas, truth, strict=True)), where
    certificate = lethe.certify(run, DELTA)
    assert certificate.epsilon == math.inf or not silent


def test_extreme_runs_of_every_design() -> None:
    seeds = 150 if by_night() else 50
    runs = [run for seed in range(seeds) if (run := random_run(seed)) is not None]
    assert len(runs) > seeds // 2
    assert sum(may_be_linear(run) for run in runs) > seeds // 15
    for run in runs:
        assert_sane(run)


@pytest.mark.nightly(by_day="test_extreme_runs_of_every_design")
def test_many_extreme_runs() -> None:  # `make fuzz` goes on
    # These two tests together find every theorem whose bound 900 runs would find to be one per cent too small.
    for seed in range(150, 600):
        if (run := random_run(seed)) is not None:
            assert_sane(run)
