"""What is fitted in blocks, here and on a cluster, and compared with memory; and the partitions that it is fitted on."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import torch
from dask.delayed import delayed
from doors import fit_head, fit_linear
from partitioned_records import COLUMNS, SETTINGS, frame, model_of, owned
from torch import nn

import lethe
from lethe.estimators import (
    ElasticNet,
    GammaRegressor,
    HeavyTailedLinearRegression,
    HeavyTailedLogisticRegression,
    HuberRegressor,
    Lasso,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    PoissonRegressor,
    PrivateMean,
    PrivatePCA,
    PrivateQuantileClipper,
    PrivateSearch,
    PrivateStandardScaler,
    PrivateWhitening,
    Ridge,
    SoftmaxRegression,
    TweedieRegressor,
)
from lethe.estimators.options import EstimatorOptions
from lethe.partitions import array_table
from lethe.partitions.table import PartitionedTable
from lethe.run.losses import Logistic

MADE = dict[str, tuple[Callable[[], Any], str]]
BOUNDED: dict[str, Any] = {"feature_norm": 2.0, "target_bound": 5.0}
RICH: dict[str, Any] = {"epsilon": 8.0}
PUBLIC: dict[str, Any] = {"radius": 2.0, "strong_convexity": 0.1, "smoothness": 1.0, "moment": 3.0, **RICH}


def logistic(mechanism: str, **options: Any) -> Any:
    return model_of(LogisticRegression, mechanism, feature_norm=2.0, **options)


class Trained:
    """`fit_linear` in the manner of an estimator."""

    def __init__(self, batches: Any) -> None:
        loss, fields = Logistic(feature_norm=1.0, intercept=True), {"records": 1500, "steps": 4, "step_size": 0.5, "noise_multiplier": 1.0}
        self.run = lethe.Run(batches=batches, loss=loss, release="last", neighbours="replace_one", **fields)

    def fit(self, X: Any, y: Any) -> Trained:
        fitted = fit_linear(self.run, X, y, seed=1)
        self.coef_, self.intercept_ = fitted.model.weights, fitted.model.intercept
        return self


class TrainedHead(Trained):
    """`fit_head` on a backbone."""

    def fit(self, X: Any, y: Any) -> Trained:
        torch.manual_seed(0)
        backbone, head = nn.Sequential(Widened(), nn.Linear(5, 8), nn.Tanh()).double().requires_grad_(False), nn.Linear(8, 1).double()
        memory = isinstance(X, pd.DataFrame)
        fit_head(backbone, head, (torch.tensor(X.to_numpy()), torch.tensor(y.to_numpy())) if memory else (X, y), self.run, seed=1)
        self.coef_, self.intercept_ = head.weight.detach().numpy(), head.bias.detach().numpy()
        return self


class Widened(nn.Module):
    """float32 to float64."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.double()


class Owned:
    """A fit with users and weights in the manner of an estimator."""

    def fit(self, X: Any, y: Any) -> Any:
        model = logistic("full_batch", passes=3, max_weight=4.0)
        if isinstance(X, pd.DataFrame):
            return model.fit(X, y, sample_weight=owned(X)["weight_of"], users=owned(X)["person"])
        return model.fit(X.map_partitions(owned, meta=owned(frame()[[*COLUMNS, y]][:0])), y, sample_weight="weight_of", users="person")


class Chosen:
    """A search in the manner of an estimator."""

    def fit(self, X: Any, y: Any) -> Chosen:
        model = logistic("output_perturbation", seed_noise=False, random_state=None)
        search = PrivateSearch(model, {"C": [0.1, 1.0]}, tries=2.0, **SETTINGS).fit(X, y)
        self.coef_, self.intercept_ = search.best_estimator_.coef_, search.best_estimator_.intercept_
        return self


FITS: MADE = {
    "objective perturbation": (partial(logistic, "objective_perturbation"), "label"),
    "adassp": (partial(model_of, Ridge, "adassp", **BOUNDED), "amount"),
    "full batches": (partial(logistic, "full_batch", passes=3), "label"),
    "users and weights": (Owned, "label"),
    "released range and norm": (partial(model_of, Ridge, "adassp"), "amount"),
    "scaler": (partial(PrivateStandardScaler, bounds=(-4.0, 4.0), **SETTINGS), "label"),
    "scaler, bounds released": (partial(PrivateStandardScaler, **SETTINGS), "label"),
    "components": (partial(PrivatePCA, 2, **SETTINGS), "label"),
    "clipper": (partial(PrivateQuantileClipper, **SETTINGS), "label"),
    "whitening": (partial(PrivateWhitening, feature_norm=3.0, **SETTINGS), "label"),
    "SoftmaxRegression": (partial(model_of, SoftmaxRegression, "objective_perturbation", feature_norm=2.0), "label"),
    "LinearSVC": (partial(model_of, LinearSVC, "output_perturbation", feature_norm=2.0), "label"),
    "LinearRegression": (partial(model_of, LinearRegression, "adassp", **BOUNDED), "amount"),
    "HuberRegressor": (partial(model_of, HuberRegressor, "objective_perturbation", **BOUNDED), "amount"),
    "PoissonRegressor": (partial(model_of, PoissonRegressor, "objective_perturbation", **BOUNDED), "amount"),
    "GammaRegressor, range released": (partial(model_of, GammaRegressor, "output_perturbation", feature_norm=2.0), "amount"),
    "TweedieRegressor": (partial(model_of, TweedieRegressor, "full_batch", passes=3, **BOUNDED), "amount"),
    "Lasso": (partial(model_of, Lasso, "full_batch", passes=3, alpha=0.01, **BOUNDED), "amount"),
    "ElasticNet": (partial(model_of, ElasticNet, "full_batch", passes=3, alpha=0.01, **BOUNDED), "amount"),
}
TRAININGS: MADE = {
    "fit_linear": (partial(Trained, lethe.batches.Cyclic(700)), "label"),
    "fit_linear, Poisson batches": (partial(Trained, lethe.batches.Poisson(500)), "label"),
    "fit_head": (partial(TrainedHead, lethe.batches.Full()), "label"),
    "search": (Chosen, "label"),
}
# In memory records count in another order than the stored one, so on the cluster these are compared with one block in this process.
STORED: MADE = {
    "Poisson batches": (partial(logistic, "poisson", passes=1), "label"),
    "heavy tails": (partial(model_of, HeavyTailedLinearRegression, passes=2), "amount"),
    "heavy tails, classes": (partial(model_of, HeavyTailedLogisticRegression, passes=2), "label"),
    "heavy tails, mean": (partial(model_of, PrivateMean, "multi_pass", passes=2, centre=[0.0] * 5, moment=3.0), "amount"),
}
ALL = {**FITS, **TRAININGS, **STORED}
SEARCHED = {"options__mechanism": ["output_perturbation", "full_batch"], "C": [0.1, 1.0]}
REGRESSION = Ridge(options=EstimatorOptions(mechanism="adassp"), target_bound=5.0)
# More of them, which are compared in this process only.
HERE: MADE = {
    "released norm": (partial(model_of, LogisticRegression, "objective_perturbation"), "label"),
    "adassp, all released": (partial(model_of, LinearRegression, "adassp", fit_intercept=False), "amount"),
    **{
        mechanism: (partial(logistic, mechanism, passes=2), "label")
        for mechanism in ("pass_ends", "cyclic", "correlated", "poisson", "cyclic_poisson_correlated")
    },
    "clipper of rows": (partial(PrivateQuantileClipper, tail=None, norm_quantile=0.5, **SETTINGS), "label"),
    "components, not centred": (partial(PrivatePCA, feature_norm=2.0, centre=False, **SETTINGS), "label"),
    "whitening, norm released": (partial(PrivateWhitening, **SETTINGS), "label"),
    "whitening of a channel": (partial(PrivateWhitening, 1, feature_norm=2.0, **SETTINGS), "label"),
    "mean": (partial(model_of, PrivateMean, **RICH), "amount"),
    "mean by the theory": (partial(model_of, PrivateMean, parameters="theory", centre=[0.0] * 5, **RICH), "amount"),
    "regression, all public": (
        partial(model_of, HeavyTailedLinearRegression, passes=3, moment=8.0, smoothness=2.0, radius=3.0, fit_intercept=False, **RICH),
        "amount",
    ),
    "classes, one pass": (partial(model_of, HeavyTailedLogisticRegression, "one_pass", **PUBLIC), "label"),
    "classes, proximal": (partial(model_of, HeavyTailedLogisticRegression, "proximal", **PUBLIC), "label"),
    "classes, accelerated by the theory": (
        partial(model_of, HeavyTailedLogisticRegression, "accelerated", parameters="theory", radius=2.0, **RICH),
        "label",
    ),
    "search": (partial(PrivateSearch, LogisticRegression(feature_norm=2.0), SEARCHED, tries=3.0, **SETTINGS), "label"),
    "search of regressions": (
        partial(PrivateSearch, REGRESSION, {"feature_norm": [1.0, 3.0]}, tries=3.0, score_bound=5.0, **SETTINGS),
        "amount",
    ),
}


def slowly(part: pd.DataFrame) -> pd.DataFrame:
    time.sleep(0.05)
    return part


def collection(goal: str, *, slow: bool = False) -> Any:
    """Five partitions, one of them of a single record."""
    table = frame()[[*COLUMNS, goal]]
    parts = [table[:400], table[400:401], table[401:900], table[900:1200], table[1200:]]
    whole = dd.from_delayed([delayed(part) for part in parts], meta=table[:0], verify_meta=False)
    return whole.map_partitions(slowly, meta=table[:0]) if slow else whole


def released(fitted: Any) -> np.ndarray[Any, Any]:
    """All numbers that a fit sets, one behind the other."""
    found = [value for name, value in sorted(vars(fitted).items()) if name.endswith("_") and getattr(value, "dtype", None) == np.float64]
    assert found
    return np.concatenate([np.ravel(value) for value in found])


def in_memory(name: str) -> np.ndarray[Any, Any]:
    make, goal = ALL[name]
    features, targets = frame()[list(COLUMNS)], frame()[goal]
    if name in STORED:
        return released(make().fit(array_table(features.to_numpy(), targets.to_numpy(), blocks=1, progress=False), None))
    return released(make().fit(features, targets))


def assert_as_in_memory(name: str, table: Any) -> None:
    make, goal = ALL[name]
    named = None if isinstance(table, PartitionedTable) and "targets" in table.read.roles else goal
    np.testing.assert_allclose(released(make().fit(table, named)), in_memory(name), rtol=0.0, atol=1e-9)
