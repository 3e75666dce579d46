import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from per_record import gradients_of_records, norms_of, squares
from torch import Tensor, nn

from lethe.errors import InputError
from lethe.train.clipping import METHODS, Clipper, Group
from lethe.train.clipping.groups import clip_weights

EVERYTHING = ("*",)


@pytest.mark.slow
@given(
    squared=st.floats(0, 1e30, allow_nan=False),
    clip_norm=st.floats(1e-6, 1e6),
    method=st.sampled_from(sorted(METHODS)),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_no_factor_takes_a_norm_above_the_bound(squared: float, clip_norm: float, method: str, dtype: torch.dtype) -> None:
    group = Group(parameters=EVERYTHING, clip_norm=clip_norm)
    for stored in (squared, squared * (1 - 60 * torch.finfo(dtype).eps)):  # sums of squares that came out too small
        weight = float(clip_weights(torch.tensor([stored], dtype=torch.float64), group, METHODS[method], numbers=10, dtype=dtype).to(dtype))
        assert weight * math.sqrt(squared) <= clip_norm


@pytest.mark.slow
@pytest.mark.sampled(5)
@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.parametrize("scale", [1e-25, 1e-12, 1.0, 1e12])
def test_a_record_alone_adds_at_most_the_bound_in_exact_arithmetic(method: str, scale: float) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(30, 40), nn.Tanh(), nn.Linear(40, 5))
    clipper = Clipper(model, clip_norm=0.3, method=method, verify=False)
    for _ in range(20):
        with clipper.recording():
            output = model(torch.randn(1, 30))
        clipper.backward(output.sum(1) * scale)
        exact = math.fsum(entry**2 for tensor in clipper.take().values() for entry in tensor.double().flatten().tolist())
        assert exact <= 0.3**2
        if method == "normalise" and scale > 1e-20:
            assert exact >= (0.3 * (1 - 1e-3)) ** 2


@pytest.mark.parametrize("method", sorted(METHODS))
def test_records_without_gradient_add_nothing(method: str) -> None:
    model = nn.Linear(3, 2, bias=False)
    clipper = Clipper(model, method=method, verify=False)
    with clipper.recording():
        output = model(torch.zeros(2, 3))
    clipper.backward(output.sum(1))
    assert all((tensor == 0).all() for tensor in clipper.take().values())


def test_groups_are_clipped_each_to_its_norm() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    batch = torch.randn(6, 4, dtype=torch.float64)
    gradients = gradients_of_records(model, batch)
    first = {p: rows for p, rows in gradients.items() if p in {model[0].weight, model[0].bias}}
    rest = {p: rows for p, rows in gradients.items() if p not in first}
    norms = [norms_of(first), norms_of(rest)]
    groups = [
        Group(parameters=("0.*",), clip_norm=float(norms[0].median())),
        Group(parameters=EVERYTHING, clip_norm=float(norms[1].median())),
    ]
    clipper = Clipper(model, clip_norm=groups)
    with clipper.recording():
        output = model(batch)
    clipper.backward(squares(output))
    sums = clipper.take()
    for members, norm, group in zip((first, rest), norms, groups, strict=True):
        for parameter, rows in members.items():
            expected = torch.tensordot((group.clip_norm / norm).clamp(max=1.0), rows, dims=1)
            assert torch.allclose(sums[parameter], expected, rtol=1e-10, atol=1e-12)
    assert clipper.last_norms is not None
    assert torch.allclose(clipper.last_norms, torch.stack(norms, dim=1), rtol=1e-12)
    assert clipper.bound == pytest.approx(math.hypot(groups[0].clip_norm, groups[1].clip_norm), rel=1e-15)
    assert clipper.bound >= math.hypot(groups[0].clip_norm, groups[1].clip_norm)


def test_only_clipping_is_a_projection() -> None:
    assert {name for name, method in METHODS.items() if method.projection} == {"clip"}


@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, True, "1", None, [], [1.0], torch.tensor(1.0)])
def test_what_is_no_norm_is_refused(value: Any) -> None:
    with pytest.raises(InputError, match="clip_norm"):
        Clipper(nn.Linear(1, 1), clip_norm=value)


def test_parameters_outside_all_groups_are_refused() -> None:
    with pytest.raises(InputError, match="bias is trained and belongs to no group"):
        Clipper(nn.Linear(1, 1), clip_norm=[Group(parameters=("weight",), clip_norm=1.0)])
    with pytest.raises(InputError, match="tuple of names"):
        Group(parameters="weight", clip_norm=1.0)  # pyright: ignore[reportArgumentType]


def test_unknown_methods_are_refused() -> None:
    with pytest.raises(InputError, match="clip, normalise, automatic"):
        Clipper(nn.Linear(1, 1), method="median")


class Poisoned(nn.Module):
    """Layers after which one record overflows, in the activations or in the gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.last = nn.Conv1d(2, 4, 3), nn.GroupNorm(2, 4), nn.Linear(4, 3)

    def forward(self, given: Tensor) -> Tensor:
        return self.last(torch.tanh(self.norm(self.conv(given))).mean(2))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("poison", [math.nan, math.inf])
@pytest.mark.parametrize("place", ["input", "loss"])
def test_a_record_that_is_not_finite_adds_nothing_and_changes_no_other(poison: float, place: str) -> None:
    torch.manual_seed(0)
    model = Poisoned().double()
    batch = torch.randn(5, 2, 7, dtype=torch.float64)
    factors = torch.ones(5, dtype=torch.float64)
    clean = Clipper(model, clip_norm=0.4, verify=False)
    others = [0, 1, 3, 4]
    with clean.recording():
        output = model(batch[others])
    clean.backward(squares(output))
    if place == "input":
        batch[2] = poison
    else:
        factors[2] = poison
    clipper = Clipper(model, clip_norm=0.4)
    with clipper.recording():
        output = model(batch)
    clipper.backward(squares(output) * factors)
    expected = clean.take()
    for parameter, tensor in clipper.take().items():
        assert torch.allclose(tensor, expected[parameter], rtol=1e-12, atol=1e-14)


def test_a_group_that_is_nothing_but_rounding_is_not_normalised() -> None:
    """A bias before a normalisation has no gradient but rounding, which differs with the records beside it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(2, 4, 3), nn.GroupNorm(4, 4), nn.Flatten(), nn.Linear(4 * 6, 3)).double()
    groups = (Group(parameters=("0.bias",), clip_norm=1.0), Group(parameters=("*",), clip_norm=1.0))
    inputs, targets = torch.randn(9, 2, 8, dtype=torch.float64), torch.arange(9) % 3

    clipper = Clipper(model, clip_norm=groups, method="normalise", verify=False)
    with clipper.recording():
        outputs = model(inputs)
    clipper.backward(nn.functional.cross_entropy(outputs, targets, reduction="none"))
    sums = clipper.take()
    assert float(sums[model[0].bias].norm()) < 1e-2  # up to 9 C where rounding is brought to norm C
    assert float(sums[model[0].weight].norm()) > 0.1
