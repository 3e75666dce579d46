"""What estimators refuse before anything is released: the call, what the message names, and what the remedy offers."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler

import lethe.estimators as private
from lethe.errors import CalibrationError, InputError
from lethe.estimators import EstimatorOptions, LogisticRegression, PrivateSearch, Ridge, split_budget
from lethe.estimators.features.images import synthetic_images
from lethe.estimators.features.modules import RandomConvolutions2d, Scattering2d
from lethe.features import PublicWhitening, RandomConvolutionFeatures, RandomFourierFeatures, RecordNormalizer, ScatteringFeatures
from lethe.partitions import array_table

RNG = np.random.default_rng(0)
X, TARGETS, LABELS = RNG.standard_normal((60, 3)), RNG.standard_normal(60), RNG.integers(2, size=60)
WITH_GAP, WITH_INF = X.copy(), X.copy()
WITH_GAP[3, 1], WITH_INF[3, 1] = np.nan, np.inf
USERS = np.arange(60) // 3


def classifier(X: Any = X, y: Any = LABELS, fit: dict[str, Any] | None = None, **parameters: Any) -> Any:
    options = {name: parameters.pop(name) for name in list(parameters) if name in LogisticRegression.takes_options}
    return LogisticRegression(**{"feature_norm": 1.0, "options": EstimatorOptions(**options), **parameters}).fit(X, y, **(fit or {}))


def regressor(kind: Any = Ridge, X: Any = X, y: Any = TARGETS, fit: dict[str, Any] | None = None, **parameters: Any) -> Any:
    options = {name: parameters.pop(name) for name in list(parameters) if name in kind.takes_options}
    known = {"feature_norm": 1.0, "target_bound": 1.0, "options": EstimatorOptions(**options)}
    return kind(**{**known, **parameters}).fit(X, y, **(fit or {}))


def heavy(kind: Any = private.HeavyTailedLinearRegression, X: Any = X, y: Any = TARGETS, **parameters: Any) -> Any:
    options = {name: parameters.pop(name) for name in list(parameters) if name in kind.takes_options}
    return kind(options=EstimatorOptions(**options), **parameters).fit(X, y)


def search(estimator: Any = None, candidates: Any = None, y: Any = LABELS, **parameters: Any) -> Any:
    model = LogisticRegression(feature_norm=1.0) if estimator is None else estimator
    return PrivateSearch(model, {"C": [1.0, 2.0]} if candidates is None else candidates, **parameters).fit(X, y)


def transformer(kind: Any, X: Any = X, **parameters: Any) -> Any:
    return kind(**parameters).fit(X)


PICTURES = np.zeros((2, 8, 8), dtype=np.float32)
SCALER, PCA, WHITENING, CLIPPER = (
    private.PrivateStandardScaler,
    private.PrivatePCA,
    private.PrivateWhitening,
    private.PrivateQuantileClipper,
)
HEAVY_CLASSES, MEAN = private.HeavyTailedLogisticRegression, private.PrivateMean

REFUSED: dict[str, tuple[Any, str, str]] = {
    # of every estimator
    "epsilon": (lambda: classifier(epsilon=0.0), "epsilon = 0", ""),
    "epsilon is true": (lambda: regressor(epsilon=True), "epsilon = True", ""),
    "delta": (lambda: classifier(delta=1.0), "delta", ""),
    "delta above 1/n": (lambda: classifier(delta=0.5), "delta", "allow_large_delta"),
    "neighbours": (lambda: classifier(neighbours="add_or_remove"), "neighbours", "replace_one"),
    "seed without a state": (lambda: classifier(seed_noise=True), "seed_noise = True", "give random_state"),
    "random_state": (lambda: classifier(random_state="today"), "random_state = 'today'", ""),
    "ledger": (lambda: classifier(ledger=3), "ledger: got int", "lethe.ledger.Spending"),
    "options are a dict": (lambda: Ridge(options={"passes": 3}).fit(X, TARGETS), "options: got", "options=EstimatorOptions"),  # pyright: ignore[reportArgumentType]
    "an unknown option": (lambda: EstimatorOptions(pases=3), "pases", ""),  # pyright: ignore[reportCallIssue]
    # tables and targets, where scikit-learn does not say it
    "y with None": (lambda: regressor(y=[None, *TARGETS[1:]]), "y: got missing values", "leave those records out"),
    "y of dates": (lambda: regressor(y=np.arange(60).astype("M8[D]")), "y: got dates", "days"),
    "labels of several kinds": (lambda: classifier(y=np.array([1, "a"] * 30, dtype=object)), "Unknown label type", "astype"),
    "a label of None": (lambda: classifier(y=np.array(["a", None] * 30, dtype=object)), "none may be missing", "leave records"),
    "one class": (lambda: classifier(y=np.ones(60)), "got 1 class", "parameter classes"),
    "a label not listed": (lambda: classifier(y=LABELS, classes=[1, 2]), "got 0, which is not in the public list", "list every class"),
    "labels as text": (lambda: classifier(y=LABELS.astype(str), classes=[0, 1]), "is not in the public list", "in the same way"),
    "classes with None": (lambda: classifier(classes=["a", None]), "classes", ""),
    "a table in blocks to predict": (lambda: classifier().predict(array_table(X)), "X: got", "map_partitions"),
    "one record in blocks": (lambda: transformer(SCALER, array_table(X[:1])), "got 1 records", ""),
    # weights and users
    "weights above their bound": (lambda: classifier(fit={"sample_weight": np.full(60, 2.0)}), "above max_weight = 1", "max_weight"),
    "weights below 0": (lambda: classifier(fit={"sample_weight": np.full(60, -1.0)}), "sample_weight", ""),
    "max_weight": (lambda: classifier(max_weight=0.0), "max_weight", ""),
    "users and a released norm": (lambda: classifier(feature_norm="auto", fit={"users": USERS}), "feature_norm", "a number R"),
    "users and a released range": (lambda: regressor(target_bound="auto", fit={"users": USERS}), "target_bound", "a pair"),
    "one user": (lambda: classifier(fit={"users": np.zeros(60, dtype=int)}), "all rows are of one user", ""),
    "users of others": (lambda: classifier(fit={"users": USERS[:5]}), "got 5 ids for 60 rows", "one for each row"),
    "users and no run": (lambda: classifier(fit={"users": USERS}, mechanism="output_perturbation"), "users and l1 are a run's", "auto"),
    "rows of no users": (lambda: classifier(rows_per_user=2), "rows_per_user: given", "users=ids"),
    # linear models
    "feature_norm None": (lambda: classifier(feature_norm=None), "feature_norm = None", 'feature_norm="auto"'),
    "feature_norm 0": (lambda: classifier(feature_norm=0.0), "feature_norm", ""),
    "feature_norm 1e300": (lambda: classifier(feature_norm=1e300), "feature_norm", "scale the features"),
    "fit_intercept": (lambda: classifier(fit_intercept="no"), "fit_intercept = 'no'", ""),
    "C": (lambda: classifier(C=0.0), "C = 0", ""),
    "class_weight of the labels": (lambda: classifier(class_weight="balanced"), "read off the labels", "pay for them"),
    "class_weight of no class": (lambda: classifier(class_weight={2: 1.0}), "2 is none of the classes", "name classes"),
    "class_weight of 0": (lambda: classifier(class_weight={1: 0.0}), "class_weight[1] = 0", "a finite number > 0"),
    "mechanism": (lambda: classifier(mechanism="pass_end"), "did you mean 'pass_ends'", ""),
    "a mechanism that is none any more": (lambda: classifier(mechanism="shuffled_once"), "it needs one of auto", ""),
    "adassp for classes": (lambda: classifier(mechanism="adassp"), "it is for least squares", "auto"),
    "batches": (lambda: classifier(batches="shuffled"), "batches", ""),
    "schedule": (lambda: classifier(schedule="joint"), "schedule", ""),
    "release": (lambda: classifier(release="some"), "release", ""),
    "release all with pass ends": (lambda: classifier(release="all", mechanism="pass_ends"), "release = all", "auto"),
    "passes": (lambda: classifier(passes=0), "passes = 0", ""),
    "whiten": (lambda: classifier(whiten="yes"), "whiten = 'yes'", ""),
    "whiten without an intercept": (lambda: classifier(whiten=True, fit_intercept=False), "whiten = True", "set it to False"),
    "whiten sparse rows": (lambda: classifier(sparse.csr_array(X), whiten=True), "its zeros would not stay zeros", "set it to False"),
    "whiten rows of users": (lambda: classifier(whiten=True, fit={"users": USERS}), "from single rows", "set it to False"),
    "whiten with l1": (lambda: regressor(private.Lasso, whiten=True), "no weight of a feature at zero", "set it to False"),
    "width": (lambda: private.LinearSVC(feature_norm=1.0, width=0.0).fit(X, LABELS), "width", ""),
    "target_bound": (lambda: regressor(target_bound=-1.0), "target_bound", ""),
    "target_bound the wrong way": (lambda: regressor(target_bound=(1.0, 0.0)), "target_bound", ""),
    "alpha": (lambda: regressor(alpha=-1.0), "alpha", ""),
    "l1_ratio": (lambda: regressor(private.ElasticNet, l1_ratio=2.0), "l1_ratio", ""),
    "residual_bound": (lambda: regressor(private.HuberRegressor, residual_bound=0.0), "residual_bound", ""),
    "no range and no residual_bound": (
        lambda: regressor(private.HuberRegressor, target_bound=None),
        "nothing says how far",
        "residual_bound",
    ),
    "squares for Huber's loss": (lambda: regressor(private.HuberRegressor, mechanism="adassp"), "a loss that is linear far out", "auto"),
    "narrow_range": (lambda: regressor(narrow_range=3), "narrow_range = 3", ""),
    "narrow a released range": (lambda: regressor(target_bound="auto", narrow_range=True), "as narrow as it gets", "set it to False"),
    "narrow for users": (lambda: regressor(narrow_range=True, fit={"users": USERS}), "from single rows", "set it to False"),
    "power of a loss that is not convex": (lambda: regressor(private.TweedieRegressor, power=0.0), "power", "from 1 to 2"),
    "costs below 0": (lambda: regressor(private.GammaRegressor, target_bound=(-3.0, 0.0)), "target_bound", ""),
    "squares for costs": (lambda: regressor(private.GammaRegressor, mechanism="adassp"), "it is for least squares", "auto"),
    # heavy tails
    "moment": (lambda: heavy(moment=0.0), "moment", ""),
    "smoothness": (lambda: heavy(smoothness="auto"), "smoothness", ""),
    "radius": (lambda: heavy(radius=-1.0), "radius", ""),
    "order": (lambda: heavy(order=1.0), "order", ""),
    "strong_convexity": (lambda: heavy(strong_convexity=0.0), "strong_convexity", ""),
    "a solver without a domain": (lambda: heavy(mechanism="one_pass"), "radius = None", "multi_pass"),
    "a solver without these settings": (lambda: heavy(mechanism="multi_pass", parameters="theory"), "practical ones only", "auto"),
    "parameters": (lambda: heavy(parameters="best"), "parameters", ""),
    "a moment of few": (lambda: heavy(parameters="theory", radius=1.0), "records", ""),
    "solver": (lambda: heavy(mechanism="pass_ends"), "mechanism", ""),
    "three classes": (lambda: heavy(HEAVY_CLASSES, y=np.arange(60) % 3), "Only binary", "LogisticRegression"),
    "centre": (lambda: heavy(MEAN, centre=[1.0]), "centre", ""),
    "solver of a mean": (lambda: heavy(MEAN, mechanism="one_pass"), "mechanism", ""),
    # transformers
    "bounds": (lambda: transformer(SCALER, bounds=(1.0, 0.0)), "bounds[0] and bounds[1] of column 0", "known without looking"),
    "bounds of one": (lambda: transformer(SCALER, bounds=(1.0,)), "bounds", "auto"),
    "n_components": (lambda: transformer(PCA, n_components=4), "n_components", ""),
    "centre of components": (lambda: transformer(PCA, centre="yes"), "centre = 'yes'", ""),
    "channels": (lambda: transformer(WHITENING, channels=2), "channels", ""),
    "tail": (lambda: transformer(CLIPPER, tail=0.5), "tail", ""),
    "nothing to clip at": (lambda: transformer(CLIPPER, tail=None), "nothing to clip at", "norm_quantile"),
    "ranges": (lambda: transformer(private.PublicScaler, low=1.0, high=0.0), "low and high of column 0", "without looking"),
    "clip": (lambda: transformer(private.PublicScaler, low=0.0, high=1.0, clip="no"), "clip = 'no'", ""),
    "zeros that move": (lambda: transformer(private.PublicScaler, sparse.csr_array(X), low=0.0, high=1.0), "sparse table", "from -b to b"),
    # search and shares
    "no model": (lambda: search(StandardScaler()), "got StandardScaler", "an unfitted model"),
    "a step that learns": (lambda: search(make_pipeline(StandardScaler(), LogisticRegression())), "StandardScaler", "private step"),
    "candidates": (lambda: search(candidates=3), "candidates", ""),
    "candidates of the search": (lambda: search(candidates={"epsilon": [1.0]}), "epsilon is among the parameters", "of the search"),
    "tries": (lambda: search(tries=1.0), "tries", ""),
    "held_out": (lambda: search(held_out=1.0), "held_out", ""),
    "nothing to train on": (lambda: search(held_out=0.99), "it leaves 1 to train on", "more records"),
    "no score_bound": (lambda: search(Ridge(), {"alpha": [1.0]}, TARGETS), "score_bound = None", "a prediction is worthless"),
    "shares of a model": (lambda: search(options=EstimatorOptions(shares={"a": 1.0})), "the whole budget", "None"),
    "a parameter of no step": (lambda: search(candidates={"depth": [1]}), "depth: LogisticRegression takes no such argument", ""),
    "a share too small": (
        lambda: search(
            SCALED, STRENGTHS, delta=1e-5, options=EstimatorOptions(shares={"privatestandardscaler": 1e-14, "logisticregression": 1.0})
        ),
        "nothing is left for step privatestandardscaler",
        "a larger share",
    ),
    "seeded candidates": (lambda: search(LogisticRegression(seed_noise=True)), "noise is seeded", "of the search"),
    "no steps": (lambda: split_budget([], 1.0, 1e-6, shares=[]), "steps", ""),
    "shares above 1": (lambda: split_budget([Ridge()], 1.0, 1e-6, shares=[2.0]), "of sum 2", "divide them"),
    "a total of text": (lambda: split_budget([Ridge()], "1", 1e-6, shares=[1.0]), "epsilon", ""),  # pyright: ignore[reportArgumentType]
    # features
    "n_frequencies": (lambda: transformer(RandomFourierFeatures, n_frequencies=0), "n_frequencies", ""),
    "gamma": (lambda: transformer(RandomFourierFeatures, gamma=0.0), "gamma", ""),
    "norm": (lambda: transformer(RecordNormalizer, norm=1e40), "norm", ""),
    "groups": (lambda: transformer(RecordNormalizer, groups=2), "groups = 2", "a divisor"),
    "moments": (lambda: transformer(PublicWhitening, mean=[0.0], covariance=[1.0]), "mean and covariance", "of_public_data"),
    "no variance": (lambda: transformer(PublicWhitening, mean=np.zeros(3), covariance=np.zeros((3, 3))), "covariance", ""),
    "images without a shape": (lambda: transformer(ScatteringFeatures), "X", ""),
    "images of another shape": (
        lambda: transformer(ScatteringFeatures, PICTURES, image_shape=(9, 8)),
        "images of shape",
        "channels come first",
    ),
    "image_shape": (lambda: transformer(ScatteringFeatures, PICTURES, image_shape=8), "image_shape = 8", ""),
    "too many scales": (lambda: transformer(ScatteringFeatures, PICTURES, scales=3), "too small for scales = 3", "fewer scales"),
    "filters": (lambda: transformer(RandomConvolutionFeatures, PICTURES, filters=0), "filters", ""),
    "kernels as large as images": (
        lambda: transformer(RandomConvolutionFeatures, PICTURES, kernel_size=9),
        "kernel_size = 9",
        "smaller kernels",
    ),
    "images of another size": (lambda: Scattering2d((8, 8))(torch.zeros(2, 9, 8)), "images: got shape", ""),
    "images of other channels": (lambda: RandomConvolutions2d(1)(torch.zeros(2, 3, 9, 9)), "images: got shape", "smaller kernels"),
    "synthetic images of no pixels": (lambda: synthetic_images((0, 3), images=5), "image_shape", ""),
    "one synthetic image": (lambda: synthetic_images((12, 10), images=1), "images = 1", ""),
    "features of no images": (
        lambda: PublicWhitening.of_synthetic_images(RecordNormalizer(), (12, 10), channels=25),  # pyright: ignore[reportArgumentType]
        "features = ",
        "",
    ),
    "synthetic images of no shape": (
        lambda: PublicWhitening.of_synthetic_images(ScatteringFeatures(), None, channels=81),
        "image_shape",
        "",
    ),  # pyright: ignore[reportArgumentType]
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_used_is_refused_with_what_to_do(name: str) -> None:
    call, named, remedy = REFUSED[name]
    with pytest.raises((InputError, CalibrationError)) as raised:
        call()
    assert named in str(raised.value)
    assert remedy in str(raised.value.remedy or str(raised.value))
    assert str(raised.value).count("\n") <= 2


@pytest.mark.parametrize("X", [WITH_GAP, WITH_INF, sparse.csr_array(WITH_GAP)])
@pytest.mark.parametrize("fit", [classifier, regressor, lambda X: transformer(SCALER, X), lambda X: heavy(MEAN, X)])
def test_nothing_is_fitted_to_missing_values(fit: Any, X: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        fit(X)


class _Centred(TransformerMixin, BaseEstimator):
    def fit(self, X: Any, y: Any = None) -> Any:
        self.mean_ = X.mean(axis=0)
        return self

    def transform(self, X: Any) -> Any:
        return X - self.mean_


class _Shifted(Normalizer):
    """A subclass may learn."""


class _Scaler(private.PrivateStandardScaler):
    """So may one of a private step."""


class _Pipeline(Pipeline):
    """And so may one of a pipeline."""


MODEL = LogisticRegression(feature_norm=2.0, options=EstimatorOptions(mechanism="output_perturbation"))
SCALED = make_pipeline(private.PrivateStandardScaler(), MODEL)
SEEDED = {"seed_noise": True, "random_state": 0}
STRENGTHS = {"logisticregression__C": [1.0]}


def first(step: Any) -> Pipeline:
    return Pipeline([("first", step), ("model", MODEL)])


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (first(StandardScaler()), "'first', StandardScaler, may learn"),
        (first(_Centred()), "may learn"),
        (first(_Shifted()), "may learn"),
        (first(_Scaler()), "may learn"),
        (first(make_pipeline(Normalizer(), StandardScaler())), "'standardscaler', StandardScaler, may learn"),
        (first(FunctionTransformer(lambda rows: rows - rows.mean(axis=0))), "treats every record by itself"),
        (first(ColumnTransformer([("some", private.PrivateStandardScaler(), [0])])), "side by side"),
        (first(FeatureUnion([("some", private.PrivateStandardScaler())])), "side by side"),
        (first(ColumnTransformer([("some", StandardScaler(), [0])])), "'first > some', StandardScaler, may learn"),
        (first(ColumnTransformer([("some", make_pipeline(Normalizer(), StandardScaler()), [0])])), "some > standardscaler"),
        (first(ColumnTransformer([("some", Normalizer(), [0])], remainder=StandardScaler())), "remainder"),
        (first(ColumnTransformer([("some", Normalizer(), [0])])), "sparse_threshold=0"),
        (first(ColumnTransformer([("some", Normalizer(), lambda frame: [0])], sparse_threshold=0)), "chosen by a function"),
        (first(LogisticRegression()), "one is allowed, at the end"),
        (make_pipeline(private.PrivateStandardScaler(), RandomForestClassifier()), "RandomForestClassifier, may learn"),
        (make_pipeline(private.PrivateStandardScaler()), "ends in PrivateStandardScaler"),
        (make_pipeline(private.PrivateStandardScaler(), Normalizer()), "ends in Normalizer"),
        (_Pipeline([("model", MODEL)]), "got _Pipeline"),
        (make_pipeline(private.PrivateStandardScaler(), MODEL, memory="cache"), "cache"),
        (make_pipeline(private.PrivateStandardScaler(), MODEL, verbose=True), "is secret"),
        (Pipeline(SCALED.steps, transform_input=["sample_weight"]), "transform_input"),
        (first(private.PrivateStandardScaler(**SEEDED)), "step first: its noise is seeded"),
        (
            make_pipeline(private.PrivateStandardScaler(), LogisticRegression(feature_norm=2.0, **SEEDED)),
            "step logisticregression: its noise is seeded",
        ),
    ],
)
def test_estimators_that_may_leak_are_refused_before_any_data_are_used(estimator: Any, message: str) -> None:
    grid = {f"{estimator.steps[-1][0]}__C": [1.0]} if isinstance(estimator, Pipeline) else {}
    with pytest.raises(InputError, match=message):
        PrivateSearch(estimator, grid).fit("no data", None)


@pytest.mark.parametrize(
    ("candidates", "shares", "message"),
    [
        ({"logisticregression__epsilon": [9.0]}, None, "logisticregression__epsilon is among"),
        ({"privatestandardscaler__delta": [0.1]}, None, "delta is among"),
        ({"privatestandardscaler__seed_noise": [True]}, None, "seed_noise is among"),
        ({"logisticregression__classes": [[0, 1]]}, None, "classes is among"),
        ({"privatestandardscaler": [private.PrivateStandardScaler(), StandardScaler()]}, None, "may learn"),
        ({"logisticregression": [Ridge(target_bound=1.0)]}, None, "classifiers"),
        ({"memory": [None, "cache"]}, None, "cache"),
        ({"steps": [[("a", StandardScaler()), ("logisticregression", MODEL)]]}, None, "may learn"),
        (STRENGTHS, 0.5, "shares"),
        (STRENGTHS, {"logisticregression": 1.0}, "none for privatestandardscaler"),
        (STRENGTHS, {"privatestandardscaler": 0.0, "logisticregression": 1.0}, "shares"),
        (STRENGTHS, {"privatestandardscaler": math.nan, "logisticregression": 1.0}, "shares"),
        (STRENGTHS, {"privatestandardscaler": 1.0, "logisticregression": 1.0, "pca": 1.0}, "pca"),
    ],
)
def test_candidates_that_may_leak_and_bad_shares_are_refused_before_any_data_are_used(candidates: Any, shares: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        PrivateSearch(SCALED, candidates, options=EstimatorOptions(shares=shares)).fit("no data", None)
