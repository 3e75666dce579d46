"""Training on users and on records that are mappings, by fit and in loops: by hand, and bit for bit as on records and tuples."""

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from data_cases import NAMED, TOKENS, rows, same
from doors import arguments
from helpers import DESIGNS
from networks import (
    CROSS_ENTROPY,
    IDS,
    RECORDS,
    USERS,
    Loop,
    by_hand,
    fit_network,
    flat,
    losses_of,
    make_data,
    make_network,
    make_network_run,
    make_users_run,
)
from processes import Processes
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import lethe
from lethe.errors import InputError, LetheWarning, RecordByRecordWarning
from lethe.run.run import Run
from lethe.train import Checkpoints, PrivacyEngine, TrainOptions, fit
from lethe.train.core.training_records import ORDER
from lethe.train.core.training_records import USERS as SAID_OF_USERS
from lethe.train.data.loaders import as_source
from lethe.train.data.users import Members, ids_of, owners_of


@pytest.mark.sampled(24)
@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("physical_size", [None, 4])
def test_users_of_one_record_are_records_bit_for_bit(design: str, physical_size: int | None) -> None:
    record = make_network_run(design, noise_multiplier=1.0)
    options: dict[str, Any] = {"seed": 5, "physical_size": physical_size}
    one = fit_network(record, **options)
    other = fit_network(record.replace(unit="user"), **{"users": np.arange(RECORDS), **options})
    assert torch.equal(flat(one.model), flat(other.model))
    certified = [lethe.certify(run, 1e-3) for run in (record, record.replace(unit="user"))]
    assert certified[0].epsilon == certified[1].epsilon
    assert certified[0].guarantee == certified[1].guarantee
    assert other.run == record.replace(unit="user", seeded=True)


@pytest.mark.sampled(24)
@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("physical_size", [None, 1, 2])
def test_training_is_the_recursion_of_users(design: str, physical_size: int | None) -> None:
    run, generators = make_users_run(design), [torch.Generator().manual_seed(3) for _ in range(2)]
    expected = by_hand(make_network(), make_data(), run, generators[0], lambda user, step: np.flatnonzero(user == IDS))
    options: dict[str, Any] = {"users": IDS, "batch_generator": generators[1], "physical_size": physical_size}
    fitted = fit_network(run, **options)
    torch.testing.assert_close(flat(fitted.model), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("physical_size", [None, 2])
def test_of_a_user_with_many_records_some_take_part(physical_size: int | None) -> None:
    def some(user: int, step: int) -> list[int]:
        records = torch.arange(RECORDS)[chosen.rows_of(slice(user, user + 1), step)[0]].tolist()
        assert set(records) <= set(np.flatnonzero(user == IDS))
        return records

    run, options = make_users_run("cyclic"), {"users": IDS, "seed": 11, "physical_size": physical_size}
    chosen = Members(owners_of(IDS), records_per_user=2, seed=11)
    fitted = fit_network(run, **{"records_per_user": 2, **options})
    expected = by_hand(make_network(), make_data(), run, torch.Generator(), some)
    torch.testing.assert_close(flat(fitted.model), expected, rtol=1e-6, atol=1e-9)
    everything = fit_network(run, **options)
    assert not torch.allclose(flat(fitted.model), flat(everything.model), rtol=1e-6)


class Augmented(Dataset[tuple[Tensor, Tensor]]):
    """Each reading of a record adds noise of its own, and is written down."""

    def __init__(self) -> None:
        self.features, self.targets = make_data()
        self.random = torch.Generator().manual_seed(0)
        self.read: list[tuple[int, Tensor]] = []

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        view = self.features[index] + torch.randn(4, dtype=torch.float64, generator=self.random)
        self.read.append((index, view))
        return view, self.targets[index]


def test_views_of_a_record_are_averaged_before_the_clip() -> None:
    run, data = make_network_run("full", steps=1), Augmented()
    fitted = fit_network(run, data=data, views=3)
    assert fitted.run == run
    read = data.read[-3 * RECORDS :]
    assert [index for index, _ in read] == [record for record in range(RECORDS) for _ in range(3)]
    views = torch.stack([view for _, view in read]), data.targets.repeat_interleave(3)
    expected = by_hand(make_network(), views, run, torch.Generator(), lambda record, step: [3 * record, 3 * record + 1, 3 * record + 2])
    torch.testing.assert_close(flat(fitted.model), expected, rtol=1e-6, atol=1e-9)


def test_training_goes_on_with_the_same_users_only(tmp_path: Path) -> None:
    def stop(step: int, steps: int) -> None:
        if step == 4:
            raise KeyboardInterrupt

    run, users = make_users_run("shuffled"), {"users": IDS, "records_per_user": 2, "seed": 6}
    expected = fit_network(run, **users)
    users["checkpoints"] = Checkpoints(folder=tmp_path / "kept", every=1)
    with pytest.raises(KeyboardInterrupt):
        fit_network(run, **users, progress=stop)
    other = np.where(IDS == 8, 7, IDS)
    other[0] = 8
    for changed in ({"users": other}, {"records_per_user": None}, {"views": 2}):
        with pytest.raises(InputError, match="other users"):
            fit_network(run, **{**users, **changed})
    again = fit_network(run, **users)
    assert again.run == expected.run
    assert again.diagnostics.steps == run.total_steps


@pytest.mark.sampled(15)
@pytest.mark.parametrize(("physical_size", "most"), [(None, None), (2, None), (1, None), (2, 2), (1, 2)])
@pytest.mark.parametrize("design", ["full", "shuffled", "random_allocation"])
def test_a_loop_trains_as_fit_does(design: str, physical_size: int | None, most: int | None) -> None:
    run = make_users_run(design, noise_multiplier=1.0)
    options: dict[str, Any] = {"seed": 5, "physical_size": physical_size, "users": IDS, "records_per_user": most}
    fitted, loop = fit_network(run, **options), Loop(run, **options)
    recorded = loop.whole()
    # Within one layer rows are added in another order where all rows of a user pass through the model together.
    torch.testing.assert_close(flat(loop.model), flat(fitted.model), rtol=0, atol=1e-13 if physical_size == 1 else 0)
    assert recorded == fitted.run
    assert {*(claim.detail for claim in SAID_OF_USERS), ORDER.detail} <= set(loop.engine.declared)


def test_without_a_run_a_batch_size_counts_users_of_an_array_or_a_column() -> None:
    model, words = make_network(), {"epsilon": 3.0, "delta": 1e-3, "epochs": 2, "batch_size": 3}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    engine = PrivacyEngine(model, optimizer, losses_of(model), make_data(), **words, options=TrainOptions(users=IDS))
    data = {**by_name(), "who": [f"user {one}" for one in IDS]}
    for run in (engine.run, fit(ByName(), own_loss, data, **words, options=TrainOptions(users="who")).run):
        assert (run.unit, run.records, run.batches, run.total_steps) == (
            "user",
            USERS,
            lethe.batches.RandomAllocation(3),
            2 * math.ceil(USERS / 3),
        )


class ByName(nn.Module):
    """The network, whose argument has a name."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = make_network()

    def forward(self, features: Tensor) -> Tensor:
        return self.inner(features)


class WithLoss(ByName):
    """The network as those of transformers are: given labels, it computes a loss itself, the batch's mean or one a record."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction

    def forward(self, features: Tensor, label: Tensor | None = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        logits = self.inner(features)
        loss = None if label is None else nn.functional.cross_entropy(logits, label, reduction=self.reduction)
        return {"loss": loss, "logits": logits}


def by_name(data: tuple[Tensor, Tensor] | None = None) -> dict[str, Tensor]:
    features, label = make_data() if data is None else data
    return {"features": features, "label": label}


def own_loss(outputs: Tensor, batch: dict[str, Tensor]) -> Tensor:
    """Takes the labels out, as many do."""
    return CROSS_ENTROPY(outputs, batch.pop("label"))


def of_tuples(run: Run, **options: Any) -> Tensor:
    return flat(fit_network(run, **{"seed": 5, "isolation": "declared", **options}).model)


def of_mappings(run: Run, data: Any = None, **options: Any) -> Tensor:
    given = {"seed": 5, "isolation": "declared", **options}
    return flat(fit(ByName(), own_loss, by_name() if data is None else data, run, **arguments(given)).model)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("design", "options"),
    [
        ("random_allocation", {"isolation": "checked"}),
        ("cyclic", {"isolation": "checked", "physical_size": 2}),
        ("full", {}),
        ("shuffled", {"physical_size": 1}),
        ("balls_in_bins", {"physical_size": 2}),
    ],
)
def test_mappings_train_as_tuples_do_bit_for_bit(design: str, options: dict[str, Any]) -> None:
    run = make_network_run(design, noise_multiplier=1.0)
    assert torch.equal(of_mappings(run, **options), of_tuples(run, **options))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["table", "list", "loader"])
def test_users_may_be_a_column_of_the_mapping(kind: str) -> None:
    run = make_users_run(noise_multiplier=1.0)
    columns: dict[str, Any] = {**by_name(), "who": [f"user {one}" for one in IDS]}
    rows = [{name: column[place] for name, column in columns.items()} for place in range(RECORDS)]
    data: Any = columns if kind == "table" else rows
    without: Any = by_name() if kind == "table" else [{name: row[name] for name in ("features", "label")} for row in rows]
    options: dict[str, Any] = {"records_per_user": 2}
    expected = of_tuples(run, users=IDS, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LetheWarning)
        data = DataLoader(data) if kind == "loader" else data
        assert torch.equal(of_mappings(run, data, users="who", **options), expected)
        with pytest.raises(InputError, match="'whom' names a column, and these data, a"):
            of_mappings(run, without, users="whom")


def shared(rank: int, run: Run, options: dict[str, Any], renamed: bool) -> Tensor:
    """Training in one of several processes."""
    model, data = ByName(), by_name()
    if renamed and rank:
        data["target"] = data.pop("label")
    fit(model, own_loss, data, run, **arguments(options))
    return flat(model)


def test_several_processes_train_as_one(processes: Processes) -> None:
    run, options = make_network_run("poisson", noise_multiplier=1.0), {"seed": 5, "physical_size": 2, "isolation": "declared"}
    alone = of_tuples(run, physical_size=2)
    for parameters in processes.run(2, shared, run, options, False):
        torch.testing.assert_close(parameters, alone, rtol=1e-9, atol=1e-12)
    for refused in processes.run(2, shared, run, options, True):
        assert "fields: not the same in all processes" in str(refused)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("physical_size", [None, 1, 3])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_without_a_loss_function_it_is_the_models_own_of_each_record_alone(physical_size: int | None, reduction: str) -> None:
    run = make_network_run("poisson", noise_multiplier=1.0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fitted = fit(WithLoss(reduction), None, by_name(), run, options=TrainOptions(seed=5, physical_size=physical_size))
    torch.testing.assert_close(flat(fitted.model), of_tuples(run), rtol=1e-6, atol=1e-9)
    alone = reduction == "mean" and physical_size != 1
    assert [one.category for one in said if one.category is RecordByRecordWarning] == ([RecordByRecordWarning] if alone else [])


@pytest.mark.parametrize(
    ("model", "loss", "data", "message"),
    [
        (ByName, None, by_name, "forward of ByName takes features: it does not take label"),
        (ByName, own_loss, lambda: {"x": make_data()[0], "label": make_data()[1]}, "it needs features"),
        (ByName, lambda outputs, batch: own_loss(outputs, batch).mean(), by_name, "losses"),
        (ByName, lambda outputs, batch: own_loss(outputs, batch) / batch["features"].abs().sum().detach(), by_name, "depends on the other"),
    ],
)
def test_what_does_not_fit_together_is_refused(model: Any, loss: Any, data: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fit(model(), loss, data(), make_network_run("cyclic", noise_multiplier=1.0))


def test_a_record_whose_labels_are_masked_takes_part_with_a_loss_of_zero() -> None:
    """Its gradient is 0: the sum is that of the others, and the batch is no smaller for it."""
    run, data = make_network_run("full", steps=3), make_data()
    data[1][[2, 5]] = -100
    expected = by_hand(make_network(), data, run, torch.Generator())
    torch.testing.assert_close(of_mappings(run, by_name(data)), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("columns", [None, ["input_ids", "label"]])
@pytest.mark.parametrize("kind", [None, "torch", "numpy", "parquet"])
def test_a_data_set_of_hugging_face_is_one(kind: str | None, columns: list[str] | None, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_list(rows(who="somebody"))
    if kind == "parquet":
        data.to_parquet(tmp_path / "rows.parquet", batch_size=4)
        data = datasets.Dataset.from_parquet(str(tmp_path / "rows.parquet"), cache_dir=str(tmp_path))
    elif columns is not None:
        same(as_source(chosen := data.with_format(kind, columns=columns)), NAMED)
        assert ids_of("label", as_source(chosen)) == [place % 3 for place in range(len(TOKENS))]
        assert ids_of("who", chosen) == ["somebody"] * len(TOKENS)
    data = data if kind == "parquet" else data.with_format(kind)
    with pytest.raises(InputError, match=r"field who cannot become a tensor: (str|str_):.*"):
        as_source(data)
    same(as_source(data.remove_columns(["who"])), NAMED)
    same(as_source(data, leave_out=("who",)), NAMED)
    with pytest.raises(InputError, match=r"of a DatasetDict, or another mapping of data sets, give one: data\['train'\]"):
        as_source(datasets.DatasetDict({"train": data}))
