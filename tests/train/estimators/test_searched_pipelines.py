"""A total divided among steps: of one try of a private search, or of fits one after the other; every step is paid for."""

import math
import pickle
from typing import Any

import numpy as np
import pytest
from private_cases import build, stated, two_blobs
from sklearn.base import clone
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer

from lethe.calculus.guarantees import GDP, ApproxDP
from lethe.certificates.statement import Statement
from lethe.errors import InputError
from lethe.estimators import (
    LinearRegression,
    LogisticRegression,
    PrivatePCA,
    PrivateQuantileClipper,
    PrivateSearch,
    PrivateStandardScaler,
    privacy_of,
    split_budget,
)
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.choice.choose import NAMES as MECHANISMS
from lethe.estimators.options import EstimatorOptions
from lethe.estimators.pipelines.searched_steps import SidesInMemory
from lethe.estimators.pipelines.shares import Try, law_of_tries, one_try, step_tries
from lethe.mechanisms.selection import selection_guarantee

DELTA = 1e-5
MODEL = LogisticRegression(feature_norm=2.0, options=EstimatorOptions(mechanism="output_perturbation"))
SCALED = make_pipeline(PrivateStandardScaler(), MODEL)
LONG = make_pipeline(PrivateQuantileClipper(), PrivateStandardScaler(bounds=(-9.0, 9.0)), Normalizer(), PrivatePCA(2), MODEL)
GRID = {"logisticregression__C": [0.1, 1.0]}


def search(estimator: Any = SCALED, candidates: Any = GRID, **parameters: Any) -> PrivateSearch:
    return build(PrivateSearch, estimator, candidates, **{"tries": 3.0, "delta": DELTA, **parameters})


def watched(monkeypatch: pytest.MonkeyPatch, **parameters: Any) -> tuple[PrivateSearch, list[Any]]:
    """A fitted search, and the pipelines it fitted as they were before their statements were put in place; at least two."""
    seen: list[Any] = []
    measure = SidesInMemory.score

    def scored(self: SidesInMemory, model: Any) -> float:
        seen.append(pickle.loads(pickle.dumps(model)))
        return measure(self, model)

    monkeypatch.setattr(SidesInMemory, "score", scored)
    for seed in range(100):  # the number of tries is random
        seen.clear()
        found = search(**parameters, seed_noise=True, random_state=seed).fit(*two_blobs())
        if 2 <= len(seen) <= 6:
            return found, seen
    raise AssertionError("no search of two to six tries")


def a_try(gaussian: bool, *, tries: float = 3.0) -> Try:
    return one_try(PrivacyBudget(epsilon=1.0, delta=DELTA), law_of_tries(tries), gaussian=gaussian)


def overspent(one: Try, fitted: list[Any]) -> bool:
    """Whether some pipeline cost more than a try may, by the sum over its steps that `privacy_of` makes."""
    return not all(one.covers(privacy_of(pipeline).planned) for pipeline in fitted)


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
    measure = SidesInMemory.score
    means: list[bytes] = []

    def scored(self: SidesInMemory, model: Any) -> float:
        aside.append(set(self.table[self.aside][:, 2].tolist()))
        means.append(model[0].mean_.tobytes())
        return measure(self, model)

    monkeypatch.setattr(SidesInMemory, "score", scored)
    estimator: Any = clone(SCALED)
    while len(trained) < 3:
        search(estimator, {"logisticregression__C": [1.0]}, random_state=1).fit(X, y)
    assert len(set(means)) == len(means) == len(trained) == len(aside)
    assert all(not one & other and (len(one), len(other)) == (320, 80) for one, other in zip(trained, aside, strict=True))
    assert not hasattr(estimator[0], "mean_")
    assert not hasattr(estimator[-1], "coef_")


X, Y = two_blobs(records=2000, columns=4)


def model(mechanism: str, **parameters: Any) -> Any:
    if mechanism == "adassp":
        return build(
            LinearRegression, options=EstimatorOptions(mechanism=mechanism), **{"feature_norm": 2.0, "target_bound": 2.0, **parameters}
        )
    return build(LogisticRegression, options=EstimatorOptions(mechanism=mechanism), classes=[0, 1], **{"feature_norm": 2.0, **parameters})


# For a fifth of epsilon = 1 a range ends at the end of the public one by chance, one fit in some ten thousand, and fit says so.
@pytest.mark.filterwarnings("ignore::lethe.estimators.inputs.ranges.RangeEndWarning")
@pytest.mark.sampled(6)
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("total", "shares"), [(1.0, [0.2, 0.8]), (4.0, [0.5, 0.5])])
def test_the_total_is_met_with_every_mechanism(mechanism: str, total: float, shares: list[float]) -> None:
    """Split by squares of mu, objective perturbation came to 4.084 of 4."""
    steps = split_budget([PrivateStandardScaler(), model(mechanism)], total, DELTA, shares=shares)
    fitted: Any = make_pipeline(*steps).fit(X, Y)
    cost = privacy_of(fitted).epsilon(DELTA)
    assert 0.5 * total < cost <= total
