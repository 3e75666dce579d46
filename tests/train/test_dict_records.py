"""Records that are mappings, through `fit`: the same numbers as of tuples, bit for bit."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from data_cases import NAMED, TOKENS, rows, same
from doors import arguments
from networks import CROSS_ENTROPY, IDS, RECORDS, by_hand, fit_network, flat, make_data, make_network, make_network_run, make_users_run
from processes import Processes
from torch import Tensor, nn
from torch.utils.data import DataLoader

from lethe.errors import InputError, LetheWarning, RecordByRecordWarning
from lethe.run.run import Run
from lethe.train import TrainOptions, fit
from lethe.train.data.loaders import as_source
from lethe.train.data.users import ids_of


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


def listed() -> list[dict[str, Tensor]]:
    table = by_name()
    return [{name: column[place] for name, column in table.items()} for place in range(RECORDS)]


def of_tuples(run: Run, **options: Any) -> Tensor:
    return flat(fit_network(run, **{"seed": 5, "isolation": "declared", **options}).model)


def of_mappings(run: Run, data: Any = None, **options: Any) -> Tensor:
    return flat(
        fit(
            ByName(), own_loss, by_name() if data is None else data, run, **arguments({"seed": 5, "isolation": "declared", **options})
        ).model
    )


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("design", "options"),
    [
        ("poisson", {"isolation": "checked"}),
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
    names = [f"user {one}" for one in IDS]
    rows = [{**record, "who": name} for record, name in zip(listed(), names, strict=True)]
    data: Any = {"table": {**by_name(), "who": names}, "list": rows, "loader": rows}[kind]
    options: dict[str, Any] = {"records_per_user": 2}
    expected = of_tuples(run, users=IDS, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LetheWarning)
        data = DataLoader(data) if kind == "loader" else data
        assert torch.equal(of_mappings(run, data, users="who", **options), expected)
        with pytest.raises(InputError, match="'whom' names a column, and these data, a"):
            of_mappings(run, {**by_name()} if kind == "table" else listed(), users="whom")


def test_the_users_of_a_column_are_counted_where_no_run_counts_them() -> None:
    data = {**by_name(), "who": [f"user {one}" for one in IDS]}
    words: dict[str, Any] = {"epsilon": 3.0, "delta": 1e-3, "epochs": 1, "batch_size": 2}
    fitted = fit(ByName(), own_loss, data, **words, options=TrainOptions(users="who"))
    assert (fitted.run.unit, fitted.run.records) == ("user", len(set(IDS)))


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


def with_labels_of(masked: set[int]) -> tuple[Tensor, Tensor]:
    features, label = make_data()
    label[sorted(masked)] = -100
    return features, label


def test_a_record_whose_labels_are_masked_takes_part_with_a_loss_of_zero() -> None:
    """Its gradient is 0: the sum is that of the others, and the batch is no smaller for it."""
    run, data = make_network_run("full", steps=3), with_labels_of({2, 5})
    expected = by_hand(make_network(), data, run, torch.Generator())
    torch.testing.assert_close(of_mappings(run, by_name(data)), expected, rtol=1e-6, atol=1e-9)
    with pytest.warns(UserWarning, match="every gradient was 0") as said:  # all of them: that is no training
        of_mappings(make_network_run("full", steps=3), by_name(with_labels_of(set(range(RECORDS)))))
    assert len(said) == 1


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
