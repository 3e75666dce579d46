"""What a private search chooses by, and searches over preprocessing of frames by steps that learn nothing."""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.metrics import log_loss, mean_absolute_error, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from lethe.errors import InputError
from lethe.estimators import EstimatorOptions, LinearRegression, LinearSVC, LogisticRegression, PrivateSearch, PublicScaler, privacy_of
from lethe.estimators.pipelines import searched_steps
from lethe.estimators.pipelines.searched_steps import SidesInMemory
from lethe.mechanisms.quantiles.located_quantiles import histogram_sensitivity
from lethe.mechanisms.ranking import LEVELS

DELTA, COUNT = 1e-5, 1500
DRAWN = np.random.default_rng(0)
FRAME = pd.DataFrame({"age": DRAWN.uniform(0, 100, COUNT), "dose": DRAWN.uniform(-1, 1, COUNT), "ward": DRAWN.choice(["a", "b"], COUNT)})
SICK = (FRAME.age / 50 - 1 + (FRAME.ward == "a") + 0.3 * DRAWN.normal(size=COUNT) > 0.5).astype(int)
NUMBERS = FRAME[["age", "dose"]].to_numpy()
COST = NUMBERS @ [0.05, 1.0]
RIGHT, WRONG = PublicScaler([0, -1], [100, 1]), PublicScaler([0, -1], [1e6, 1e6])
OPTIONS = EstimatorOptions(mechanism="output_perturbation")


def columns(scaler: Any = RIGHT) -> ColumnTransformer:
    encoder = OneHotEncoder(categories=[["a", "b"]], handle_unknown="ignore", sparse_output=False)
    return ColumnTransformer([("numbers", scaler, ["age", "dose"]), ("words", encoder, ["ward"])], sparse_threshold=0)


def search(estimator: Any, candidates: Any, **parameters: Any) -> PrivateSearch:
    return PrivateSearch(estimator, candidates, **{"epsilon": 20.0, "delta": DELTA, "tries": 6.0, "random_state": 0, **parameters})


@pytest.mark.parametrize("scoring", [None, "accuracy", "neg_log_loss", "roc_auc"])
def test_a_frame_is_searched_over_steps_that_learn_nothing_by_every_score(scoring: str | None) -> None:
    whole = make_pipeline(columns(), LogisticRegression(feature_norm=2.0, options=OPTIONS))
    # Of two rooms of candidates the right one is drawn at least once, but for one search in a hundred: with a seed it is.
    found = search(whole, {"columntransformer__numbers": [WRONG, RIGHT]}, scoring=scoring, seed_noise=True, random_state=3).fit(FRAME, SICK)
    assert found.best_params_["columntransformer__numbers"].high == RIGHT.high
    assert found.predict(FRAME).shape == (COUNT,)
    assert found.score(FRAME, SICK) > 0.7
    chances, scores = found.predict_proba(FRAME), found.decision_function(FRAME)
    true = {"neg_log_loss": -log_loss(SICK, chances), "roc_auc": roc_auc_score(SICK, scores)}.get(str(scoring), found.score(FRAME, SICK))
    assert found.best_score_ == pytest.approx(true, abs=0.12)
    assert (found.score_noise_std_ is None) == (scoring == "roc_auc")
    assert list(vars(found)["feature_names_in_"]) == ["age", "dose", "ward"]
    assert privacy_of(found.best_estimator_).planned.epsilon(DELTA) <= 20.0


@pytest.mark.parametrize("scoring", [None, "r2", "neg_mean_absolute_error"])
def test_regressions_are_compared_by_bounded_errors(scoring: str | None) -> None:
    whole = make_pipeline(
        RIGHT, LinearRegression(feature_norm=1.5, target_bound=6.0, options=EstimatorOptions(mechanism="full_batch", passes=20))
    )
    found = search(whole, {"publicscaler": [WRONG, RIGHT]}, scoring=scoring, score_bound=4.0, seed_noise=True, random_state=1, epsilon=30.0)
    found.fit(NUMBERS, COST)
    errors = np.minimum(np.abs(found.predict(NUMBERS) - COST), 4.0)
    assert found.best_params_["publicscaler"].high == RIGHT.high
    true = -errors.mean() if scoring == "neg_mean_absolute_error" else 1.0 - np.mean(errors**2) / 16.0
    assert found.best_score_ == pytest.approx(true, abs=0.1)
    assert mean_absolute_error(COST, found.predict(NUMBERS)) < 2.0


def test_ranks_get_the_noise_of_one_try(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    measure = SidesInMemory.score

    def watched(self: SidesInMemory, model: Any) -> float:
        assert isinstance(self.score_of, partial)
        seen.append(self.score_of.keywords)
        return measure(self, model)

    monkeypatch.setattr(searched_steps.SidesInMemory, "score", watched)
    model = LogisticRegression(feature_norm=2.0, options=OPTIONS)
    for neighbours in ("zero_out", "replace_one"):
        found = search(model, {"C": [1.0]}, scoring="roc_auc", neighbours=neighbours, epsilon=2.0).fit(NUMBERS, SICK)
        (one_try,) = [float(one.detail.split("at most ")[1].split("-GDP")[0]) for one in found.statement_.findings if one.name == "one fit"]
        assert histogram_sensitivity(LEVELS, neighbours) / seen[-1]["noise_std"] == pytest.approx(one_try, rel=1e-3)


@pytest.mark.parametrize(
    ("estimator", "scoring", "message"),
    [
        (LogisticRegression(), "r2", "one of accuracy, neg_log_loss, roc_auc, or None"),
        (LogisticRegression(), ["accuracy"], "one of accuracy"),
        (LinearRegression(), "accuracy", "one of r2, neg_mean_absolute_error"),
        (LinearSVC(), "neg_log_loss", "one of accuracy, roc_auc, or None"),
        (LogisticRegression(classes=[0, 1, 2]), "roc_auc", "of two classes"),
    ],
    ids=str,
)
def test_scores_that_a_model_has_not_are_refused(estimator: Any, scoring: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        search(estimator, {"fit_intercept": [True]}, scoring=scoring, score_bound=1.0).fit(NUMBERS, SICK)
