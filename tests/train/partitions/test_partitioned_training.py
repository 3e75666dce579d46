"""fit_linear and fit_head on tables in blocks: the numbers, the run and the certificate of the same training in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pytest
import torch
from doors import fit_head, fit_linear
from partitioned_records import COLUMNS, Payments, frame, in_blocks, records, written
from torch import nn

import lethe
from lethe.errors import HypothesisError, InputError
from lethe.partitions import array_table, dask_table, parquet_table
from lethe.run.losses import Huber, LeastSquares, Logistic, Softmax
from lethe.train import Linear, TrainOptions, fit

LOGISTIC = Logistic(feature_norm=1.0, intercept=True)
DESIGNS = {
    "full": lethe.batches.Full(),
    "cyclic": lethe.batches.Cyclic(70),
    "shuffled_once": lethe.batches.ShuffledOnce(100),
    "poisson": lethe.batches.Poisson(100),
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


def backbone(kind: torch.dtype) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8, dtype=kind), nn.Tanh()).requires_grad_(False)


def a_head(kind: torch.dtype) -> nn.Linear:
    torch.manual_seed(1)
    return nn.Linear(8, 2, dtype=kind)


@pytest.mark.parametrize(("kind", "near"), [(torch.float64, 1e-9), (torch.float32, 1e-6)])
def test_a_head_on_blocks_is_the_head_in_memory(kind: torch.dtype, near: float) -> None:
    features, labels, _ = records()
    inputs = features.astype(str(kind).removeprefix("torch."))
    run = a_run(loss=Softmax(feature_norm=1.0, classes=2, intercept=True))
    plain, data = a_head(kind), (torch.from_numpy(inputs), torch.from_numpy(labels))
    expected = fit_head(backbone(kind), plain, data, run, seed=1, physical_size=100)
    for blocks in (1, 7):
        head, frozen = a_head(kind), backbone(kind)
        found = fit_head(frozen, head, array_table(inputs, labels, blocks=blocks, workers=2), run, seed=1, physical_size=100)
        torch.testing.assert_close(head.weight, plain.weight, rtol=0.0, atol=near)
        torch.testing.assert_close(head.bias, plain.bias, rtol=0.0, atol=near)
        assert (found.run, found.checked, found.declared) == (expected.run, expected.checked, expected.declared)
        assert found.model[0] is frozen
        assert found.model[2] is head
        assert lethe.certify(found, delta=1e-5).guarantee == lethe.certify(expected, delta=1e-5).guarantee
    stored = array_table(backbone(kind)(data[0]).numpy(), labels, blocks=3)
    fit_head(nn.Identity(), head := a_head(kind), stored, run, seed=1)
    torch.testing.assert_close(head.weight, plain.weight, rtol=0.0, atol=near)


class Meeting(nn.Module):
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows - rows.mean(dim=0)


class MeetingLater(nn.Module):
    """Keeps records apart but in batches of 44, such as the last block ends in."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows - rows.mean(dim=0) if len(rows) == 44 else rows


class Locked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows


class Infinite(nn.Module):
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.where(rows == rows[-1, -1], torch.inf, rows)


def head_on(module: nn.Module, table: Any) -> Any:
    head = nn.Linear(5, 1, bias=False)
    before = head.weight.detach().clone()
    try:
        return fit_head(module, head, table, a_run(loss=Logistic(feature_norm=1.0)), seed=1)
    finally:
        assert torch.equal(head.weight, before)


def later() -> Any:
    features, labels, _ = records()
    return dask_table(da.from_array(features, chunks=((600, 600, 300), 5)), da.from_array(labels, chunks=((600, 600, 300),)))


@pytest.mark.parametrize(
    ("attempt", "kind", "words"),
    [
        (lambda: head_on(Meeting(), in_blocks(3, "label")), HypothesisError, r"block 0 \(.*the features of some records change when"),
        (lambda: head_on(MeetingLater(), later()), HypothesisError, r"partition 2: .*the features of some records change when"),
        (lambda: head_on(Locked(), in_blocks(3, "label")), InputError, "backbone: cannot be copied"),
        (lambda: head_on(Infinite(), in_blocks(3, "label")), InputError, r"block 0 \(.*features\[\d+, \d\]: got inf"),
        (lambda: head_on(nn.Linear(5, 4).requires_grad_(False), in_blocks(3, "label")), InputError, r"backbone: gave .*\(256, 4\)"),
    ],
)
def test_a_backbone_that_cannot_be_used_on_blocks_is_refused_and_the_head_is_as_it_was(
    attempt: Callable[[], Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        attempt()


def with_label(value: Any) -> Any:
    features, labels, _ = records()
    odd = np.array(labels, dtype=float)
    odd[1400] = value
    return array_table(features, odd, blocks=3)


def with_nan() -> Any:
    features, labels, _ = records()
    odd = features.copy()
    odd[700, 2] = np.nan
    return array_table(odd, labels, blocks=3)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "another design": (
        lambda: fit_linear(a_run(lethe.batches.Shuffled(100)), in_blocks(2, "label")),
        "got shuffled; on a table in blocks batches are full, cyclic, shuffled_once, poisson",
    ),
    "another number": (
        lambda: fit_linear(a_run().replace(records=1400), in_blocks(2, "label")),
        "records: the run says 1400; the table in blocks has 1500",
    ),
    "no targets": (lambda: fit_linear(a_run(), array_table(records()[0])), "y: it needs the targets"),
    "no class": (lambda: fit_linear(a_run(), with_label(2.0)), r"block 2 \(.*targets\[400\] = 2; it needs a class"),
    "half a class": (lambda: fit_linear(a_run(), with_label(0.5)), r"block 2 \(.*targets\[400\] = 0\.5"),
    "a target that is NaN": (lambda: fit_linear(a_run(), with_label(np.nan)), r"block 2 \(.*column 'y': row 400 holds nan"),
    "a feature that is NaN": (lambda: fit_linear(a_run(), with_nan()), r"block 1 \(.*column 2: row 200 holds nan"),
    "a network": (lambda: fit(nn.Linear(5, 2), nn.MSELoss(reduction="none"), in_blocks(2, "label"), a_run(clip_norm=1.0)), "data: got"),
    "prediction": (
        lambda: fit_linear(a_run(), in_blocks(2, "label"), seed=1).model.predict(in_blocks(2, "label")),
        "features: got PartitionedTable, a table in blocks",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_trained_on_in_blocks_is_refused_by_name(case: str) -> None:
    attempt, words = REFUSED[case]
    with pytest.raises(InputError, match=words):
        attempt()


def test_more_records_than_the_driver_draws_for_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lethe.train.linear.blocks.MOST_DRAWN", 1000)
    with pytest.raises(InputError, match="poisson batches draw a number for each in one place, of at most 1000"):
        fit_linear(a_run(DESIGNS["poisson"]), in_blocks(2, "label"))
    fit_linear(a_run(DESIGNS["full"]), in_blocks(2, "label"))


def test_arithmetic_elsewhere_than_where_blocks_are_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Linear, "arithmetic", lambda described: (torch.float64, torch.device("cuda")))
    with pytest.raises(InputError, match="device: got cuda; a table in blocks is computed where its blocks are read, on the CPU"):
        fit_linear(a_run(), in_blocks(2, "label"))


def test_what_was_reserved_is_given_back_where_a_block_cannot_be_used() -> None:
    spender = Payments()
    with pytest.raises(InputError, match="row 200 holds nan"):
        fit_linear(a_run(), with_nan(), ledger=spender)
    assert spender.events == ["reserve", "void"]
    fit_linear(a_run(DESIGNS["full"]), in_blocks(2, "label"), ledger=spender)
    assert spender.events[2:] == ["reserve", "start", "settle"]


def test_an_interrupt_ends_the_training_and_leaves_the_head_as_it_was() -> None:
    def interrupt(number: int, done: int, blocks: int) -> None:
        if number == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        head_on(nn.Identity(), replace(in_blocks(3, "label"), progress=interrupt))


def test_files_that_are_listed_twice_are_refused(tmp_path: Path) -> None:
    frame(20).to_parquet(tmp_path / "a.parquet")
    (tmp_path / "b.parquet").symlink_to(tmp_path / "a.parquet")
    (tmp_path / "c.parquet").hardlink_to(tmp_path / "a.parquet")
    for paths in (["a", "a"], ["a", "b"], ["a", "c"]):
        with pytest.raises(InputError, match=r"\.parquet: is listed twice.*its records would count twice"):
            parquet_table([tmp_path / f"{name}.parquet" for name in paths])
    with pytest.raises(InputError, match="is listed twice, as"):
        parquet_table(tmp_path)
    with pytest.raises(InputError, match=r"columns: got .*; each needs to be named once"):
        parquet_table(tmp_path / "a.parquet", columns=["age", "age"])
