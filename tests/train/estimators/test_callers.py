"""What a fit knows of its callers stands in its statement, its certificate, what `verify` says, and the first lines of the report."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV, TunedThresholdClassifierCV, cross_validate
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import lethe
import lethe.report
from lethe.certificates.certificate import Certificate
from lethe.certificates.findings import OTHER_RELEASES, UNCOVERED
from lethe.certificates.statement import Statement
from lethe.errors import LetheWarning
from lethe.estimators import (
    EstimatorOptions,
    LogisticRegression,
    PrivatePCA,
    PrivateSearch,
    PrivateStandardScaler,
    PublicScaler,
    privacy_of,
)

_DRAWN = np.random.default_rng(5)
ROWS = _DRAWN.uniform(-1.0, 1.0, (120, 3))
LABELS = (ROWS[:, 0] > 0.0).astype(int)


def a_model(mechanism: str = "objective_perturbation", **parameters: Any) -> LogisticRegression:
    options = EstimatorOptions(mechanism=mechanism, whiten=False, passes=2 if mechanism == "full_batch" else "auto")
    return LogisticRegression(epsilon=1.0, delta=1e-5, feature_norm=2.0, classes=[0, 1], options=options, **parameters)


def fitted(*steps: Any) -> Any:
    return make_pipeline(*steps).fit(ROWS, LABELS)


def callers(model: Any) -> list[tuple[str, str]]:
    """(name, words) of what the fit knew, as a reader of the sealed file finds it."""
    return [line.partition(": ")[::2] for line in lethe.verify(model.certificate_).declared]  # type: ignore[misc]


@pytest.mark.parametrize("mechanism", ["objective_perturbation", "full_batch"])
def test_an_earlier_step_that_learned_is_found_by_verify_and_stands_first_in_the_report(mechanism: str, tmp_path: Path) -> None:
    pipeline = fitted(StandardScaler(), a_model(mechanism))
    model = pipeline[-1]
    assert isinstance(model.certificate_, Certificate if mechanism == "full_batch" else Statement)
    file = tmp_path / "certificate.json"
    model.certificate_.save(file)
    found = lethe.verify(file)
    assert (found.follows.yes, found.sealed.yes, found.private.yes, found.yes) == (True, True, False, False)
    assert "step 'standardscaler'" in found.private.why
    assert "StandardScaler" in str(model.certificate_).splitlines()[1]
    assert "StandardScaler" in model.privacy_report_.splitlines()[1]
    assert "StandardScaler" in model.statement_.explain().splitlines()[1]
    together = lethe.total([model.certificate_], delta=1e-5)
    assert not lethe.verify(together).private.yes
    for subject in (model, file, pipeline, together):
        lethe.report.write(subject, tmp_path / "report.md")
        text = (tmp_path / "report.md").read_text()
        assert "**NOT PRIVATE.** Do not rely on any privacy of what was released: step 'standardscaler'" in text
        assert "Nothing is promised" in text
        assert "private: false" in text


def test_a_file_that_leaves_it_out_is_not_sealed() -> None:
    model = fitted(StandardScaler(), a_model("full_batch"))[-1]
    content = model.certificate_.to_dict()
    content["hypotheses"] = [one for one in content["hypotheses"] if one["name"] != UNCOVERED]
    assert not lethe.verify(Certificate.from_dict(content)).follows.yes


@pytest.mark.parametrize(
    "before",
    [
        [("union", FeatureUnion([("a", PublicScaler(-1, 1)), ("b", StandardScaler())]))],
        [("columns", ColumnTransformer([("fill", SimpleImputer(), [0, 1, 2])], sparse_threshold=0))],
        [("inner", Pipeline([("free", PublicScaler(-1, 1)), ("scale", StandardScaler())])), ("free", PublicScaler(-3, 3))],
    ],
    ids=lambda steps: steps[0][0],
)
def test_it_is_found_inside_of_other_steps(before: list[tuple[str, Any]]) -> None:
    model = Pipeline([*before, ("model", a_model())]).fit(ROWS, LABELS)[-1]
    ((name, words),) = callers(model)
    assert name == UNCOVERED
    assert before[0][0] in words


def test_steps_that_learn_nothing_or_come_behind_are_not_named() -> None:
    model = fitted(None, PublicScaler(-1, 1), "passthrough", a_model())[-1]
    assert callers(model) == []
    scaler = PrivateStandardScaler(epsilon=1.0, delta=1e-5)
    pipeline = fitted(PublicScaler(-1, 1), scaler, StandardScaler(), a_model())
    assert [one.name for one in pipeline[1].statement_.findings if one.evidence == "declared"] == []
    assert {name for name, _ in callers(pipeline[-1])} == {OTHER_RELEASES, UNCOVERED}


def test_what_private_steps_released_is_named_until_it_is_counted(tmp_path: Path) -> None:
    steps = (PrivateStandardScaler(epsilon=1.0, delta=1e-5), PrivatePCA(2, epsilon=1.0, delta=1e-5, feature_norm=2.0))
    pipeline = fitted(*steps, FunctionTransformer(_doubled), a_model())
    model = pipeline[-1]
    names = [name for name, _ in callers(model)]
    assert names == [OTHER_RELEASES, OTHER_RELEASES, "step 'functiontransformer'"]
    lethe.report.write(model, tmp_path / "report.md")
    assert "MORE WAS RELEASED" in (tmp_path / "report.md").read_text()
    whole = privacy_of(pipeline)
    assert [one.name for one in whole.findings if one.evidence == "declared"] == ["step 'functiontransformer'", "no other fits"]
    lethe.report.write(pipeline, tmp_path / "whole.md")
    text = (tmp_path / "whole.md").read_text()
    assert "MORE WAS RELEASED" not in text
    assert "NOT PRIVATE" not in text
    alone = [one for one in privacy_of(model).findings if one.name == OTHER_RELEASES]
    assert len(alone) == 2


def _doubled(rows: Any) -> Any:
    return 2.0 * rows


def test_a_second_fit_names_the_first_and_a_list_of_both_does_not() -> None:
    model = a_model().fit(ROWS, LABELS)
    assert callers(model) == []
    first = model.statement_
    ((name, words),) = callers(model.fit(ROWS, LABELS))
    assert name == OTHER_RELEASES
    assert first.release_id[:12] in words


def test_a_search_of_scikit_learn_is_named_in_what_it_chose_and_in_each_fold() -> None:
    search = GridSearchCV(a_model(), {"epsilon": [1.0, 2.0]}, cv=2).fit(ROWS, LABELS)
    ((name, words),) = callers(search.best_estimator_)
    assert (name, "GridSearchCV chose" in words) == (UNCOVERED, True)
    folds = cross_validate(a_model(), ROWS, LABELS, cv=2, return_estimator=True)["estimator"]
    assert [name for name, _ in callers(folds[0])] == [OTHER_RELEASES]


@pytest.mark.parametrize(
    ("wrapper", "fitted"),
    [
        (CalibratedClassifierCV(a_model(), cv=2), lambda wrapper: wrapper.calibrated_classifiers_[-1].estimator),
        (CalibratedClassifierCV(a_model(), cv=2, ensemble=False), lambda wrapper: wrapper.calibrated_classifiers_[0].estimator),
        (TunedThresholdClassifierCV(a_model("full_batch"), cv=2), lambda wrapper: wrapper.estimator_),
    ],
    ids=["calibrated", "calibrated by folds", "tuned"],
)
def test_a_wrapper_that_learns_from_labels_warns_and_verify_says_no(wrapper: Any, fitted: Any, tmp_path: Path) -> None:
    name = type(wrapper).__name__
    with pytest.warns(LetheWarning, match=f"{name} learned from the labels.*NOT PRIVATE.*FixedThresholdClassifier"):
        wrapper.fit(ROWS, LABELS)
    model = fitted(wrapper)
    assert [found for found, _ in callers(model)] == [UNCOVERED]
    model.certificate_.save(tmp_path / "certificate.json")
    answer = lethe.verify(tmp_path / "certificate.json").private
    assert (answer.yes, name in answer.why) == (False, True)


def test_a_report_of_what_wraps_a_private_model_is_that_of_the_model(tmp_path: Path) -> None:
    wrapped = FixedThresholdClassifier(make_pipeline(PublicScaler(-1, 1), a_model()), threshold=0.1, pos_label=1).fit(ROWS, LABELS)
    lethe.report.write(wrapped, tmp_path / "report.json", purpose="Who comes back")
    found = json.loads((tmp_path / "report.json").read_text())
    assert (found["title"], found["private"]) == ("Who comes back", True)
    assert found["sections"]["hypotheses"]["columns"] == {f"column {place}": "-1 to 1" for place in range(3)}
    assert found["sections"]["guarantee"]["epsilon"] == privacy_of(wrapped).epsilon(1e-5)
    with pytest.raises(lethe.InputError, match="CalibratedClassifierCV"), pytest.warns(LetheWarning):
        lethe.report.write(CalibratedClassifierCV(a_model(), cv=2).fit(ROWS, LABELS), tmp_path / "report.json")


def test_a_private_search_states_its_steps_as_a_whole() -> None:
    steps = make_pipeline(PrivateStandardScaler(), a_model())
    search = PrivateSearch(steps, {"logisticregression__C": [1.0, 10.0]}, epsilon=2.0, delta=1e-5, tries=1.5, random_state=0)
    search.fit(ROWS, LABELS)
    assert [one.name for one in search.statement_.findings if one.evidence == "declared"] == []
    assert search.best_estimator_.steps[-1][1].statement_ is search.statement_
    outer = fitted(StandardScaler(), search)
    assert UNCOVERED in [one.name for one in outer[-1].statement_.findings]
