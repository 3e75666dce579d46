"""Half precision: norms and sums are float32 or better, the bound holds, and gradients are those of the graph that was computed."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.errors import InputError
from lethe.train.checks.padding import AloneCheck
from lethe.train.clipping import METHODS, Clipper
from lethe.train.clipping.rules import parts
from lethe.train.clipping.unfollowed import PER_LAYER, RECORD_BY_RECORD

HALF = (torch.bfloat16, torch.float16)
MANY = 100_000


class Scale(nn.Module):
    """A parameter that belongs to no layer with a rule."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(MANY))

    def forward(self, given: Tensor) -> Tensor:
        return given.expand(-1, MANY) * self.scale


class Word(nn.Embedding):
    """A table of which each record reads one long row."""

    def __init__(self) -> None:
        super().__init__(3, MANY)

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input[:, 0].abs().clamp(max=2).long())


LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "one position": (lambda: nn.Linear(1, MANY), (1,)),
    "many positions": (lambda: nn.Linear(50, 40), (50, 50)),
    "convolution": (lambda: nn.Conv1d(20, 20, 3), (20, 250)),
    "normalisation": (lambda: nn.LayerNorm(MANY), (MANY,)),
    "embedding": (Word, (1,)),
    "bare parameter": (Scale, (1,)),
}


def length(model: nn.Module, given: Tensor, size: float, *, clip_norm: float, method: str = "clip", way: str = PER_LAYER) -> float:
    """The norm, in float64, of what one record adds, over C; its gradient is spread evenly, and `size` scales it."""
    clipper = Clipper(model, clip_norm=clip_norm, method=method, verify=False, way=way)
    with clipper.recording():
        output = model(given)
    clipper.backward((output.flatten(1).float() * size).sum(1))
    sums = clipper.take()
    assert all(tensor.dtype == torch.float64 for tensor in sums.values())
    return float(torch.cat([tensor.double().flatten() for tensor in sums.values()]).norm()) / clip_norm


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("way", [PER_LAYER, RECORD_BY_RECORD])
@pytest.mark.parametrize("name", LAYERS)
def test_parameters_in_half_precision_are_measured_in_float32(name: str, way: str, dtype: torch.dtype) -> None:
    """A hundred thousand equal numbers: a sum of their squares in bfloat16 stays at 256 of them, and the norm at a twentieth."""
    make, shape = LAYERS[name]
    torch.manual_seed(0)
    model = make().to(dtype)
    given = torch.ones(1, *shape, dtype=dtype) + 0.01 * torch.randn(1, *shape).to(dtype)
    for size in (1e-3, 1.0, 100.0):
        for method in METHODS:
            found = length(model, given, size, clip_norm=1e-3, method=method, way=way)
            assert 0.99 < found <= 1 or (method == "automatic" and found <= 1)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", HALF)
def test_norms_in_half_precision_would_exceed_the_bound(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the test above can fail."""

    def coarse(formed: Tensor) -> Tensor:
        total = torch.zeros(len(formed), dtype=dtype)
        for block in formed.flatten(1).to(dtype).square().split(8, dim=1):
            total += block.sum(1)
        return total.double()

    monkeypatch.setattr(parts, "squares_of", coarse)
    torch.manual_seed(0)
    assert length(Scale().to(dtype), torch.ones(1, 1, dtype=dtype), 1e-3, clip_norm=1e-3) > 1.5


@pytest.mark.sampled(4)
@pytest.mark.parametrize("power", [-9, -4, 0, 4, 7])
@pytest.mark.parametrize("name", LAYERS)
def test_hostile_sizes_under_autocast_stay_within_the_bound(name: str, power: int) -> None:
    """Positions of which one is huge and taken back by another, and what is left is small."""
    make, shape = LAYERS[name]
    torch.manual_seed(0)
    model = make()
    given = torch.randn(2, *shape)
    if len(shape) == 2:
        given[0] *= 10.0**power
        given[0, :, 1] = -given[0, :, 0]
    for clip_norm in (1e-6, 1.0):
        clipper = Clipper(model, clip_norm=clip_norm, method="normalise", verify=False)
        with torch.autocast("cpu", torch.bfloat16), clipper.recording():
            output = model(given)
        clipper.backward((output.float() * 10.0**power).flatten(1).sum(1), torch.tensor([True, False]))
        sums = torch.cat([tensor.double().flatten() for tensor in clipper.take().values()])
        assert bool(sums.isfinite().all())
        assert float(sums.norm()) <= clip_norm


class Product(nn.Module):
    """A layer whose input and output gradient are at hand: nothing else is rounded."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, given: Tensor, cotangents: Tensor) -> Tensor:
        return (self.layer(given).float() * cotangents).flatten(1).sum(1)


def _of_linear(given: Tensor, told: Tensor) -> Tensor:
    return torch.einsum("bto,bti->boi", told, given)


def _of_convolution(given: Tensor, told: Tensor) -> Tensor:
    return torch.einsum("bot,bitk->boik", told, given.unfold(2, 3, 1))


@pytest.mark.parametrize(
    ("layer", "given", "told", "formula"),
    [
        (lambda: nn.Linear(9, 5, bias=False), (4, 6, 9), (4, 6, 5), _of_linear),
        (lambda: nn.Conv1d(3, 5, 3, bias=False), (4, 3, 8), (4, 5, 6), _of_convolution),
    ],
)
def test_under_autocast_gradients_are_exact_to_the_numbers_that_were_multiplied(layer: Any, given: Any, told: Any, formula: Any) -> None:
    """The product is of inputs rounded to bfloat16: so is the derivative. Not rounded, they are .2 % off, and that is what plain
    autograd's own rounding of the product costs besides."""
    torch.manual_seed(0)
    model, inputs, cotangents = Product(layer()), torch.randn(*given), torch.randn(*told)
    clipper = Clipper(model, clip_norm=1e9, verify=False)
    with torch.autocast("cpu", torch.bfloat16), clipper.recording():
        losses = model(inputs, cotangents)
    clipper.backward(losses)
    found = next(iter(clipper.take().values())).double()
    exact = formula(inputs.bfloat16().double(), cotangents.bfloat16().double()).sum(0)
    assert float((found - exact).norm()) <= 1e-6 * float(exact.norm())
    assert float((formula(inputs.double(), cotangents.bfloat16().double()).sum(0) - exact).norm()) > 1e-4 * float(exact.norm())


class Adapted(nn.Module):
    """A frozen layer in bfloat16, and a small one beside it in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(8, 8).bfloat16().requires_grad_(False)
        self.down, self.up = nn.Linear(8, 2, bias=False), nn.Linear(2, 8, bias=False)

    def forward(self, given: Tensor) -> Tensor:
        return self.base(given.bfloat16()).float() + self.up(self.down(given))


def test_adapters_in_float32_on_a_base_in_bfloat16_are_exact() -> None:
    """Nothing in the adapters' own gradients is rounded to bfloat16: the same as record by record to float32's digits."""
    torch.manual_seed(0)
    model = nn.Sequential(Adapted(), nn.GELU(), Adapted())
    given = torch.randn(6, 5, 8)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    rows = []
    for record in given.split(1):
        gradient = torch.autograd.grad(functional.silu(model(record)).sum(), trained)
        rows.append(torch.cat([part.flatten() for part in gradient]).double())
    clip_norm = float(torch.stack(rows).norm(dim=1).median())
    expected = torch.stack([row * min(1.0, clip_norm / float(row.norm())) for row in rows]).sum(0)
    clipper = Clipper(model, clip_norm=clip_norm)
    with clipper.recording():
        output = model(given)
    clipper.backward(functional.silu(output).flatten(1).sum(1))
    assert float((torch.cat([tensor.flatten() for tensor in clipper.take().values()]) - expected).norm()) < 1e-5 * len(given) * clip_norm
    assert clipper.verified == "checked"
    assert not math.isclose(float(torch.stack(rows).norm(dim=1).max()), clip_norm)


class CastsItself(nn.Module):
    """As accelerate makes models: bfloat16 within, float32 outside, and no autocast around it that could be asked."""

    def __init__(self, *, half: bool) -> None:
        super().__init__()
        self.within, self.layer = half, nn.Linear(4, 3)

    def forward(self, given: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.within):
            return self.layer(given).float()


@pytest.mark.parametrize("half", [True, False])
def test_padded_batches_are_compared_in_what_the_layers_computed_in(half: bool) -> None:
    """Half a hundredth is rounding in bfloat16, and another gradient in float32."""
    torch.manual_seed(0)
    model, given = CastsItself(half=half), torch.randn(2, 4)
    check = AloneCheck(model)
    asked = {0: lambda: [model(1.005 * given[:1]).square().sum()]}
    with nullcontext() if half else pytest.raises(InputError, match="depends on how far its batch is padded"):
        check.require(lambda: [model(given)[0].square().sum()], asked)
    assert check.missing is None
    with pytest.raises(InputError, match="depends on how far its batch is padded"):
        check.require(lambda: [model(given)[0].square().sum()], {0: lambda: [model(1.5 * given[:1]).square().sum()]})
