"""Linear maps, normalisations, and layers that no rule knows."""

import pytest
import torch
from rules_oracle import check, fast_parts, folded, losses_of
from torch import Tensor, nn
from torch.nn.utils import parametrizations

F64 = torch.float64


class Conv1D(nn.Module):
    """As transformers has it: a weight of shape (inputs, outputs)."""

    __module__ = "transformers.pytorch_utils"
    __qualname__ = "Conv1D"

    def __init__(self, outputs: int, inputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs, dtype=F64))
        self.bias = nn.Parameter(torch.zeros(outputs, dtype=F64))

    def forward(self, given: Tensor) -> Tensor:
        return given @ self.weight + self.bias


class Scaled(nn.Module):
    """Of its own: a parameter, a list of them and a layer within."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(4, dtype=F64))
        self.shifts = nn.ParameterList([torch.randn(4, dtype=F64), torch.randn((), dtype=F64)])
        self.inner = nn.Linear(4, 4, dtype=F64)

    def forward(self, given: Tensor, *, other: Tensor | None = None) -> tuple[Tensor, Tensor]:
        hidden = self.inner(given * self.scale + self.shifts[0]).tanh()
        return hidden * self.shifts[1], hidden if other is None else hidden + other


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(4,), (1, 4), (5, 4), (2, 3, 4), (40, 4)])
@pytest.mark.parametrize("memory", [2**23, 0])
def test_linear(shape: tuple[int, ...], bias: bool, memory: int) -> None:
    layer = nn.Linear(4, 3, bias=bias, dtype=F64)
    check(layer, layer, torch.randn(3, *shape, dtype=F64), memory=memory)
    check(layer, lambda batch: layer(input=batch), torch.randn(3, *shape, dtype=F64), memory=memory)


@pytest.mark.parametrize(("width", "positions"), [(64, 3), (8, 40)])
@pytest.mark.parametrize("memory", [2**23, 0])
def test_linear_in_float32(width: int, positions: int, memory: int) -> None:
    layer = nn.Linear(width, width)
    check(layer, layer, torch.randn(3, positions, width), memory=memory, rel=1e-5)


@pytest.mark.parametrize("shape", [(4,), (5, 4), (2, 3, 4)])
def test_a_weight_stored_the_other_way_round(shape: tuple[int, ...]) -> None:
    layer = Conv1D(3, 4)
    check(layer, layer, torch.randn(3, *shape, dtype=F64))


@pytest.mark.parametrize("layout", ["blocks", "interleaved"])
def test_two_rows_a_record(layout: str) -> None:
    batch = torch.randn(3, 2, 5, 4, dtype=F64)
    for layer in (nn.Linear(4, 3, dtype=F64), nn.LayerNorm(4, dtype=F64), nn.PReLU(5, dtype=F64)):
        folded(layer, batch, layout)


def test_records_along_the_second_dimension() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.PReLU()).double()
    for steps, layout in ((5, "blocks"), (3, "second"), (6, "second")):
        check(model, lambda batch: model(batch.transpose(0, 1)).transpose(0, 1), torch.randn(3, steps, 4, dtype=F64), layout=layout)


@pytest.mark.parametrize("layer", [nn.Linear(4, 4), nn.LayerNorm(4), nn.GroupNorm(2, 4), nn.Conv1d(4, 4, 1), nn.PReLU(4)])
def test_frozen_parameters_have_no_part(layer: nn.Module) -> None:
    layer.double()
    for name, parameter in list(layer.named_parameters())[1:]:
        for other, frozen in layer.named_parameters():
            frozen.requires_grad_(other != name)
        check(layer, layer, torch.randn(3, 4, 4, dtype=F64))
        parameter.requires_grad_(True)


NORMALISING = [
    (nn.LayerNorm(4), (4,)),
    (nn.LayerNorm(4, bias=False), (5, 4)),
    (nn.LayerNorm((5, 4), eps=0.1), (2, 5, 4)),
    (nn.RMSNorm(4), (5, 4)),
    (nn.RMSNorm((5, 4), eps=0.1), (5, 4)),
    (nn.GroupNorm(2, 4), (4,)),
    (nn.GroupNorm(2, 4), (4, 5)),
    (nn.GroupNorm(4, 4, eps=0.1), (4, 3, 2)),
    (nn.InstanceNorm1d(4, affine=True), (4, 5)),
    (nn.InstanceNorm2d(4, affine=True), (4, 3, 2)),
    (nn.InstanceNorm3d(4, affine=True, eps=0.1), (4, 3, 2, 2)),
]


@pytest.mark.parametrize(("layer", "shape"), NORMALISING)
def test_normalisation(layer: nn.Module, shape: tuple[int, ...]) -> None:
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter += torch.randn_like(parameter)
    check(layer.double(), layer, torch.randn(3, *shape, dtype=F64))
    check(layer.float(), layer, torch.randn(3, *shape), rel=1e-5)


@pytest.mark.parametrize(
    ("layer", "shape"), [(nn.BatchNorm1d(4), (4,)), (nn.BatchNorm1d(4), (4, 5)), (nn.BatchNorm2d(4, eps=0.1), (4, 3, 2))]
)
def test_statistics_that_are_kept(layer: nn.Module, shape: tuple[int, ...]) -> None:
    layer.double()
    with torch.no_grad():
        layer(torch.randn(8, *shape, dtype=F64))
    check(layer.eval(), layer, torch.randn(3, *shape, dtype=F64))


@pytest.mark.parametrize(
    "layer", [nn.InstanceNorm1d(4, affine=True, track_running_stats=True), nn.InstanceNorm1d(4, affine=True, momentum=None)]
)
def test_instances_with_statistics_that_are_kept(layer: nn.Module) -> None:
    layer.double()
    with torch.no_grad():
        layer(torch.randn(8, 4, 5, dtype=F64))
    check(layer.eval(), layer, torch.randn(3, 4, 5, dtype=F64))


def test_any_layer() -> None:
    model = Scaled()
    check(model, model, torch.randn(3, 4, dtype=F64))
    check(model, lambda batch: model(batch[0], other=batch[1]), [torch.randn(3, 5, 4, dtype=F64), torch.randn(3, 5, 4, dtype=F64)])
    check(model, lambda batch: model(batch)[1], torch.randn(3, 4, dtype=F64))


@pytest.mark.parametrize("layer", [nn.PReLU(4), nn.Bilinear(4, 4, 3), nn.LocalResponseNorm(2)])
def test_layers_without_a_rule(layer: nn.Module) -> None:
    model = nn.Sequential(nn.Linear(4, 4), layer).double()
    if isinstance(layer, nn.Bilinear):
        check(model, lambda batch: layer(model[0](batch), batch), torch.randn(3, 4, dtype=F64))
    else:
        check(model, model, torch.randn(3, 5, 4, dtype=F64)[:, :4])


def test_parametrised_layers() -> None:
    model = nn.Sequential(parametrizations.weight_norm(nn.Linear(4, 3)), parametrizations.orthogonal(nn.Linear(3, 3))).double()
    check(model, model, torch.randn(3, 4, dtype=F64))


def test_weights_that_layers_share() -> None:
    table, output = nn.Embedding(5, 4, dtype=F64), nn.Linear(4, 5, bias=False, dtype=F64)
    output.weight = table.weight
    check(nn.ModuleList([table, output]), lambda batch: output(table(batch).tanh()), torch.randint(5, (3, 6)))


ROUNDED = [
    nn.Linear(8, 8),
    nn.Conv1d(5, 8, 3),
    nn.ConvTranspose1d(5, 8, 3),
    nn.MultiheadAttention(8, 2, add_bias_kv=True, batch_first=True),
    nn.LSTM(8, 8, batch_first=True),
    nn.GRU(8, 8, batch_first=True),
]


@pytest.mark.parametrize("layer", ROUNDED)
def test_rounded_as_autocast_rounds(layer: nn.Module) -> None:
    batch = torch.randn(3, 5, 8)

    def losses() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            output = layer(batch, batch, batch) if isinstance(layer, nn.MultiheadAttention) else layer(batch)
        return losses_of(output[0] if isinstance(output, tuple) else output)

    parts = fast_parts(layer, losses, 3)
    layer.zero_grad()
    losses().sum().backward()
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None
        rows = parts[name].rows()
        assert rows.dtype == torch.float32
        # A gradient that is 0 but for rounding, such as of a key's bias, is compared with the size of the others.
        size = max(float(parameter.grad.abs().max()), 0.5)
        torch.testing.assert_close(rows.sum(0).view_as(parameter), parameter.grad, rtol=0, atol=0.04 * size)


def test_losses_that_hold_gradients_are_not_followed() -> None:
    """Such as a penalty: the gradients in a layer's output that come first are not those of the losses."""
    layer = nn.Linear(4, 1)
    batch = torch.randn(3, 4, requires_grad=True)

    def losses() -> Tensor:
        output = layer(batch)
        (slope,) = torch.autograd.grad(output.square().sum(), batch, create_graph=True)
        return output[:, 0] + slope.square().sum(1)

    with pytest.raises(RuntimeError, match="taken twice"):
        fast_parts(layer, losses, 3)
