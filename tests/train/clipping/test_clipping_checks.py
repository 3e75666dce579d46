from collections.abc import Callable
from typing import Any

import pytest
import torch
from per_record import assert_clips_like_single_records, clipped, rows, squares
from torch import Tensor, nn
from torch.nn import functional

from lethe.errors import HypothesisError, InputError
from lethe.train.clipping import Clipper
from lethe.train.core.comparison import ALLOWED_IN_SHAPE, close

MIXES = r"depends on the other records|is off by"


class Free(nn.Module):
    """Two linear layers, and between them whatever a test says."""

    def __init__(self, between: Callable[[Any, Tensor], Tensor] = lambda model, hidden: hidden, *, zero_head: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.head, self.between = nn.Linear(4, 5), nn.Linear(5, 2), between
        self.register_buffer("kept", torch.zeros(5))
        if zero_head:
            nn.init.zeros_(self.head.weight)
        self.double()

    def forward(self, given: Tensor) -> Tensor:
        return self.head(torch.tanh(self.between(self, self.layer(given))))


def normalised(hidden: Tensor) -> Tensor:
    return functional.batch_norm(hidden, None, None, training=True)


def one_pair(hidden: Tensor) -> Tensor:
    return torch.cat([hidden[:1], hidden[1:2] + 1e-9 * hidden[2:3], hidden[2:]])


MIXING: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "weakly": lambda model, hidden: hidden - 1e-9 * hidden.mean(0),
    "two of them": lambda model, hidden: one_pair(hidden),
    "sorted": lambda model, hidden: hidden[hidden.detach()[:, 0].argsort()],
    "detached": lambda model, hidden: hidden - hidden.detach().mean(0),
    "detached, with random numbers": lambda model, hidden: functional.dropout(hidden - hidden.detach().mean(0)),
    "batch_norm": lambda model, hidden: normalised(hidden),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", MIXING)
def test_whatever_mixes_records_is_found(kind: str) -> None:
    with pytest.raises(InputError, match=MIXES):
        clipped(Clipper(Free(MIXING[kind])), rows())


@pytest.mark.parametrize("kind", ["detached", "batch_norm"])
def test_mixing_behind_a_head_of_zeros_is_found(kind: str) -> None:
    with pytest.raises(InputError, match="NaN"):
        clipped(Clipper(Free(MIXING[kind], zero_head=True)), rows())


def test_mixing_of_tokens_is_found() -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.table, self.head = nn.Embedding(9, 4), nn.Linear(4, 2)

        def forward(self, tokens: Tensor) -> Tensor:
            hidden = self.table(tokens).mean(1)
            if len(tokens) < 2:
                raise ValueError("one record alone is refused, so that nothing can be compared with it")
            return self.head(hidden - hidden.detach().mean(0))

    with pytest.raises(InputError, match="depends on the other records"):
        clipped(Clipper(Words().double()), torch.randint(9, (5, 3), generator=torch.Generator().manual_seed(2)))


@pytest.mark.slow
def test_tokens_that_are_all_alike_tell_nothing_yet() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(12, 2)).double()
    clipper = Clipper(model)
    for _ in range(3):
        clipped(clipper, torch.full((5, 3), 2))
        assert clipper.verified != "checked"
    for _ in range(2):
        clipped(clipper, torch.randint(9, (5, 3), generator=torch.Generator().manual_seed(2)))
        assert clipper.verified == "checked"


def test_one_record_at_a_time_is_checked_and_never_called_so() -> None:
    held: list[Tensor] = []
    model = Free(lambda model, hidden: functional.linear(hidden, held[0]))
    model.other = nn.Linear(5, 5).double()
    held.append(model.other.weight)
    with pytest.raises(InputError, match=r"other\.weight"):
        clipped(Clipper(model), rows(1))
    clipper = Clipper(Free())
    for _ in range(3):
        clipped(clipper, rows(1))
        assert clipper.verified is None


def test_nothing_is_called_checked_before_two_records_had_gradients() -> None:
    clipper = Clipper(Free())
    clipped(clipper, rows(), counted=torch.zeros(6, dtype=torch.bool))
    assert clipper.verified is None
    batch = rows()
    batch[1:] = float("nan")
    clipped(clipper, batch)
    assert clipper.verified is None
    clipped(clipper, rows())
    assert clipper.verified == "checked"


@pytest.mark.slow
def test_a_head_of_zeros_keeps_the_check_going() -> None:
    model = Free(zero_head=True)
    clipper = Clipper(model)
    clipped(clipper, rows())
    assert clipper.verified is not None
    assert "layer.bias" in clipper.verified
    clipped(clipper, rows())
    nn.init.ones_(model.head.weight)
    clipped(clipper, rows())  # the third batch: no power of two
    assert clipper.verified == "checked"


@pytest.mark.slow
def test_gradients_that_stay_zero_are_warned_of() -> None:
    clipper = Clipper(Free(zero_head=True))
    for _ in range(7):
        clipped(clipper, rows())
    with pytest.warns(UserWarning, match="only gradients of 0"):
        clipped(clipper, rows())


class Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, block: nn.Module, given: Tensor) -> Tensor:
        ctx.block = block
        ctx.save_for_backward(given)
        with torch.no_grad():
            return block(given)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[None, Tensor | None]:
        given = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            output = ctx.block(given)
        torch.autograd.backward(output, grad_outputs)
        return None, given.grad


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("before", [None, 3.0])
def test_a_checkpoint_of_ones_own_is_refused_and_leaves_grad_alone(verify: bool, before: float | None) -> None:
    model = Free(lambda model, hidden: Recomputed.apply(model.other, hidden))  # pyright: ignore[reportArgumentType]
    model.other = nn.Linear(5, 5).double()
    gradient = model.other.weight.grad = None if before is None else torch.full_like(model.other.weight, before)
    with pytest.raises(InputError, match=r"other\.weight"):
        clipped(Clipper(model, verify=verify), rows())
    assert model.other.weight.grad is gradient
    assert gradient is None or bool((gradient == 3.0).all())


@pytest.mark.parametrize("verify", [True, False])
def test_gradient_penalties_are_refused(verify: bool) -> None:
    class Penalised(Free):
        def forward(self, given: Tensor) -> Tensor:
            given = given.detach().requires_grad_()
            output = super().forward(given)
            return output + torch.autograd.grad(output.sum(), given, create_graph=True)[0].square().sum(1, keepdim=True)

    with pytest.raises(InputError, match="create_graph"):
        clipped(Clipper(Penalised(), verify=verify), rows())


@pytest.mark.parametrize("late", ["mode", "parameters", "batch"])
def test_the_check_is_made_again(late: str) -> None:
    state = {"mixing": late == "mode"}

    def between(model: Any, hidden: Tensor) -> Tensor:
        return hidden - hidden.mean(0) if state["mixing"] and model.training else hidden

    model = Free(between)
    model.train(late != "mode")
    clipper = Clipper(model)
    for _ in range(3 if late == "batch" else 2):
        clipped(clipper, rows())
    if late == "mode":
        model.train()
    elif late == "parameters":
        model.head.bias.requires_grad_(False)
    state["mixing"] = True
    with pytest.raises(InputError, match=MIXES):
        clipped(clipper, rows())
    with pytest.raises(InputError, match=MIXES):  # a check that failed is not forgotten
        clipped(clipper, rows())


@pytest.mark.parametrize(
    "layer", [nn.InstanceNorm1d(5, track_running_stats=True), nn.Embedding(5, 5, max_norm=0.1), nn.EmbeddingBag(5, 5, max_norm=0.1)]
)
def test_layers_that_write_what_they_saw_are_refused_frozen_or_not(layer: nn.Module) -> None:
    with pytest.raises(InputError, match=r"without any noise"):
        Clipper(nn.Sequential(nn.Linear(4, 5), layer.requires_grad_(False)))


@pytest.mark.parametrize("in_place", [True, False])
def test_a_forward_pass_that_writes_a_buffer_is_refused(in_place: bool) -> None:
    def kept(model: Any, hidden: Tensor) -> Tensor:
        seen = hidden.detach().mean(0)
        if in_place:
            model.kept.copy_(seen)
        else:
            model.kept = seen
        return hidden

    model, plain = Free(kept), Free(kept)
    with pytest.raises(HypothesisError, match="kept"):
        clipped(Clipper(model), rows())
    plain(rows())
    assert torch.equal(model.get_buffer("kept"), plain.get_buffer("kept"))  # as after one pass: the check left nothing


@pytest.mark.parametrize("verify", [True, False])
def test_a_forward_that_was_replaced_on_the_instance_is_followed(verify: bool) -> None:
    model = Free()
    layer = model.layer
    layer.forward = lambda input: functional.linear(2 * input, layer.weight, layer.bias)
    assert_clips_like_single_records(model, rows(), verify=verify)


class Standardised(nn.Conv1d):
    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return super()._conv_forward(input, weight - weight.mean((1, 2), keepdim=True), bias)


def test_a_convolution_that_prepares_its_weight_is_not_told_by_the_rule() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Standardised(2, 3, 2), nn.Flatten(), nn.Linear(9, 2)).double()
    assert_clips_like_single_records(model, torch.randn(5, 2, 4, dtype=torch.float64))


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("cast", ["to", "type_as"])
def test_the_batch_of_the_caller_is_not_marked(verify: bool, cast: str) -> None:
    class Cast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor, self.layer = nn.Parameter(torch.ones(4).double()), nn.Linear(4, 2).double()

        def forward(self, given: Tensor) -> Tensor:
            return self.layer(getattr(given, cast)(self.factor) * self.factor)

    batch = rows()
    assert_clips_like_single_records(Cast(), batch, verify=verify)
    assert not batch.requires_grad
    assert batch.is_leaf


@pytest.mark.parametrize("recurrent", [True, False])
def test_weights_changed_before_the_backward_pass_are_refused(recurrent: bool) -> None:
    torch.manual_seed(0)
    layer = nn.LSTM(4, 3, batch_first=True) if recurrent else nn.MultiheadAttention(4, 2, batch_first=True)
    clipper = Clipper(layer, verify=False)
    given = torch.randn(5, 3, 4)
    with clipper.recording():
        output = layer(given)[0] if recurrent else layer(given, given, given)[0]
    with torch.no_grad():
        next(layer.parameters()).mul_(1.5)
    with pytest.raises(InputError, match="parameter was changed"):
        clipper.backward(squares(output))


@pytest.mark.slow
@pytest.mark.parametrize("records", [4, 5])
def test_buffers_are_never_records(records: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).double().eval()
    assert_clips_like_single_records(model, rows(records))


def test_the_checks_touch_no_generator_and_accept_random_layers() -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.5), nn.Linear(5, 2)).double()
    clipper = Clipper(model)
    torch.manual_seed(3)
    sums = clipped(clipper, rows())
    torch.manual_seed(3)
    plain = clipped(Clipper(model, verify=False), rows())
    assert clipper.verified == "checked"
    assert all(torch.allclose(sums[parameter], plain[parameter], rtol=1e-12) for parameter in sums)


@pytest.mark.parametrize("records", [2, 40])
def test_batches_of_any_size_pass(records: int) -> None:
    assert assert_clips_like_single_records(Free(), rows(records)).verified == "checked"


def test_what_agrees_in_every_number_is_seen_as_what_is_near_is() -> None:
    torch.manual_seed(0)
    told = torch.randn(7, 3)
    told[1, 1], told[2], told[3, 0] = torch.nan, torch.inf, -torch.inf
    again = told.clone()
    again[3] = 5.0  # where it is finite as well
    again[4, 2], again[5, 0], again[6, 1] = told[4, 2] + 1e-6, told[5, 0] + 1, torch.nan
    assert close(again, told, told, ALLOWED_IN_SHAPE).tolist() == [True, True, True, False, True, False, False]
    assert close(again, told, told, ALLOWED_IN_SHAPE, asked=[0, 5]).tolist()[5] is False
    assert close(again.double(), told, told, ALLOWED_IN_SHAPE).tolist() == [True, True, True, False, True, False, False]
