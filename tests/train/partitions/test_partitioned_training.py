"""Linear models and heads on tables in blocks, with weights and users that are columns: numbers, run and certificate of memory."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import torch
from doors import fit_head, fit_linear
from partitioned_records import COLUMNS, Payments, frame, in_blocks, model_of, owned, records, written
from torch import nn

import lethe
from lethe.errors import InputError, LetheError
from lethe.estimators import Lasso, LogisticRegression, Ridge
from lethe.estimators.partitioned.records import BlockRecords, PreparedRows, users_in_blocks
from lethe.estimators.partitioned.tables import as_numbers, nothing_else, standardised, transformed
from lethe.partitions import array_table, dask_table
from lethe.partitions.table import chosen_records
from lethe.run.losses import Huber, LeastSquares, Logistic, Softmax
from lethe.train import Linear, TrainOptions, fit

LOGISTIC = Logistic(feature_norm=1.0, intercept=True)
DESIGNS = {
    "full": lethe.batches.Full(),
    "cyclic": lethe.batches.Cyclic(70),
    "shuffled_once": lethe.batches.ShuffledOnce(100),
    "shuffled": lethe.batches.Shuffled(100),
    "poisson": lethe.batches.Poisson(100, truncate_at=104),
    "random_allocation": lethe.batches.RandomAllocation(100),
    "without_replacement": lethe.batches.WithoutReplacement(100),
}


def a_run(batches: Any = DESIGNS["cyclic"], *, loss: Any = LOGISTIC, **more: Any) -> lethe.Run:
    settings = {"passes": 2, "step_size": 0.5, "noise_multiplier": 1.0, "release": "last", "neighbours": "replace_one", **more}
    return lethe.Run(records=1500, batches=batches, loss=loss, **settings)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("design", DESIGNS)
def test_a_training_in_blocks_is_the_one_in_memory(design: str) -> None:
    features, labels, _ = records()
    run = a_run(DESIGNS[design])
    expected = fit_linear(run, features, labels, seed=1)
    for blocks in (1, 7):
        found = fit_linear(run, in_blocks(blocks, "label"), seed=1)
        np.testing.assert_allclose(found.model.weights, expected.model.weights, rtol=0.0, atol=1e-12)
        np.testing.assert_allclose(found.model.intercept, expected.model.intercept, rtol=0.0, atol=1e-12)
        assert (found.run, found.diagnostics, found.checked) == (expected.run, expected.diagnostics, expected.checked)
        memory, inside = (lethe.certify(one, delta=1e-5) for one in (expected, found))
        assert inside.guarantee == memory.guarantee
        # Beside those of memory one more is declared where batches are secret: workers are told whose turn it is.
        assert [one for one in inside.findings if one.name != "workers"] == list(memory.findings)
        assert [str(one.evidence) for one in inside.findings if one.name == "workers"] == ["declared"] * bool(run.batches.secret)


SHAPES: dict[str, tuple[lethe.Run, str, float]] = {
    "clipped": (a_run(clip_norm=0.3, release="all"), "label", 1e-12),
    "envelope": (a_run(DESIGNS["full"], clip_norm=0.3, clip_method="envelope"), "label", 1e-9),
    "softmax": (a_run(loss=Softmax(feature_norm=2.0, classes=2), noise_at="pass_ends"), "label", 1e-12),
    "least squares, ridge": (
        a_run(loss=LeastSquares(feature_norm=1.0, residual_bound=5.0), step_size=0.1, regulariser={"kind": "ridge", "strength": 0.1}),
        "amount",
        1e-12,
    ),
    "Huber": (a_run(loss=Huber(feature_norm=1.0, residual_bound=1.0), step_size=0.1), "amount", 1e-12),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("shape", SHAPES)
def test_other_losses_and_clip_methods_agree_with_memory(shape: str) -> None:
    run, goal, near = SHAPES[shape]
    features, labels, amounts = records()
    expected = fit_linear(run, features, labels if goal == "label" else amounts, seed=2)
    found = fit_linear(run, in_blocks(7, goal), seed=2)
    np.testing.assert_allclose(found.model.weights, expected.model.weights, rtol=0.0, atol=near)
    assert found.run == expected.run


def test_single_precision_agrees_as_far_as_it_reaches_and_tables_come_in_every_form(tmp_path: Path) -> None:
    run, table = a_run(DESIGNS["full"], steps=2, passes=None), frame()[[*COLUMNS, "label"]]
    features, labels, _ = records()
    single = fit_linear(run, in_blocks(7, "label"), dtype="float32", seed=1).model
    np.testing.assert_allclose(single.weights, fit_linear(run, features, labels, dtype="float32", seed=1).model.weights, atol=1e-6)
    np.save(tmp_path / "X.npy", features)
    np.save(tmp_path / "y.npy", labels)
    expected = fit_linear(run, features, labels, seed=1).model.weights
    pair = da.from_array(features, chunks=(400, 5)), da.from_array(labels, chunks=400)
    for data in (
        (written(tmp_path, a=table[:700], b=table[700:]), "label"),
        (array_table(tmp_path / "X.npy", tmp_path / "y.npy", blocks=3),),
        pair,
        (dd.from_pandas(table, npartitions=3), "label"),
    ):
        np.testing.assert_allclose(fit_linear(run, *data, seed=1).model.weights, expected, rtol=0.0, atol=1e-12)
    found = fit(Linear(), None, in_blocks(2, "label"), run, options=TrainOptions(seed=1))
    np.testing.assert_allclose(found.model.weights, expected, rtol=0.0, atol=1e-12)


def backbone_and_head(kind: torch.dtype) -> tuple[nn.Module, nn.Linear]:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8, dtype=kind), nn.Tanh()).requires_grad_(False), nn.Linear(8, 2, dtype=kind)


@pytest.mark.parametrize(("kind", "near"), [(torch.float64, 1e-9), (torch.float32, 1e-6)])
def test_a_head_on_blocks_is_the_head_in_memory(kind: torch.dtype, near: float) -> None:
    features, labels, _ = records()
    inputs = features.astype(str(kind).removeprefix("torch."))
    run = a_run(loss=Softmax(feature_norm=1.0, classes=2, intercept=True))
    (backbone, plain), data = backbone_and_head(kind), (torch.from_numpy(inputs), torch.from_numpy(labels))
    expected = fit_head(backbone, plain, data, run, seed=1, physical_size=100)
    for blocks in (1, 7):
        frozen, head = backbone_and_head(kind)
        found = fit_head(frozen, head, array_table(inputs, labels, blocks=blocks, workers=2), run, seed=1, physical_size=100)
        torch.testing.assert_close(head.weight, plain.weight, rtol=0.0, atol=near)
        torch.testing.assert_close(head.bias, plain.bias, rtol=0.0, atol=near)
        assert (found.run, found.checked, found.declared) == (expected.run, expected.checked, expected.declared)
        assert found.model[0] is frozen
        assert found.model[2] is head
        assert lethe.certify(found, delta=1e-5).guarantee == lethe.certify(expected, delta=1e-5).guarantee
    stored, (_, head) = array_table(backbone(data[0]).numpy(), labels, blocks=3), backbone_and_head(kind)
    fit_head(nn.Identity(), head, stored, run, seed=1)
    torch.testing.assert_close(head.weight, plain.weight, rtol=0.0, atol=near)


def test_what_was_reserved_is_given_back_where_a_block_cannot_be_used() -> None:
    spender, (features, labels, _) = Payments(), records()
    features[700, 2] = np.nan
    with pytest.raises(InputError, match="row 200 holds nan"):
        fit_linear(a_run(), array_table(features, labels, blocks=3), ledger=spender)
    assert spender.events == ["reserve", "void"]
    fit_linear(a_run(DESIGNS["full"]), in_blocks(2, "label"), ledger=spender)
    assert spender.events[2:] == ["reserve", "start", "settle"]


def test_an_interrupt_ends_the_training_and_leaves_the_head_as_it_was() -> None:
    def interrupt(number: int, done: int, blocks: int) -> None:
        if number == 3:
            raise KeyboardInterrupt

    head, run = nn.Linear(5, 1, bias=False), a_run(loss=Logistic(feature_norm=1.0))
    before = head.weight.detach().clone()
    with pytest.raises(KeyboardInterrupt):
        fit_head(nn.Identity(), head, replace(in_blocks(3, "label"), progress=interrupt), run, seed=1)
    assert torch.equal(head.weight, before)


FITS: dict[str, tuple[Callable[[], Any], str, dict[str, str]]] = {
    "users": (partial(model_of, LogisticRegression, "full_batch", passes=3, feature_norm=2.0), "label", {"users": "person"}),
    "weights": (
        partial(model_of, LogisticRegression, "full_batch", passes=3, max_weight=4.0, feature_norm=2.0),
        "label",
        {"sample_weight": "weight_of"},
    ),
    "users and weights": (
        partial(model_of, Ridge, passes=3, batches="full", max_weight=4.0, target_bound=5.0, feature_norm=2.0),
        "amount",
        {"users": "person", "sample_weight": "weight_of"},
    ),
    "users, sparse": (
        partial(model_of, Lasso, "full_batch", passes=2, alpha=0.01, target_bound=5.0, feature_norm=2.0),
        "amount",
        {"users": "person"},
    ),
}


@pytest.mark.parametrize("name", FITS)
def test_users_and_weights_of_blocks_are_those_of_memory(name: str, tmp_path: Path) -> None:
    make, goal, beside_them = FITS[name]
    people = owned(frame()[[*COLUMNS, goal]])
    given = {argument: people[column] for argument, column in beside_them.items()}
    unused = [column for column in ("person", "weight_of") if column not in beside_them.values()]
    expected = make().fit(people[list(COLUMNS)], people[goal], **given)
    used = people.drop(columns=unused)
    for blocks in (written(tmp_path, a=used[:700], b=used[700:]), dd.from_pandas(used, npartitions=1)):
        found = make().fit(blocks, goal, **beside_them)
        np.testing.assert_allclose(found.coef_, expected.coef_, rtol=0.0, atol=1e-9)
        np.testing.assert_allclose(found.intercept_, expected.intercept_, rtol=0.0, atol=1e-9)
        assert (found.statement_.guarantee, found.statement_.findings) == (expected.statement_.guarantee, expected.statement_.findings)
        assert (found.statement_.unit, found.n_samples_seen_) == (expected.statement_.unit, expected.n_samples_seen_)
        assert list(found.feature_names_in_) == list(COLUMNS)
        assert found.certificate_.run == expected.certificate_.run


def test_all_rows_of_a_user_together_move_the_sum_by_no_more_than_one_record() -> None:
    """Rows of the first user pull in one direction with all their might; without the shares they would by five times the bound."""
    people = owned(frame()[[*COLUMNS, "label"]])
    people["person"] = people["person"].map("user {}".format)
    hers = people["person"] == people["person"][0]
    people.loc[hers, list(COLUMNS)] = np.float32(100.0)
    people.loc[hers, "label"] = 1

    def gradient(rows: pd.DataFrame) -> tuple[Any, int]:
        made = dd.from_pandas(rows.drop(columns="weight_of"), npartitions=4, sort=False)
        blocks, _ = dask_table(made, workers=1).with_target("label").with_beside(users="person").examined(nothing_else)
        loss = Logistic(feature_norm=1.0)
        prepared = PreparedRows(targets=as_numbers, loss=loss, feature_norm=1.0, intercept=False, users=users_in_blocks(blocks, 1.0))
        found = BlockRecords(blocks, prepared)
        with pytest.raises(LetheError, match="a batch of some users"):
            found.gradient_sum(np.zeros((5, 1)), slice(0, 100))
        return found.gradient_sum(np.zeros((5, 1)), slice(0, len(found))), len(found)

    (whole, users), (without, fewer) = gradient(people), gradient(people[~hers])
    assert (users, fewer) == (300, 299)
    moved = float(np.linalg.norm(whole - without))
    assert 0.999 * 0.5 < moved <= 0.5  # the slope of the logistic loss at 0, on rows of norm 1


def named(**columns: str) -> Any:
    """A table whose weights or users were named where it was made."""
    people = dd.from_pandas(owned(frame()[[*COLUMNS, "label"]]), npartitions=2)
    return dask_table(people, workers=1).with_target("label").with_beside(**columns)


def test_weights_stay_known_where_records_are_chosen_or_transformed() -> None:
    given = named(weights="weight_of").with_beside(users="person")
    assert (given.read.roles, given.columns) == ({"weights", "users", "targets"}, COLUMNS)
    found, _ = given.examined(nothing_else)
    same = partial(standardised, low=np.zeros(5), high=np.ones(5), mean=np.zeros(5), scale=np.ones(5))
    for made in (chosen_records(found, np.arange(1500) % 2 == 0), transformed(given, same, COLUMNS)):
        assert made.read.roles >= {"weights", "users"}
        with pytest.raises(InputError, match="it needs a number from 0 to max_weight = 1"):
            users_in_blocks(made.examined(nothing_else)[0], 1.0)


@pytest.mark.parametrize(("kind", "bound"), [(np.float32, 0.1), (np.float16, 0.3)])
def test_a_weight_is_compared_with_its_bound_as_it_is_divided_by_it(kind: Any, bound: float) -> None:
    """Of a narrower type NumPy rounds the bound to it: .3 in half precision is above .3 by 1.6e-4 of it."""
    people = dd.from_pandas(frame()[["age", "label"]].assign(weight_of=np.full(1500, bound, kind)), npartitions=2)
    found, _ = dask_table(people).with_target("label").with_beside(weights="weight_of").examined(nothing_else)
    with pytest.raises(InputError, match=r"row 0 holds 0\.[13]000[\d]+; it needs a number from 0 to max_weight"):
        users_in_blocks(found, bound)


def test_a_user_that_changes_between_passes_is_noticed() -> None:
    people = owned(frame()[[*COLUMNS, "label"]]).drop(columns="weight_of")
    told: list[int] = []

    def changed(part: pd.DataFrame) -> pd.DataFrame:
        told.append(1)
        return part.assign(person=part["person"].where(np.arange(len(part)) > 0, len(told)))

    made = dd.from_pandas(people, npartitions=1).map_partitions(changed, meta=people[:0])
    told.clear()
    with pytest.raises(LetheError, match="partition 0: holds other records"):
        model_of(Ridge, target_bound=5.0, feature_norm=2.0).fit(made, "label", users="person")
