"""Convolutions."""

from typing import Any

import pytest
import torch
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from rules_oracle import check, fast_parts, folded, losses_of
from torch import Tensor, nn

from lethe.train.clip.parts.part import MaterialisedGradients
from lethe.train.clip.rules import convolution
from lethe.train.clip.rules.convolution import Correlations, Use

# torch says once per process that it copies the input then, whichever test comes first.
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")

LAYERS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
SPACES = ((9,), (7, 6), (5, 4, 4))

F64 = torch.float64


@st.composite
def layers(draw: st.DrawFn, transposed: bool) -> tuple[nn.Module, tuple[int, ...]]:
    """A layer, and the shape of a record."""
    dimensions, groups = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    options: dict[str, Any] = {
        "in_channels": groups * draw(st.integers(1, 3)),
        "out_channels": groups * draw(st.integers(1, 3)),
        "kernel_size": draw(st.integers(1, 3 if dimensions < 3 else 2)),
        "stride": draw(st.integers(1, 2)),
        "dilation": draw(st.integers(1, 2)),
        "groups": groups,
        "bias": draw(st.booleans()),
    }
    if transposed:
        options["padding"] = draw(st.integers(0, 1))
        options["output_padding"] = draw(st.integers(0, max(options["stride"], options["dilation"]) - 1))
        kind: Any = TRANSPOSED[dimensions - 1]
    else:
        options["padding"] = draw(st.sampled_from([0, 1, "valid"] + ["same"] * (options["stride"] == 1)))
        options["padding_mode"] = draw(st.sampled_from(["zeros", "circular", "reflect", "replicate"]))
        kind = LAYERS[dimensions - 1]
    torch.manual_seed(draw(st.integers(0, 99)))
    return kind(**options, dtype=F64), (options["in_channels"], *SPACES[dimensions - 1])


@pytest.mark.parametrize("memory", [2**23, 0])
@given(case=layers(False))
@settings(max_examples=examples(40))
def test_convolution(memory: int, case: tuple[nn.Module, tuple[int, ...]]) -> None:
    layer, shape = case
    check(layer, layer, torch.randn(3, *shape, dtype=F64), memory=memory)


@pytest.mark.parametrize("memory", [2**23, 0])
@given(case=layers(True))
@settings(max_examples=examples(40))
def test_transposed_convolution(memory: int, case: tuple[nn.Module, tuple[int, ...]]) -> None:
    layer, shape = case
    check(layer, layer, torch.randn(3, *shape, dtype=F64), memory=memory)


WIDE = [
    (nn.Conv2d(24, 24, 3, padding=1, dtype=F64), (24, 4, 4)),
    (nn.Conv2d(32, 32, 3, padding=1, groups=2, dtype=F64), (32, 4, 4)),
    (nn.Conv2d(16, 16, 3, padding=1, groups=16, dtype=F64), (16, 1, 1)),
    (nn.Conv2d(48, 48, 3, dtype=F64), (48, 3, 3)),
    (nn.ConvTranspose2d(24, 24, 3, dtype=F64), (24, 2, 2)),
]


@pytest.mark.parametrize(("layer", "shape"), WIDE)
@pytest.mark.parametrize("dtype", [F64, torch.float32])
def test_gradients_that_are_not_kept(layer: nn.Module, shape: tuple[int, ...], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows are taken of one record at a time, whatever is faster."""
    monkeypatch.setattr(convolution, "_WINDOWS", 1)
    monkeypatch.setattr(convolution, "_WINDOWS_AT_MOST", 1)
    batch = torch.randn(3, *shape, dtype=dtype)
    layer.to(dtype)
    part = fast_parts(layer, lambda: losses_of(layer(batch)), 3, memory=0)["weight"]
    assert isinstance(part, Correlations)
    check(layer, layer, batch, memory=0, rel=1e-9 if dtype == F64 else 1e-5)
    layer.to(F64)


OF_PLACES = [
    (nn.Conv1d(64, 64, 3, padding=1, dtype=F64), (64, 6)),
    (nn.Conv1d(64, 64, 9, stride=2, dtype=F64), (64, 25)),
    (nn.Conv1d(64, 64, 9, dilation=2, dtype=F64), (64, 25)),
    (nn.Conv2d(48, 48, 3, padding=1, dtype=F64), (48, 3, 3)),
    (nn.Conv2d(48, 48, (3, 1), padding=(1, 0), padding_mode="circular", dtype=F64), (48, 3, 2)),
    (nn.Conv2d(64, 64, 3, padding=1, dtype=F64), (64, 5, 5)),
    (nn.Conv2d(64, 64, (3, 5), stride=(2, 1), dtype=F64), (64, 9, 10)),
    (nn.Conv2d(64, 64, (5, 3), dilation=(1, 2), dtype=F64), (64, 9, 9)),
    (nn.Conv3d(96, 96, 3, padding=1, dtype=F64), (96, 3, 3, 3)),
    (nn.ConvTranspose2d(48, 48, 3, dtype=F64), (48, 3, 3)),
]


@pytest.mark.parametrize(("layer", "shape"), OF_PLACES)
@pytest.mark.parametrize("dtype", [F64, torch.float32])
def test_norms_of_products_of_places_take_no_windows(
    layer: nn.Module, shape: tuple[int, ...], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = torch.randn(3, *shape, dtype=dtype)
    layer.to(dtype)
    part = fast_parts(layer, lambda: losses_of(layer(batch)), 3, memory=0)["weight"]
    layer.to(F64)
    assert isinstance(part, Correlations)
    part.replace(lambda tensor: tensor.double())
    exact = part.rows().flatten(1).square().sum(1)
    part.replace(lambda tensor: tensor.to(dtype))
    monkeypatch.setattr(Use, "windows", None)
    torch.testing.assert_close(part.squares(), exact, rtol=1e-9, atol=0)


def test_what_is_smaller_than_its_factors_is_formed_at_once() -> None:
    layer = nn.Conv2d(3, 4, 3, padding=1)
    batch = torch.randn(3, 3, 12, 12)
    assert isinstance(fast_parts(layer, lambda: losses_of(layer(batch)), 3, memory=0)["weight"], MaterialisedGradients)


@pytest.mark.parametrize("memory", [2**23, 0])
@pytest.mark.parametrize("groups", [1, 2, 24])
def test_a_layer_that_is_used_twice(memory: int, groups: int) -> None:
    layer = nn.Conv1d(24, 24, 3, padding=1, groups=groups, dtype=F64)
    check(layer, lambda batch: layer(layer(batch).tanh()), torch.randn(3, 24, 2, dtype=F64), memory=memory)
    check(layer, lambda batch: [layer(batch), layer(batch[:, :, :2])], torch.randn(3, 24, 4, dtype=F64), memory=memory)


@pytest.mark.parametrize("memory", [2**23, 0])
def test_layers_that_share_a_weight(memory: int) -> None:
    """Whose kernels move differently."""
    layers: list[Any] = [nn.Conv1d(24, 24, 3, dtype=F64), nn.Conv1d(24, 24, 3, dilation=2, padding=1, stride=2, dtype=F64)]
    layers += [nn.ConvTranspose1d(24, 24, 3, padding=1, dtype=F64), nn.Conv1d(48, 24, 3, groups=2, padding=1, dtype=F64)]
    for layer in layers:
        layer.weight = layers[0].weight
    batch = torch.randn(3, 24, 4, dtype=F64)
    check(nn.ModuleList(layers[:3]), lambda batch: [layer(batch) for layer in layers[:3]], batch, memory=memory)
    model = nn.ModuleList([layers[0], layers[3]])
    check(model, lambda batch: [layers[0](batch), layers[3](torch.cat([batch, batch], 1))], batch, memory=memory)


@pytest.mark.parametrize("memory", [2**23, 0])
@pytest.mark.parametrize("layout", ["blocks", "interleaved"])
def test_two_rows_a_record(layout: str, memory: int) -> None:
    folded(nn.Conv1d(12, 12, 3, padding=1, dtype=F64), torch.randn(3, 2, 12, 2, dtype=F64), layout, memory=memory)
    folded(nn.ConvTranspose1d(4, 6, 3, groups=2, dtype=F64), torch.randn(3, 2, 4, 3, dtype=F64), layout, memory=memory)


@pytest.mark.parametrize("frozen", ["weight", "bias"])
def test_frozen_parameters_have_no_part(frozen: str) -> None:
    layer = nn.Conv1d(2, 3, 2, dtype=F64)
    layer.get_parameter(frozen).requires_grad_(False)
    check(layer, layer, torch.randn(3, 2, 5, dtype=F64))


def test_an_output_size_that_the_layer_does_not_have() -> None:
    layer = nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1, dtype=F64)
    check(layer, lambda batch: layer(batch, output_size=(8, 7)), torch.randn(3, 2, 4, 4, dtype=F64))


def test_channels_last() -> None:
    layer = nn.Conv2d(3, 4, 3, padding=1, dtype=F64).to(memory_format=torch.channels_last)
    check(layer, layer, torch.randn(3, 3, 5, 5, dtype=F64).to(memory_format=torch.channels_last))


def test_an_image_without_a_dimension_of_records_is_not_followed() -> None:
    layer = nn.Conv2d(2, 3, 2)

    def losses() -> Tensor:
        return torch.stack([layer(image).sum() for image in torch.randn(3, 2, 4, 4)])

    with pytest.raises(NotImplementedError, match="dimension of records"):
        fast_parts(layer, losses, 3)
