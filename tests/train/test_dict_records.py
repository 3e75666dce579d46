"""Records that are mappings, through `fit` and PrivacyEngine: the same numbers as of tuples, bit for bit."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from interrupted import Killed, quick_disk
from named_records import ByName, WithLoss, by_name, listed, of_mappings, of_tuples, own_loss
from networks import CROSS_ENTROPY, flat, make_data, make_network, make_network_run, one_thread
from processes import Processes
from torch import Tensor, nn
from torch.utils.data import DataLoader

from lethe.errors import InputError, LetheWarning, RecordByRecordWarning
from lethe.run.run import Run
from lethe.train import Checkpoints, PrivacyEngine, fit
from lethe.train.data import MapStyleSource

IDS = np.array([8, 3, 3, 0, 1, 2, 3, 4, 8, 5, 6, 7, 0, 3, 3, 1, 8, 5, 3, 2, 4, 8, 0])


@pytest.fixture(autouse=True, scope="module")
def quick() -> Iterator[None]:
    with one_thread(), quick_disk():
        yield


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


@pytest.mark.sampled(6)
@pytest.mark.slow
@pytest.mark.parametrize("prefetch", [0, 3])
@pytest.mark.parametrize("source", ["list", "loader", "collate"])
def test_so_do_data_sets_and_loaders_of_mappings(source: str, prefetch: int) -> None:
    run = make_network_run("poisson", noise_multiplier=1.0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", LetheWarning)
        data = {"list": listed, "loader": loader, "collate": lambda: MapStyleSource(listed(), collate=together)}[source]()
        found = of_mappings(run, data, prefetch=prefetch)
    assert torch.equal(found, of_tuples(run, prefetch=prefetch))
    assert [str(one.message).split(":")[1] for one in said] == (
        [" of the DataLoader its data set, collate_fn and workers are used; ignored are batch_size=3, shuffle=True"]
        if source == "loader"
        else []
    )


@pytest.mark.nightly(by_day="test_so_do_data_sets_and_loaders_of_mappings")
@pytest.mark.slow
def test_a_data_set_of_hugging_face_trains_as_tuples_do() -> None:
    datasets = pytest.importorskip("datasets")
    run, (features, label) = make_network_run("poisson", noise_multiplier=1.0), make_data(torch.float32)
    table = {"features": features.tolist(), "label": label.tolist(), "who": [f"user {one}" for one in IDS]}
    data = datasets.Dataset.from_dict(table)
    options: dict[str, Any] = {"seed": 5, "isolation": "declared"}
    expected = flat(fit(make_network(torch.float32), CROSS_ENTROPY, (features, label), run, **options).model)
    for given in (data.remove_columns(["who"]), data.with_format("torch", columns=["features", "label"])):
        assert torch.equal(flat(fit(ByName().float(), own_loss, given, run, **options).model), expected)
    with pytest.raises(InputError, match="field who cannot become a tensor"):
        fit(ByName().float(), own_loss, data, run, **options)
    users = make_network_run("poisson", records=9, batches={"design": "poisson", "size": 3}, unit="user", noise_multiplier=1.0)
    of_users = flat(fit(make_network(torch.float32), CROSS_ENTROPY, (features, label), users, users=IDS, **options).model)
    assert torch.equal(flat(fit(ByName().float(), own_loss, data, users, users="who", **options).model), of_users)


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["table", "list", "loader"])
def test_users_may_be_a_column_of_the_mapping(kind: str) -> None:
    run = make_network_run("poisson", records=9, batches={"design": "poisson", "size": 3}, unit="user", noise_multiplier=1.0)
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


@pytest.mark.nightly(by_day="test_users_may_be_a_column_of_the_mapping")
@pytest.mark.slow
def test_a_users_column_that_a_collate_function_reads_is_not_given_to_the_model() -> None:
    run = make_network_run("poisson", records=9, batches={"design": "poisson", "size": 3}, unit="user", noise_multiplier=1.0)
    rows = [{**record, "who": torch.tensor(one)} for record, one in zip(listed(), IDS, strict=True)]
    data = MapStyleSource(rows, collate=together)
    assert data.fields == ("features", "label", "who")
    assert torch.equal(of_mappings(run, data, users="who"), of_tuples(run, users=IDS))
    model, without = WithLoss("none"), WithLoss("none")
    for trained, records, users in ((model, data, "who"), (without, by_name(), IDS)):  # every field goes to it, and this one must not
        fit(trained, None, records, run, users=users, seed=5, isolation="declared")
    assert torch.equal(flat(model), flat(without))


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"views": 3}, {"views": 2, "physical_size": 2}, {"ema": 0.9}])
def test_views_and_averages_are_those_of_tuples(changes: dict[str, Any]) -> None:
    run = make_network_run("cyclic", noise_multiplier=1.0)
    assert torch.equal(of_mappings(run, **changes), of_tuples(run, **changes))


def killed_and_taken_up(folder: Path, model: nn.Module, loss: Any, data: Any, again: Any = None) -> Tensor:
    """Training that is killed after its step 7 and goes on."""
    options: dict[str, Any] = {"checkpoints": Checkpoints(folder=folder, every=3), "physical_size": 4, "isolation": "declared"}

    def killing(step: int, steps: int) -> None:
        if step == 7:
            raise Killed

    run = make_network_run("poisson", steps=15)
    start = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(Killed):
        fit(model, loss, data, run, batch_generator=torch.Generator().manual_seed(3), progress=killing, **options)
    model.load_state_dict(start)
    fit(model, loss, data if again is None else again, run, batch_generator=torch.Generator().manual_seed(99), **options)
    return flat(model)


@pytest.mark.nightly(by_day="test_mappings_train_as_tuples_do_bit_for_bit")
@pytest.mark.slow
def test_training_goes_on_from_a_checkpoint_as_that_of_tuples(tmp_path: Path) -> None:
    mappings = killed_and_taken_up(tmp_path / "mappings", ByName(), own_loss, listed())
    assert torch.equal(mappings, killed_and_taken_up(tmp_path / "tuples", make_network(), CROSS_ENTROPY, make_data()))


@pytest.mark.slow
def test_training_does_not_go_on_with_other_records(tmp_path: Path) -> None:
    features, label = make_data()
    with pytest.raises(InputError, match="some records differ"):
        killed_and_taken_up(tmp_path, ByName(), own_loss, by_name(), again=by_name((features.flip(0), label)))


def shared(rank: int, run: Run, options: dict[str, Any], renamed: bool) -> tuple[Tensor, Run]:
    """Training in one of several processes."""
    model, data = ByName(), by_name()
    if renamed and rank:
        data["target"] = data.pop("label")
    fitted = fit(model, own_loss, data, run, **options)
    return flat(model), fitted.run


@pytest.mark.slow
def test_several_processes_train_as_one(processes: Processes) -> None:
    run, options = make_network_run("poisson", noise_multiplier=1.0), {"seed": 5, "physical_size": 2, "isolation": "declared"}
    found = processes.run(2, shared, run, options, False)
    alone = of_tuples(run, physical_size=2)
    for parameters, _ in found:
        assert torch.equal(parameters, found[0][0])
        assert float((parameters - alone).norm()) <= 1e-12 * float(alone.norm())
    for refused in processes.run(2, shared, run, options, True):
        assert "fields: not the same in all processes" in str(refused)


def loop(data: Any, model: nn.Module, losses: Callable[[Any], Tensor], physical_size: int | None) -> Tensor:
    engine = PrivacyEngine(make_network_run("poisson", noise_multiplier=1.0), seed=5, physical_size=physical_size)
    own = torch.optim.Adam(model.parameters())
    _, optimizer, batches = engine.make_private(module=model, optimizer=own, losses=losses, data=data)
    for batch in batches:
        engine.backward(batch)
        optimizer.step()
        optimizer.zero_grad()
    return flat(model)


@pytest.mark.nightly(by_day="test_mappings_train_as_tuples_do_bit_for_bit")
@pytest.mark.slow
@pytest.mark.parametrize("physical_size", [None, 2])
def test_a_loop_of_ones_own_is_given_mappings(physical_size: int | None) -> None:
    network, named = make_network(), ByName()
    tuples = loop(make_data(), network, lambda batch: CROSS_ENTROPY(network(batch[0]), batch[1]), physical_size)
    with pytest.warns(LetheWarning, match="ignored are batch_size=3, shuffle=True"):
        mappings = loop(loader(), named, lambda batch: own_loss(named(batch["features"]), batch), physical_size)
    assert torch.equal(tuples, mappings)


# The model's own loss.


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("physical_size", [None, 1, 3])
def test_without_a_loss_function_it_is_the_models_own_of_each_record_alone(physical_size: int | None) -> None:
    run = make_network_run("poisson", noise_multiplier=1.0)
    expected = of_tuples(run)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fitted = fit(WithLoss(), None, by_name(), run, seed=5, physical_size=physical_size)
    # Records are clipped to some 1e-11 less, a margin for sums in float64 (sum_error.py).
    torch.testing.assert_close(flat(fitted.model), expected, rtol=1e-11, atol=1e-12)
    assert fitted.report.gradients == ("fast" if physical_size == 1 else "vmap")  # alone the model's mean is the record's
    assert [one.category for one in said] == ([] if physical_size == 1 else [RecordByRecordWarning])
    by_record = fit(WithLoss("none"), None, by_name(), run, seed=5, physical_size=physical_size)
    torch.testing.assert_close(flat(by_record.model), expected, rtol=1e-11, atol=1e-12)
    assert by_record.checked == ("checked" if physical_size != 1 else fitted.checked)


class Elsewhere(WithLoss):
    """Its outputs hold another thing than a loss."""

    def __init__(self, found: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.found = found

    def forward(self, features: Tensor, label: Tensor | None = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return SimpleNamespace(loss=self.found(self.inner(features)))


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (lambda logits: None, "its outputs hold no loss: SimpleNamespace"),
        (lambda logits: 1.0, "its outputs hold no loss"),
        (lambda logits: logits, "the model's own has shape"),
        (lambda logits: logits[:1, 0].expand(2), "the model's own has shape"),
    ],
)
def test_outputs_without_a_loss_are_refused(found: Callable[[Tensor], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fit(Elsewhere(found), None, by_name(), make_network_run("cyclic", noise_multiplier=1.0))


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
