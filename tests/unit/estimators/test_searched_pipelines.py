"""Private selection over pipelines: every step is paid for out of one try, and the winner claims it all."""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from how_many import by_night
from private_cases import stated, two_blobs
from searched_pipelines import DELTA, LONG, MODEL, SCALED, SEEDED, a_try, overspent, search, watched
from sklearn.base import clone, is_regressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Binarizer, FunctionTransformer, Normalizer, PolynomialFeatures

import lethe.estimators.search.private_search as selection
from lethe.calculus.guarantees import GDP, ApproxDP
from lethe.certificates.statement import Statement
from lethe.errors import InputError
from lethe.estimators import LogisticRegression, PrivateStandardScaler, Ridge, privacy_of, split_budget
from lethe.estimators.options import EstimatorOptions
from lethe.estimators.search import sides
from lethe.estimators.search.step_tries import step_tries
from lethe.estimators.search.tries import Try, law_of_tries
from lethe.mechanisms.selection import selection_guarantee


@pytest.mark.slow
def test_what_each_step_costs_is_as_calculated_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = {"privatestandardscaler": 1.0, "logisticregression": 3.0}
    found, fitted = watched(monkeypatch, shares=shares)
    one = a_try(gaussian=True)
    assert isinstance(one.guarantee, GDP)
    for pipeline in fitted:
        scaler, model = (step.statement_.planned for _, step in pipeline.steps)
        assert scaler.mu == pytest.approx(one.guarantee.mu * math.sqrt(1 / 4), rel=1e-7)
        assert model.mu == pytest.approx(one.guarantee.mu * math.sqrt(3 / 4), rel=1e-7)
        assert math.hypot(scaler.mu, model.mu) <= one.guarantee.mu
    assert not overspent(one, fitted)
    # A total from the statements of the steps, by the theorem on the best of K tries.
    assert found.statement_.planned.epsilon(DELTA) >= max(
        selection_guarantee(privacy_of(pipeline).planned, law_of_tries(3.0), delta=DELTA).epsilon(DELTA) for pipeline in fitted
    )
    assert found.statement_.planned.epsilon(DELTA) == pytest.approx(
        selection_guarantee(one.guarantee, law_of_tries(3.0), delta=DELTA).epsilon(DELTA), rel=1e-12
    )
    assert 0.999 < found.statement_.planned.epsilon(DELTA) <= 1.0
    # The score has what a whole fit has.
    assert found.score_noise_std_ == pytest.approx(1 / 80 / one.guarantee.mu, rel=1e-6)


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("left_out", ["privatestandardscaler__", "logisticregression__"])
def test_a_step_whose_cost_is_left_out_is_noticed(left_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of the sums above, where one step is given the whole try as if the other were free."""

    def careless(one: Try, gaussian: Mapping[str, bool], shares: Mapping[str, float], *, delta: float) -> dict[str, Try]:
        return {**step_tries(one, gaussian, shares, delta=delta), left_out: one}

    monkeypatch.setattr(selection, "step_tries", careless)
    _, fitted = watched(monkeypatch)
    assert overspent(a_try(gaussian=True), fitted)


def test_a_step_that_costs_more_than_its_part_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = PrivateStandardScaler.fit

    def loose(self: Any, X: Any, y: Any = None) -> Any:
        self.epsilon = 1.01 * self.epsilon
        return fit(self, X, y)

    monkeypatch.setattr(PrivateStandardScaler, "fit", loose)
    with pytest.raises(InputError, match="step privatestandardscaler cost"):
        search().fit(*two_blobs())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("gaussian", [True, False])
@pytest.mark.parametrize("shares", [(1.0, 1.0, 1.0), (1e-3, 5.0, 0.2)])
def test_the_parts_add_up_to_the_whole_and_not_to_much_less(gaussian: bool, shares: tuple[float, ...]) -> None:
    one = a_try(gaussian)
    for last in (True, False):
        if gaussian and not last:
            continue
        kinds = {"a__": True, "b__": True, "c__": last}
        parts = step_tries(one, kinds, dict(zip(kinds, shares, strict=True)), delta=DELTA)
        sums = [part.guarantee for part in parts.values()]
        mu = math.sqrt(math.fsum(found.mu**2 for found in sums if isinstance(found, GDP)))
        if isinstance(one.guarantee, GDP):
            assert mu == pytest.approx(one.guarantee.mu, rel=1e-9)
            assert mu <= one.guarantee.mu
            continue
        assert isinstance(one.guarantee, ApproxDP)
        points = [found for found in sums if isinstance(found, ApproxDP)]
        epsilon, delta = (math.fsum(getattr(point, name) for point in points) for name in ("epsilon_bound", "delta_bound"))
        total = epsilon + GDP(mu).epsilon(one.guarantee.delta_bound - delta)
        assert total <= one.guarantee.epsilon_bound
        assert total == pytest.approx(one.guarantee.epsilon_bound, rel=1e-6)
        assert all(part.target.epsilon_bound > 0.0 for part in parts.values())


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("neighbours", ["replace_one", "zero_out"])
def test_where_a_step_is_not_gaussian_epsilons_and_deltas_add_up(neighbours: str, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = {"logisticregression__options__mechanism": ["objective_perturbation", "output_perturbation"]}
    found, fitted = watched(monkeypatch, candidates=grid, neighbours=neighbours)
    one = a_try(gaussian=False)
    assert isinstance(one.guarantee, ApproxDP)
    assert found.score_noise_std_ > 1 / 80 / a_try(gaussian=True).guarantee.mu  # pyright: ignore[reportAttributeAccessIssue]
    for pipeline in fitted:
        scaler, model = (step.statement_ for _, step in pipeline.steps)
        assert scaler.neighbours == model.neighbours == found.statement_.neighbours == neighbours
        whole, failing = one.guarantee.epsilon_bound, one.guarantee.delta_bound
        if isinstance(model.planned, GDP):  # both Gaussian: together they have the point
            assert GDP(math.hypot(scaler.planned.mu, model.planned.mu)).epsilon(failing) <= whole
        else:
            assert scaler.planned.epsilon(0.2 * failing) <= 0.2 * whole
            assert model.planned.epsilon(0.8 * failing) <= 0.8 * whole
    assert not overspent(one, fitted)


@pytest.mark.slow
def test_the_winner_is_the_whole_pipeline_and_claims_no_less_than_the_search_cost() -> None:
    X, y = two_blobs()
    found = search(LONG, {"logisticregression__C": [1.0], "privatepca__n_components": [1, 2]}).fit(X, y)
    assert isinstance(found.best_estimator_, Pipeline)
    best: Any = found.best_estimator_
    assert best[3].n_components_ == found.best_params_["privatepca__n_components"]
    assert (found.predict(X) == best.predict(X)).all()
    assert found.predict_proba(X).shape == (400, 2)
    for one in (best, *(step for _, step in best.steps if not isinstance(step, Normalizer))):
        assert one.statement_ is one.certificate_ is found.statement_
        assert (one.epsilon_, one.delta_, one.privacy_report_) == (found.epsilon_, DELTA, found.privacy_report_)
    assert best[-1].run_ is None
    assert stated(best) == stated(make_pipeline(Normalizer(), found)) == found.statement_
    # A part by itself says no less either.
    assert privacy_of(best[:-1]).epsilon(DELTA) >= found.epsilon_
    assert isinstance(found.statement_, Statement)
    assert {finding.evidence for finding in found.statement_.findings} <= {"checked", "enforced"}
    assert {"steps", "rows"} <= {finding.name for finding in found.statement_.findings}
    assert len(pickle.dumps(found)) < 40_000
    assert (pickle.loads(pickle.dumps(found)).predict(X) == found.predict(X)).all()


@pytest.mark.slow
def test_every_try_fits_new_clones_with_noise_of_their_own_on_other_records_than_those_that_score(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = two_blobs()
    X[:, 2] = np.arange(400)  # a record's name
    trained: list[set[float]] = []
    fit = PrivateStandardScaler.fit

    def fitted(self: Any, table: Any, y: Any = None) -> Any:
        trained.append(set(table[:, 2].tolist()))
        return fit(self, table, y)

    monkeypatch.setattr(PrivateStandardScaler, "fit", fitted)
    aside: list[set[float]] = []
    measure = sides.mean_score
    means: list[bytes] = []

    def scored(model: Any, table: Any, *rest: Any) -> float:
        aside.append(set(table[:, 2].tolist()))
        means.append(model[0].mean_.tobytes())
        return measure(model, table, *rest)

    monkeypatch.setattr(sides, "mean_score", scored)
    estimator: Any = clone(SCALED)
    while len(trained) < 3:
        search(estimator, {"logisticregression__C": [1.0]}, random_state=1).fit(X, y)
    assert len(set(means)) == len(means) == len(trained) == len(aside)
    assert all(not one & other and (len(one), len(other)) == (320, 80) for one, other in zip(trained, aside, strict=True))
    assert not hasattr(estimator[0], "mean_")
    assert not hasattr(estimator[-1], "coef_")


@pytest.mark.slow
def test_a_good_pipeline_is_found() -> None:
    """A column of noise in a small unit: rows that are not scaled are all noise once they are projected."""
    X, y = two_blobs(4_000)
    X[:, 2] = 1e5 * np.random.default_rng(1).standard_normal(4_000)
    grid = [{"logisticregression__C": [1e-6, 1.0]}, {"privatestandardscaler": ["passthrough"], "logisticregression__C": [1.0]}]
    model = make_pipeline(
        PrivateStandardScaler(), LogisticRegression(feature_norm=2.0, options=EstimatorOptions(mechanism="pass_ends", passes=5))
    )
    found = search(model, grid, epsilon=8.0, tries=12.0, **SEEDED).fit(X, y)
    assert found.best_params_ == {"logisticregression__C": 1.0}
    assert found.score(X, y) > 0.9
    assert found.epsilon_ == math.inf  # the seed
    if by_night():
        again = search(model, grid, epsilon=8.0, tries=12.0, **SEEDED).fit(X, y)
        assert again.best_score_ == found.best_score_
        assert (again.best_estimator_[0].mean_ == found.best_estimator_[0].mean_).all()


@pytest.mark.nightly(by_day="test_what_each_step_costs_is_as_calculated_by_hand")
@pytest.mark.slow
def test_a_step_left_out_leaves_its_share_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    _, fitted = watched(monkeypatch, candidates={"privatestandardscaler": ["passthrough"]})
    one = a_try(gaussian=True)
    assert isinstance(one.guarantee, GDP)
    assert all(pipeline[-1].statement_.planned.mu == pytest.approx(one.guarantee.mu, rel=1e-7) for pipeline in fitted)
    assert not overspent(one, fitted)


@pytest.mark.slow
def test_pipelines_in_pipelines_steps_that_learn_nothing_and_regressions() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(1.0, 2.0, (3_000, 2))
    y = X @ np.array([1.0, -0.5])
    inner = Pipeline([("log", FunctionTransformer(np.log)), ("nothing", None), ("scale", PrivateStandardScaler(bounds=(0.0, 1.0)))])
    whole = Pipeline([("inner", inner), ("products", PolynomialFeatures(2)), ("model", Ridge(feature_norm=3.0, target_bound=3.0))])
    grid = {"inner__scale__bounds": [(0.0, 1.0), (-1.0, 1.0)], "model__options__mechanism": ["adassp"], "products__degree": [1, 2]}
    found = search(whole, grid, score_bound=1.0, epsilon=8.0, shares={"inner__scale": 0.5, "model": 0.5}, **SEEDED).fit(X, y)
    assert found.score(X, y) > 0.8
    assert is_regressor(found)
    assert not hasattr(found, "predict_proba")
    assert found.best_estimator_[0][2].statement_ is found.statement_
    binary = make_pipeline(Binarizer(), FunctionTransformer(), MODEL)
    assert search(binary, {"binarizer__threshold": [0.0, 1.0]}).fit(*two_blobs()).epsilon_ <= 1.0


@pytest.mark.nightly(by_day="test_what_each_step_costs_is_as_calculated_by_hand")
@pytest.mark.slow
def test_shares_are_those_of_a_pipeline_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same split as `split_budget` makes of one try."""
    one = a_try(gaussian=True)
    _, fitted = watched(monkeypatch, shares={"privatestandardscaler": 0.3, "logisticregression": 0.7})
    parts = split_budget([step for _, step in fitted[0].steps], one.target.epsilon_bound, DELTA, shares=[0.3, 0.7])
    assert [step.epsilon for _, step in fitted[0].steps] == [pytest.approx(part.epsilon, rel=1e-6) for part in parts]
