"""privacy_of: every release in a pipeline counts, nothing that learned without privacy passes, and what is taken on trust is said."""

import copy
import math
import pickle
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from private_cases import fitted, stated, two_blobs
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor, make_column_selector
from sklearn.ensemble import VotingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV, TunedThresholdClassifierCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, OneHotEncoder, StandardScaler

import lethe.estimators as private
from lethe.errors import InputError
from lethe.estimators.options import EstimatorOptions

MODEL: Any = private.LogisticRegression(feature_norm=2.0, options=EstimatorOptions(mechanism="pass_ends", passes=2), delta=1e-5)
SCALER: Any = private.PrivateStandardScaler(bounds=(-9.0, 9.0), delta=1e-5, epsilon=0.5)
X, y = two_blobs()
FRAME = pd.DataFrame(X, columns=["a", "b", "c"]).assign(kind=np.resize(["u", "v", "w"], len(X)), gap=np.resize([1.0, np.nan], len(X)))
KINDS: Any = [["u", "v", "w"]]
ENCODER: Any = OneHotEncoder(categories=KINDS, sparse_output=False, handle_unknown="ignore")
FILLED: Any = SimpleImputer(strategy="constant", fill_value=0.0, keep_empty_features=True)
WIDE: Any = private.PublicScaler(-5.0, 6.0)


def trained(*steps: Any, table: Any = X) -> Any:
    return make_pipeline(*(clone(step) for step in steps), clone(MODEL)).fit(table, y)


def mu(*fitted_steps: Any) -> float:
    """Of several releases about the same records."""
    return math.sqrt(math.fsum(step.statement_.guarantee.mu**2 for step in fitted_steps))


def mu_of(one: Any) -> float:
    guarantee: Any = private.privacy_of(one).guarantee
    return guarantee.mu


def declared(one: Any) -> dict[str, str]:
    return {finding.name: finding.detail for finding in stated(one).findings if finding.evidence == "declared"}


def columns(*branches: tuple[str, Any, Any], **parameters: Any) -> ColumnTransformer:
    return ColumnTransformer(list(branches), **parameters)


BRANCHES = (
    ("numbers", make_pipeline(SCALER, private.PublicScaler(-2.0, 3.0)), ["a", "b"]),
    ("filled", make_pipeline(FILLED, WIDE), ["gap"]),
    ("kind", ENCODER, ["kind"]),
)
SPARSE: Any = OneHotEncoder(categories=KINDS, handle_unknown="ignore")


def test_a_pipeline_counts_every_private_step_and_refuses_others() -> None:
    first: Any = make_pipeline(
        Normalizer(), private.LogisticRegression(feature_norm=1.0, options=EstimatorOptions(mechanism="cyclic"), epsilon=0.5)
    ).fit(X, y)
    alone = stated(first)
    assert alone == first[-1].statement_
    assert mu_of([first, first]) == pytest.approx(math.sqrt(2.0) * mu_of(first))
    with pytest.raises(InputError, match="standardscaler > StandardScaler: it is not fitted, or it may have learned"):
        private.privacy_of(trained(StandardScaler()))
    with pytest.raises(InputError, match="statement_"):
        private.privacy_of(make_pipeline(Normalizer()))
    other = fitted(mechanism="cyclic", neighbours="replace_one")
    with pytest.raises(InputError, match="relation"):
        private.privacy_of([first, other])
    nothing: Any = Pipeline([("none", None), ("same", "passthrough"), ("model", clone(MODEL))]).fit(X, y)
    assert stated(nothing) == nothing[-1].statement_
    assert not declared(nothing)


def searched() -> Any:
    whole = make_pipeline(private.PrivateStandardScaler(bounds=(-9.0, 9.0)), clone(MODEL))
    return private.PrivateSearch(whole, {"logisticregression__C": [1.0]}, tries=1.5, delta=1e-5).fit(X, y)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_the_statement_of_a_search_counts_once_wherever_it_was_kept(again: Any) -> None:
    search = again(searched())
    best = search.best_estimator_
    assert stated(search) == stated(best) == search.statement_
    assert stated(make_pipeline(Normalizer(), search)) == search.statement_
    # Of a part, or with the whole a second time, never less.
    assert private.privacy_of(best[:-1]).epsilon(1e-5) >= search.epsilon_
    assert private.privacy_of([search, best]).epsilon(1e-5) > search.epsilon_
    with pytest.raises(InputError, match="call fit first"):
        private.privacy_of(clone(best))
    with pytest.raises(InputError, match="PrivateSearch: it is not fitted"):
        private.privacy_of(clone(search))


def test_what_was_fitted_since_a_search_counts_beside_it() -> None:
    search = searched()
    best, spent = search.best_estimator_, search.statement_
    best.set_params(logisticregression__epsilon=50.0, privatestandardscaler__epsilon=50.0).fit(X, y)
    assert best.statement_ is spent  # scikit-learn's Pipeline keeps it
    alone = private.privacy_of([best[0], best[-1]]).epsilon(1e-5)
    assert alone > 40.0
    for one in (best, search, [search], make_pipeline(Normalizer(), search), pickle.loads(pickle.dumps(best))):
        assert private.privacy_of(one).epsilon(1e-5) > alone
    again: Any = clone(best)
    again.fit(X, y)
    assert private.privacy_of(again).epsilon(1e-5) == pytest.approx(private.privacy_of(list(again)).epsilon(1e-5))


def test_a_function_of_ones_own_is_declared_and_a_ufunc_is_not() -> None:
    own = trained(FunctionTransformer(lambda rows: (rows - rows.mean(0)) / rows.std(0)))
    assert declared(own) == {
        "step 'functiontransformer'": "taken to look at one record at a time, with constants that were not read off these records"
    }
    assert private.privacy_of(own).guarantee == own[-1].statement_.guarantee
    assert declared(trained(FunctionTransformer(np.tanh))) == {}
    assert len(declared([own, own])) == 3  # where each of them is, and as the fit of each knew it
    nested = trained(
        columns(("f", FunctionTransformer(lambda rows: rows - rows.mean()), [0]), ("g", "passthrough", [1]), sparse_threshold=0)
    )
    assert set(declared(nested)) == {"step 'columntransformer > f'"}
    no_fit = trained(_Shifted())
    assert set(declared(no_fit)) == {"step '_shifted'"}


class _Shifted(Normalizer):
    """A subclass says that it needs no fit, as its class does; what it does is not known."""


def test_a_method_of_an_estimator_is_what_that_learned() -> None:
    scaler: Any = clone(SCALER)
    scaler.fit(X)
    hidden = trained(FunctionTransformer(scaler.transform))
    assert mu_of(hidden) == pytest.approx(mu(scaler, hidden[-1]))
    with pytest.raises(InputError, match="functiontransformer > StandardScaler"):
        private.privacy_of(trained(FunctionTransformer(StandardScaler().fit_transform)))
    elsewhere = trained(FunctionTransformer(StandardScaler().fit(X + 1.0).transform))
    assert "fitted before" in declared(elsewhere)["step 'functiontransformer'"]


def test_a_frozen_step_is_declared_and_a_frozen_release_counts() -> None:
    elsewhere = trained(FrozenEstimator(StandardScaler().fit(X + 1.0)))
    assert "on records that are not these" in declared(elsewhere)["step 'frozenestimator'"]
    scaler: Any = clone(SCALER)
    scaler.fit(X)
    frozen = trained(FrozenEstimator(scaler))
    assert mu_of(frozen) == pytest.approx(mu(scaler, frozen[-1]))
    assert declared(frozen) == {}


class _Pipeline(Pipeline):
    """A subclass may do anything."""


class _Learner(TransformerMixin, BaseEstimator):
    pass


@pytest.mark.parametrize(
    ("given", "what", "remedy"),
    [
        (MODEL, "LogisticRegression: it is not fitted", "call fit first"),
        ([Normalizer(), SCALER], "[1] > PrivateStandardScaler: it is not fitted", "call fit first"),
        (columns(("n", SCALER, [0])), "ColumnTransformer: it is not fitted", "call fit first"),
        (GridSearchCV(MODEL, {"C": [1.0]}), "every candidate saw the records again", "take PrivateSearch"),
        (OneVsRestClassifier(MODEL), "OneVsRestClassifier: it fits private estimators as often as it likes", "take many classes"),
        (CalibratedClassifierCV(MODEL), "CalibratedClassifierCV: it learns from the labels", "FixedThresholdClassifier"),
        (CalibratedClassifierCV(FrozenEstimator(MODEL)), "it learns from the labels", "predicts true probabilities"),
        (TunedThresholdClassifierCV(MODEL), "TunedThresholdClassifierCV: it learns from the labels", "public threshold"),
        (FixedThresholdClassifier(MODEL), "estimator_ > LogisticRegression: it is not fitted", "call fit first"),
        (TransformedTargetRegressor(MODEL), "nothing shows that it transforms every target by itself", "check_inverse=False"),
        (VotingClassifier([("one", MODEL)]), "VotingClassifier: it fits", "adds up, if nothing else"),
        (_Pipeline([("model", MODEL)]), "_Pipeline: it is a subclass", "scikit-learn's own class"),
        (_Learner(), "_Learner: it is not fitted, or it may have learned", "PublicScaler"),
        ("x", "got 'x'; it takes a fitted estimator", "give what fit was called on"),
        (private.LogisticRegression, "LogisticRegression'>; it takes", "fit was called on"),
        (np.ones(3), "got ndarray; it takes", "fit was called on"),
        ([], "nothing in list has a statement_", "fitted private estimators"),
    ],
)
def test_refusals_say_what_to_do(given: Any, what: str, remedy: str) -> None:
    with pytest.raises(InputError) as caught:
        private.privacy_of(given)
    assert what in str(caught.value)
    assert remedy in str(caught.value)


def test_the_page_names_every_part_and_adds_up() -> None:
    model = trained(columns(*BRANCHES, ("own", FunctionTransformer(lambda rows: rows * 2.0), ["c"]), sparse_threshold=0), table=FRAME)
    page = private.privacy_report_of(model, 1e-6)
    total = private.privacy_of(model).epsilon(1e-6)
    assert page.startswith(f"({total:.4g}"[:5])
    released, free, rests = (page.split(f"{title}:\n")[1].split("\n\n")[0] for title in ("released", "nothing from records", "rests on"))
    for name in ("columntransformer > numbers > privatestandardscaler > PrivateStandardScaler", "logisticregression > LogisticRegression"):
        assert f"{name}: " in released
    for name in ("numbers > publicscaler > PublicScaler", "filled > simpleimputer > SimpleImputer", "kind > OneHotEncoder"):
        assert f"columntransformer > {name}\n" in f"{free}\n"
    assert "declared  step 'columntransformer > own'" in rests
    assert "numbers read off the records" in page
    assert max(map(len, page.splitlines())) < 240
    assert "LogisticRegression: " in private.privacy_report_of(model[-1], 1e-6)
    with pytest.raises(InputError, match="delta"):
        private.privacy_report_of(model, 2.0)


def test_every_branch_counts_and_so_does_the_remainder() -> None:
    model = trained(columns(*BRANCHES, remainder=SCALER), table=FRAME)
    transformers = model[0].named_transformers_
    assert mu_of(model) == pytest.approx(mu(transformers["numbers"][0], transformers["remainder"], model[-1]))
    assert mu_of(model) > 1.05 * mu(transformers["numbers"][0], model[-1])
    assert declared(model) == {}
    union = trained(
        FeatureUnion([("scaled", SCALER), ("turned", private.PrivatePCA(2, delta=1e-5)), ("not", "drop"), ("same", "passthrough")])
    )
    parts = [step for _, step in union[0].transformer_list[:2]]
    assert private.privacy_of(union) == private.privacy_of([*parts, union[-1]])
    inner = columns(("deep", columns(("deeper", SCALER, [0])), [0, 1]), remainder="passthrough", sparse_threshold=0)
    deep = trained(inner)
    deepest = deep[0].named_transformers_["deep"].named_transformers_["deeper"]
    assert mu_of(deep) == pytest.approx(mu(deepest, deep[-1]))
    with joblib.parallel_config("threading"):
        weighted = trained(columns(*BRANCHES, transformer_weights={"numbers": 2.0}, n_jobs=2), table=FRAME)
    assert mu_of(weighted) == pytest.approx(mu(weighted[0].named_transformers_["numbers"][0], weighted[-1]))


@pytest.mark.parametrize(
    ("step", "culprit"),
    [
        (columns(("c", OneHotEncoder(sparse_output=False), ["kind"])), "columntransformer > c > OneHotEncoder: it reads its categories"),
        (columns(("c", SimpleImputer(), ["gap"])), "columntransformer > c > SimpleImputer: it learns from the records what to fill in"),
        (columns(("c", make_pipeline(FILLED, StandardScaler()), ["gap"])), "columntransformer > c > standardscaler > StandardScaler"),
        (make_pipeline(columns(("k", WIDE, ["a", "b"])), FeatureUnion([("s", StandardScaler())])), "featureunion > s > StandardScaler"),
    ],
)
def test_a_branch_that_learns_is_refused_by_its_path(step: Any, culprit: str) -> None:
    with pytest.raises(InputError, match=culprit):
        private.privacy_of(trained(step, table=FRAME))


def test_branches_that_are_dropped_or_see_no_column_are_free() -> None:
    empty = columns(("k", WIDE, ["a", "b"]), ("no", "drop", ["c"]), ("none", StandardScaler(), []), ("mask", SCALER, [False] * 5))
    model = trained(empty, table=FRAME)
    assert stated(model) == model[-1].statement_


@pytest.mark.parametrize(
    ("step", "allowed"),
    [
        (columns(*BRANCHES), True),
        (columns(*BRANCHES, ("same", "passthrough", ["c"])), True),  # of a frame
        (columns(("k", SPARSE, ["kind"]), ("n", WIDE, ["a"])), False),
        (columns(("k", SPARSE, ["kind"]), ("n", WIDE, ["a"]), sparse_threshold=0), True),
        (columns(("n", private.PublicScaler(-1.0, 1.0), ["a"])), False),  # a sparse column may stay one
        (columns(("n", FunctionTransformer(np.tanh, validate=True), ["a"])), False),
        (columns(("n", make_pipeline(WIDE, "passthrough"), ["a"])), False),
        (columns(("n", make_pipeline(FILLED, FunctionTransformer(np.tanh)), ["gap"])), False),  # no frame any more
    ],
)
def test_whether_a_result_is_sparse_must_not_depend_on_records(step: Any, allowed: bool) -> None:
    model = trained(step, table=FRAME)
    if allowed:
        assert declared(model) == {}
    else:
        with pytest.raises(InputError, match=r"(?s)ColumnTransformer: whether its result is a sparse.*sparse_threshold=0"):
            private.privacy_of(model)


def test_columns_chosen_by_a_function_are_declared() -> None:
    by_type = trained(columns(("n", WIDE, make_column_selector("^[ab]$", dtype_include="number"))), table=FRAME)
    assert declared(by_type) == {}
    by_hand = trained(columns(("n", WIDE, lambda frame: [name for name in "abc" if frame[name].mean() > 0.0])), table=FRAME)
    assert "names and types alone" in declared(by_hand)["step 'columntransformer > n'"]


def test_a_threshold_and_a_pair_of_ufuncs_are_free() -> None:
    """The model inside counts."""
    wrapped: Any = make_pipeline(WIDE, FixedThresholdClassifier(clone(MODEL), threshold=0.1, pos_label=1)).fit(X, y)
    assert mu_of(wrapped) == pytest.approx(mu(wrapped[-1].estimator_))
    pair: dict[str, Any] = {"func": np.log1p, "inverse_func": np.expm1, "check_inverse": False}
    target: Any = TransformedTargetRegressor(private.Ridge(feature_norm=2.0, target_bound=3.0, delta=1e-5), **pair).fit(X, np.exp(y))
    assert private.privacy_of(target).epsilon(1e-5) == private.privacy_of(target.regressor_).epsilon(1e-5)
    assert ["fitted within" in str(stated(one).findings) for one in (wrapped[-1].estimator_, target.regressor_)] == [0, 0]
    with pytest.raises(InputError, match="every candidate saw the records"):
        private.privacy_of(FixedThresholdClassifier(GridSearchCV(MODEL, {"C": [1.0]}, cv=2)).fit(X, y))
