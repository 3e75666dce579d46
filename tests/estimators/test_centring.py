"""A private mean is taken off the rows of a classifier: what is released, what it costs, and where it is not done."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from private_cases import two_blobs
from scipy import sparse

from lethe.accounting.certify import certify
from lethe.accounting.statements.recheck import recheck_statement
from lethe.calculus.guarantees import GDP
from lethe.certificates.statement import Statement
from lethe.errors import InputError
from lethe.estimators import LogisticRegression, SoftmaxRegression
from lethe.estimators.budget import Budget
from lethe.estimators.inputs.facts import PublicFacts
from lethe.estimators.models import linear_model
from lethe.estimators.models.centring import CENTRE_SHARE, Centre, centre_cost, private_centre, wants_centring
from lethe.mechanisms.row_mean import noisy_mean
from lethe.run.losses import Logistic
from lethe.run.run import Neighbours

BUDGET = Budget(epsilon=1.0, delta=1e-5)
COMMON: dict[str, Any] = {"feature_norm": 4.0, "epsilon": 1.0, "delta": 1e-5, "whiten": False}
FACTS = PublicFacts(records=5000, columns=20, loss=Logistic(feature_norm=1.0), release="all")


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
    centre, _ = private_centre(rows, BUDGET, neighbours="zero_out", generator=np.random.default_rng(1))
    assert centre.size == pytest.approx(math.sqrt(1.0 - share), rel=0.02)
    np.testing.assert_allclose(centre.mean, rows.mean(axis=0), atol=0.03)
    assert np.mean(np.square(centre.applied(rows)).sum(axis=1)) == pytest.approx(1.0, abs=0.02)


def test_of_rows_that_share_nothing_or_all_no_length_leaves_its_range() -> None:
    nothing, _ = private_centre(
        np.zeros((300, 10)) + np.eye(10)[np.arange(300) % 10] * 1e-9, BUDGET, neighbours="replace_one", generator=np.random.default_rng(2)
    )
    assert nothing.size == pytest.approx(1.0, abs=0.35)
    everything, _ = private_centre(np.tile(np.eye(4)[0], (10_000, 1)), BUDGET, neighbours="zero_out", generator=np.random.default_rng(3))
    assert everything.size == 0.1


@pytest.mark.parametrize(("neighbours", "other"), [("zero_out", 0.0), ("replace_one", -1.0)])
def test_the_mean_costs_what_its_noise_hides_of_the_worst_record(neighbours: Neighbours, other: float) -> None:
    """Exact: under the same noise the means of two neighbours differ by one record alone; how large the noise is, zeros say."""
    count, share = 20_000, BUDGET.share(CENTRE_SHARE)

    def released(first: float) -> tuple[np.ndarray, Statement]:
        rows = np.zeros((count, 3))
        rows[0, 0] = first
        return noisy_mean(rows, norm=1.0, target=share, neighbours=neighbours, generator=np.random.default_rng(5))

    here, statement = released(1.0 - 1e-12)
    moved = float(np.linalg.norm(here - released(other * (1.0 - 1e-12))[0])) * count
    noise_std = float(released(0.0)[0][0]) * count / float(np.random.default_rng(5).standard_normal(3)[0])
    stated, planned = statement.planned, centre_cost(count, BUDGET, neighbours=neighbours).guarantee
    assert isinstance(stated, GDP)
    assert isinstance(planned, GDP)
    assert moved / noise_std == pytest.approx(stated.mu, rel=1e-6)
    assert stated.mu <= planned.mu <= share.mu
    fresh = noisy_mean(np.zeros((9, 3)), norm=1.0, target=share, neighbours=neighbours, generator=None)[1]
    recheck_statement(fresh)


@pytest.mark.parametrize("given", [{}, {"feature_norm": "auto"}])
@pytest.mark.slow
def test_the_fit_states_both_releases_and_meets_the_total(given: dict[str, Any]) -> None:
    rows, labels = two_blobs(2000)
    model = LogisticRegression(release="all", **(COMMON | given)).fit(rows, labels)
    stated = model.certificate_
    assert isinstance(stated, Statement)
    assert "mean of 3 columns" in stated.name
    assert "a private mean of the rows is taken off" in model.privacy_report_
    assert 0.98 < model.epsilon_ <= 1.0
    assert model.run_ is not None
    if not given:
        run = certify(model.run_, 1e-5).guarantee
        assert isinstance(run, GDP)
        mean = Budget(epsilon=1.0, delta=1e-5).share(CENTRE_SHARE).mu
        assert model.epsilon_ == pytest.approx(GDP(math.hypot(run.mu, mean)).epsilon(1e-5), rel=1e-6)
    recheck_statement(stated)


@pytest.mark.slow
@pytest.mark.parametrize("release", ["all", "last"])
def test_scores_are_those_of_the_centred_rows(monkeypatch: pytest.MonkeyPatch, release: str) -> None:
    """A centre that costs nothing, and the same rows centred by hand: the same run, noise and scores."""
    rows, labels = two_blobs(500)
    centre = Centre(np.array([0.2, -0.1, 0.3]), 0.7)
    free = replace(private_centre(np.zeros((500, 3)), BUDGET, neighbours="replace_one", generator=None)[1], guarantee=GDP(0.0))
    monkeypatch.setattr(linear_model, "centre_cost", lambda *_, **__: free)
    monkeypatch.setattr(linear_model, "private_centre", lambda *_, **__: (centre, free))
    seeded: dict[str, Any] = {**COMMON, "C": math.inf, "release": release, "mechanism": "correlated", "random_state": 3, "seed_noise": True}
    model = LogisticRegression(centre=True, **seeded).fit(rows, labels)
    within = rows * np.minimum(1.0 / 4.0, 1.0 / np.linalg.norm(rows, axis=1, keepdims=True))
    by_hand = LogisticRegression(centre=False, **(seeded | {"feature_norm": 1.0})).fit(centre.applied(within), labels)
    expected = centre.applied(within) @ by_hand.coef_.ravel() + by_hand.intercept_
    np.testing.assert_allclose(model.decision_function(rows), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("parameters", "table", "message"),
    [
        ({"fit_intercept": False}, np.asarray, "only an intercept makes up"),
        ({}, sparse.csr_array, "leaves no zeros"),
        ({"centre": "always"}, np.asarray, 'True, False or "auto"'),
        ({"centre": 1}, np.asarray, 'True, False or "auto"'),
        ({"centre": None}, np.asarray, 'True, False or "auto"'),
    ],
)
def test_what_cannot_be_centred_is_refused(parameters: dict[str, Any], table: Any, message: str) -> None:
    rows, labels = two_blobs(60)
    with pytest.raises(InputError, match=message):
        SoftmaxRegression(**({"centre": True, **COMMON} | parameters)).fit(table(rows), labels)


def test_means_of_users_are_refused() -> None:
    rows, labels = two_blobs(60)
    with pytest.raises(InputError, match="users"):
        SoftmaxRegression(centre=True, classes=[0, 1], **COMMON).fit(rows, labels, users=np.arange(60) // 2)


def test_the_rule_looks_at_public_facts_alone() -> None:
    def decided(dense: bool = True, budget: Budget = BUDGET, **facts: Any) -> bool:
        return wants_centring("auto", replace(FACTS, **facts), budget, dense=dense)

    assert decided()
    for other in ({"release": "last"}, {"intercept": False}, {"unit": "user"}, {"records": 100}, {"columns": 10**6}):
        assert not decided(**other)
    assert not decided(dense=False)
    assert not decided(budget=replace(BUDGET, epsilon=0.01))
    assert not wants_centring(False, FACTS, BUDGET, dense=True)
    assert wants_centring(True, replace(FACTS, release="last"), BUDGET, dense=True)


@pytest.mark.slow
@pytest.mark.parametrize(("records", "released"), [(2000, "mean and second moments"), (330, "mean of 20 columns")])
def test_rows_are_whitened_only_where_their_covariance_can_be_told(records: int, released: str) -> None:
    model = LogisticRegression(release="all", **(COMMON | {"whiten": "auto", "neighbours": "zero_out"}))
    assert released in model.fit(*two_blobs(records, 20)).statement_.name


@pytest.mark.slow
def test_where_rows_share_much_less_noise_is_seen() -> None:
    rng = np.random.default_rng(6)
    labels = rng.integers(0, 10, size=3000)
    own = 0.6 * rng.standard_normal((10, 40))[labels] + rng.standard_normal((3000, 40))
    rows = 0.6 * own / np.linalg.norm(own, axis=1, keepdims=True) + 0.8 * np.eye(40)[0]
    given = COMMON | {"release": "all", "epsilon": 0.5, "feature_norm": 1.0, "C": math.inf, "passes": 30}

    def reached(centre: bool | str) -> float:
        fits = (SoftmaxRegression(centre=centre, random_state=seed, seed_noise=True, **given) for seed in range(3))
        return float(np.mean([one.fit(rows[:2000], labels[:2000]).score(rows[2000:], labels[2000:]) for one in fits]))

    assert reached("auto") > reached(False) + 0.02
