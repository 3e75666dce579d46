"""Clipped sums in float32 agree with float64 to 1e-5 however many positions a layer has, and in whichever way they are taken."""

import math
from unittest.mock import patch

import pytest
import torch
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from per_record import TOLERANCES
from torch import Tensor, nn

from lethe.train.clipping import Clipper
from lethe.train.clipping.rules.outer_products import Shares

RECORDS = 3

# What each way of taking norms is chosen by, in outer_products.py.
WAYS = {
    "kept": Shares(0.0, 0.5),
    "in turn": Shares(math.inf, 0.0),
    "products": Shares(math.inf, math.inf),
}


class _Weighed(nn.Module):
    """A layer of which the loss is a sum with given weights: its records' gradients are known in any arithmetic."""

    def __init__(self, layer: nn.Module, weights: Tensor) -> None:
        super().__init__()
        self.layer, self.weights = layer, weights

    def forward(self, inputs: Tensor) -> Tensor:
        return (self.layer(inputs) * self.weights[: len(inputs)]).flatten(1).sum(1)


def _oracle(layer: nn.Module, inputs: Tensor, weights: Tensor) -> Tensor:
    r"""$\sum_i G_i/\|G_i\|$ in float64, a record at a time."""
    parameter = next(layer.double().parameters())
    total = torch.zeros_like(parameter)
    for record in range(len(inputs)):
        one = inputs[record : record + 1]
        output = layer(one.double() if one.is_floating_point() else one)
        (gradient,) = torch.autograd.grad((output * weights[record : record + 1].double()).sum(), parameter)
        total += gradient / gradient.norm()
    layer.float()
    return total.detach()


def _error(layer: nn.Module, inputs: Tensor, weights: Tensor) -> float:
    clipper = Clipper(_Weighed(layer, weights), clip_norm=1e-3, verify=False)
    with clipper.recording():
        losses = clipper.model(inputs)
    clipper.backward(losses)
    (told,) = clipper.take().values()
    expected = 1e-3 * _oracle(layer, inputs, weights)
    return float((told.double() - expected).norm() / expected.norm())


def _drawn(shape: tuple[int, ...], common: float, seed: int) -> Tensor:
    """Numbers of which a share is the same at all positions, as after a rectifier."""
    generator = torch.Generator().manual_seed(seed)
    same = (shape[0], *[1] * (len(shape) - 2), shape[-1])
    return torch.randn(shape, generator=generator) + common * torch.randn(same, generator=generator)


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=examples(12), deadline=None)
@given(
    positions=st.integers(1, 300),
    wide_in=st.sampled_from([1, 3, 64, 300]),
    wide_out=st.sampled_from([1, 5, 64, 400]),
    common=st.floats(0, 2),
    seed=st.integers(0, 1000),
)
def test_linear_layers_of_any_size(way: str, positions: int, wide_in: int, wide_out: int, common: float, seed: int) -> None:
    torch.manual_seed(seed)
    layer = nn.Linear(wide_in, wide_out, bias=False)
    inputs, weights = _drawn((RECORDS, positions, wide_in), common, seed), _drawn((RECORDS, positions, wide_out), 0, seed + 1)
    with patch("lethe.train.clipping.rules.outer_products.shares_at", lambda like: WAYS[way]):
        assert _error(layer, inputs, weights) <= TOLERANCES[torch.float32]


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("places", [0, math.inf], ids=["kept", "not kept"])
@settings(max_examples=examples(12), deadline=None)
@given(
    size=st.integers(3, 20),
    channels=st.sampled_from([2, 16, 64]),
    kernel=st.sampled_from([1, 3]),
    groups=st.sampled_from([1, 2]),
    common=st.floats(0, 2),
    seed=st.integers(0, 1000),
)
def test_convolutions_of_any_size(places: float, size: int, channels: int, kernel: int, groups: int, common: float, seed: int) -> None:
    torch.manual_seed(seed)
    layer = nn.Conv2d(channels, channels, kernel, padding=kernel // 2, groups=groups, bias=False)
    inputs, weights = (_drawn((RECORDS, size, size, channels), share, seed + n).movedim(-1, 1) for n, share in enumerate((common, 0.0)))
    fresh = 2**19 if places == 0 else 1
    with patch.multiple("lethe.train.clipping.rules.convolution.correlations", _PLACES=places, _FRESH=fresh):
        assert _error(layer, inputs, weights) <= TOLERANCES[torch.float32]


@pytest.mark.nightly(by_day="test_linear_layers_of_any_size")
@pytest.mark.slow
@pytest.mark.parametrize(("positions", "width"), [(128, 1024), (16, 1024), (40, 2048), (400, 1024)])
def test_large_linear_layers(positions: int, width: int) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(width, width, bias=False)
    inputs, weights = (torch.randn(RECORDS, positions, width) for _ in range(2))
    assert _error(layer, inputs, weights) <= TOLERANCES[torch.float32]


class _Tied(nn.Module):
    """One weight, at the inputs as a table and at the outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.out = nn.Embedding(500, 64), nn.Linear(64, 500, bias=False)
        self.out.weight = self.table.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.table(tokens)) / 8


def test_a_tied_embedding_at_many_positions() -> None:
    torch.manual_seed(0)
    assert _error(_Tied(), torch.randint(500, (RECORDS, 100)), torch.randn(RECORDS, 100, 500)) <= TOLERANCES[torch.float32]
