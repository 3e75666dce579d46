"""Estimators for heavy tails on tables in blocks: the numbers of memory where records count in the stored order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from partitioned_records import SETTINGS, in_blocks, records

from lethe.errors import InputError
from lethe.estimators import HeavyTailedLinearRegression, HeavyTailedLogisticRegression, PrivateMean
from lethe.estimators.options import EstimatorOptions
from lethe.estimators.partitioned import gathered
from lethe.estimators.private_estimator import PrivateEstimator
from lethe.partitions import array_table

RICH = {**SETTINGS, "epsilon": 8.0}
FITS: dict[str, tuple[Callable[[], Any], str]] = {
    "mean": (lambda: PrivateMean(**RICH), "amount"),
    "mean by passes": (
        lambda: PrivateMean(options=EstimatorOptions(mechanism="multi_pass", passes=3), centre=[0.0] * 5, moment=3.0, **RICH),
        "amount",
    ),
    "mean by the theory": (lambda: PrivateMean(options=EstimatorOptions(parameters="theory"), centre=[0.0] * 5, **RICH), "amount"),
    "regression": (lambda: HeavyTailedLinearRegression(options=EstimatorOptions(passes=4), **RICH), "amount"),
    "regression, all public": (
        lambda: HeavyTailedLinearRegression(
            options=EstimatorOptions(passes=3), moment=8.0, smoothness=2.0, radius=3.0, fit_intercept=False, **RICH
        ),
        "amount",
    ),
    "classes": (lambda: HeavyTailedLogisticRegression(options=EstimatorOptions(passes=4), **RICH), "label"),
    "classes, one pass": (
        lambda: HeavyTailedLogisticRegression(
            options=EstimatorOptions(mechanism="one_pass", strong_convexity=0.1), smoothness=1.0, moment=3.0, radius=2.0, **RICH
        ),
        "label",
    ),
    "classes, accelerated by the theory": (
        lambda: HeavyTailedLogisticRegression(options=EstimatorOptions(mechanism="accelerated", parameters="theory"), radius=2.0, **RICH),
        "label",
    ),
    "classes, proximal": (
        lambda: HeavyTailedLogisticRegression(
            options=EstimatorOptions(mechanism="proximal", strong_convexity=0.1), smoothness=1.0, moment=3.0, radius=2.0, **RICH
        ),
        "label",
    ),
}


def released(fitted: Any) -> np.ndarray[Any, Any]:
    return fitted.mean_ if isinstance(fitted, PrivateMean) else np.append(np.ravel(fitted.coef_), fitted.intercept_)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", FITS)
def test_a_fit_for_heavy_tails_in_blocks_is_the_one_in_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, goal = FITS[name]
    parts = [make().fit(in_blocks(blocks, goal), None) for blocks in (1, 7)]
    features, labels, amounts = records()
    drawn = PrivateEstimator._randomness
    stored = lambda self, count, **more: replace(drawn(self, count, **more), order=np.arange(count))  # noqa: E731
    monkeypatch.setattr(PrivateEstimator, "_randomness", stored)
    expected = make().fit(features, labels if goal == "label" else amounts)
    for found in parts:
        np.testing.assert_allclose(released(found), released(expected), rtol=0.0, atol=1e-9)
        assert found.moment_ == expected.moment_
        assert found.statement_.planned == expected.statement_.planned
        assert found.statement_.findings == expected.statement_.findings
        assert found.phases_ == expected.phases_
        assert found.run_ == expected.run_
        assert found.epsilon_ == expected.epsilon_


def test_a_gradient_that_is_too_long_counts_no_more_in_blocks() -> None:
    """Clipped to 1, one enormous record of 1500 moves a mean of them by 1/1500 at most, and no more than its share of a half."""
    features, _, amounts = records()
    settings: dict[str, Any] = {"options": EstimatorOptions(passes=1), "moment": 1.0, "smoothness": 1.0, "fit_intercept": False, **RICH}

    def fitted(row: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        changed = features.astype(np.float64)
        changed[700] = row
        table = array_table(changed, amounts, blocks=4, workers=1)
        return HeavyTailedLinearRegression(**settings).fit(table, None).coef_.copy()

    way = np.array([1.0, 0.0, 0.0, 0.0, 0.0])
    moved = np.linalg.norm(fitted(1e30 * way) - fitted(-1e30 * way))
    assert moved <= 2.0 / 1500.0 * (1.0 + 1e-9)
    assert moved > 1.99 / 1500.0


def test_solvers_that_draw_records_again_and_again_are_refused_in_blocks() -> None:
    model = HeavyTailedLogisticRegression(options=EstimatorOptions(mechanism="localised", order=4.0), radius=1.0)
    with pytest.raises(InputError, match='mechanism = "localised": it draws records at random'):
        model.fit(in_blocks(2, "label"), None)


@pytest.mark.parametrize(
    "model",
    [
        PrivateMean(options=EstimatorOptions(parameters="theory"), centre=[0.0] * 5),
        HeavyTailedLinearRegression(options=EstimatorOptions(mechanism="one_pass", parameters="theory"), radius=2.0),
    ],
)
def test_a_moment_of_too_many_records_is_refused_before_anything_is_paid(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many are set aside is public: a ledger must not pay for a fit that cannot end."""
    monkeypatch.setattr(gathered, "MOST_GATHERED", 100)
    paid: list[Any] = []
    monkeypatch.setattr(PrivateEstimator, "_pay", lambda self, *what, **more: paid.append(what))
    with pytest.raises(InputError, match="of so many its moment is not released"):
        model.fit(in_blocks(2, "amount"), None)
    assert not paid
