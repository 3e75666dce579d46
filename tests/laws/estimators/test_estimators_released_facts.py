"""What a fit guarantees is fixed before it releases anything, and a perturbed minimiser beside other releases costs what integrals say."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from helpers import with_fresh_noise
from private_cases import build
from scipy import integrate
from scipy.special import log_ndtr

from lethe.accounting.certify import certify
from lethe.calculus.any_guarantee import joined as joined_guarantees
from lethe.calculus.guarantees import GDP
from lethe.estimators import GammaRegressor, HuberRegressor, Lasso, LinearRegression, LinearSVC, LogisticRegression, PoissonRegressor, Ridge
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.choice import perturbed
from lethe.estimators.choice.choose import MECHANISMS
from lethe.estimators.choice.mechanism import Penalties, RandomSources
from lethe.estimators.inputs.facts import PublicFacts
from lethe.estimators.inputs.records import Records
from lethe.estimators.models.linear_model import PrivateLinearModel
from lethe.mechanisms.minimisers.objective_perturbation import PerturbedMinimiser
from lethe.run.losses import LeastSquares, Logistic
from lethe.run.losses.linear import LinearLoss
from lethe.run.regularisers import L2 as RidgePenalty

SEEDED = {"random_state": 0, "seed_noise": True, "delta": 1e-5}
LOSSES = Logistic(feature_norm=1.0), LeastSquares(feature_norm=1.0, residual_bound=1.0)
BOTH = pytest.mark.parametrize("loss", LOSSES, ids=["logistic", "huber"])
EPSILONS = (0.0, 0.2, 0.7, 1.0, 1.4, 2.0)


def fitted(make: type[Any], scale: float, target_scale: float, **parameters: Any) -> PrivateLinearModel:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((600, 3))
    values = rows @ np.array([1.0, -1.0, 0.5]) + 0.1 * rng.standard_normal(600)
    numeric = issubclass(make, LinearRegression | Ridge | Lasso | HuberRegressor | PoissonRegressor | GammaRegressor)
    return build(make, **SEEDED, **parameters).fit(scale * rows, target_scale * values if numeric else (values > 0).astype(int))


def few_records(loss: LinearLoss) -> Records:
    rng = np.random.default_rng(0)
    rows, targets = rng.uniform(-0.5, 0.5, (60, 2)), rng.integers(2, size=60).astype(float)
    return Records(rows, targets, loss=loss, feature_norm=1.0, intercept=True)


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
        (PoissonRegressor, {"alpha": 0.1}),
        (GammaRegressor, {}),
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
@BOTH
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
    outcome = mechanism.plan(facts, budget).train(few_records(loss), sources(), Penalties(ridge=ridge, l1=0.0))
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
@BOTH
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
    records, draws = few_records(loss), sources()
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


# c, and pairs of mu and how many.
CASES = {
    "one": ((0.05, ((0.4, 1),)),),
    "small beside the other release": ((0.01, ((0.05, 1),)),),
    "several": ((0.3, ((0.5, 2), (0.2, 3))),),
    "two cases": ((0.2, ((0.3, 1),)), (0.0, ((0.3, 2),))),
}
LEVELS = (0.0, 0.1, 0.6, 1.5)


def missed(mu: float, level: float) -> float:
    r"""$E(1 - e^{s-x})_+$ of $x \sim N(\mu^2/2, \mu^2)$, at any real s."""
    far, near = log_ndtr(mu / 2.0 - level / mu), log_ndtr(-mu / 2.0 - level / mu)
    return math.exp(far) - math.exp(level + near)


def over_the_other(nu: float, function: Callable[[float], float]) -> float:
    r"""The mean of a function of $y \sim N(\nu^2/2, \nu^2)$, by Gauss-Legendre on forty pieces of ten standard deviations to each side."""
    points, weights = np.polynomial.legendre.leggauss(20)
    edges = np.linspace(-10.0, 10.0, 41)
    middle, half = (edges[1:] + edges[:-1])[:, None] / 2.0, (edges[1] - edges[0]) / 2.0
    at = (middle + half * points).ravel()
    mass = np.tile(half * weights, 40) * np.exp(-(at**2) / 2.0) / math.sqrt(2.0 * math.pi)
    return float(mass @ np.array([function(nu * nu / 2.0 + nu * z) for z in at.tolist()]))


def stated(cases: tuple[tuple[float, tuple[tuple[float, int], ...]], ...], nu: float, epsilon: float) -> float:
    """What the derivation bounds the joint loss by, every mean an integral."""

    def total(vertices: tuple[tuple[float, int], ...], level: float) -> float:
        moved = sum(count * over_the_other(nu, lambda y, mu=mu: missed(mu, level - y)) for mu, count in vertices)
        return min(moved + missed(nu, level), 1.0)  # the last is the vertex 0: the other release alone

    def one(determinant: float, vertices: tuple[tuple[float, int], ...]) -> float:
        level = epsilon - determinant
        return total(vertices, level) if level >= 0.0 else 1.0 - math.exp(level) * (1.0 - total(vertices, 0.0))

    return max(one(*case) for case in cases)


@pytest.mark.parametrize("name", list(CASES))
@pytest.mark.parametrize("nu", [0.05, 0.5, 2.0])
def test_the_joint_profile_is_the_stated_sum(nu: float, name: str) -> None:
    minimiser = PerturbedMinimiser(CASES[name])
    for others in ((GDP(nu),), (GDP(0.6 * nu), GDP(0.8 * nu))):
        joined = joined_guarantees([(one, 1) for one in (minimiser, *others)])
        for epsilon in LEVELS:
            assert joined.delta(epsilon) == pytest.approx(stated(CASES[name], nu, epsilon), rel=1e-6, abs=1e-14)


@pytest.mark.parametrize(("mu", "nu"), [(0.05, 0.5), (0.5, 0.5), (1.0, 0.3)])
def test_the_loss_that_is_never_negative_needs_the_vertex_of_the_other_release(mu: float, nu: float) -> None:
    r"""Of $\max(0, x) + y$ itself, by an integral over x and y: above what the moved vertices explain, and below what is stated."""
    joined = joined_guarantees([(PerturbedMinimiser(((0.0, ((mu, 1),)),)), 1), (GDP(nu), 1)])
    for epsilon in (0.0, 0.3, 1.0):

        def inner(z: float, level: float = epsilon) -> float:
            x = max(0.0, mu * mu / 2.0 + mu * z)
            return missed(nu, level - x) * math.exp(-z * z / 2.0) / math.sqrt(2.0 * math.pi)

        exact = integrate.quad(inner, -10.0, 10.0, points=[-mu / 2.0], epsabs=1e-13, limit=200)[0]
        assert missed(math.hypot(mu, nu), epsilon) < (1.0 - 1e-5) * exact
        assert exact <= joined.delta(epsilon) * (1.0 + 1e-9)
