"""Records that are mappings and cannot be used, or not measured: refused by name, or without weight in what others release."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from named_records import ByName, by_name, listed, of_mappings, of_tuples, own_loss
from networks import CROSS_ENTROPY, RECORDS, flat, make_data, make_network, make_network_run, one_thread
from torch import Tensor

from lethe.errors import InputError
from lethe.train import fit
from lethe.train.core.samplers import draw_batches


@pytest.fixture(autouse=True, scope="module")
def quick() -> Iterator[None]:
    with one_thread():
        yield


def with_labels_of(masked: set[int]) -> dict[str, Tensor]:
    table = by_name()
    table["label"] = table["label"].clone()
    table["label"][sorted(masked)] = -100
    return table


@pytest.mark.slow
def test_a_record_whose_labels_are_masked_takes_part_with_a_loss_of_zero() -> None:
    """Its gradient is 0: the sum is that of the others, and the batch is no smaller for it."""
    run = make_network_run("full", steps=3)
    found = of_mappings(run, with_labels_of({2, 5}))
    model = make_network()
    parameters, (features, label) = list(model.parameters()), make_data()
    for _ in range(run.total_steps):
        total = [torch.zeros_like(parameter) for parameter in parameters]
        for record in set(range(RECORDS)) - {2, 5}:
            one = slice(record, record + 1)
            gradient = torch.autograd.grad(CROSS_ENTROPY(model(features[one]), label[one]).sum(), parameters)
            scale = min(1.0, 0.4 / float(torch.cat([part.flatten() for part in gradient]).norm()))
            total = [before + scale * part for before, part in zip(total, gradient, strict=True)]
        with torch.no_grad():
            for parameter, part in zip(parameters, total, strict=True):
                parameter -= 0.5 * part / RECORDS
    torch.testing.assert_close(found, flat(model), rtol=1e-10, atol=1e-12)
    with pytest.warns(UserWarning, match="every gradient was 0") as said:  # all of them: that is no training
        of_mappings(make_network_run("full", steps=3), with_labels_of(set(range(RECORDS))))
    assert len(said) == 1


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("physical_size", [None, 1, 4])
def test_a_record_whose_loss_is_nan_contributes_nothing_and_changes_nothing_of_the_others(physical_size: int | None) -> None:
    """The sums are those of the others alone, bit for bit those of a loss that is 0 there."""

    def nan_at(record: Tensor, number: float) -> Callable[[Tensor, dict[str, Tensor]], Tensor]:
        def loss(outputs: Tensor, batch: dict[str, Tensor]) -> Tensor:
            there = (batch["features"] == record).all(1)
            return CROSS_ENTROPY(outputs, batch["label"]) * torch.ones(len(there), dtype=torch.float64).masked_fill(there, number)

        return loss

    run, record = make_network_run("poisson", noise_multiplier=1.0), make_data()[0][4]
    assert any(4 in torch.arange(RECORDS)[batch] for batch in draw_batches(run, torch.Generator().manual_seed(3)))
    found = [
        flat(
            fit(
                ByName(),
                nan_at(record, number),
                by_name(),
                run,
                batch_generator=torch.Generator().manual_seed(3),
                noise_generator=torch.Generator().manual_seed(4),
                physical_size=physical_size,
            ).model
        )
        for number in (float("nan"), 0.0)
    ]
    assert torch.equal(*found)


@pytest.mark.nightly(by_day="test_training_to_which_nothing_contributed_says_so_and_not_how_many_did")
@pytest.mark.slow
def test_where_no_record_contributes_it_is_said_and_not_how_many_there_were() -> None:
    table = by_name()
    table["features"] = torch.full_like(table["features"], float("nan"))
    with pytest.warns(UserWarning, match="no record contributed to any") as said:
        fitted = fit(ByName(), own_loss, table, make_network_run("poisson", noise_multiplier=1.0, steps=12))
    assert fitted.report.contributed is False
    assert len([one for one in said if "no record contributed" in str(one.message)]) == 2  # early, and at the end
    assert not any(str(RECORDS) in str(one.message) for one in said)


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("physical_size", [None, 1, 2])
def test_empty_batches_take_their_noisy_step(physical_size: int | None) -> None:
    run = make_network_run(batches={"design": "poisson", "size": 1}, steps=12, noise_multiplier=1.0)
    assert 0 in [len(batch) for batch in draw_batches(run, torch.Generator().manual_seed(5)) if isinstance(batch, Tensor)]
    options = {"seed": None, "batch_generator": torch.Generator().manual_seed(5)}
    noise = {"noise_generator": torch.Generator().manual_seed(6)}
    found = of_mappings(run, listed(), physical_size=physical_size, **options, **noise)
    options = {"seed": None, "batch_generator": torch.Generator().manual_seed(5)}
    noise = {"noise_generator": torch.Generator().manual_seed(6)}
    assert torch.equal(found, of_tuples(run, physical_size=physical_size, **options, **noise))


def test_parts_that_disagree_in_length_are_named() -> None:
    features, label = make_data()
    with pytest.raises(InputError, match=r"differ in their number of records \(features: 23, label: 22\)"):
        of_mappings(make_network_run(), {"features": features, "label": label[1:]})
    uneven = [{"features": features[place, : 4 - place % 2], "label": label[place]} for place in range(RECORDS)]
    with pytest.raises(InputError, match=r"field features has shape \(3,\) in record 1 of a batch"):
        of_mappings(make_network_run("cyclic"), uneven)


def test_a_loss_of_targets_is_told_to_take_them_out_of_the_batch() -> None:
    with pytest.raises(InputError, match=r"(?s)targets, a mapping of .*loss\(outputs, batch\[name\]\).*one of .*label"):
        fit(ByName(), CROSS_ENTROPY, by_name(), make_network_run())
