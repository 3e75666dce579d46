"""Estimators, preprocessing and searches on tables in blocks: the numbers and the certificate of memory, however the records are cut."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from partitioned_records import COLUMNS, SETTINGS, Payments, frame, in_blocks, records, written
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Normalizer

from lethe.calculus.guarantees import GDP
from lethe.errors import InputError, LetheError
from lethe.estimators import (
    HeavyTailedLinearRegression,
    HeavyTailedLogisticRegression,
    LogisticRegression,
    PrivateMean,
    PrivatePCA,
    PrivateQuantileClipper,
    PrivateSearch,
    PrivateStandardScaler,
    Ridge,
    SoftmaxRegression,
    privacy_of,
)
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.choice.choose import choose
from lethe.estimators.inputs.facts import PublicFacts
from lethe.estimators.inputs.ranges import private_ranges
from lethe.estimators.inputs.records import row_norms
from lethe.estimators.options import EstimatorOptions
from lethe.estimators.partitioned import tables as gathered
from lethe.estimators.partitioned.tables import BlockColumns, columns_of, norms_of, nothing_else
from lethe.estimators.private_estimator import PrivateEstimator
from lethe.mechanisms.quantiles.located import ColumnsInMemory
from lethe.partitions import array_table
from lethe.partitions.table import ExaminedTable, chosen_records
from lethe.run.losses import LeastSquares, Logistic

RICH = {**SETTINGS, "epsilon": 8.0}
NORMED = Pipeline(
    [
        ("norms", Normalizer()),
        ("model", LogisticRegression(options=EstimatorOptions(mechanism="output_perturbation"), feature_norm=2.0)),
    ]
)


def test_a_certificate_of_secret_batches_rests_on_workers_that_are_told_them() -> None:
    model = LogisticRegression(options=EstimatorOptions(mechanism="poisson", passes=3), feature_norm=2.0, epsilon=1.0)
    assert "workers" in {one.name for one in model.fit(in_blocks(2, "label"), None).certificate_.findings if one.evidence == "declared"}
    assert "workers" in {one.name for one in model.statement_.findings if one.evidence == "declared"}
    features, labels, _ = records()
    assert "workers" not in {one.name for one in model.fit(features, labels).certificate_.findings}


def test_more_weights_than_are_factored_are_found_by_passes_that_multiply() -> None:
    rng = np.random.default_rng(0)
    features, labels = rng.standard_normal((600, 40)).astype(np.float32), rng.integers(0, 6, 600)
    model = SoftmaxRegression(
        options=EstimatorOptions(mechanism="objective_perturbation"), feature_norm=6.0, **{**SETTINGS, "epsilon": 8.0}
    )
    one = model.fit(array_table(features, labels, blocks=1), None).coef_.copy()
    np.testing.assert_allclose(model.fit(array_table(features, labels, blocks=7), None).coef_, one, rtol=0.0, atol=1e-9)
    # In memory products are in single precision: both are within the certified error of the solver of the same minimiser.
    memory = model.fit(features, labels)
    (solved,) = [finding for finding in memory.statement_.findings if finding.name == "solver's error"]
    assert "hidden by noise" in solved.detail
    np.testing.assert_allclose(memory.coef_, one, rtol=0.0, atol=1e-5)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", [Logistic(feature_norm=1.0), LeastSquares(feature_norm=1.0, residual_bound=5.0)])
def test_of_mechanisms_of_nearly_the_same_risk_a_large_table_takes_the_one_of_fewest_passes(kind: Any) -> None:
    bound = 5.0 if isinstance(kind, LeastSquares) else None
    facts = PublicFacts(records=2_000_000, columns=50, loss=kind, target_bound=bound)
    budget = PrivacyBudget(epsilon=1.0, delta=1e-8)
    memory, blocks = (choose("auto", replace(facts, in_blocks=where), budget).plan for where in (False, True))
    assert 1 <= blocks.passes <= 12
    assert blocks.passes <= (memory.passes or 12) or blocks.risk < memory.risk / 2.0
    assert bound is None or (blocks.name, blocks.passes) == ("adassp", 1)


def test_a_faulty_block_ends_the_fit_before_it_is_paid() -> None:
    features, labels, _ = records()
    features[1400, 3] = math.nan
    ledger = Payments()
    model = LogisticRegression(ledger=ledger, options=EstimatorOptions(mechanism="objective_perturbation"), feature_norm=2.0)
    with pytest.raises(InputError, match=r"block 6 \(.*column 3: row \d+ holds nan"):
        model.fit(array_table(features, labels, blocks=7), None)
    assert ledger.events == []
    assert not hasattr(model, "coef_")


def test_the_stored_order_draws_no_permutation_unless_noise_is_seeded() -> None:
    model = LogisticRegression(random_state=0)
    assert model._randomness(100, stored_order=True).order is None
    assert sorted(model._randomness(100).order.tolist()) == list(range(100))
    seeded = LogisticRegression(**SETTINGS)
    first, second = (seeded._randomness(100, stored_order=stored).mechanism for stored in (False, True))
    assert first is not None
    assert second is not None
    assert first.standard_normal() == second.standard_normal()


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "no target": (lambda: Ridge().fit(array_table(np.ones((4, 2))), None), "y: it needs the targets"),
    "targets beside": (lambda: Ridge().fit(in_blocks(2, "amount"), np.ones(1500)), "y: got ndarray; for a table in blocks"),
    "one record": (lambda: Ridge(feature_norm=1.0).fit(array_table(np.ones((1, 2)), np.ones(1)), None), "X: got 1 records in 1 blocks"),
    "one class": (lambda: LogisticRegression().fit(array_table(np.ones((9, 2)), np.ones(9)), None), "got 1 class"),
    "fractions": (lambda: LogisticRegression().fit(in_blocks(2, "amount"), None), r"block 0 \(.*column 'y': Unknown label type"),
    "another class": (
        lambda: LogisticRegression(classes=[0, 2]).fit(in_blocks(2, "label"), None),
        r"block 0 \(.*column 'y': y: got 1, which is not in the public list",
    ),
    "a target that is NaN": (
        lambda: Ridge(feature_norm=1.0).fit(array_table(np.ones((4, 2)), np.array([0.0, 1.0, np.nan, 1.0]), blocks=2), None),
        r"block 1 \(records 2 to 4\), column 'y': row 0 holds nan",
    ),
    "prediction": (
        lambda: LogisticRegression(feature_norm=2.0, **SETTINGS).fit(*records()[:2]).predict(in_blocks(2, "label")),
        "X: got PartitionedTable, a table in blocks",
    ),
    "a solver that draws": (
        lambda: HeavyTailedLogisticRegression(options=EstimatorOptions(mechanism="localised", order=4.0), radius=1.0).fit(
            in_blocks(2, "label"), None
        ),
        'mechanism = "localised": it draws records at random',
    ),
    "a step that transforms arrays": (
        lambda: PrivateSearch(NORMED, {"model__C": [1.0]}).fit(in_blocks(2, "label"), None),
        "step 'norms', Normalizer, transforms arrays in memory, and X is a table in blocks",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_done_in_blocks_is_refused_by_name(case: str) -> None:
    attempt, words = REFUSED[case]
    with pytest.raises(InputError, match=words):
        attempt()


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


def test_a_pipeline_is_searched_on_files_and_nobody_is_told_how_often_it_tried(tmp_path: Path) -> None:
    def search() -> PrivateSearch:
        model = LogisticRegression(options=EstimatorOptions(mechanism="output_perturbation"), feature_norm=2.0)
        steps = Pipeline([("scale", PrivateStandardScaler(bounds=(-4.0, 4.0))), ("model", model)])
        return PrivateSearch(steps, {"model__C": [0.1, 1.0]}, tries=3.0, **SETTINGS)

    table, told = frame()[[*COLUMNS, "label"]], list[tuple[int, int, int]]()
    blocks = replace(written(tmp_path, a=table[:1000], b=table[1000:]), progress=lambda *where: told.append(where))
    found, expected = search().fit(blocks, "label"), search().fit(table[list(COLUMNS)], table["label"])
    np.testing.assert_allclose(found.best_estimator_["model"].coef_, expected.best_estimator_["model"].coef_, rtol=0.0, atol=1e-9)
    assert found.best_score_ == pytest.approx(expected.best_score_, rel=0.0, abs=1e-9)
    assert list(vars(found)["feature_names_in_"]) == list(COLUMNS)
    assert privacy_of(found).guarantee == privacy_of(expected).guarantee
    assert {number for number, _, _ in told} == {1}  # the look at the table before the first try
    assert "NOT public: how many passes" in found.privacy_report_
    assert (found.predict(table[list(COLUMNS)]) == expected.predict(table[list(COLUMNS)])).all()


def test_every_record_is_on_one_side_and_a_block_that_changed_is_refused() -> None:
    features, labels, _ = records()
    features[:, 0] = np.arange(1500)
    table, _ = array_table(features, labels, blocks=7).examined(nothing_else)
    mask = np.random.default_rng(0).random(1500) < 0.3
    sides = [chosen_records(table, side).examined(lambda block: block.features[:, 0].astype(int))[1] for side in (mask, ~mask)]
    np.testing.assert_array_equal(np.concatenate(sides[0]), np.flatnonzero(mask))
    np.testing.assert_array_equal(np.concatenate(sides[1]), np.flatnonzero(~mask))
    features[1400, 1] += 1.0
    with pytest.raises(LetheError, match=r"block 6 \(.*holds other records"):
        chosen_records(table, mask).examined(nothing_else)
