"""A total divided among steps: of one try of a private search, or of fits one after the other; every step is paid for."""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from private_cases import build, stated, two_blobs
from searched_pipelines import DELTA, LONG, SCALED, a_try, overspent, search, watched
from sklearn.base import clone
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer

import lethe.estimators.pipelines.private_search as selection
from lethe.calculus.guarantees import GDP, ApproxDP
from lethe.certificates.statement import Statement
from lethe.errors import InputError
from lethe.estimators import (
    LinearRegression,
    LogisticRegression,
    PrivateStandardScaler,
    privacy_of,
    split_budget,
)
from lethe.estimators.choice.choose import NAMES as MECHANISMS
from lethe.estimators.options import EstimatorOptions
from lethe.estimators.pipelines.searched_steps import SidesInMemory
from lethe.estimators.pipelines.shares import Try, law_of_tries, step_tries
from lethe.mechanisms.selection import selection_guarantee


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


def test_epsilons_and_deltas_add_up_where_steps_need_not_be_gaussian() -> None:
    """Two mechanisms that keep what they were told, and nothing better: one shows all with probability delta, else tells by epsilon."""
    one, other = split_budget([model("auto"), model("auto")], 1.0, 1e-3, shares=[0.4, 0.5])
    assert (one.epsilon, other.epsilon) == (pytest.approx(0.4, rel=1e-8), pytest.approx(0.5, rel=1e-8))
    assert (one.delta, other.delta) == (pytest.approx(4e-4, rel=1e-9), pytest.approx(5e-4, rel=1e-9))
    # Loss eps_1 + eps_2 unless one of them fails: exactly what such a pair loses, and more than a split by mu would have left room for.
    failing = 1.0 - (1.0 - one.delta) * (1.0 - other.delta)
    assert one.epsilon + other.epsilon <= 0.9
    assert failing <= 0.9e-3


@pytest.mark.parametrize("part", [1.0, 0.25])
def test_gaussian_steps_have_the_square_root_of_their_share(part: float) -> None:
    scaler, linear = split_budget([PrivateStandardScaler(), model("cyclic")], 1.0, DELTA, shares=[0.4 * part, 0.6 * part])
    mus = [step.fit(X, Y).statement_.guarantee.mu for step in (scaler, linear)]
    assert GDP(math.hypot(*mus)).epsilon(DELTA) <= (1.0 if part == 1.0 else 0.52)
    assert mus[0] / mus[1] == pytest.approx(math.sqrt(0.4 / 0.6), rel=1.1e-5)  # training keeps 1e-5 of its noise in reserve
    assert scaler.delta == linear.delta == DELTA
