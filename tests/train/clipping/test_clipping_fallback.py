"""Parameters that no rule covers."""

from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from per_record import assert_clips_like_single_records, squares
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from lethe.errors import InputError
from lethe.train.clipping import Clipper

Operation = Callable[["Custom", Tensor], Tensor]


class Custom(nn.Module):
    """Bare parameters, and any operation on them; records come as (B, 3, 4)."""

    def __init__(self, operation: Operation) -> None:
        super().__init__()
        self.operation = operation
        self.vector, self.scalar = nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(()))
        self.table, self.square = nn.Parameter(torch.randn(3, 4)), nn.Parameter(torch.randn(4, 4))
        self.leading, self.kernel = nn.Parameter(torch.randn(1, 1, 4)), nn.Parameter(torch.randn(2, 3, 2))
        self.inner = nn.Linear(4, 4)
        self.register_buffer("constant", torch.randn(3, 4))
        self.constant: Tensor

    def forward(self, given: Tensor) -> Tensor:
        return self.operation(self, given)


def added_in_place(m: Custom, x: Tensor) -> Tensor:
    hidden = m.inner(x)
    hidden += m.vector
    hidden *= m.scalar
    return hidden


OPERATIONS: dict[str, Operation] = {
    "scale and shift": lambda m, x: x * m.vector + m.table,
    "scalar": lambda m, x: x * m.scalar,
    "reversed": lambda m, x: (1 - m.vector) / (x.square() + 1) - m.scalar.exp(),
    "positions": lambda m, x: m.inner(x) + m.table[: x.shape[1]],
    "with a constant": lambda m, x: x * (m.table + m.constant),
    "class token": lambda m, x: torch.cat([m.leading.expand(len(x), -1, -1), m.inner(x)], dim=1),
    "repeated token": lambda m, x: torch.cat([m.vector.repeat(len(x), 1, 1), x], dim=1),
    "grown by one dimension": lambda m, x: x + m.table.expand(len(x), 3, 4),
    "linear": lambda m, x: functional.linear(x, m.square, m.vector),
    "matrix product": lambda m, x: x @ m.square.T,
    "einsum": lambda m, x: torch.einsum("btd,de->bte", x, m.square),
    "convolution": lambda m, x: functional.conv1d(x, m.kernel),
    "layer norm": lambda m, x: functional.layer_norm(x, (4,), m.vector, m.table[0]),
    "root mean square": lambda m, x: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * m.vector,
    "in place": added_in_place,
    "where": lambda m, x: torch.where(x > 0, x, m.vector),
    "prelu": lambda m, x: functional.prelu(x, m.vector[:3]),
    "twice": lambda m, x: m.inner(torch.tanh(x * m.vector)) * m.vector,
    "through a layer": lambda m, x: x * m.inner(m.table),
    "normalised": lambda m, x: x @ (m.square / m.square.norm(dim=0, keepdim=True)),
    "split": lambda m, x: x * m.square.chunk(2)[1].sum(0) + m.square.unbind(0)[0],
    "given back": lambda m, x: m.vector.unsqueeze(0).expand(len(x), 4) * m.scalar,
}


@pytest.mark.sampled(8)
@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_on_bare_parameters(name: str) -> None:
    torch.manual_seed(0)
    model = Custom(OPERATIONS[name]).double()
    assert_clips_like_single_records(model, torch.randn(5, 3, 4, dtype=torch.float64))
    assert_clips_like_single_records(model, torch.randn(1, 3, 4, dtype=torch.float64), verify=False)


@pytest.mark.sampled(15)
@pytest.mark.slow
@pytest.mark.parametrize("records", [0, 1, 3, 4])
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_batch_as_long_as_another_dimension_is_told_or_refused(name: str, records: int) -> None:
    """What the first batch settled holds in later batches, whatever their size."""
    torch.manual_seed(0)
    model = Custom(OPERATIONS[name]).double()
    first, batch = torch.randn(5, 3, 4, dtype=torch.float64), torch.randn(records, 3, 4, dtype=torch.float64)
    clipper = Clipper(model, clip_norm=1.0)
    expected = Clipper(model, clip_norm=1.0, verify=False)
    with clipper.recording():
        output = model(first)
    clipper.backward(squares(output))
    clipper.take()
    with clipper.recording():
        output = model(batch)
    clipper.backward(squares(output))
    for record in range(records):
        with expected.recording():
            output = model(batch[record : record + 1])
        expected.backward(squares(output))
    truth = expected.take()
    for parameter, tensor in clipper.take().items():
        assert torch.allclose(tensor, truth[parameter], rtol=1e-9, atol=1e-11)


REFUSED: dict[str, Operation] = {
    "written into": lambda m, x: (
        torch.zeros_like(x).index_put((torch.arange(len(x)),), m.vector).index_fill_(0, torch.tensor([0]), m.scalar)
    ),
    "records elsewhere": lambda m, x: (m.inner(x).transpose(0, 1) + m.vector).transpose(0, 1),
    "mixed": lambda m, x: m.inner(x) + (m.inner(x).sum(0) * m.vector),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_told_apart_is_refused(name: str) -> None:
    torch.manual_seed(0)
    model = Custom(REFUSED[name]).double()
    clipper = Clipper(model)
    with pytest.raises(InputError), clipper.recording():
        clipper.backward(squares(model(torch.randn(5, 3, 4, dtype=torch.float64))))
    assert all(isinstance(parameter, nn.Parameter) for parameter in model.parameters())
    assert len(list(model.parameters())) == 8


def test_random_operations_on_parameters_are_refused() -> None:
    model = Custom(lambda m, x: functional.scaled_dot_product_attention(x, m.table.expand(len(x), 3, 4), x * m.vector, dropout_p=0.5))
    meeting = Clipper(model)
    with meeting.recording():
        output = model(torch.randn(5, 3, 4))
    meeting.backward(squares(output))  # the copies of a record meet the dropout themselves: nothing is drawn again
    assert meeting.verified == "checked"
    model = Custom(lambda m, x: functional.scaled_dot_product_attention(x, x, m.leading, dropout_p=0.5))
    clipper = Clipper(model)
    with pytest.raises(InputError, match=r"record by record|off by|registered"):  # noqa: PT012
        with clipper.recording():
            output = model(torch.randn(5, 1, 4))
        clipper.backward(squares(output))


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, given: Tensor, factor: Tensor) -> Tensor:
        ctx.save_for_backward(given, factor)
        return given * factor

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor]:
        given, factor = ctx.saved_tensors
        return grad_outputs[0] * factor, (grad_outputs[0] * given).sum((0, 1))


@pytest.mark.parametrize("verify", [True, False])
def test_parameters_that_escape_into_a_function_of_ones_own_are_refused(verify: bool) -> None:
    model = Custom(lambda m, x: cast("Tensor", Product.apply(m.inner(x), m.vector))).double()
    clipper = Clipper(model, verify=verify)
    with clipper.recording():
        output = model(torch.randn(5, 3, 4, dtype=torch.float64))
    with pytest.raises(InputError, match=r"in the backward pass|used outside|off by"):
        clipper.backward(squares(output))


@pytest.mark.slow
def test_a_first_batch_as_long_as_the_positions_is_followed() -> None:
    """Batches of other sizes tell a table of six positions from a table of six records."""

    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(7, 4), nn.Embedding(6, 4)

        def forward(self, tokens: Tensor) -> Tensor:
            return self.words(tokens) + self.places(torch.arange(tokens.shape[1]))

    torch.manual_seed(0)
    model, tokens = Positions().double(), torch.randint(7, (6, 6))
    assert_clips_like_single_records(model, tokens)
    assert_clips_like_single_records(model, tokens[:4])


def test_parametrised_layers() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(parametrizations.weight_norm(nn.Linear(4, 5)), nn.Tanh(), nn.Linear(5, 2)).double()
    assert_clips_like_single_records(model, torch.randn(4, 4, dtype=torch.float64))


class Doubled(nn.Linear):
    """A subclass that computes something else than its base."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.linear(input, self.weight * 2, self.bias)


def test_a_subclass_is_not_told_by_the_rule_of_its_base() -> None:
    torch.manual_seed(0)
    assert_clips_like_single_records(Doubled(4, 3).double(), torch.randn(5, 4, dtype=torch.float64))
