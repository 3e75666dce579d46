"""Every layer with a rule, and some without, in every situation that a rule may meet; and what a single rule has beside."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from layer_cases import (
    CASES,
    CLIP,
    F64,
    Scaled,
    added,
    case,
    check,
    clipped,
    fast_parts,
    folded,
    losses_of,
    near,
    output_of,
    truth,
)
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lethe.train.clip.clipper import Clipper
from lethe.train.clip.parts.part import MaterialisedGradients
from lethe.train.clip.rules import convolution
from lethe.train.clip.rules.convolution import Correlations, Use

# torch says once per process that it has no faster way then.
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections")


@pytest.mark.parametrize("memory", [2**23, 0])
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_records_alone_and_frozen_parameters_have_no_part(name: str, memory: int) -> None:
    layer, batch = case(name, torch.float32)
    check(layer, lambda batch: output_of(layer, batch), batch, memory=memory, rel=5e-5)
    layer, batch = case(name)
    check(layer, lambda batch: output_of(layer, batch), batch, memory=memory)
    for trained, _ in list(layer.named_parameters()) if memory else ():
        for other, parameter in layer.named_parameters():
            parameter.requires_grad_(other == trained)
        check(layer, lambda batch: output_of(layer, batch), batch)


@pytest.mark.parametrize("layout", ["blocks", "interleaved"])
@pytest.mark.parametrize(
    "name", [name for name in CASES if "cell" not in name and name not in ("a layer of its own", "attention, parametrised")]
)
def test_two_rows_a_record(name: str, layout: str) -> None:
    layer, batch = case(name, records=6)
    folded(layer, batch.unflatten(0, (3, 2)), layout)
    if isinstance(layer, nn.Conv1d | nn.ConvTranspose1d):
        folded(layer, batch.unflatten(0, (3, 2)), layout, memory=0)


@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith(("embedding", "sparse", "bag"))])
def test_layers_that_are_computed_again(name: str) -> None:
    layer, batch = case(name)
    for reentrant in (True, False):

        def outputs(batch: Tensor, reentrant: bool = reentrant) -> Any:
            return checkpoint(lambda hidden: output_of(layer, hidden), batch.clone().requires_grad_(), use_reentrant=reentrant)

        check(layer, outputs, batch)


WITHOUT = [(nn.MultiheadAttention(4, 2), (3, 4)), (nn.GRU(3, 4), (3, 3)), (nn.GRUCell(3, 4), (3,)), (nn.Conv2d(2, 3, 2), (2, 4, 4))]


def test_a_record_without_its_dimension_and_losses_that_hold_gradients_are_not_followed() -> None:
    """Such as a penalty: the gradients in a layer's output that come first are not those of the losses."""
    for layer, shape in WITHOUT:
        with pytest.raises(NotImplementedError, match="dimension of records"):
            fast_parts(layer, lambda: torch.stack([output_of(layer, torch.randn(shape)).sum() for _ in range(3)]), 3)  # noqa: B023
    linear, batch = nn.Linear(4, 1), torch.randn(3, 4, requires_grad=True)

    def losses() -> Tensor:
        output = linear(batch)
        (slope,) = torch.autograd.grad(output.square().sum(), batch, create_graph=True)
        return output[:, 0] + slope.square().sum(1)

    with pytest.raises(RuntimeError, match="taken twice"):
        fast_parts(linear, losses, 3)


def test_records_along_the_second_dimension() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.PReLU()).double()
    for steps, layout in ((5, "blocks"), (3, "second"), (6, "second")):
        check(model, lambda batch: model(batch.transpose(0, 1)).transpose(0, 1), torch.randn(3, steps, 4, dtype=F64), layout=layout)


def test_how_a_layer_is_called() -> None:
    linear, table, scaled = nn.Linear(4, 3, dtype=F64), nn.Embedding(5, 4, dtype=F64), Scaled().double()
    batch = torch.randn(3, 5, 4, dtype=F64)
    check(linear, lambda batch: linear(input=batch), batch)
    check(table, lambda batch: table(input=batch.int()), torch.randint(5, (3, 6)))
    check(scaled, lambda batch: scaled(batch[0], other=batch[1]), [batch, batch.flip(0)])
    check(scaled, lambda batch: scaled(batch)[1], batch)
    bilinear = nn.ModuleList([nn.Linear(4, 4), nn.Bilinear(4, 4, 3)]).double()
    check(bilinear, lambda batch: bilinear[1](bilinear[0](batch), batch), batch[:, 0])
    transposed = nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1, dtype=F64)
    check(transposed, lambda batch: transposed(batch, output_size=(8, 7)), torch.randn(3, 2, 4, 4, dtype=F64))
    last = nn.Conv2d(3, 4, 3, padding=1, dtype=F64).to(memory_format=torch.channels_last)
    check(last, last, torch.randn(3, 3, 5, 5, dtype=F64).to(memory_format=torch.channels_last))
    small, pictures = nn.Conv2d(3, 4, 3, padding=1), torch.randn(3, 3, 12, 12)  # its gradients are smaller than their factors
    assert isinstance(fast_parts(small, lambda: losses_of(small(pictures)), 3, memory=0)["weight"], MaterialisedGradients)


def test_weights_that_layers_share_and_positions_that_are_the_same_for_all_records() -> None:
    table, output, bag = nn.Embedding(5, 4, dtype=F64), nn.Linear(4, 5, bias=False, dtype=F64), nn.EmbeddingBag(5, 4, dtype=F64)
    output.weight = bag.weight = table.weight
    check(nn.ModuleList([table, output]), lambda batch: output(table(batch).tanh()), torch.randint(5, (3, 6)))
    check(nn.ModuleList([table, bag]), lambda batch: [bag(batch), table(batch)], torch.randint(5, (3, 6)))
    layer = nn.ModuleList([nn.Embedding(7, 4), nn.Embedding(4, 4), nn.Linear(4, 2)]).double()
    for length, layout in ((4, "blocks"), (3, "shared")):
        places = torch.arange(length)
        check(
            layer,
            lambda batch, places=places: layer[2]((layer[0](batch) + layer[1](places)).tanh()),
            torch.randint(7, (3, length)),
            layout=layout,
        )


def test_the_first_of_equal_rows_of_a_bag_is_the_largest() -> None:
    layer = nn.EmbeddingBag(4, 3, mode="max", dtype=F64)
    with torch.no_grad():
        layer.weight[1] = layer.weight[2]
    check(layer, layer, torch.tensor([[2, 1, 1], [1, 2, 0], [1, 1, 1]]))


WIDE = [
    (nn.Conv2d(24, 24, 3, padding=1), (24, 4, 4)),
    (nn.Conv2d(32, 32, 3, padding=1, groups=2), (32, 4, 4)),
    (nn.Conv2d(16, 16, 3, padding=1, groups=16), (16, 1, 1)),
    (nn.ConvTranspose2d(24, 24, 3), (24, 2, 2)),
]
OF_PLACES = [
    (nn.Conv1d(64, 64, 3, padding=1), (64, 6)),
    (nn.Conv1d(64, 64, 9, stride=2), (64, 25)),
    (nn.Conv2d(48, 48, (3, 1), padding=(1, 0), padding_mode="circular"), (48, 3, 2)),
    (nn.Conv2d(64, 64, (5, 3), dilation=(1, 2)), (64, 9, 9)),
    (nn.Conv3d(96, 96, 3, padding=1), (96, 3, 3, 3)),
    (nn.ConvTranspose2d(48, 48, 3), (48, 3, 3)),
]


def part_of(layer: nn.Module, batch: Tensor) -> Correlations:
    part = fast_parts(layer, lambda: losses_of(layer(batch)), 3, memory=0)["weight"]
    assert isinstance(part, Correlations)
    return part


@pytest.mark.parametrize("dtype", [F64, torch.float32])
@pytest.mark.parametrize(("layer", "shape"), WIDE)
def test_convolutions_take_windows_of_one_record_at_a_time(
    layer: nn.Module, shape: tuple[int, ...], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convolution, "_WINDOWS", 1)
    monkeypatch.setattr(convolution, "_WINDOWS_AT_MOST", 1)
    batch = torch.randn(3, *shape, dtype=dtype)
    part_of(layer.to(dtype), batch)
    check(layer, layer, batch, memory=0, rel=1e-9 if dtype == F64 else 1e-5)


@pytest.mark.parametrize("dtype", [F64, torch.float32])
@pytest.mark.parametrize(("layer", "shape"), OF_PLACES)
def test_norms_of_products_of_places_take_no_windows(
    layer: nn.Module, shape: tuple[int, ...], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = part_of(layer.to(dtype), torch.randn(3, *shape, dtype=dtype))
    part.replace(lambda tensor: tensor.double())
    exact = part.rows().flatten(1).square().sum(1)
    part.replace(lambda tensor: tensor.to(dtype))
    monkeypatch.setattr(Use, "windows", None)
    torch.testing.assert_close(part.squares(), exact, rtol=1e-9, atol=0)


@pytest.mark.parametrize("memory", [2**23, 0])
def test_convolutions_that_are_used_twice_or_share_a_weight(memory: int) -> None:
    batch = torch.randn(3, 24, 4, dtype=F64)
    for groups in (1, 2, 24):
        layer = nn.Conv1d(24, 24, 3, padding=1, groups=groups, dtype=F64)
        check(layer, lambda batch, layer=layer: layer(layer(batch).tanh()), batch[:, :, :2], memory=memory)
        check(layer, lambda batch, layer=layer: [layer(batch), layer(batch[:, :, :2])], batch, memory=memory)
    layers: list[Any] = [nn.Conv1d(24, 24, 3), nn.Conv1d(24, 24, 3, dilation=2, padding=1, stride=2)]
    layers += [nn.ConvTranspose1d(24, 24, 3, padding=1), nn.Conv1d(48, 24, 3, groups=2, padding=1)]  # kernels that move differently
    model = nn.ModuleList(layers).double()
    for layer in layers:
        layer.weight = layers[0].weight
    check(model[:3], lambda batch: [layer(batch) for layer in layers[:3]], batch, memory=memory)
    pair = nn.ModuleList([layers[0], layers[3]])
    check(pair, lambda batch: [layers[0](batch), layers[3](torch.cat([batch, batch], 1))], batch, memory=memory)


class Holder(nn.Module):
    """Gives its own parameter, or a view of it."""

    def __init__(self, view: Callable[[Tensor, int], Tensor]) -> None:
        super().__init__()
        self.weight, self.view = nn.Parameter(torch.randn(1, 4, dtype=F64)), view

    def forward(self, records: int) -> Tensor:
        return self.view(self.weight, records)


@pytest.mark.parametrize(
    "view",
    [
        lambda weight, records: weight,
        lambda weight, records: weight.expand(records, -1),
        lambda weight, records: weight[0],
        lambda weight, records: (weight, 2 * weight),
    ],
    ids=["itself", "expanded", "a row", "with another"],
)
def test_a_layer_that_gives_its_own_parameter(view: Callable[[Tensor, int], Tensor]) -> None:
    """Whose parameter stays one: no history is written into it, nor is it counted as written."""
    torch.manual_seed(0)
    model = nn.ModuleList([Holder(view), nn.Linear(4, 2, dtype=F64)])
    holder, head = model
    version = holder.weight._version

    def losses(batch: Tensor) -> Tensor:
        held = holder(len(batch))
        return head((batch + (sum(held) if isinstance(held, tuple) else held)).tanh()).square().sum(1)

    batch = torch.randn(5, 4, dtype=F64)
    near(added(model, batch, clipper=Clipper(model, losses, CLIP)), clipped(truth(model, batch, losses=losses)))
    assert holder.weight.is_leaf
    assert holder.weight._version == version
