"""What clipped sums keep, in all three ways: parts, orders, groups, units, methods, what is not finite; and what the fast way follows."""

import warnings
from contextlib import nullcontext

import pytest
import torch
from layer_cases import CLIP, F64, RECORDS, Model, added, batch_of, clipped, flat, near, truth
from layer_cases import mean_losses_of as losses_of
from torch import Tensor, nn

from lethe.errors import InputError, RecordByRecordWarning
from lethe.train.clip.clipper import Clipper
from lethe.train.clip.groups import METHODS, Group

WAYS = ("fast", "vmap", "alone")


@pytest.mark.parametrize("way", WAYS)
def test_the_sum_is_that_of_records_alone_and_losses_come_back_one_a_record(way: str) -> None:
    model, batch = Model(way), batch_of()
    rows, counted = truth(model, batch), torch.tensor([True, False, True, True, False, False, True])
    assert bool((rows.norm(dim=1) > CLIP).any())
    near(added(model, batch, way=way), clipped(rows))
    near(added(model, batch, clip=1e9), rows.sum(0))
    near(added(model, batch, way=way, counted=counted), clipped(rows[counted]))
    clipper = Clipper(model, losses_of(model))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecordByRecordWarning)
        given = clipper.add(batch)
    near(given, torch.cat([losses_of(model)(batch[record : record + 1]) for record in range(RECORDS)]).detach())
    assert not given.requires_grad


def test_taking_the_sums_begins_anew_and_parameters_are_frozen_and_freed_between_steps() -> None:
    model = Model()
    clipper = Clipper(model, losses_of(model), CLIP)
    assert not any(tensor.any() for tensor in clipper.take().values())
    assert (clipper.measured, clipper.contributed) == (None, None)
    for frozen in ((model.mix.weight, model.scale), (), (model.table.weight,)):
        for parameter in model.parameters():
            parameter.requires_grad_(not any(parameter is other for other in frozen))
        clipper.add(batch_of())
        sums = clipper.take()
        assert list(sums) == [parameter for parameter in model.parameters() if parameter.requires_grad]
        near(flat(sums), clipped(truth(model, batch_of())))
        assert not any(tensor.requires_grad for tensor in sums.values())
    assert (clipper.measured, clipper.contributed) == (True, True)
    assert clipper.add(batch_of(0)).shape == (0,)
    assert not any(tensor.any() for tensor in clipper.take().values())


@pytest.mark.parametrize("way", WAYS)
def test_each_group_is_clipped_by_itself(way: str) -> None:
    model, batch = Model(way), batch_of()
    groups = (Group(parameters=("mix.*",), clip_norm=0.05), Group(parameters=("*",), clip_norm=0.4))
    rows, first = truth(model, batch), torch.zeros(0, dtype=torch.bool)
    for name, parameter in model.named_parameters():
        first = torch.cat([first, torch.full((parameter.numel(),), name.startswith("mix"))])
    expected = clipped(rows * first, 0.05) + clipped(rows * ~first, 0.4)
    near(added(model, batch, clip=groups, way=way), expected)
    with pytest.raises(InputError, match="belongs to no group"):
        Clipper(model, losses_of(model), groups[:1])


@pytest.mark.parametrize("method", METHODS)
def test_each_method_is_what_it_says(method: str) -> None:
    model, batch = Model(), batch_of()
    rows = truth(model, batch)
    norms = rows.norm(dim=1, keepdim=True)
    factors = {"clip": (CLIP / norms).clamp(max=1), "normalise": CLIP / norms, "automatic": CLIP / (norms + 0.01)}
    near(added(model, batch, method=method), (rows * factors[method]).sum(0))


UNITS = [[0, 3], [1], [2, 4, 5], [6]]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("memory", [None, 0])
def test_parts_of_a_batch_add_up_in_any_order_and_units_are_clipped_by_the_gradient_of_their_mean(way: str, memory: int | None) -> None:
    model, batch = Model(way), batch_of()
    whole = added(model, batch, gradient_memory=memory)
    near(added(model, batch[:3], batch[3:4], batch[4:], gradient_memory=memory), whole)
    near(added(model, batch[torch.tensor([4, 2, 6, 0, 1, 5, 3])], gradient_memory=memory), whole)
    near(added(model, batch, way=way, units=UNITS, gradient_memory=memory), clipped(truth(model, batch, UNITS)))
    near(added(model, batch, units=UNITS, clip=1e9), truth(model, batch, UNITS).sum(0))
    near(added(model, batch, units=[[record] for record in range(RECORDS)]), whole)
    near(added(model, batch, units=UNITS[:2]), clipped(truth(model, batch, UNITS[:2])))  # rows of no unit do not count


@pytest.mark.parametrize(("way", "fails"), [("fast", False), ("fast", True), ("vmap", False), ("alone", False)])
def test_nothing_is_left_on_the_model(way: str, fails: bool) -> None:
    model = nn.ModuleDict({"model": Model(way), "recurrent": nn.LSTM(6, 6, batch_first=True).to(F64)})
    inner = model["model"]
    before = [parameter.grad for parameter in model.parameters()]
    mark = inner.scale.grad = torch.full_like(inner.scale, 3.0)

    def losses(tokens: Tensor) -> Tensor:
        hidden = model["recurrent"](inner.table(tokens))[0]
        if fails and len(tokens) > 1:
            raise MemoryError
        return losses_of(inner)(tokens) + hidden.square().mean((1, 2))

    clipper = Clipper(model, losses, CLIP)
    with warnings.catch_warnings(), pytest.raises(MemoryError) if fails else nullcontext():
        warnings.simplefilter("ignore", RecordByRecordWarning)
        clipper.add(batch_of())
    assert inner.scale.grad is mark
    assert bool((mark == 3.0).all())
    inner.scale.grad = None
    assert [parameter.grad for parameter in model.parameters()] == before
    assert all(parameter.requires_grad for parameter in model.parameters())
    for module in model.modules():
        hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks)
        assert not any(hooks)
        assert "forward" not in vars(module)
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.mark.parametrize("isolation", ["checked", "enforced", "declared"])
@pytest.mark.parametrize("place", ["records", "positions", "losses"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_contributes_nothing_and_the_others_as_without_it(isolation: str, place: str, value: float) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2)).double()
    records, offsets = torch.randn(5, *([6] if place == "positions" else []), 3, dtype=F64), torch.zeros(5, dtype=F64)
    counted = torch.arange(5) < 4 if place == "losses" else None

    def taken(first: int) -> tuple[Tensor, set[str]]:
        clipper = Clipper(model, lambda batch: model(batch[0]).flatten(1).square().mean(1) + batch[1], 0.3, isolation=isolation)
        clipper.add((records[first:], offsets[first:]), counted=None if counted is None else counted[first:])
        return flat(clipper.take()), clipper.ways

    expected, ways = taken(2)
    wrong = offsets if place == "losses" else records
    wrong[:2] = value
    found, found_ways = taken(0)
    assert float(expected.abs().max()) > 1e-3
    assert torch.allclose(found, expected, rtol=1e-12, atol=1e-15)
    assert found_ways == ways
    wrong[:] = value
    assert not taken(0)[0].any()


def test_a_way_that_was_left_is_said_once() -> None:
    model = Model("alone")
    clipper = Clipper(model, losses_of(model), CLIP)
    with pytest.warns(RecordByRecordWarning, match="record by record") as told:
        clipper.add(batch_of())
    assert len([one for one in told if issubclass(one.category, RecordByRecordWarning)]) == 1
    clipper.add(batch_of())  # a second warning would be an error
    assert clipper.ways == {"alone"}


def test_an_error_that_comes_and_goes_is_no_reason_to_leave_a_way() -> None:
    model, failed = Model(), list[int]()

    def losses(tokens: Tensor) -> Tensor:
        if len(tokens) > 1 and not failed:
            failed.append(1)
            raise RuntimeError("out of memory, this once")
        return losses_of(model)(tokens)

    clipper = Clipper(model, losses, CLIP)
    with pytest.raises(RuntimeError, match="this once"):
        clipper.add(batch_of())
    clipper.add(batch_of())
    assert clipper.ways == {"fast"}
    near(flat(clipper.take()), clipped(truth(model, batch_of())))
