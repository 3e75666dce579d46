"""Preprocessing and released quantiles of tables in blocks: the numbers of memory, and counts where records are too many to gather."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from partitioned_records import SETTINGS, in_blocks, records
from sklearn.pipeline import Pipeline

from lethe.calculus.guarantees import GDP
from lethe.errors import InputError
from lethe.estimators import (
    LogisticRegression,
    PrivatePCA,
    PrivateQuantileClipper,
    PrivateStandardScaler,
    PrivateWhitening,
    Ridge,
    privacy_of,
)
from lethe.estimators.inputs.ranges import private_ranges, ranges_cost
from lethe.estimators.partitioned import gathered
from lethe.estimators.partitioned.gathered import BlockColumns, BlockSizes, Norms
from lethe.mechanisms.quantiles.quantile import private_quantile, searched_quantiles
from lethe.partitions import PartitionedTable, array_table
from lethe.partitions.table import ExaminedTable

FITS: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "clipper": (lambda: PrivateQuantileClipper(norm_quantile=0.75, **SETTINGS), ("low_", "high_", "feature_norm_")),
    "clipper of rows": (lambda: PrivateQuantileClipper(tail=None, norm_quantile=0.5, **SETTINGS), ("feature_norm_",)),
    "scaler, bounds released": (lambda: PrivateStandardScaler(**SETTINGS), ("low_", "high_", "mean_", "scale_")),
    "components": (
        lambda: PrivatePCA(n_components=2, **SETTINGS),
        ("components_", "mean_", "feature_norm_", "explained_variance_", "explained_variance_ratio_"),
    ),
    "components, not centred": (lambda: PrivatePCA(feature_norm=2.0, centre=False, **SETTINGS), ("components_", "mean_")),
    "whitening": (lambda: PrivateWhitening(**SETTINGS), ("mean_", "covariance_", "whitening_", "feature_norm_")),
    "whitening of a channel": (lambda: PrivateWhitening(1, feature_norm=2.0, **SETTINGS), ("mean_", "covariance_", "whitening_")),
}


@pytest.mark.parametrize("name", FITS)
def test_preprocessing_in_blocks_is_that_in_memory(name: str) -> None:
    make, released = FITS[name]
    features, _, _ = records()
    expected = make().fit(features)
    rows = expected.transform(features)
    for blocks in (1, 7):
        found = make().fit(in_blocks(blocks, "label"))
        for one in released:
            np.testing.assert_allclose(getattr(found, one), getattr(expected, one), rtol=0.0, atol=1e-9, err_msg=one)
        assert found.statement_.guarantee == expected.statement_.guarantee
        assert found.statement_.findings == expected.statement_.findings
        assert found.epsilon_ == expected.epsilon_
        table = found.transform(in_blocks(blocks, "label"))
        assert isinstance(table, PartitionedTable)
        assert len(table.columns) == rows.shape[1]
        parts = table.examined(_features)[1]
        np.testing.assert_allclose(np.concatenate(parts), rows, rtol=0.0, atol=1e-6 if rows.dtype == np.float32 else 1e-9)


def _features(block: Any) -> Any:
    return block.features


@pytest.mark.sampled(8)
@pytest.mark.slow
@pytest.mark.parametrize("name", FITS)
def test_blocks_without_records_and_blocks_of_one_change_nothing(name: str) -> None:
    make, released = FITS[name]
    expected, found = make().fit(records()[0]), make().fit(in_blocks(1600, "label"))
    for one in released:
        np.testing.assert_allclose(getattr(found, one), getattr(expected, one), rtol=0.0, atol=1e-9, err_msg=one)


@pytest.mark.slow
def test_a_pipeline_of_three_in_blocks_is_the_one_in_memory() -> None:
    def pipeline() -> Any:
        model = LogisticRegression(mechanism="objective_perturbation", feature_norm=1.0, **SETTINGS)
        steps = [PrivateQuantileClipper(norm_quantile=0.75, **SETTINGS), PrivatePCA(3, feature_norm=1.0, **SETTINGS), model]
        return Pipeline([(type(step).__name__, step) for step in steps])

    features, labels, _ = records()
    expected, found = pipeline().fit(features, labels), pipeline().fit(in_blocks(7, "label"), None)
    np.testing.assert_allclose(found[-1].coef_, expected[-1].coef_, rtol=0.0, atol=1e-9)
    assert privacy_of(found).guarantee == privacy_of(expected).guarantee


def examined(blocks: int, features: Any = None) -> ExaminedTable:
    table = in_blocks(blocks, "label") if features is None else array_table(features, blocks=blocks, workers=1, progress=False)
    return table.examined(_features)[0]


def test_columns_are_gathered_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    features, _, _ = records()
    settings: dict[str, Any] = {"tail": 0.05, "share": GDP(1.0), "name": "ranges", "neighbours": "replace_one"}
    expected = private_ranges(features, generator=np.random.default_rng(3), **settings)
    monkeypatch.setattr(gathered, "MOST_GATHERED", 2 * len(features))
    table = examined(7)
    found = private_ranges(BlockColumns(table), generator=np.random.default_rng(3), **settings)
    np.testing.assert_array_equal([found.low, found.high], [expected.low, expected.high])
    assert table.passes == 1 + 3  # of two, two, and one of the five columns


@pytest.mark.slow
@pytest.mark.parametrize("neighbours", ["replace_one", "zero_out"])
def test_quantiles_of_counts_are_the_searched_ones_of_the_values(neighbours: Any) -> None:
    features, _, _ = records()
    norms = np.linalg.norm(features.astype(np.float64), axis=1)
    settings: dict[str, Any] = {"low": 1e-4, "high": 1e6, "target": GDP(0.2), "neighbours": neighbours, "spacing": "logarithmic"}
    for seed in range(5):
        expected = private_quantile(norms, quantile=0.75, records=1500, method="search", generator=np.random.default_rng(seed), **settings)
        sizes: Any = BlockSizes(examined(7), Norms())
        (found,) = searched_quantiles(
            lambda points, sizes=sizes: sizes.at_most(points, 1e-4, 1e6),
            quantiles=[0.75],
            records=1500,
            generator=np.random.default_rng(seed),
            **settings,
        )
        assert found == expected
        assert sizes.table.passes == 1 + 8
    # Of several lists the noise is drawn one after the other.
    both = searched_quantiles(
        lambda points: np.array([np.count_nonzero(np.log(norms) <= point) for point in points]),
        quantiles=[0.25, 0.75],
        records=1500,
        generator=np.random.default_rng(1),
        **settings,
    )
    stream = np.random.default_rng(1)
    for one, level in zip(both, (0.25, 0.75), strict=True):
        assert one == private_quantile(norms, quantile=level, records=1500, method="search", generator=stream, **settings)


@pytest.mark.slow
def test_very_many_records_are_counted_and_cost_what_was_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels, amounts = records()
    monkeypatch.setattr(gathered, "MOST_GATHERED", 1000)
    settings = {"epsilon": 8.0, "delta": 1e-5, "random_state": 5}
    table = array_table(features, labels, blocks=3, workers=1)
    model = LogisticRegression(mechanism="objective_perturbation", **settings).fit(table, None)
    true = float(np.quantile(np.linalg.norm(features, axis=1), 0.75))
    assert 0.85 * true < model.feature_norm_ < 1.15 * true  # cells of a factor of 1.094
    assert model.epsilon_ <= 8.0
    assert "comparisons with Gaussian noise" in str(model.statement_.findings)
    regression = Ridge(mechanism="adassp", **settings).fit(array_table(features, amounts, blocks=3, workers=1), None)
    low, high = np.quantile(amounts, [0.05, 0.95])
    middle, half = (low + high) / 2.0, 0.75 * (high - low)
    assert regression.target_range_[0] == pytest.approx(middle - half, abs=half)
    assert regression.target_range_[1] == pytest.approx(middle + half, abs=half)
    scaler = PrivateStandardScaler(**settings).fit(array_table(features, blocks=3, workers=1))
    assert ((scaler.low_ < -1.0) & (scaler.high_ > 1.0)).all()
    assert scaler.epsilon_ <= 8.0


def test_the_cost_of_counted_ranges_is_known_before() -> None:
    share = GDP(0.7)
    table = BlockColumns(examined(3))
    monkey = pytest.MonkeyPatch()
    with monkey.context() as patched:
        patched.setattr(gathered, "MOST_GATHERED", 1000)
        found = private_ranges(table, tail=0.05, share=share, name="ranges", neighbours="replace_one", generator=None)
    planned: Any = ranges_cost(1500, 5, tail=0.05, share=share, counted=True)
    stated: Any = found.statement.guarantee
    assert planned.mu == pytest.approx(stated.mu, rel=1e-12)
    assert 0.999 * share.mu < stated.mu <= share.mu * (1.0 + 1e-12)


def test_the_noise_of_counts_is_what_the_statement_says() -> None:
    """A count 10 below the rank is turned by noise of 10, so by 10/sigma standard deviations; sigma 1 % too small would be seen."""
    settings: dict[str, Any] = {"quantiles": [0.5], "low": 0.0, "high": 1.0, "target": GDP(0.5), "records": 101}
    for neighbours, moved in (("replace_one", 1.0), ("zero_out", 0.5)):
        turn = 10.0 / (moved * math.sqrt(8.0) / 0.5)
        for share, found in ((0.995, 1.0), (1.005, 0.0)):
            (one,) = searched_quantiles(
                lambda points: np.array([40.5]), neighbours=neighbours, generator=Constant(share * turn), **settings
            )
            assert one.value == pytest.approx(found, abs=1.0 / 256.0)
            stated: Any = one.statement.planned
            assert stated.mu == pytest.approx(0.5, rel=1e-9)


class Constant(np.random.Generator):
    """Draws one number again and again."""

    def __init__(self, number: float) -> None:
        super().__init__(np.random.PCG64(0))
        self.number = number

    def standard_normal(self, size: Any = None, *rest: Any, **more: Any) -> Any:
        return np.full(size, self.number)


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
