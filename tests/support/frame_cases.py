"""Every public estimator, one that is quick to fit, and the frames in which one table may come."""

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from sklearn.base import BaseEstimator, is_classifier, is_regressor

import lethe.estimators as private

RECORDS, NAMES = 200, ["a", "b", "c"]
SEEDED = {"seed_noise": True, "random_state": 0, "epsilon": 5.0}
MODEL = {**SEEDED, "feature_norm": 4.0, "options": private.EstimatorOptions(mechanism="cyclic", passes=2)}
LABELLED = {**MODEL, "classes": [0, 1]}
TAILS = {**SEEDED, "moment": 5.0, "smoothness": 10.0, "options": private.EstimatorOptions(passes=2)}
MADE: dict[str, Callable[[], Any]] = {
    "ElasticNet": lambda: private.ElasticNet(**MODEL, target_bound=8.0, alpha=0.1),
    "HeavyTailedLinearRegression": lambda: private.HeavyTailedLinearRegression(**TAILS),
    "HeavyTailedLogisticRegression": lambda: private.HeavyTailedLogisticRegression(**TAILS, classes=[0, 1]),
    "HuberRegressor": lambda: private.HuberRegressor(**MODEL, residual_bound=1.0, target_bound=8.0),
    "Lasso": lambda: private.Lasso(**MODEL, target_bound=8.0, alpha=0.1),
    "LinearRegression": lambda: private.LinearRegression(**MODEL, target_bound=8.0),
    "LinearSVC": lambda: private.LinearSVC(**LABELLED),
    "LogisticRegression": lambda: private.LogisticRegression(**LABELLED),
    "PrivateMean": lambda: private.PrivateMean(**SEEDED),
    "PrivatePCA": lambda: private.PrivatePCA(2, **SEEDED),
    "PrivateQuantileClipper": lambda: private.PrivateQuantileClipper(**SEEDED),
    "PrivateSearch": lambda: private.PrivateSearch(
        private.LogisticRegression(feature_norm=4.0, options=private.EstimatorOptions(mechanism="pass_ends", passes=1), classes=[0, 1]),
        {"C": [1.0]},
        tries=1.5,
        **SEEDED,
    ),
    "PrivateStandardScaler": lambda: private.PrivateStandardScaler(**SEEDED),
    "PrivateWhitening": lambda: private.PrivateWhitening(**SEEDED),
    "PublicScaler": lambda: private.PublicScaler(-4.0, 4.0),
    "Ridge": lambda: private.Ridge(**MODEL, target_bound=8.0),
    "SoftmaxRegression": lambda: private.SoftmaxRegression(**LABELLED),
}
_UNFITTED = {name: make() for name, make in MADE.items()}
CLASSIFIERS = sorted(name for name, model in _UNFITTED.items() if is_classifier(model))
REGRESSORS = sorted(name for name, model in _UNFITTED.items() if is_regressor(model))
TRANSFORMERS = sorted(name for name, model in _UNFITTED.items() if hasattr(model, "transform"))
PRIVATE = sorted(name for name, model in _UNFITTED.items() if hasattr(model, "epsilon"))
PUBLIC = {name for name in private.__all__ if inspect.isclass(kind := getattr(private, name)) and issubclass(kind, BaseEstimator)}


def data() -> tuple[np.ndarray, np.ndarray]:
    """Features that float32 and six decimal places hold exactly, and labels that are targets too."""
    rng = np.random.default_rng(0)
    X = np.round(64.0 * rng.standard_normal((RECORDS, 3))) / 64.0
    return X, (X @ [1.0, -2.0, 0.5] > 0.0).astype(np.int64)


def in_pandas(X: np.ndarray, dtype: str | None = None) -> pd.DataFrame:
    """With an index in another order, which must not matter."""
    frame = pd.DataFrame(X, columns=NAMES, index=np.random.default_rng(1).permutation(len(X)))
    return frame if dtype is None else frame.astype(dtype)


FRAMES: dict[str, Callable[[np.ndarray], Any]] = {
    "pandas": in_pandas,
    "pandas float32": lambda X: in_pandas(X, "float32"),
    "pandas nullable": lambda X: in_pandas(X, "Float64"),
    "pandas arrow": lambda X: in_pandas(X, "float64[pyarrow]"),
    "pandas objects": lambda X: in_pandas(X, "object"),
    "polars": lambda X: pl.DataFrame(X, schema=NAMES),
    "polars float32": lambda X: pl.DataFrame(X, schema=NAMES).cast(pl.Float32),
    "polars decimal": lambda X: pl.DataFrame(X, schema=NAMES).cast(pl.Decimal(10, 6)),
    "polars arrow": lambda X: pl.from_arrow(pa.table(dict(zip(NAMES, X.T, strict=True)))),
}


def released(model: Any) -> dict[str, np.ndarray]:
    """Every number and array that a fit sets."""
    found = vars(model) | {f"best {key}": value for key, value in vars(getattr(model, "best_estimator_", model)).items()}
    return {
        key: np.asarray(value)
        for key, value in found.items()
        if key.endswith("_") and isinstance(value, float | np.ndarray | tuple) and np.asarray(value).dtype.kind == "f"
    }


def fit(name: str, table: Any, y: Any = None) -> Any:
    """Fitted to a table, with the labels of `data` where no others are given."""
    return MADE[name]().fit(table, data()[1] if y is None else y)


@cache
def checked(name: str) -> Any:
    """Fitted to a frame."""
    return MADE[name]().fit(in_pandas(data()[0]), data()[1])


@cache
def plain(name: str) -> Any:
    """Fitted to an array."""
    return MADE[name]().fit(*data())
