"""Estimators for heavy tails on tables in blocks: the numbers of memory where records count in the stored order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from partitioned_records import SETTINGS, in_blocks, records

from lethe.errors import InputError
from lethe.estimators import HeavyTailedLinearRegression, HeavyTailedLogisticRegression, PrivateMean
from lethe.estimators.options import EstimatorOptions
from lethe.estimators.partitioned import tables as gathered
from lethe.estimators.private_estimator import PrivateEstimator
from lethe.partitions import array_table

RICH = {**SETTINGS, "epsilon": 8.0}


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
