"""What is fitted in blocks, here and on a cluster, and compared with memory; and the partitions that it is fitted on."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import torch
from dask.delayed import delayed
from doors import fit_head, fit_linear
from partitioned_records import COLUMNS, SETTINGS, frame
from torch import nn

import lethe
from lethe.estimators import (
    ElasticNet,
    HeavyTailedLinearRegression,
    HeavyTailedLogisticRegression,
    HuberRegressor,
    Lasso,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    PrivateMean,
    PrivatePCA,
    PrivateQuantileClipper,
    PrivateSearch,
    PrivateStandardScaler,
    PrivateWhitening,
    Ridge,
    SoftmaxRegression,
)
from lethe.estimators.options import EstimatorOptions
from lethe.partitions import array_table
from lethe.partitions.table import PartitionedTable
from lethe.run.losses import Logistic

LOGISTIC = Logistic(feature_norm=1.0, intercept=True)
BOUNDED: dict[str, Any] = {"feature_norm": 2.0, "target_bound": 5.0, **SETTINGS}
UNSEEDED: dict[str, Any] = {"seed_noise": False, "random_state": None}


def logistic(mechanism: str, **options: Any) -> Any:
    return LogisticRegression(options=EstimatorOptions(mechanism=mechanism, **options), feature_norm=2.0, **SETTINGS)


class Trained:
    """`fit_linear` in the manner of an estimator."""

    def __init__(self, batches: Any) -> None:
        self.run = lethe.Run(
            records=1500,
            batches=batches,
            steps=4,
            step_size=0.5,
            noise_multiplier=1.0,
            loss=LOGISTIC,
            release="last",
            neighbours="replace_one",
        )

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


def owned(part: pd.DataFrame) -> pd.DataFrame:
    """Each of 300 people has rows in most partitions, of weights from 0 to 4."""
    number = part.index.to_numpy()
    return part.assign(person=number * 7 % 300, weight_of=number % 9 / 2.0)


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
        search = PrivateSearch(logistic("output_perturbation").set_params(**UNSEEDED), {"C": [0.1, 1.0]}, tries=2.0, **SETTINGS).fit(X, y)
        self.coef_, self.intercept_ = search.best_estimator_.coef_, search.best_estimator_.intercept_
        return self


FITS: dict[str, tuple[Callable[[], Any], str]] = {
    "objective perturbation": (lambda: logistic("objective_perturbation"), "label"),
    "adassp": (lambda: Ridge(options=EstimatorOptions(mechanism="adassp"), feature_norm=2.0, target_bound=5.0, **SETTINGS), "amount"),
    "full batches": (lambda: logistic("full_batch", passes=3), "label"),
    "users and weights": (Owned, "label"),
    "released range and norm": (lambda: Ridge(options=EstimatorOptions(mechanism="adassp"), **SETTINGS), "amount"),
    "scaler": (lambda: PrivateStandardScaler(bounds=(-4.0, 4.0), **SETTINGS), "label"),
    "scaler, bounds released": (lambda: PrivateStandardScaler(**SETTINGS), "label"),
    "components": (lambda: PrivatePCA(2, **SETTINGS), "label"),
    "clipper": (lambda: PrivateQuantileClipper(**SETTINGS), "label"),
    "whitening": (lambda: PrivateWhitening(feature_norm=3.0, **SETTINGS), "label"),
    "SoftmaxRegression": (
        lambda: SoftmaxRegression(options=EstimatorOptions(mechanism="objective_perturbation"), feature_norm=2.0, **SETTINGS),
        "label",
    ),
    "LinearSVC": (lambda: LinearSVC(options=EstimatorOptions(mechanism="output_perturbation"), feature_norm=2.0, **SETTINGS), "label"),
    "LinearRegression": (lambda: LinearRegression(options=EstimatorOptions(mechanism="adassp"), **BOUNDED), "amount"),
    "HuberRegressor": (lambda: HuberRegressor(options=EstimatorOptions(mechanism="objective_perturbation"), **BOUNDED), "amount"),
    "Lasso": (lambda: Lasso(options=EstimatorOptions(mechanism="full_batch", passes=3), alpha=0.01, **BOUNDED), "amount"),
    "ElasticNet": (lambda: ElasticNet(options=EstimatorOptions(mechanism="full_batch", passes=3), alpha=0.01, **BOUNDED), "amount"),
}
TRAININGS: dict[str, tuple[Callable[[], Any], str]] = {
    "fit_linear": (lambda: Trained(lethe.batches.Cyclic(700)), "label"),
    "fit_linear, Poisson batches": (lambda: Trained(lethe.batches.Poisson(500)), "label"),
    "fit_head": (lambda: TrainedHead(lethe.batches.Full()), "label"),
    "search": (Chosen, "label"),
}
# In memory records count in another order than the stored one, so on the cluster these are compared with one block in this process.
RICH = {**SETTINGS, "epsilon": 8.0}
STORED: dict[str, tuple[Callable[[], Any], str]] = {
    "Poisson batches": (lambda: logistic("poisson", passes=1), "label"),
    "heavy tails": (lambda: HeavyTailedLinearRegression(options=EstimatorOptions(passes=2), **SETTINGS), "amount"),
    "heavy tails, classes": (lambda: HeavyTailedLogisticRegression(options=EstimatorOptions(passes=2), **SETTINGS), "label"),
    "heavy tails, mean": (
        lambda: PrivateMean(options=EstimatorOptions(mechanism="multi_pass", passes=2), centre=[0.0] * 5, moment=3.0, **SETTINGS),
        "amount",
    ),
}
ALL = {**FITS, **TRAININGS, **STORED}


def classes(mechanism: str, **options: Any) -> Any:
    options = {"radius": 2.0, **options}
    public = {name: options.pop(name) for name in ("smoothness", "moment", "radius") if name in options}
    return HeavyTailedLogisticRegression(options=EstimatorOptions(mechanism=mechanism, **options), **public, **RICH)


# More of them, which are compared in this process only.
HERE: dict[str, tuple[Callable[[], Any], str]] = {
    "released norm": (lambda: LogisticRegression(options=EstimatorOptions(mechanism="objective_perturbation"), **SETTINGS), "label"),
    "adassp, all released": (
        lambda: LinearRegression(options=EstimatorOptions(mechanism="adassp"), fit_intercept=False, **SETTINGS),
        "amount",
    ),
    **{
        mechanism: (lambda mechanism=mechanism: logistic(mechanism, passes=2), "label")
        for mechanism in ("pass_ends", "cyclic", "correlated", "poisson", "cyclic_poisson_correlated")
    },
    "clipper of rows": (lambda: PrivateQuantileClipper(tail=None, norm_quantile=0.5, **SETTINGS), "label"),
    "components, not centred": (lambda: PrivatePCA(feature_norm=2.0, centre=False, **SETTINGS), "label"),
    "whitening, norm released": (lambda: PrivateWhitening(**SETTINGS), "label"),
    "whitening of a channel": (lambda: PrivateWhitening(1, feature_norm=2.0, **SETTINGS), "label"),
    "mean": (lambda: PrivateMean(**RICH), "amount"),
    "mean by the theory": (lambda: PrivateMean(options=EstimatorOptions(parameters="theory"), centre=[0.0] * 5, **RICH), "amount"),
    "regression, all public": (
        lambda: HeavyTailedLinearRegression(
            options=EstimatorOptions(passes=3), moment=8.0, smoothness=2.0, radius=3.0, fit_intercept=False, **RICH
        ),
        "amount",
    ),
    "classes, one pass": (lambda: classes("one_pass", strong_convexity=0.1, smoothness=1.0, moment=3.0), "label"),
    "classes, accelerated by the theory": (lambda: classes("accelerated", parameters="theory"), "label"),
    "classes, proximal": (lambda: classes("proximal", strong_convexity=0.1, smoothness=1.0, moment=3.0), "label"),
    "search": (
        lambda: PrivateSearch(
            LogisticRegression(feature_norm=2.0),
            {"options__mechanism": ["output_perturbation", "full_batch"], "C": [0.1, 1.0]},
            tries=3.0,
            **SETTINGS,
        ),
        "label",
    ),
    "search of regressions": (
        lambda: PrivateSearch(
            Ridge(options=EstimatorOptions(mechanism="adassp"), target_bound=5.0),
            {"feature_norm": [1.0, 3.0]},
            tries=3.0,
            score_bound=5.0,
            **SETTINGS,
        ),
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
