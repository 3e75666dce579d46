"""A private mean alone is taken off the rows of a classifier: what is released, what it costs, and where it is not done."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from private_cases import build, two_blobs

from lethe.accounting.certify import certify
from lethe.accounting.recheck import recheck_statement
from lethe.calculus.guarantees import GDP
from lethe.certificates.statement import Statement
from lethe.estimators import LogisticRegression
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.models import whitened_rows as whitening
from lethe.estimators.models.whitened_rows import MEAN_SHARE, PlannedWhitening, WhitenedRows, planned_whitening, whitened_rows
from lethe.estimators.options import EstimatorOptions
from lethe.mechanisms.moments import noisy_mean
from lethe.run.run import Neighbours

BUDGET = PrivacyBudget(epsilon=1.0, delta=1e-5)
COMMON: dict[str, Any] = {"feature_norm": 4.0, "epsilon": 1.0, "delta": 1e-5}


def mean_alone(neighbours: Neighbours = "replace_one") -> PlannedWhitening:
    """What is planned where a covariance would drown in its noise."""
    planned = planned_whitening(1400, 64, replace(BUDGET, neighbours=neighbours))
    assert planned is not None
    assert not planned.covariance
    return planned


def centred(rows: np.ndarray, neighbours: Neighbours, seed: int) -> tuple[np.ndarray, WhitenedRows]:
    budget = replace(BUDGET, neighbours=neighbours)
    settings: dict[str, Any] = {"feature_norm": 1.0, "budget": budget, "generator": np.random.default_rng(seed)}
    return whitened_rows(rows, mean_alone(neighbours), **settings)[:2]


def rows_that_share(share: float, *, records: int = 50_000, columns: int = 10) -> np.ndarray:
    """Unit rows whose mean has the squared norm `share`."""
    rng = np.random.default_rng(4)
    own = rng.standard_normal((records, columns))
    own[:, 0] = 0.0
    own /= np.linalg.norm(own, axis=1, keepdims=True) * (1 + 1e-12)
    own *= math.sqrt(1.0 - share)
    own[:, 0] = math.sqrt(share)
    return own


@pytest.mark.parametrize("share", [0.1, 0.4, 0.8])
def test_what_rows_share_is_taken_off_and_the_rest_is_of_length_one(share: float) -> None:
    rows = rows_that_share(share)
    left, made = centred(rows, "zero_out", 1)
    assert made.norm == pytest.approx(math.sqrt(1.0 - share), rel=0.02)
    np.testing.assert_allclose(made.mean, rows.mean(axis=0), atol=0.03)
    np.testing.assert_allclose(left, rows - made.mean, atol=1e-12)
    assert np.mean(np.square(left / made.norm).sum(axis=1)) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize(("neighbours", "other"), [("zero_out", 0.0), ("replace_one", -1.0)])
def test_the_mean_costs_what_its_noise_hides_of_the_worst_record(neighbours: Neighbours, other: float) -> None:
    """Exact: under the same noise the means of two neighbours differ by one record alone; how large the noise is, zeros say."""
    count, share = 20_000, BUDGET.share(MEAN_SHARE)

    def released(first: float) -> tuple[np.ndarray, Statement]:
        rows = np.zeros((count, 3))
        rows[0, 0] = first
        return noisy_mean(rows, norm=1.0, target=share, neighbours=neighbours, generator=np.random.default_rng(5))

    here, statement = released(1.0 - 1e-12)
    moved = float(np.linalg.norm(here - released(other * (1.0 - 1e-12))[0])) * count
    noise_std = float(released(0.0)[0][0]) * count / float(np.random.default_rng(5).standard_normal(3)[0])
    stated, planned = statement.planned, mean_alone(neighbours).cost.guarantee
    assert isinstance(stated, GDP)
    assert isinstance(planned, GDP)
    assert moved / noise_std == pytest.approx(stated.mu, rel=1e-6)
    assert stated.mu <= planned.mu <= share.mu
    fresh = noisy_mean(np.zeros((9, 3)), norm=1.0, target=share, neighbours=neighbours, generator=None)[1]
    recheck_statement(fresh)


@pytest.mark.parametrize("given", [{}, {"feature_norm": "auto"}])
@pytest.mark.filterwarnings("ignore::lethe.estimators.inputs.ranges.UnscaledColumnsWarning")  # of a norm that is large by chance
@pytest.mark.slow
def test_the_fit_states_both_releases_and_meets_the_total(given: dict[str, Any]) -> None:
    rows, labels = two_blobs(300)
    model = build(LogisticRegression, options=EstimatorOptions(release="all"), C=math.inf, **(COMMON | given)).fit(rows, labels)
    stated = model.certificate_
    assert isinstance(stated, Statement)
    assert "mean of 3 columns" in stated.name
    assert "rows are centred (their mean taken off) first" in model.privacy_report_
    assert 0.98 < model.epsilon_ <= 1.0
    assert model.run_ is not None
    if not given:
        run = certify(model.run_, 1e-5).guarantee
        assert isinstance(run, GDP)
        mean = PrivacyBudget(epsilon=1.0, delta=1e-5).share(MEAN_SHARE).mu
        assert model.epsilon_ == pytest.approx(GDP(math.hypot(run.mu, mean)).epsilon(1e-5), rel=1e-6)
    recheck_statement(stated)


@pytest.mark.slow
@pytest.mark.parametrize("release", ["all", "last"])
def test_scores_are_those_of_the_centred_rows(monkeypatch: pytest.MonkeyPatch, release: str) -> None:
    """A mean that costs nothing, and the same rows centred by hand: the same run, noise and scores."""
    rows, labels = two_blobs(300)
    made = WhitenedRows(mean=np.array([0.2, -0.1, 0.3]), matrix=None, norm=0.7)
    free = replace(mean_alone().cost, guarantee=GDP(0.0))
    monkeypatch.setattr(whitening, "planned_statement", lambda *_, **__: free)
    monkeypatch.setattr(whitening, "_by_mean", lambda *_: (made, free))
    seeded: dict[str, Any] = {
        **COMMON,
        "C": math.inf,
        "release": release,
        "mechanism": "correlated",
        "random_state": 3,
        "seed_noise": True,
        "neighbours": "replace_one",
    }
    model = build(LogisticRegression, options=EstimatorOptions(whiten=True), **seeded).fit(rows, labels)
    assert model.whitened_ is not None
    assert (model.whitened_.mean is made.mean, model.whitened_.norm) == (True, 0.7)
    unit = rows * np.minimum(1.0 / 4.0, 1.0 / np.linalg.norm(rows, axis=1, keepdims=True)) - made.mean
    by_hand = build(LogisticRegression, options=EstimatorOptions(whiten=False), **(seeded | {"feature_norm": 0.7})).fit(unit, labels)
    expected = unit @ by_hand.coef_.ravel() + by_hand.intercept_
    np.testing.assert_allclose(model.decision_function(rows), expected, rtol=1e-9, atol=1e-9)


def test_the_rule_looks_at_public_facts_alone() -> None:
    def decided(records: int, columns: int, epsilon: float = 1.0) -> bool | None:
        planned = planned_whitening(records, columns, replace(BUDGET, epsilon=epsilon))
        return None if planned is None else planned.covariance

    assert [decided(records, 64) for records in (100, 1400, 20_000)] == [None, False, True]
    assert [decided(1400, columns) for columns in (4, 64, 2000)] == [True, False, None]
    assert [decided(1400, 64, epsilon) for epsilon in (0.05, 1.0, 8.0)] == [None, False, True]
