"""Preprocessing and released quantiles of tables in blocks: the numbers of memory, and counts where records are too many to gather."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from partitioned_records import SETTINGS, in_blocks, records
from sklearn.pipeline import Pipeline

from lethe.calculus.guarantees import GDP
from lethe.errors import InputError
from lethe.estimators import LogisticRegression, PrivatePCA, PrivateQuantileClipper, privacy_of
from lethe.estimators.inputs.ranges import private_ranges
from lethe.estimators.inputs.records import row_norms
from lethe.estimators.options import EstimatorOptions
from lethe.estimators.partitioned import tables as gathered
from lethe.estimators.partitioned.tables import BlockColumns, columns_of, norms_of
from lethe.mechanisms.quantiles.located import ColumnsInMemory
from lethe.partitions import array_table
from lethe.partitions.table import ExaminedTable


def _features(block: Any) -> Any:
    return block.features


def test_a_pipeline_of_three_in_blocks_is_the_one_in_memory() -> None:
    def pipeline() -> Any:
        model = LogisticRegression(options=EstimatorOptions(mechanism="objective_perturbation"), feature_norm=1.0, **SETTINGS)
        steps = [PrivateQuantileClipper(norm_quantile=0.75, **SETTINGS), PrivatePCA(3, feature_norm=1.0, **SETTINGS), model]
        return Pipeline([(type(step).__name__, step) for step in steps])

    features, labels, _ = records()
    expected, found = pipeline().fit(features, labels), pipeline().fit(in_blocks(7, "label"), None)
    np.testing.assert_allclose(found[-1].coef_, expected[-1].coef_, rtol=0.0, atol=1e-9)
    assert privacy_of(found).guarantee == privacy_of(expected).guarantee


def examined(blocks: int, features: Any = None) -> ExaminedTable:
    table = in_blocks(blocks, "label") if features is None else array_table(features, blocks=blocks, workers=1, progress=False)
    return table.examined(_features)[0]


def test_ranges_of_a_table_in_blocks_are_three_passes() -> None:
    features, _, _ = records()
    settings: dict[str, Any] = {"tail": 0.05, "share": GDP(1.0), "name": "ranges", "give": "bounds", "neighbours": "replace_one"}
    expected = private_ranges(features, generator=np.random.default_rng(3), **settings)
    table = examined(7)
    found = private_ranges(columns_of(table), generator=np.random.default_rng(3), **settings)
    np.testing.assert_array_equal([found.low, found.high], [expected.low, expected.high])
    assert found.statement == expected.statement
    assert table.passes == 1 + 3


def test_norms_too_many_to_gather_are_counted_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels, _ = records()
    settings: dict[str, Any] = {
        "options": EstimatorOptions(mechanism="objective_perturbation"),
        "epsilon": 8.0,
        "delta": 1e-5,
        "random_state": 5,
        "seed_noise": True,
    }
    table = array_table(features, labels, blocks=3, workers=1)
    expected = LogisticRegression(**settings).fit(table, None)
    monkeypatch.setattr(gathered, "MOST_GATHERED", 1000)
    found = LogisticRegression(**settings).fit(table, None)
    assert found.feature_norm_ == expected.feature_norm_
    assert found.statement_.guarantee == expected.statement_.guarantee
    counted = norms_of(examined(7))
    edges = np.array([[0.0, 0.5, 1.0, 2.0]])
    np.testing.assert_array_equal(counted.counts(edges), ColumnsInMemory(row_norms(features)).counts(edges))
    assert isinstance(counted, BlockColumns)
    assert counted.shape == (len(features), 1)


@pytest.mark.parametrize("wrong", [np.inf, -np.inf, np.nan])
def test_infinity_in_a_table_is_refused_and_not_clipped_away(wrong: float) -> None:
    features, _, _ = records()
    clipper = PrivateQuantileClipper(**SETTINGS).fit(features)
    features[1000, 2] = wrong
    with pytest.raises(InputError, match=f"column 2: row 0 holds {wrong}; it needs a finite number"):
        clipper.transform(array_table(features, blocks=3, workers=1)).examined(_features)


def test_a_clipper_whose_last_pass_fails_releases_nothing() -> None:
    """Bounds of the columns that stayed behind would be in no statement."""

    def fail(number: int, done: int, blocks: int) -> None:
        if number == 3:  # after the look and the columns
            raise ConnectionError

    clipper = PrivateQuantileClipper(norm_quantile=0.75, **SETTINGS)
    features, _, _ = records()
    with pytest.raises(ConnectionError):
        clipper.fit(array_table(features, blocks=3, workers=1, progress=fail))
    assert not {"low_", "high_", "feature_norm_", "statement_"} & set(vars(clipper))
    clipper.fit(features)
    before = {name: getattr(clipper, name) for name in ("low_", "high_", "feature_norm_", "statement_")}
    with pytest.raises(ConnectionError):
        clipper.fit(array_table(2.0 * features, blocks=3, workers=1, progress=fail))
    assert all(getattr(clipper, name) is one for name, one in before.items())
