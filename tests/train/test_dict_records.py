"""Records that are mappings, through `fit` and PrivacyEngine: the same numbers as of tuples, bit for bit."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from doors import arguments
from named_records import ByName, WithLoss, by_name, listed, of_mappings, of_tuples, own_loss
from networks import CROSS_ENTROPY, IDS, RECORDS, by_hand, flat, make_data, make_network, make_network_run, make_users_run
from processes import Processes
from torch import Tensor, nn
from torch.utils.data import DataLoader

from lethe.errors import InputError, LetheWarning, RecordByRecordWarning
from lethe.run.run import Run
from lethe.train import PrivacyEngine, TrainOptions, fit
from lethe.train.core.samplers import draw_batches


def together(records: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([record[name] for record in records]) for name in records[0]}


def loader() -> DataLoader[Any]:
    return DataLoader(listed(), batch_size=3, shuffle=True, collate_fn=together)  # pyright: ignore[reportArgumentType]


@pytest.mark.sampled(6)
@pytest.mark.slow
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
@pytest.mark.slow
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


@pytest.mark.slow
def test_several_processes_train_as_one(processes: Processes) -> None:
    run, options = make_network_run("poisson", noise_multiplier=1.0), {"seed": 5, "physical_size": 2, "isolation": "declared"}
    alone = of_tuples(run, physical_size=2)
    for parameters in processes.run(2, shared, run, options, False):
        torch.testing.assert_close(parameters, alone, rtol=1e-9, atol=1e-12)
    for refused in processes.run(2, shared, run, options, True):
        assert "fields: not the same in all processes" in str(refused)


@pytest.mark.nightly(by_day="test_mappings_train_as_tuples_do_bit_for_bit")
@pytest.mark.slow
@pytest.mark.parametrize("physical_size", [None, 2])
def test_a_loop_of_ones_own_is_given_mappings(physical_size: int | None) -> None:
    def trained(model: nn.Module, losses: Callable[[Any], Tensor], data: Any) -> Tensor:
        optimizer = torch.optim.Adam(model.parameters())
        engine = PrivacyEngine(
            model,
            optimizer,
            losses,
            data,
            make_network_run("poisson", noise_multiplier=1.0),
            options=TrainOptions(seed=5, physical_size=physical_size),
        )
        batches = engine.batches()
        for batch in batches:
            engine.backward(batch)
            optimizer.step()
            optimizer.zero_grad()
        return flat(model)

    network, named = make_network(), ByName()
    tuples = trained(network, lambda batch: CROSS_ENTROPY(network(batch[0]), batch[1]), make_data())
    with pytest.warns(LetheWarning, match="of the DataLoader are ignored"):
        mappings = trained(named, lambda batch: CROSS_ENTROPY(named(batch["features"]), batch["label"]), loader())
    assert torch.equal(tuples, mappings)


@pytest.mark.sampled(3)
@pytest.mark.slow
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


def anything(**given: Tensor) -> Tensor:
    return given["features"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("model", "loss", "data", "message"),
    [
        (ByName, None, by_name, "forward of ByName takes features: it does not take label"),
        (ByName, own_loss, lambda: {"x": make_data()[0], "label": make_data()[1]}, "it needs features"),
        (make_network, own_loss, by_name, "forward of Sequential takes input: it needs input"),
        (make_network, None, make_data, r"loss: got NoneType; it needs a function of \(outputs, targets\)"),
        (ByName, "cross entropy", by_name, "loss: got str"),
        (ByName, lambda outputs, batch: own_loss(outputs, batch).mean(), by_name, "losses"),
        (ByName, lambda outputs, batch: own_loss(outputs, batch) / len(batch), by_name, ""),
        (ByName, lambda outputs, batch: own_loss(outputs, batch) / batch["features"].abs().sum().detach(), by_name, "depends on the other"),
    ],
)
def test_what_does_not_fit_together_is_refused(model: Any, loss: Any, data: Any, message: str) -> None:
    if not message:  # a public number
        fit(model(), loss, data(), make_network_run("cyclic"))
        return
    with pytest.raises(InputError, match=message):
        fit(model(), loss, data(), make_network_run("cyclic", noise_multiplier=1.0))


def with_labels_of(masked: set[int]) -> tuple[Tensor, Tensor]:
    features, label = make_data()
    label[sorted(masked)] = -100
    return features, label


@pytest.mark.slow
def test_a_record_whose_labels_are_masked_takes_part_with_a_loss_of_zero() -> None:
    """Its gradient is 0: the sum is that of the others, and the batch is no smaller for it."""
    run, data = make_network_run("full", steps=3), with_labels_of({2, 5})
    expected = by_hand(make_network(), data, run, torch.Generator())
    torch.testing.assert_close(of_mappings(run, by_name(data)), expected, rtol=1e-6, atol=1e-9)
    with pytest.warns(UserWarning, match="every gradient was 0") as said:  # all of them: that is no training
        of_mappings(make_network_run("full", steps=3), by_name(with_labels_of(set(range(RECORDS)))))
    assert len(said) == 1


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("physical_size", [None, 1, 2])
def test_empty_batches_take_their_noisy_step(physical_size: int | None) -> None:
    run = make_network_run(batches={"design": "poisson", "size": 1}, steps=12, noise_multiplier=1.0)
    assert 0 in [len(batch) for batch in draw_batches(run, torch.Generator().manual_seed(5)) if isinstance(batch, Tensor)]

    def generators() -> dict[str, Any]:
        made = (torch.Generator().manual_seed(seed) for seed in (5, 6))
        return {"seed": None, **dict(zip(("batch_generator", "noise_generator"), made, strict=True))}

    found = of_mappings(run, listed(), physical_size=physical_size, **generators())
    assert torch.equal(found, of_tuples(run, physical_size=physical_size, **generators()))
