"""What a fit guarantees is fixed before it releases anything: a choice that looks at a release may cost more than each of its options."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from helpers import with_fresh_noise
from private_cases import build
from scipy import optimize, stats

from lethe.accounting.certify import certify
from lethe.calculus.guarantees import GDP, ApproxDP
from lethe.certificates.statement import Statement
from lethe.estimators import HuberRegressor, Lasso, LinearRegression, LinearSVC, LogisticRegression, Ridge
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.choice import perturbed
from lethe.estimators.choice.choose import MECHANISMS
from lethe.estimators.choice.mechanism import Penalties, RandomSources
from lethe.estimators.inputs.facts import PublicFacts
from lethe.estimators.inputs.records import Records
from lethe.estimators.models.linear_model import PrivateLinearModel
from lethe.mechanisms.base import joint
from lethe.run.losses import LeastSquares, Logistic
from lethe.run.losses.linear import LinearLoss
from lethe.run.regularisers import L2 as RidgePenalty

SEEDED = {"random_state": 0, "seed_noise": True, "delta": 1e-5}
EPSILONS = (0.0, 0.2, 0.7, 1.0, 1.4, 2.0)


def fitted(make: type[Any], scale: float, target_scale: float, **parameters: Any) -> PrivateLinearModel:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((600, 3))
    values = rows @ np.array([1.0, -1.0, 0.5]) + 0.1 * rng.standard_normal(600)
    numeric = issubclass(make, LinearRegression | Ridge | Lasso | HuberRegressor)
    return build(make, **SEEDED, **parameters).fit(scale * rows, target_scale * values if numeric else (values > 0).astype(int))


def sources() -> RandomSources:
    batches, noise = (torch.Generator().manual_seed(seed) for seed in (0, 1))
    return RandomSources(None, norm=None, batches=batches, noise=noise, mechanism=np.random.default_rng(2), seeded=True)


@pytest.mark.sampled(24)
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
@pytest.mark.parametrize(
    ("make", "parameters"),
    [
        (LogisticRegression, {"C": 1e-3}),
        (LogisticRegression, {"C": 1e-3, "mechanism": "objective_perturbation"}),
        (LogisticRegression, {"C": 1e-3, "mechanism": "poisson", "passes": 3}),
        (LinearSVC, {"C": 1e-3}),
        (LinearRegression, {}),
        (LinearRegression, {"feature_norm": 2.0}),
        (Ridge, {"alpha": 300.0}),
        (Ridge, {"alpha": 300.0, "mechanism": "objective_perturbation"}),
        (Ridge, {"alpha": 300.0, "mechanism": "adassp"}),
        (Lasso, {"alpha": 0.1, "passes": 3}),
        (HuberRegressor, {"alpha": 30.0}),
        (HuberRegressor, {"alpha": 30.0, "residual_bound": 0.3}),
    ],
)
def test_the_guarantee_does_not_depend_on_what_was_released(make: type[PrivateLinearModel], parameters: Any, epsilon: float) -> None:
    models = [fitted(make, *scales, epsilon=epsilon, **parameters) for scales in ((1.0, 1.0), (0.03, 40.0), (17.0, 0.2))]
    assert len({model.feature_norm_ for model in models}) == (1 if "feature_norm" in parameters else 3)
    assert len({model.mechanism_ for model in models}) == 1
    first, *others = (model.statement_.planned for model in models)
    for other in others:
        assert [other.delta(level) for level in EPSILONS] == [first.delta(level) for level in EPSILONS]
    assert all(model.statement_.planned.epsilon(model.delta_) <= epsilon for model in models)


@pytest.mark.sampled(24)
@pytest.mark.parametrize(
    "loss", [Logistic(feature_norm=1.0), LeastSquares(feature_norm=1.0, residual_bound=1.0)], ids=["logistic", "huber"]
)
@pytest.mark.parametrize("name", [one.name for one in MECHANISMS])
@pytest.mark.parametrize("ridge", [1e-4, 0.05, 3.0])
def test_what_was_planned_without_a_ridge_holds_with_one(name: str, loss: LinearLoss, ridge: float) -> None:
    """Against the guarantee of what was carried out, which a larger ridge makes smaller."""
    facts = PublicFacts(records=60, columns=2, loss=loss, target_bound=1.0 if isinstance(loss, LeastSquares) else None)
    mechanism = next(one for one in MECHANISMS if one.name == name)
    if name == "adassp" and isinstance(loss, Logistic):
        assert mechanism.refusal(facts) is not None
        return
    budget = PrivacyBudget(epsilon=2.0, delta=1e-3)
    rng = np.random.default_rng(0)
    records = Records(rng.uniform(-0.5, 0.5, (60, 2)), rng.integers(2, size=60).astype(float), loss=loss, feature_norm=1.0, intercept=True)
    draws = sources()
    outcome = mechanism.plan(facts, budget).train(records, draws, Penalties(ridge=ridge, l1=0.0))
    planned = outcome.statement.planned
    assert planned.epsilon(1e-3) == pytest.approx(2.0, rel=0.02)
    if outcome.run is not None:
        certificate = certify(with_fresh_noise(outcome.run), 1e-3)
        assert sum(one.strength for one in outcome.run.regularisers if isinstance(one, RidgePenalty)) == ridge
        for epsilon in EPSILONS:
            assert certificate.guarantee.delta(epsilon) <= planned.delta(epsilon) * (1.0 + 1e-9)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("neighbours", ["replace_one", "zero_out"])
@pytest.mark.parametrize("name", ["objective_perturbation", "output_perturbation"])
@pytest.mark.parametrize(
    "loss", [Logistic(feature_norm=1.0), LeastSquares(feature_norm=1.0, residual_bound=1.0)], ids=["logistic", "huber"]
)
def test_a_perturbed_minimiser_states_no_less_than_it_cost(
    name: str, loss: LinearLoss, neighbours: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the mechanism itself says that it cost, against the statement, with a ridge just above the planned one and far above."""
    carried_out: list[Any] = []
    original = getattr(perturbed, name)

    def watched(*arguments: Any, **settings: Any) -> Any:
        found = original(*arguments, **settings)
        carried_out.append((settings["regularisation"], found.statement.planned))
        return found

    monkeypatch.setattr(perturbed, name, watched)
    facts = PublicFacts(records=60, columns=2, loss=loss, neighbours=neighbours)
    mechanism = next(one for one in MECHANISMS if one.name == name)
    rng = np.random.default_rng(0)
    records = Records(rng.uniform(-0.5, 0.5, (60, 2)), rng.integers(2, size=60).astype(float), loss=loss, feature_norm=1.0, intercept=True)
    draws = sources()
    plan = mechanism.plan(facts, PrivacyBudget(epsilon=2.0, delta=1e-3))
    alone = plan.train(records, draws, Penalties(ridge=0.0, l1=0.0)).statement
    ((planned, cost),) = carried_out
    assert alone.planned == cost
    assert 1.99 < alone.planned.epsilon(1e-3) <= 2.0
    for factor in (1.0 + 1e-9, 1.5, 40.0):
        stated = plan.train(records, draws, Penalties(ridge=factor * planned, l1=0.0)).statement
        ridge, cost = carried_out[-1]
        assert ridge == factor * planned
        assert [stated.planned.delta(epsilon) for epsilon in EPSILONS] == [alone.planned.delta(epsilon) for epsilon in EPSILONS]
        assert all(cost.delta(epsilon) <= stated.planned.delta(epsilon) * (1.0 + 1e-7) for epsilon in EPSILONS)


def test_a_choice_that_looks_at_a_release_may_cost_more_than_each_option() -> None:
    """Why: a Gaussian release picks a second one of two, and with each the joint statement says (1, delta)."""
    delta, first = 1e-5, 0.05

    def stated(guarantee: Any) -> Statement:
        return Statement(name="release", guarantee=guarantee, neighbours="zero_out", findings=(), citations=())

    def excess(second: Any) -> float:
        return joint([stated(GDP(first)), stated(second)]).epsilon(delta) - 1.0

    mu = optimize.brentq(lambda value: excess(GDP(value)), 0.01, 1.0)
    pure = optimize.brentq(lambda value: excess(ApproxDP(value, 0.0)), 0.1, 0.99)

    def gaussian(level: float) -> float:
        return stats.norm.cdf(mu / 2 - level / mu) - math.exp(level) * stats.norm.cdf(-mu / 2 - level / mu)

    def randomised_response(level: float) -> float:
        likely = math.exp(pure) / (1.0 + math.exp(pure))
        return max(likely - math.exp(level) * (1.0 - likely), 0.0) + max(1.0 - likely - math.exp(level) * likely, 0.0)

    points = np.linspace(-9.0, 9.0, 801)
    left = [1.0 - (first * first / 2.0 + first * point) for point in points]
    density = stats.norm.pdf(points)
    alone = [np.trapezoid(density * np.array([way(level) for level in left]), points) for way in (gaussian, randomised_response)]
    chosen = np.trapezoid(density * np.array([max(gaussian(level), randomised_response(level)) for level in left]), points)
    assert max(alone) <= 1.001 * delta
    assert chosen > 1.9 * delta
