"""Poisson, gamma and Tweedie regression: the objective without noise, the level and its price, ranges, and what is predicted."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from constant_noise import Constant
from private_cases import build
from sklearn.linear_model import TweedieRegressor as Plain
from sklearn.metrics import d2_tweedie_score

from lethe.accounting.certify import certify
from lethe.accounting.recheck import recheck_statement
from lethe.calculus.guarantees import GDP
from lethe.estimators import GammaRegressor, PoissonRegressor, TweedieRegressor
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.choice.mechanism import Outcome
from lethe.estimators.inputs.facts import PublicFacts
from lethe.estimators.inputs.records import Records
from lethe.estimators.models.level import LevelRelease
from lethe.run.losses import Tweedie

DELTA = 5e-6
WEIGHTS = np.array([0.5, -0.4, 0.3, 0.0])
POWERS = {PoissonRegressor: 1.0, TweedieRegressor: 1.5, GammaRegressor: 2.0}


def costs(kind: Any, count: int = 20_000, seed: int = 0, scale: float = 300.0) -> tuple[np.ndarray, np.ndarray]:
    """Counts; compound costs of which half are 0; costs whose deviation is their mean."""
    rng = np.random.default_rng(seed)
    rows = rng.uniform(-1.0, 1.0, (count, 4))
    means = np.exp(rows @ WEIGHTS)
    if kind is PoissonRegressor:
        return rows, rng.poisson(0.3 * means).astype(float)
    if kind is GammaRegressor:
        return rows, scale * means * rng.gamma(1.0, 1.0, count)
    return rows, scale * rng.gamma(np.maximum(rng.poisson(0.7 * means), 1e-9))


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
@pytest.mark.parametrize("kind", list(POWERS), ids=lambda kind: kind.__name__)
def test_means_add_up_to_the_targets_and_tell_almost_what_is_told_without_privacy(kind: Any, epsilon: float) -> None:
    (rows, targets), (others, wanted) = costs(kind), costs(kind, seed=1)
    model = kind(epsilon=epsilon, delta=DELTA, feature_norm=2.0, random_state=0, seed_noise=True).fit(rows, targets)
    predicted = model.predict(others)
    assert predicted.mean() == pytest.approx(wanted.mean(), rel=0.15)
    power = POWERS[kind]
    plain = Plain(power=power, link="log", alpha=0.0, max_iter=1000).fit(rows, targets / targets.mean())
    known = d2_tweedie_score(wanted, plain.predict(others) * targets.mean(), power=power)
    assert model.score(others, wanted) == pytest.approx(d2_tweedie_score(wanted, predicted, power=power))
    assert known - 0.02 < model.score(others, wanted) < known + 0.005
    low, high = model.target_range_
    assert low == 0.0
    assert 0.0 < predicted.min() < predicted.max() <= high < 1.5 * targets.max()


@pytest.mark.parametrize("kind", list(POWERS), ids=lambda kind: kind.__name__)
def test_without_noise_it_is_scikit_learn_s(kind: Any) -> None:
    """Half the deviance, and alpha as it stands, of targets in units of an eighth of the range."""
    rows, targets = costs(kind, 3000, scale=1.0)
    high = float(targets.max())
    given: dict[str, Any] = {
        "epsilon": 1e6,
        "delta": 1e-7,
        "neighbours": "zero_out",
        "feature_norm": 2.0,
        "target_bound": high,
        "alpha": 0.05,
    }
    model = build(kind, fit_intercept=False, mechanism="objective_perturbation", narrow_range=False, whiten=False, **given)
    model.fit(rows, targets)
    plain = Plain(power=POWERS[kind], link="log", alpha=0.05, fit_intercept=False, max_iter=2000, tol=1e-10)
    plain.fit(rows, np.maximum(targets, high * 2.0**-20) * 8.0 / high)
    np.testing.assert_allclose(model.coef_, plain.coef_, atol=0.02)
    assert model.intercept_ == pytest.approx(math.log(high / 8.0))
    np.testing.assert_allclose(model.predict(rows), np.minimum(plain.predict(rows) * high / 8.0, high), rtol=0.05)


def test_all_releases_are_stated_and_computed_again() -> None:
    rows, targets = costs(GammaRegressor, 6000)
    model = build(GammaRegressor, epsilon=2.0, delta=DELTA, feature_norm=2.0, mechanism="cyclic", passes=2, whiten=False).fit(rows, targets)
    stated = model.statement_
    for part in ("upper end of the targets (twice their 0.98 quantile)", "level (sums of the targets and of the means)", "cyclic"):
        assert part in stated.name
    assert 1.99 < model.epsilon_ <= 2.0
    recheck_statement(stated)
    budget = PrivacyBudget(epsilon=2.0, delta=DELTA)
    level = LevelRelease.planned(6000, budget, bound=8.0)
    assert level is not None
    run = certify(model.run_, DELTA).guarantee
    assert isinstance(stated.guarantee, GDP)
    assert isinstance(run, GDP)
    spread = budget.planned_share(6000, units=150.0, smallest=0.05, largest=0.3).mu
    assert stated.guarantee.mu == pytest.approx(math.hypot(spread, level.share.mu, run.mu), rel=1e-6)


def problem(targets: np.ndarray, weights: np.ndarray | None = None) -> tuple[Records, Outcome]:
    loss = Tweedie(feature_norm=2.0, power=2.0, target_bound=8.0, cut=1.0)
    rows = np.random.default_rng(1).uniform(-0.5, 0.5, (len(targets), 2))
    records = Records(rows, targets, loss=loss, feature_norm=1.0, intercept=True, weights=weights)
    facts = PublicFacts(records=len(targets), columns=2, loss=loss, target_bound=8.0)
    return records, Outcome(weights=np.array([[0.3], [-0.2], [-1.0]]), statement=None, facts=facts)  # pyright: ignore[reportArgumentType]


def summed(level: LevelRelease, records: Records, outcome: Outcome) -> tuple[np.ndarray, float]:
    """The sums before their noise, and its standard deviation."""
    seen: list[tuple[np.ndarray, float]] = []

    def with_noise(sums: np.ndarray, *, noise_std: float, **others: Any) -> Any:
        seen.append((sums, noise_std))
        return sums, level.cost

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lethe.estimators.models.level.with_noise", with_noise)
        level(records, outcome, generator=None)
    return seen[0]


def test_the_level_is_the_ratio_of_weighed_targets_and_means() -> None:
    rng = np.random.default_rng(2)
    targets, weights = rng.gamma(0.5, 2.0, 5000), rng.uniform(0.0, 1.0, 5000)
    records, before = problem(targets, weights)
    level = LevelRelease.planned(5000, PrivacyBudget(epsilon=1.0, delta=DELTA), bound=8.0)
    assert level is not None
    sums, _ = summed(level, records, before)
    after, statement = level(records, before, generator=Constant(0.0))
    assert statement.planned == level.cost.guarantee
    scores = records.dense() @ before.weights[:, 0]
    wanted = np.array([weights @ np.clip(targets, 0.0, 8.0), weights @ np.minimum(np.exp(scores), 8.0)]) / 8.0
    np.testing.assert_allclose(sums, wanted, rtol=1e-5)  # targets below 2^-20 of the bound count as that
    assert 0.3 * (after.weights[-1, 0] - before.weights[-1, 0]) == pytest.approx(math.log(wanted[0] / wanted[1]), rel=1e-4)
    np.testing.assert_array_equal(after.weights[:-1], before.weights[:-1])


@pytest.mark.parametrize("neighbours", ["zero_out", "replace_one"])
def test_one_record_moves_the_sums_by_what_is_stated_and_no_more(neighbours: Any) -> None:
    """Worst neighbours: a target and a mean far above the bound, against no record, and against a target and a mean of 0."""
    records, outcome = problem(np.full(3000, 1.0))
    steep = replace(outcome, weights=np.array([[4000.0], [0.0], [0.0]]))
    level = LevelRelease.planned(3000, PrivacyBudget(epsilon=1.0, delta=DELTA, neighbours=neighbours), bound=8.0)
    assert level is not None

    def of_first(row: float, target: float, weight: float) -> tuple[np.ndarray, float]:
        rows, targets, weights = np.zeros((3000, 2)), np.full(3000, 1.0), np.ones(3000)
        rows[0, 0], targets[0], weights[0] = row, target, weight
        given = Records(rows, targets, loss=records.loss, feature_norm=1.0, intercept=True, weights=weights)
        return summed(level, given, steep)

    most, noise_std = of_first(0.9, 1e9, 1.0)
    other, _ = of_first(-0.9, 0.0, 1.0) if neighbours == "replace_one" else of_first(0.0, 0.0, 0.0)
    moved, stated = float(np.linalg.norm(most - other)) / noise_std, level.cost.guarantee
    assert isinstance(stated, GDP)
    assert 0.999 * stated.mu < moved <= stated.mu * (1.0 + 1e-9)


def test_a_target_beyond_the_range_counts_as_its_end_and_one_below_zero_as_zero() -> None:
    rows, targets = costs(GammaRegressor, 2000)
    given: dict[str, Any] = {"target_bound": 500.0, "feature_norm": 2.0, "epsilon": 3.0, "random_state": 3, "seed_noise": True}
    beyond, below = targets.copy(), targets.copy()
    beyond[targets > 500.0], below[:100] = 1e200, -7.0
    fits = [build(GammaRegressor, narrow_range=False, **given).fit(rows, y) for y in (targets, beyond, below, np.maximum(below, 0.0))]
    for first, second in (fits[:2], fits[2:]):
        np.testing.assert_allclose(first.coef_, second.coef_, rtol=1e-9)
    assert not np.allclose(fits[0].coef_, fits[2].coef_)
    assert {one.target_range_ for one in fits} == {(0.0, 500.0)}


def test_a_range_of_many_times_the_targets_is_made_good() -> None:
    rows, targets = costs(PoissonRegressor)
    given: dict[str, Any] = {"epsilon": 2.0, "delta": DELTA, "feature_norm": 2.0, "random_state": 0, "seed_noise": True}
    wide = PoissonRegressor(target_bound=(0.0, 1000.0), **given).fit(rows, targets)
    assert wide.target_range_[1] < 10.0
    assert "released: the sizes of the targets narrow that range" in wide.privacy_report_
    assert wide.predict(rows).mean() == pytest.approx(targets.mean(), rel=0.15)
    whole = build(PoissonRegressor, target_bound=4.0, narrow_range=False, **given).fit(rows, targets)
    assert whole.target_range_ == (0.0, 4.0)
    assert "upper end" not in whole.statement_.name


def test_few_records_and_users_release_no_level_and_keep_their_slopes() -> None:
    rows, targets = costs(GammaRegressor, 400)
    few = build(GammaRegressor, target_bound=2000.0, feature_norm=2.0, epsilon=0.5, mechanism="pass_ends", passes=2).fit(rows, targets)
    people = GammaRegressor(target_bound=2000.0, feature_norm=2.0, epsilon=9.0).fit(rows, targets, users=np.arange(400) // 2)
    for one in (few, people):
        assert "level" not in one.statement_.name
        assert one._trained.loss == Tweedie(feature_norm=1.0, power=2.0, target_bound=8.0, cut=8.0).on_rows(one._trained.norm)


def test_exposures_are_weights() -> None:
    """Rates with their exposures: the mean rate is that of all exposure, not of all records."""
    rng = np.random.default_rng(5)
    rows, exposure = rng.uniform(-1.0, 1.0, (20_000, 4)), rng.uniform(0.05, 1.0, 20_000)
    counts = rng.poisson(0.4 * exposure * np.exp(rows @ WEIGHTS) * np.where(exposure < 0.3, 3.0, 1.0))
    model = PoissonRegressor(epsilon=3.0, delta=DELTA, feature_norm=2.0, target_bound=20.0, random_state=0, seed_noise=True)
    model.fit(rows, counts / exposure, sample_weight=exposure)
    assert exposure @ model.predict(rows) == pytest.approx(counts.sum(), rel=0.15)
    assert np.mean(counts / exposure) > 1.25 * counts.sum() / exposure.sum()
