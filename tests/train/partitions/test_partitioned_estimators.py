"""Estimators, preprocessing and searches on tables in blocks: numbers, costs and findings of memory, however the records are cut."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pytest
from cluster_fits import FITS, HERE, STORED, Owned
from partitioned_records import COLUMNS, SETTINGS, Payments, frame, in_blocks, model_of, records, written
from sklearn.pipeline import Pipeline

from lethe.errors import InputError, LetheError
from lethe.estimators import (
    HeavyTailedLinearRegression,
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
from lethe.estimators.choice import run_shapes
from lethe.estimators.choice.choose import choose
from lethe.estimators.inputs.facts import PublicFacts
from lethe.estimators.inputs.records import row_norms
from lethe.estimators.options import EstimatorOptions
from lethe.estimators.partitioned import tables as gathered
from lethe.estimators.partitioned.tables import BlockColumns, norms_of, nothing_else
from lethe.estimators.private_estimator import PrivateEstimator
from lethe.mechanisms.quantiles.located_quantiles import ColumnsInMemory
from lethe.partitions import array_table, dask_table
from lethe.partitions.table import PartitionedTable, chosen_records
from lethe.run.losses import LeastSquares, Logistic

FRESH: dict[str, Any] = {"seed_noise": False, "random_state": None}


def test_a_certificate_of_secret_batches_rests_on_workers_that_are_told_them() -> None:
    model = model_of(LogisticRegression, "poisson", passes=3, feature_norm=2.0, **FRESH)
    model.fit(in_blocks(2, "label"), None)
    for certified in (model.certificate_, model.statement_):
        assert "workers" in {one.name for one in certified.findings if one.evidence == "declared"}
    assert "workers" not in {one.name for one in model.fit(*records()[:2]).certificate_.findings}


def test_more_weights_than_are_factored_are_found_by_passes_that_multiply() -> None:
    rng = np.random.default_rng(0)
    features, labels = rng.standard_normal((600, 40)).astype(np.float32), rng.integers(0, 6, 600)
    model = model_of(SoftmaxRegression, "objective_perturbation", feature_norm=6.0, epsilon=8.0)
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


def test_a_gradient_that_is_too_long_counts_no_more_in_blocks() -> None:
    """Clipped to 1, one enormous record of 1500 moves a mean of them by 1/1500 at most, and no more than its share of a half."""
    features, _, amounts = records()
    settings: dict[str, Any] = {"passes": 1, "moment": 1.0, "smoothness": 1.0, "fit_intercept": False, "epsilon": 8.0}

    def fitted(row: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        changed = features.astype(np.float64)
        changed[700] = row
        table = array_table(changed, amounts, blocks=4, workers=1)
        return model_of(HeavyTailedLinearRegression, **settings).fit(table, None).coef_.copy()

    way = np.array([1.0, 0.0, 0.0, 0.0, 0.0])
    moved = np.linalg.norm(fitted(1e30 * way) - fitted(-1e30 * way))
    assert moved <= 2.0 / 1500.0 * (1.0 + 1e-9)
    assert moved > 1.99 / 1500.0


@pytest.mark.parametrize(
    "model",
    [
        model_of(PrivateMean, parameters="theory", centre=[0.0] * 5),
        model_of(HeavyTailedLinearRegression, "one_pass", parameters="theory", radius=2.0),
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


def test_a_pipeline_of_three_in_blocks_is_the_one_in_memory() -> None:
    def pipeline() -> Any:
        model = model_of(LogisticRegression, "objective_perturbation", feature_norm=1.0)
        steps = [PrivateQuantileClipper(norm_quantile=0.75, **SETTINGS), PrivatePCA(3, feature_norm=1.0, **SETTINGS), model]
        return Pipeline([(type(step).__name__, step) for step in steps])

    features, labels, _ = records()
    expected, found = pipeline().fit(features, labels), pipeline().fit(in_blocks(7, "label"), None)
    np.testing.assert_allclose(found[-1].coef_, expected[-1].coef_, rtol=0.0, atol=1e-9)
    assert privacy_of(found).guarantee == privacy_of(expected).guarantee


def test_norms_too_many_to_gather_are_counted_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels, _ = records()
    table = array_table(features, labels, blocks=3, workers=1)
    expected = model_of(LogisticRegression, "objective_perturbation", epsilon=8.0).fit(table, None)
    monkeypatch.setattr(gathered, "MOST_GATHERED", 1000)
    found = model_of(LogisticRegression, "objective_perturbation", epsilon=8.0).fit(table, None)
    assert found.feature_norm_ == expected.feature_norm_
    assert found.statement_.guarantee == expected.statement_.guarantee
    counted = norms_of(in_blocks(7, "label").examined(nothing_else)[0])
    edges = np.array([[0.0, 0.5, 1.0, 2.0]])
    np.testing.assert_array_equal(counted.counts(edges), ColumnsInMemory(row_norms(features)).counts(edges))
    assert isinstance(counted, BlockColumns)
    assert counted.shape == (len(features), 1)


def test_a_clipper_whose_last_pass_fails_releases_nothing() -> None:
    """Bounds of the columns that stayed behind would be in no statement."""

    def fail(number: int, done: int, blocks: int) -> None:
        if number == 3:  # after the look and the columns
            raise ConnectionError

    clipper = PrivateQuantileClipper(norm_quantile=0.75, **SETTINGS)
    features, _, _ = records()
    with pytest.raises(ConnectionError):
        clipper.fit(array_table(features, blocks=3, workers=1, progress=fail))
    names = {"low_", "high_", "feature_norm_", "statement_"}
    assert not names & set(vars(clipper))
    clipper.fit(features)
    before = {name: getattr(clipper, name) for name in names}
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


ESTIMATORS = {name: fit for name, fit in {**FITS, **STORED, **HERE}.items() if fit[0] is not Owned}


def released(fitted: Any) -> dict[str, Any]:
    """All numbers that a fit sets, what it costs and what that rests on."""
    model = fitted.best_estimator_ if isinstance(fitted, PrivateSearch) else fitted
    numbers = {name: value for name, value in vars(model).items() if name.endswith("_") and getattr(value, "dtype", None) == np.float64}
    run = getattr(model, "run_", None)
    steps = None if run is None else (run.batches, run.total_steps, run.noise_multiplier)
    return {**numbers, "statement": fitted.statement_, "epsilon": fitted.epsilon_, "steps": steps}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_fit_in_blocks_is_the_fit_in_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, goal = ESTIMATORS[name]
    parts = [make().fit(in_blocks(blocks, goal), None) for blocks in ((1, 7, 1600) if name in ("adassp", "clipper") else (1, 7))]
    features, labels, amounts = records()
    if name not in FITS and not name.startswith("search"):  # in memory in the stored order too, and in as many batches as blocks may have
        drawn = type(make())._randomness
        monkeypatch.setattr(type(make()), "_randomness", lambda self, count, **more: _in_order(drawn(self, count, **more), count))
        monkeypatch.setattr(run_shapes, "_MOST_BATCHES_IN_BLOCKS", 10**9)
        monkeypatch.setattr(run_shapes, "_BATCHES", tuple(count for count in run_shapes._BATCHES if count <= 20))
        run_shapes.best_shape.cache_clear()
    expected = make().fit(features, labels if goal == "label" else amounts)
    run_shapes.best_shape.cache_clear()
    for found in parts:
        one, other = released(found), released(expected)
        assert one.keys() == other.keys()
        for what, value in other.items():
            if isinstance(value, np.ndarray | np.float64):
                np.testing.assert_allclose(one[what], value, rtol=0.0, atol=1e-9, err_msg=what)
        assert (one["epsilon"], one["steps"]) == (other["epsilon"], other["steps"])
        assert one["statement"].planned == other["statement"].planned
        # Beside those of memory one more is declared where batches are secret: workers are told whose turn it is.
        assert [held for held in one["statement"].findings if held.name != "workers"] == list(other["statement"].findings)
        if hasattr(found, "transform"):
            table, rows = found.transform(in_blocks(7, goal)), expected.transform(features)
            assert isinstance(table, PartitionedTable)
            got = np.concatenate(table.examined(lambda block: block.features)[1])
            np.testing.assert_allclose(got, rows, rtol=0.0, atol=1e-6 if rows.dtype == np.float32 else 1e-9)


def _in_order(randomness: Any, count: int) -> Any:
    return replace(randomness, order=np.arange(count)) if hasattr(randomness, "order") else randomness


# Each with the passes that only look: whether the table can be used, and whose its rows are.
PAID: dict[str, tuple[Callable[[Payments, Any], Any], int]] = {
    "norm released": (lambda ledger, table: model_of(LogisticRegression, passes=2, ledger=ledger, **FRESH).fit(table, "label"), 1),
    "range and norm released": (lambda ledger, table: model_of(Ridge, "adassp", ledger=ledger, **FRESH).fit(table, "label"), 1),
    "users": (
        lambda ledger, table: model_of(LogisticRegression, "full_batch", passes=2, feature_norm=2.0, ledger=ledger, **FRESH).fit(
            table, "label", users="visits"
        ),
        2,
    ),
    "step": (lambda ledger, table: PrivateStandardScaler(ledger=ledger).fit(table), 1),
    "heavy tails": (lambda ledger, table: PrivateMean(ledger=ledger).fit(table), 1),
}


@pytest.mark.parametrize("name", PAID)
def test_nothing_is_released_that_was_not_reserved_and_a_broken_fit_stays_counted(name: str) -> None:
    fit, looks = PAID[name]
    people = frame()[[*COLUMNS, "label"]].assign(visits=lambda rows: rows.index // 3)

    def events_of(breaks: int) -> list[str]:
        told = Payments()

        def progress(number: int, done: int, blocks: int) -> None:
            if done == blocks:
                told.events.append(f"pass {number}")
            if number == breaks:
                raise ConnectionError

        made = dask_table(dd.from_pandas(people, npartitions=2), workers=1, progress=progress)
        try:
            fit(told, made)
        except ConnectionError:
            told.events.append("broken")
        return told.events

    whole = events_of(0)
    passes = sum(event.startswith("pass") for event in whole)
    looked = [f"pass {number}" for number in range(1, looks + 1)]
    assert whole[: looks + 2] == [*looked, "reserve", "start"]
    assert whole[-1] == "settle"
    assert passes > looks
    for breaks in {*range(1, looks + 2), passes}:
        events = events_of(breaks)
        assert events[-1] == "broken"
        assert not {"settle", "void"} & set(events)
        assert ("start" in events) == (breaks > looks)
