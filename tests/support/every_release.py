"""One fit of every public estimator, and of every mechanism, and the numbers that each releases."""

from collections.abc import Set
from typing import Any

import numpy as np
from private_cases import build
from sklearn.base import clone, is_classifier

import lethe.estimators as private
from lethe.estimators.choice.choose import NAMES as MECHANISMS
from lethe.estimators.options import EstimatorOptions, options_of

# Enough records and epsilon for quantiles by the exponential mechanism, which are real numbers; searched ones are cells of a grid, and
# two may well be equal.
RECORDS, PLENTY = 2000, {"epsilon": 8.0, "delta": 5e-5, "random_state": 1}
GIVEN = {"feature_norm": 4.0, **PLENTY}
# Few steps: what is tested here depends on how noise is drawn and stated, not on how long one trains.
SHORT = {"passes": 2}
# Known before any record is read, or said about the release.
PUBLIC = {"epsilon_", "delta_", "classes_", "n_iter_", "n_features_in_", "n_components_", "score_noise_std_", "error_bound_"}

CASES: dict[str, tuple[Any, set[str]]] = {
    # what is fitted, and which of its numbers are given
    **{
        f"classifier by {name}": (
            build(private.LogisticRegression, mechanism=name, **GIVEN, **({} if name.endswith("perturbation") else SHORT)),
            {"feature_norm_"},
        )
        for name in MECHANISMS
        if name not in ("auto", "sgd", "adassp")
    },
    **{
        f"regressor by {name}": (
            private.LinearRegression(options=EstimatorOptions(mechanism=name), target_bound=6.0, **GIVEN),
            {"feature_norm_", "target_range_"},
        )
        for name in ("adassp", "output_perturbation")
    },
    "LogisticRegression": (private.LogisticRegression(options=EstimatorOptions(mechanism="objective_perturbation"), **PLENTY), set()),
    "SoftmaxRegression": (private.SoftmaxRegression(options=EstimatorOptions(mechanism="objective_perturbation"), **PLENTY), set()),
    "SoftmaxRegression, output": (
        private.SoftmaxRegression(options=EstimatorOptions(mechanism="output_perturbation"), **GIVEN),
        {"feature_norm_"},
    ),
    "LinearSVC": (private.LinearSVC(options=EstimatorOptions(mechanism="output_perturbation"), **PLENTY), set()),
    "LinearRegression": (private.LinearRegression(options=EstimatorOptions(mechanism="adassp"), **PLENTY), set()),
    "Ridge": (private.Ridge(options=EstimatorOptions(mechanism="output_perturbation"), **PLENTY), set()),
    "Lasso": (build(private.Lasso, alpha=1e-9, options=EstimatorOptions(mechanism="cyclic"), **SHORT, **PLENTY), set()),
    "ElasticNet": (build(private.ElasticNet, alpha=1e-9, options=EstimatorOptions(mechanism="pass_ends"), **SHORT, **PLENTY), set()),
    "HuberRegressor": (private.HuberRegressor(options=EstimatorOptions(mechanism="objective_perturbation"), **PLENTY), set()),
    "PoissonRegressor": (
        private.PoissonRegressor(options=EstimatorOptions(mechanism="output_perturbation"), target_bound=6.0, **GIVEN),
        {"feature_norm_", "target_range_"},
    ),
    "GammaRegressor": (private.GammaRegressor(options=EstimatorOptions(mechanism="objective_perturbation"), **PLENTY), {"target_range_"}),
    "TweedieRegressor": (build(private.TweedieRegressor, mechanism="cyclic", **SHORT, **PLENTY), {"target_range_"}),
    "HeavyTailedLinearRegression": (private.HeavyTailedLinearRegression(**PLENTY), set()),
    "HeavyTailedLogisticRegression": (private.HeavyTailedLogisticRegression(**PLENTY), set()),
    # A moment is released as a cell of a grid.
    "HeavyTailedLinearRegression by accelerated": (
        private.HeavyTailedLinearRegression(options=EstimatorOptions(parameters="theory"), radius=3.0, **PLENTY),
        {"moment_"},
    ),
    "PrivateMean": (private.PrivateMean(**PLENTY), set()),
    "PrivateStandardScaler": (private.PrivateStandardScaler(**PLENTY), set()),
    "PrivateStandardScaler, given": (private.PrivateStandardScaler(bounds=(-5.0, 8.0), **PLENTY), {"low_", "high_"}),
    "PrivateQuantileClipper": (private.PrivateQuantileClipper(norm_quantile=0.7, **PLENTY), set()),
    "PrivatePCA": (private.PrivatePCA(2, **PLENTY), set()),
    # With nothing released before, which would make two fits differ by itself.
    "PrivatePCA, given": (private.PrivatePCA(2, **GIVEN), {"feature_norm_"}),
    "PrivateWhitening": (private.PrivateWhitening(**PLENTY), set()),
    "PrivateWhitening, given": (private.PrivateWhitening(**GIVEN), {"feature_norm_"}),
    "HeavyTailedLinearRegression, given": (
        private.HeavyTailedLinearRegression(moment=5.0, smoothness=4.0, **PLENTY),
        {"moment_", "smoothness_"},
    ),
    "HeavyTailedLogisticRegression, given": (
        private.HeavyTailedLogisticRegression(moment=5.0, smoothness=4.0, **PLENTY),
        {"moment_", "smoothness_"},
    ),
    "PrivateMean, given": (private.PrivateMean(moment=3.0, centre=np.zeros(3), **PLENTY), {"moment_", "centre_"}),
    "PrivateSearch": (
        private.PrivateSearch(
            private.LogisticRegression(options=EstimatorOptions(mechanism="output_perturbation"), feature_norm=4.0), {"C": [1.0]}, **PLENTY
        ),
        {"feature_norm_"},
    ),
    "PrivateSearch of a norm": (
        private.PrivateSearch(
            private.Ridge(options=EstimatorOptions(mechanism="adassp"), target_bound=6.0), {"alpha": [1.0]}, score_bound=3.0, **PLENTY
        ),
        {"target_range_"},
    ),
}


def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Records of three columns, labels, and targets."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((RECORDS, 3)) + np.array([0.5, 1.0, -0.5])
    noise = rng.standard_normal(RECORDS)
    return rows, (rows[:, 0] + noise > 0.5).astype(np.int64), rows[:, 1] + 0.5 * noise


def fitted(name: str, **parameters: Any) -> Any:
    """One of the cases, fitted."""
    model: Any = clone(CASES[name][0])
    model.set_params(**parameters)
    rows, labels, targets = data()
    return model.fit(rows, labels if is_classifier(model) else targets)


def released(name: str, **parameters: Any) -> dict[str, list[float]]:
    """What one fit released: every number of its public attributes but those known before, by name of the attribute."""
    return numbers_of(fitted(name, **parameters), PUBLIC | CASES[name][1])


def numbers_of(model: Any, known: Set[str] = frozenset()) -> dict[str, list[float]]:
    """Every number that a fit set but those of some attributes, by name of the attribute."""
    found: dict[str, list[float]] = {}
    for name, value in vars(model).items():
        if name == "best_estimator_":
            found |= {f"{name}.{inner}": values for inner, values in numbers_of(value, known).items()}
        elif name.endswith("_") and name not in known and isinstance(value, float | tuple | np.ndarray):
            array = np.asarray(value)
            if array.dtype.kind == "f":
                found[name] = array.ravel().tolist()
    return found


def shared(first: dict[str, list[float]], second: dict[str, list[float]]) -> list[str]:
    """Numbers that two fits have in common, by name and place."""
    assert first
    assert {name: len(values) for name, values in first.items()} == {name: len(values) for name, values in second.items()}
    return [
        f"{name}[{place}]"
        for name in first
        for place, pair in enumerate(zip(first[name], second[name], strict=True))
        if len(set(pair)) == 1
    ]


def quick_ones(_: int) -> dict[str, dict[str, list[float]]]:
    """The quickest of them, every kind of generator among them."""
    left_out = ("classifier by", "PrivateSearch", "Lasso", "ElasticNet")
    return {
        name: released(name)
        for name, (model, _) in CASES.items()
        if options_of(model).mechanism == "cyclic"
        or (options_of(model).mechanism != "objective_perturbation" and not name.startswith(left_out))
    }
