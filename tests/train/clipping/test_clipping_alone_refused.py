"""What is refused record by record as well: records that meet, and what keeps something between them."""

from collections.abc import Callable

import pytest
import torch
from lone_models import ROWS, Unfollowed, added
from per_record import squares
from torch import Tensor, nn

from lethe.errors import HypothesisError, InputError
from lethe.train.clipping import Clipper
from lethe.train.clipping.unfollowed import RECORD_BY_RECORD, UnfollowedError
from lethe.train.clipping.units import Units
from lethe.train.network.micro_batches import add_batch

MIXED: dict[str, Callable[[Tensor], Tensor]] = {
    "centred": lambda output: squares(output - output.mean(0)),
    "contrasted": lambda output: (output @ output.T).log_softmax(1).diagonal(),
    "balanced": lambda output: squares(output) + output.softmax(1).mean(0).square().sum(),
}


@pytest.mark.parametrize("mixed", MIXED)
def test_records_that_meet_are_refused_still(mixed: str) -> None:
    torch.manual_seed(0)
    model = Unfollowed().double()
    clipper = Clipper(model)
    with pytest.raises(InputError, match="is another than that of the record alone"):
        add_batch(clipper, lambda rows: model(ROWS[rows]), lambda output, rows: MIXED[mixed](output), len(ROWS))
    assert not any(tensor.any() for tensor in clipper.take().values())


class Remembering(Unfollowed):
    """Each output is moved by the record before, which is kept where no attribute shows it."""

    def __init__(self) -> None:
        super().__init__()
        memory: list[Tensor] = [torch.zeros(4, dtype=torch.float64)]

        def moved(given: Tensor) -> Tensor:
            before, memory[0] = memory[0], given[-1].detach()
            return given + before

        self.moved = moved

    def forward(self, given: Tensor) -> Tensor:
        return super().forward(self.moved(given))


class Counting(Unfollowed):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.mean: Tensor

    def forward(self, given: Tensor) -> Tensor:
        self.mean.add_(0.1 * given.detach().mean(0))
        return super().forward(given - self.mean)


class Watching(Unfollowed):
    """Keeps what it saw where no output shows it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("largest", torch.zeros(()))
        self.largest: Tensor

    def forward(self, given: Tensor) -> Tensor:
        self.largest.copy_(given.detach().max().maximum(self.largest))
        return super().forward(given)


@pytest.mark.parametrize("kind", [Remembering, Counting, Watching])
def test_a_model_that_keeps_something_between_records_is_refused(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model = kind().double()
    clipper = Clipper(model, way=RECORD_BY_RECORD)
    with pytest.raises(HypothesisError, match=r"keeps what it saw|changed while records"):
        added(model, clipper, ROWS)


def test_a_loss_that_keeps_something_between_records_is_refused() -> None:
    torch.manual_seed(0)
    model, seen = Unfollowed().double(), []

    def loss(output: Tensor) -> Tensor:
        own = squares(output)
        seen.append(float(own.detach().sum()))
        return own / (1 + abs(sum(seen)))

    clipper = Clipper(model, way=RECORD_BY_RECORD)
    with pytest.raises(HypothesisError, match="another one after other records"):
        add_batch(clipper, lambda rows: model(ROWS[rows]), lambda output, rows: loss(output), len(ROWS))
    assert not any(tensor.any() for tensor in clipper.take().values())


def test_padding_among_units_is_refused_here_as_well() -> None:
    model = Unfollowed().double()
    clipper = Clipper(model, way=RECORD_BY_RECORD)
    units, counted = Units(torch.tensor([0, 0, 1, 1, 2, 2]), 3), torch.tensor([True] * 4 + [False] * 2)
    with pytest.raises(InputError, match="counted: given together with units"):
        add_batch(clipper, lambda rows: model(ROWS[rows]), lambda output, rows: squares(output), len(ROWS), counted, units)
    assert not any(tensor.any() for tensor in clipper.take().values())


def test_batches_of_several_records_are_refused_where_each_is_to_be_alone() -> None:
    model = Unfollowed().double()
    clipper = Clipper(model, way=RECORD_BY_RECORD)
    with clipper.recording():
        output = model(ROWS)
    with pytest.raises(InputError, match="physical_size=1"):
        clipper.backward(squares(output))
    with pytest.raises(InputError, match="nothing was recorded"):
        clipper.backward(squares(output[:1]))
    with pytest.raises(InputError, match="way: got 'both'"):
        Clipper(model, way="both")
    with clipper.recording():
        pass
    with pytest.raises(InputError, match="no trained parameter gets a gradient"):
        clipper.backward(torch.zeros(1, requires_grad=True) * 2)


def test_the_refusal_of_a_loop_says_what_to_do() -> None:
    model = Unfollowed().double()
    clipper = Clipper(model)
    with clipper.recording():
        output = model(ROWS)
    with pytest.raises(UnfollowedError, match="physical_size=1"):
        clipper.backward(squares(output))
