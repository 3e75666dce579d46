"""Every layer, at any shape, in any arithmetic and division of a batch: the sums are those of single records."""

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from per_record import gradients_of_records, norms_of, squares
from torch import Tensor, nn

from lethe.train.clipping import METHODS, Clipper, Group

# Relative to the sum of the clipped norms, against an oracle in float64. A factor is made smaller by 32 roundings, 3.8e-6 in float32,
# and by as many more where gradients are not formed: 7.9e-6 at most in thousands of examples.
ALLOWED = {torch.float64: 1e-10, torch.float32: 1e-5}

# The forward pass rounds too, and a layer may make much of that: two positions that nearly agree, normalised. How much is told by a
# nudge of every input and parameter by one unit of rounding, up or down at random, in float64. The model's operations, some ten one
# after another, round as often.
NUDGES, OPERATIONS = 3, 16

LONG = 6  # the longest lead, and so the longest sequence


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model around one layer, and its input for some records and some number of positions.

    Args:
        layer: of a generator of choices.
        given: (records, positions) -> the shape of the input.
        tokens: whether the input is whole numbers below this; 0: real numbers.
    """

    layer: Callable[[st.DataObject], nn.Module]
    given: Callable[[int, int], tuple[int, ...]]
    tokens: int = 0


class Attention(nn.Module):
    def __init__(self, heads: int, weights: bool) -> None:
        super().__init__()
        self.layer, self.weights = nn.MultiheadAttention(4, heads, batch_first=True), weights

    def forward(self, given: Tensor) -> Tensor:
        return self.layer(given, given.flip(1), given, need_weights=self.weights)[0]


class Recurrent(nn.Module):
    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, given: Tensor) -> Tensor:
        return self.layer(given)[0]


class Bare(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale, self.matrix = nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(4, 3))

    def forward(self, given: Tensor) -> Tensor:
        return torch.tanh(given * self.scale) @ self.matrix


def convolution(kinds: dict[int, type[nn.Module]], dimensions: int) -> Callable[[st.DataObject], nn.Module]:
    def made(data: st.DataObject) -> nn.Module:
        options = {
            "kernel_size": data.draw(st.integers(1, 3)),
            "stride": data.draw(st.integers(1, 2)),
            "groups": data.draw(st.sampled_from([1, 2])),
            "dilation": data.draw(st.integers(1, 2)),
            "bias": data.draw(st.booleans()),
        }
        if "Transpose" in kinds[dimensions].__name__:
            return kinds[dimensions](2, 4, padding=data.draw(st.integers(0, 1)), **options)
        mode = data.draw(st.sampled_from(["zeros", "circular", "reflect", "replicate"]))
        return kinds[dimensions](2, 4, padding=data.draw(st.integers(1, 2)), padding_mode=mode, **options)

    return made


PLAIN: dict[int, type[nn.Module]] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED: dict[int, type[nn.Module]] = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}


def space(dimensions: int) -> Callable[[int, int], tuple[int, ...]]:
    return lambda records, positions: (records, 2, *[4 + positions % 3] * dimensions)


def recurrent(kind: type[nn.LSTM] | type[nn.GRU]) -> Callable[[st.DataObject], nn.Module]:
    return lambda data: Recurrent(
        kind(4, 3, data.draw(st.integers(1, 2)), data.draw(st.booleans()), batch_first=True, bidirectional=data.draw(st.booleans()))
    )


CASES: dict[str, Case] = {
    "linear, no positions": Case(layer=lambda data: nn.Linear(4, 3, data.draw(st.booleans())), given=lambda b, t: (b, 4)),
    "linear": Case(layer=lambda data: nn.Linear(4, 3, data.draw(st.booleans())), given=lambda b, t: (b, t, 4)),
    "linear, two leads": Case(layer=lambda data: nn.Linear(4, 3), given=lambda b, t: (b, t, 2, 4)),
    **{f"conv{n}d": Case(layer=convolution(PLAIN, n), given=space(n)) for n in PLAIN},
    **{f"transposed conv{n}d": Case(layer=convolution(TRANSPOSED, n), given=space(n)) for n in TRANSPOSED},
    "embedding": Case(
        layer=lambda data: nn.Embedding(5, 3, padding_idx=data.draw(st.sampled_from([None, 0]))), given=lambda b, t: (b, t), tokens=5
    ),
    "bags": Case(
        layer=lambda data: nn.EmbeddingBag(5, 3, mode=data.draw(st.sampled_from(["sum", "mean", "max"]))),
        given=lambda b, t: (b, t),
        tokens=5,
    ),
    "layer norm": Case(layer=lambda data: nn.LayerNorm(data.draw(st.sampled_from([[4], [2, 4]]))), given=lambda b, t: (b, t, 2, 4)),
    "rms norm": Case(layer=lambda data: nn.RMSNorm(4), given=lambda b, t: (b, t, 4)),
    "group norm": Case(layer=lambda data: nn.GroupNorm(data.draw(st.sampled_from([1, 2, 4])), 4), given=lambda b, t: (b, 4, 1 + t)),
    "instance norm": Case(layer=lambda data: nn.InstanceNorm1d(4, affine=True), given=lambda b, t: (b, 4, 1 + t)),
    "bare": Case(layer=lambda data: Bare(), given=lambda b, t: (b, t, 4)),
    "attention": Case(
        layer=lambda data: Attention(data.draw(st.sampled_from([1, 2, 4])), data.draw(st.booleans())), given=lambda b, t: (b, t, 4)
    ),
    "lstm": Case(layer=recurrent(nn.LSTM), given=lambda b, t: (b, t, 4)),
    "gru": Case(layer=recurrent(nn.GRU), given=lambda b, t: (b, t, 4)),
}


def drawn(data: st.DataObject, name: str, dtype: torch.dtype) -> tuple[nn.Module, Tensor]:
    case = CASES[name]
    torch.manual_seed(data.draw(st.integers(0, 99)))
    shape = case.given(data.draw(st.integers(1, 7)), data.draw(st.integers(1, LONG)))
    given = torch.randint(case.tokens, shape) if case.tokens else torch.randn(shape).to(dtype)
    return case.layer(data).to(dtype), given


def clipped(model: nn.Module, given: Tensor, clipper: Clipper, sizes: int) -> Tensor:
    """The sums, flat, over micro-batches of at most so many records; a smooth layer after the model makes gradients differ."""
    for part in given.split(sizes):
        with clipper.recording():
            output = model(part)
        clipper.backward(squares(output.float() if output.dtype == torch.bfloat16 else output))
    return torch.cat([tensor.double().flatten() for tensor in clipper.take().values()])


def nudged(model: nn.Module, batch: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """Every record's gradients of the model in float64, at numbers that were rounded once more."""
    once = torch.finfo(dtype).eps
    moved = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in moved.parameters():
            parameter.mul_(1 + once * torch.empty_like(parameter).uniform_(-1, 1).sign())
    given = batch * (1 + once * torch.empty_like(batch).uniform_(-1, 1).sign()) if batch.is_floating_point() else batch
    return list(gradients_of_records(moved, given).values())


def check(name: str, data: st.DataObject) -> None:
    """One layer, once: groups, a method, micro-batches and the self-check as they are drawn."""
    dtype = data.draw(st.sampled_from([torch.float64, torch.float32]))
    model, batch = drawn(data, name, dtype)
    cut = data.draw(st.integers(0, len(list(model.parameters())) - 1))
    options = {"method": data.draw(st.sampled_from(sorted(METHODS))), "verify": data.draw(st.booleans())}
    compare(model, batch, dtype, cut=cut, sizes=data.draw(st.integers(1, len(batch))), **options)


def compare(model: nn.Module, batch: Tensor, dtype: torch.dtype, *, cut: int, method: str, verify: bool, sizes: int) -> None:
    """The sums of two groups, or of one, beside those of single records."""
    exact, wide = copy.deepcopy(model).double(), batch.double() if batch.is_floating_point() else batch
    gradients = list(gradients_of_records(exact, wide).values())
    others = [nudged(exact, wide, dtype) for _ in range(NUDGES)]
    names = [key for key, _ in model.named_parameters()]
    bound = float(norms_of(dict(enumerate(gradients))).median()) + 1e-3  # pyright: ignore[reportArgumentType]
    groups = [Group(parameters=tuple(names[part]), clip_norm=bound) for part in (slice(cut), slice(cut, None)) if names[part]]
    told = clipped(model, batch, Clipper(model, clip_norm=groups, method=method, verify=verify), sizes)
    expected: list[Tensor] = []
    allowed = ALLOWED[dtype] * len(batch) * len(groups) * bound
    for part in (slice(cut), slice(cut, None)):
        norms = norms_of(dict(enumerate(gradients[part]))) if gradients[part] else torch.zeros(len(batch))  # pyright: ignore
        factors = torch.where(norms > 0, METHODS[method].factor(bound, norms), 0.0).double()
        expected += [torch.tensordot(factors, rows, dims=1).flatten() for rows in gradients[part]]
        for nudge in others if gradients[part] else []:
            # A clipped gradient moves by no more than its factor times what the gradient moves by, whichever the method.
            moved = norms_of(dict(enumerate(one - other for one, other in zip(nudge[part], gradients[part], strict=True))))  # pyright: ignore
            allowed += OPERATIONS / NUDGES * float((factors * moved).sum())
    assert float((told - torch.cat(expected)).norm()) <= allowed


def test_two_positions_that_nearly_agree_are_off_by_what_their_normalisation_makes_of_rounding() -> None:
    """.7944 and .7985, in float32: plain autograd's gradient of this record is off by 1.3e-4, and so is the sum."""
    torch.manual_seed(75)
    batch = torch.randn(2, 4, 2)
    compare(nn.InstanceNorm1d(4, affine=True), batch, torch.float32, cut=1, method="automatic", verify=False, sizes=1)


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_sums_are_those_of_single_records(name: str, data: st.DataObject) -> None:
    check(name, data)


@pytest.mark.sampled(19)
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@settings(max_examples=examples(12), deadline=None)
@given(data=st.data())
def test_sums_are_those_of_single_records_at_length(name: str, data: st.DataObject) -> None:
    check(name, data)


@functools.cache
def lstm_in_bfloat16() -> bool:
    try:
        with torch.autocast("cpu", torch.bfloat16):
            nn.LSTM(2, 2)(torch.zeros(1, 1, 2))
    except RuntimeError:
        return False
    return True


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CASES)
@settings(max_examples=2, deadline=None)
@given(data=st.data())
def test_no_record_counts_for_more_than_the_bound_in_bfloat16(name: str, data: st.DataObject) -> None:
    if name == "lstm" and not lstm_in_bfloat16():
        pytest.skip("this processor has no LSTM in bfloat16")
    model, batch = drawn(data, name, torch.float32)
    clipper = Clipper(model, clip_norm=1e-2, method="normalise", verify=False)
    for record in range(len(batch)):
        with torch.autocast("cpu", torch.bfloat16), clipper.recording():
            output = model(batch)
        clipper.backward(squares(output.float()), torch.arange(len(batch)) == record)
        length = float(torch.cat([tensor.double().flatten() for tensor in clipper.take().values()]).norm())
        assert length == 0 or 0.999e-2 <= length <= 1e-2
