"""Private regressions: what they cost, what they minimise, and ranges of targets: truncated at, released, or given and narrowed."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import sklearn.linear_model
from constant_noise import Constant
from excused_checks import SEEDED
from gaussian_guarantees import mu_of
from private_cases import build
from scipy.optimize import minimize

from lethe.accounting.certify import certify
from lethe.accounting.recheck import recheck_statement
from lethe.calculus.guarantees import GDP
from lethe.certificates.statement import Statement
from lethe.estimators import ElasticNet, HuberRegressor, Lasso, LinearRegression, Ridge
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.inputs import targets as narrowing
from lethe.estimators.inputs.targets import NARROWING_SHARE, TargetRange, narrowed_range, narrowing_cost
from lethe.estimators.models.regressors import PrivateRegressor
from lethe.estimators.options import EstimatorOptions

NO_NOISE = {"epsilon": 1e6, "delta": 1e-5, "feature_norm": 100.0, "target_bound": 100.0, "random_state": 0, "seed_noise": True}


def line(records: int = 400, noise: float = 0.1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((records, 3))
    return X, X @ np.array([2.0, -1.0, 0.0]) + 0.5 + noise * rng.standard_normal(records)


def test_without_noise_ridge_is_scikit_learns() -> None:
    X, y = line(100)
    wanted = sklearn.linear_model.Ridge(alpha=30.0, fit_intercept=False).fit(X, y).coef_
    tight = {**NO_NOISE, "feature_norm": float(np.linalg.norm(X, axis=1).max()), "target_bound": 8.0, "epsilon": 1e8}
    for mechanism in ("adassp", "objective_perturbation"):
        model = Ridge(alpha=30.0, options=EstimatorOptions(mechanism=mechanism), fit_intercept=False, **tight).fit(X, y)
        np.testing.assert_allclose(model.coef_, wanted, atol=0.01)


def test_without_noise_lasso_is_scikit_learns() -> None:
    X, y = line(100)
    norm = {**NO_NOISE, "feature_norm": float(np.linalg.norm(X, axis=1).max()), "target_bound": 8.0, "epsilon": 1e8}
    for ours, theirs in (
        (
            Lasso(alpha=0.7, fit_intercept=False, options=EstimatorOptions(passes=1000, batches="full"), **norm),
            sklearn.linear_model.Lasso(alpha=0.7, fit_intercept=False),
        ),
        (
            ElasticNet(alpha=0.7, l1_ratio=0.4, fit_intercept=False, options=EstimatorOptions(passes=1000, batches="full"), **norm),
            sklearn.linear_model.ElasticNet(alpha=0.7, l1_ratio=0.4, fit_intercept=False),
        ),
    ):
        np.testing.assert_allclose(ours.fit(X, y).coef_, theirs.fit(X, y).coef_, atol=0.01)
        assert ours.run_.regulariser is not None


def test_without_noise_huber_is_its_objective_and_forgets_an_outlier() -> None:
    X, y = line(100)
    y[0] = 1e6
    model = HuberRegressor(alpha=2.0, residual_bound=0.3, fit_intercept=False, **{**NO_NOISE, "target_bound": None}).fit(X, y)

    def objective(w: np.ndarray) -> float:
        short = np.abs(X @ w - y)
        return float(np.where(short <= 0.3, short**2 / 2, 0.3 * (short - 0.15)).sum() + w @ w)

    # The mechanism's own ridge may not be smaller than the smallest of its grid.
    np.testing.assert_allclose(model.coef_, minimize(objective, np.zeros(3), tol=1e-10).x, atol=0.02)
    assert np.abs(model.coef_ - [2.0, -1.0, 0.0]).max() < 0.25


def test_a_private_range_is_learned_and_paid_for() -> None:
    X, y = line(10_000)
    asked: dict[str, Any] = {"feature_norm": 4.0, "mechanism": "cyclic", "passes": 4}
    seeded = build(LinearRegression, **asked, **SEEDED).fit(X, 3.0 * y + 1000.0)  # with fresh noise 17 ranges of 2581 were lost
    low, high = seeded.target_range_
    assert 900.0 < low < 1000.0 < high < 1100.0
    assert seeded.score(X, 3.0 * y + 1000.0) > 0.8
    model, alone = (build(LinearRegression, **asked, target_bound=bound).fit(X, y) for bound in ("auto", 1.0))
    training = next(line for line in model.privacy_report_.splitlines() if "cyclic:" in line)
    mu = float(training.split(";")[-1].strip().removesuffix("-GDP"))
    assert mu == pytest.approx(mu_of(alone.certificate_.guarantee) * math.sqrt(0.95), rel=0.01)  # the documented twentieth


LOW, HIGH = -1.0, 5.0
RNG = np.random.default_rng(8)
ROWS = RNG.standard_normal((300, 2)) + 1.0
TARGETS = 2.0 * ROWS[:, 0] + 1.0 + 4.0 * RNG.standard_normal(300)
BOUNDED = {"random_state": 2, "seed_noise": True, "feature_norm": 3.0, "epsilon": 20.0, "target_bound": (LOW, HIGH)}
MODELS = (
    *(build(LinearRegression, mechanism=name, **BOUNDED) for name in ("output_perturbation", "adassp", "objective_perturbation")),
    build(Lasso, alpha=1e-6, mechanism="pass_ends", **BOUNDED),
)


def weights(model: PrivateRegressor, targets: np.ndarray) -> list[float]:
    fitted: Any = model.fit(ROWS, targets)
    return [*fitted.coef_.tolist(), fitted.intercept_]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("model", MODELS, ids=lambda model: f"{type(model).__name__} by {model.options.mechanism}")
def test_targets_are_truncated_at_the_ends_of_their_range(model: PrivateRegressor) -> None:
    assert np.mean((TARGETS < LOW) | (TARGETS > HIGH)) > 0.3
    found = weights(model, TARGETS)
    assert found == weights(model, np.clip(TARGETS, LOW, HIGH))
    assert found != weights(model, np.clip(TARGETS, LOW, HIGH - 0.01))


DELTA = 1e-5
WIDE = (-20.0, 60.0)
BUDGET = PrivacyBudget(epsilon=2.0, delta=DELTA, neighbours="replace_one")


def records(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of norm about 1 and targets of 10 plus or minus 1."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((count, 4)) / 2.0
    return rows, 10.0 + 0.9 * rows @ np.array([1.0, -1.0, 1.0, -1.0]) + 0.4 * rng.standard_normal(count)


def model(kind: Any = LinearRegression, **changes: Any) -> Any:
    asked: dict[str, Any] = {"epsilon": 2.0, "delta": DELTA, "feature_norm": 1.5, "target_bound": WIDE, "neighbours": "replace_one"}
    return build(kind, whiten=False, **asked | changes)


def cost(count: int, given: TargetRange) -> Statement:
    found = narrowing_cost("auto", given, count, BUDGET, may_choose=True, against=None)
    assert found is not None
    return found


def narrowed(targets: Any, given: TargetRange, *, centred: bool = True, drawn: float = 0.0) -> TargetRange:
    return narrowed_range(np.asarray(targets, dtype=float), given, BUDGET, centred=centred, generator=Constant(drawn))


@pytest.mark.parametrize("neighbours", ["replace_one", "zero_out"])
@pytest.mark.parametrize("kind", [LinearRegression, Ridge, HuberRegressor])
def test_the_moments_are_part_of_what_is_stated(kind: Any, neighbours: Any) -> None:
    rows, values = records(3000)  # of 1000, noise alone leaves the range as it is in one fit of twenty
    fitted = model(kind, mechanism="pass_ends", passes=2, narrow_range=True, neighbours=neighbours).fit(rows, values)
    stated, run = fitted.statement_, fitted.run_
    assert isinstance(fitted.certificate_, Statement)
    assert "moments of the targets (their mean and second moment), by which the given range is narrowed" in stated.name
    assert 2.0 * 0.98 <= fitted.epsilon_ <= 2.0
    low, high = fitted.target_range_
    assert WIDE[0] < low < 8.0
    assert 12.0 < high < WIDE[1]
    assert (
        f"NOT public, but released: the moments of the targets narrow that range to between {low:g} and {high:g}" in fitted.privacy_report_
    )
    recheck_statement(stated)
    charged = certify(run, DELTA).guarantee
    assert isinstance(charged, GDP)
    assert isinstance(stated.guarantee, GDP)
    assert stated.guarantee.mu == pytest.approx(math.hypot(BUDGET.share(NARROWING_SHARE).mu, charged.mu), rel=1e-9)


def test_beside_what_is_released_no_target_has_a_say(monkeypatch: pytest.MonkeyPatch) -> None:
    given = TargetRange(centre=0.0, half=100.0)
    ends = [narrowed(np.full(2000, value), given) for value in (5.0, 20.0)]
    released = narrowing.channel_moments
    monkeypatch.setattr(narrowing, "channel_moments", lambda rows, **options: released(np.full_like(rows, 0.05), **options))
    assert [narrowed(np.full(2000, value), given) for value in (5.0, 20.0)] == [ends[0]] * 2
    assert ends[0] != ends[1]


def test_a_range_stays_one_whatever_epsilon_is() -> None:
    given, budget = TargetRange(centre=5.0, half=5.0), PrivacyBudget(epsilon=1e300, delta=DELTA)
    found = narrowed_range(np.full(100, 5.0), given, budget, centred=True, generator=Constant(0.0))
    assert (found.centre, found.half) == pytest.approx((5.0, 5e-6))


@pytest.mark.parametrize("half", [100.0, 0.5])
@pytest.mark.parametrize("far", [1e3, 1.7e308, -1.7e308])
def test_a_target_beyond_the_given_range_counts_as_its_end(far: float, half: float) -> None:
    """Without a warning that tells of it."""
    given, values = TargetRange(centre=0.0, half=half), np.full(3000, 0.01 * half)
    beyond, at_end = values.copy(), values.copy()
    beyond[7], at_end[7] = far, math.copysign(half, far)
    assert narrowed(beyond, given, drawn=0.3) == narrowed(at_end, given, drawn=0.3)


@pytest.mark.parametrize("kind", [LinearRegression, HuberRegressor, Lasso])
def test_the_fit_is_that_of_the_narrowed_range_given_by_hand(monkeypatch: pytest.MonkeyPatch, kind: Any) -> None:
    """Moments that cost nothing: the same noise, in proportion to the range, and the same predictions."""
    rows, values = records(600)
    free = replace(cost(600, TargetRange(centre=0.0, half=1.0)), guarantee=GDP(0.0))
    known = TargetRange(centre=10.5, half=2.25, statement=free)
    monkeypatch.setattr("lethe.estimators.models.regressors.narrowing_cost", lambda *_, **__: free)
    monkeypatch.setattr("lethe.estimators.models.regressors.narrowed_range", lambda *_, **__: known)
    given: dict[str, Any] = {"mechanism": "pass_ends", "passes": 2, **SEEDED, **({"alpha": 0.05} if kind is Lasso else {})}
    fitted = model(kind, narrow_range=True, **given).fit(rows, values)
    by_hand = model(kind, narrow_range=False, target_bound=(8.25, 12.75), **given).fit(rows, values)
    assert fitted.target_range_ == by_hand.target_range_ == (8.25, 12.75)
    np.testing.assert_allclose(fitted.coef_, by_hand.coef_, rtol=1e-9)
    assert fitted.intercept_ == pytest.approx(by_hand.intercept_, rel=1e-9)


def test_which_ranges_are_narrowed() -> None:
    rows, values = records(1500)
    quick: dict[str, Any] = {"batches": "full", "passes": 2, **SEEDED}

    def is_narrowed(kind: Any = LinearRegression, users: Any = None, weights: Any = None, **changes: Any) -> bool:
        fitted = model(kind, **quick | changes).fit(rows, values, users=users, sample_weight=weights)
        return "moments of the targets" in fitted.statement_.name

    assert all(map(is_narrowed, (LinearRegression, Ridge, ElasticNet, HuberRegressor)))
    assert is_narrowed(weights=np.linspace(0.0, 1.0, 1500))
    assert is_narrowed(fit_intercept=False, target_bound=60.0)
    assert not is_narrowed(narrow_range=False)
    assert not is_narrowed(HuberRegressor, residual_bound=1.0)
    assert not is_narrowed(target_bound="auto")
    assert not is_narrowed(batches="auto", mechanism="cyclic")
    assert not is_narrowed(users=np.arange(1500) // 2)
    assert not is_narrowed(epsilon=0.3)  # 1500 records do not tell enough there
