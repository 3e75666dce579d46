"""What the clipper cannot tell apart, or should never be given: refused with a reason, never wrong in silence."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from per_record import assert_clips_like_single_records, squares
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations
from torch.nn.utils import spectral_norm as older_spectral_norm

from lethe.errors import InputError, LetheError
from lethe.train.clipping import Clipper

ROWS = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
SEQUENCES = torch.randn(5, 4, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def run(model: nn.Module, batch: Tensor, *, verify: bool, loss: Callable[[Tensor], Tensor] = squares) -> dict[nn.Parameter, Tensor]:
    clipper = Clipper(model.double(), verify=verify)
    with clipper.recording():
        output = model(batch)
    clipper.backward(loss(output))
    return clipper.take()


class Cells(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(8, 3)

    def forward(self, given: Tensor) -> Tensor:
        state = (given.new_zeros(len(given), 3), given.new_zeros(len(given), 3))
        for place in range(given.shape[1]):
            state = self.cell(given[:, place], state)
        return state[0]


class LearnedStart(nn.Module):
    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU]) -> None:
        super().__init__()
        self.start, self.cells = nn.Parameter(torch.zeros(1, 1, 3)), kind(8, 3, batch_first=True)

    def forward(self, given: Tensor) -> Tensor:
        start = self.start.expand(-1, len(given), -1).contiguous()
        return self.cells(given, (start, start) if isinstance(self.cells, nn.LSTM) else start)[0].flatten(1)


class Pairs(nn.Module):
    """Two views of each record one under the other: rows are twice the records."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, given: Tensor) -> Tensor:
        first, second = self.layer(torch.cat([given, 2 * given])).chunk(2)
        return first - second


class Renormed(nn.Module):
    """`max_norm` of the function: it writes the table."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Parameter(torch.randn(9, 4)), nn.Linear(4, 2)

    def forward(self, given: Tensor) -> Tensor:
        return self.head(functional.embedding((given[:, :3] > 0).long(), self.table, max_norm=0.5).mean(1))


class Written(nn.Module):
    """Copies a parameter into its hidden numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.token = nn.Linear(8, 8), nn.Parameter(torch.randn(8))

    def forward(self, given: Tensor) -> Tensor:
        hidden = self.layer(given)
        hidden[:, 0] = self.token
        return hidden


class Normed(nn.Module):
    """Normalises over the records, by a layer that thinks they are features."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 4), nn.LayerNorm(5)

    def forward(self, given: Tensor) -> Tensor:
        return self.norm(self.layer(given).T).T


REFUSED: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "cells": (Cells, SEQUENCES),
    "a learned start of an LSTM": (lambda: LearnedStart(nn.LSTM), SEQUENCES),
    "a learned start of a GRU": (lambda: LearnedStart(nn.GRU), SEQUENCES),
    "pairs": (Pairs, ROWS),
    "max_norm of a function": (Renormed, ROWS),
    "written in place": (Written, SEQUENCES),
    "a norm over the records": (Normed, ROWS),
    "frequencies": (lambda: nn.Sequential(nn.Embedding(9, 4, scale_grad_by_freq=True), nn.Flatten()), torch.randint(9, (5, 3))),
    "bags by frequency": (lambda: nn.EmbeddingBag(9, 4, scale_grad_by_freq=True, mode="sum"), torch.randint(9, (5, 3))),
    "complex numbers": (lambda: nn.Linear(4, 3, dtype=torch.complex128), ROWS.to(torch.complex128)),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("name", REFUSED)
def test_models_whose_records_cannot_be_told_apart_are_refused(name: str, verify: bool) -> None:
    torch.manual_seed(0)
    build, batch = REFUSED[name]
    model = build().double()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    with pytest.raises(LetheError):
        run(model, batch, verify=verify)
    if name != "max_norm of a function":
        assert all(torch.equal(parameter, old) for parameter, old in zip(model.parameters(), before, strict=True))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*deprecated")
@pytest.mark.parametrize("norm", [older_spectral_norm, parametrizations.spectral_norm])
def test_a_spectral_norm_that_moves_its_vectors_is_refused_and_a_settled_one_is_not(norm: Any) -> None:
    torch.manual_seed(0)
    with pytest.raises(LetheError):
        run(norm(nn.Linear(4, 3)), ROWS, verify=True)
    settled = nn.Sequential(parametrizations.spectral_norm(nn.Linear(4, 3)), nn.Linear(3, 2)).double().eval()
    assert_clips_like_single_records(settled, ROWS)


@pytest.mark.filterwarnings("ignore:.*deprecated")
def test_a_scripted_model_is_refused() -> None:
    model: Any = torch.jit.script(nn.Sequential(nn.Linear(4, 3), nn.Tanh()).double())
    with pytest.raises(LetheError, match="ScriptModule"):
        run(model, ROWS, verify=True)


def plain() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)).double()


@pytest.mark.parametrize("verify", [True, False])
def test_a_penalty_of_the_parameters_inside_the_loss_is_refused(verify: bool) -> None:
    """It is no function of a record; an optimiser's weight decay or a regulariser is the place for it."""
    model = plain()
    with pytest.raises(LetheError, match=r"is used outside|is off by"):
        run(model, ROWS, verify=verify, loss=lambda output: squares(output) + 0.1 * next(model.parameters()).square().sum())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mixed", ["mean, expanded", "cumulated", "in order of size", "shifted", "contrasted"])
def test_losses_that_mix_records_are_refused(mixed: str) -> None:
    def loss(output: Tensor) -> Tensor:
        own = squares(output)
        return {
            "mean, expanded": own.mean().expand(len(own)),
            "cumulated": own.cumsum(0),
            "in order of size": own.sort().values,
            "shifted": own.roll(1),
            "contrasted": (output @ output.T).log_softmax(1).diagonal(),
        }[mixed]

    with pytest.raises(LetheError, match=r"is off by|depends on the other records"):
        run(plain(), ROWS, verify=True, loss=loss)


@pytest.mark.parametrize("verify", [True, False])
def test_part_of_a_loss_from_outside_of_the_recording_is_refused(verify: bool) -> None:
    model = plain()
    outside = squares(model(ROWS))
    with pytest.raises(LetheError, match=r"is used outside|is off by"):
        run(model, ROWS, verify=verify, loss=lambda output: squares(output) + outside)


@pytest.mark.parametrize("verify", [True, False])
def test_losses_are_read_once_even_if_their_graph_is_retained(verify: bool) -> None:
    clipper = Clipper(plain(), verify=verify)
    with clipper.recording():
        losses = squares(clipper.model(ROWS))
    clipper.backward(losses)
    once = [tensor.clone() for tensor in clipper.take().values()]
    with pytest.raises(LetheError, match="nothing was recorded"):
        clipper.backward(losses)
    assert any(tensor.any() for tensor in once)
    assert not any(tensor.any() for tensor in clipper.take().values())


def test_other_weights_put_in_by_functional_call_are_refused() -> None:
    model = plain()
    clipper = Clipper(model)
    with clipper.recording():
        output = torch.func.functional_call(model, {"0.weight": model[0].weight * 3}, (ROWS,))  # pyright: ignore
    with pytest.raises(LetheError, match=r"is off by|is used outside"):
        clipper.backward(squares(output))


def test_a_hook_on_all_modules_that_changes_outputs_is_refused() -> None:
    model = plain()
    handle = nn.modules.module.register_module_forward_hook(
        lambda module, args, output: output * 3 if isinstance(module, nn.Linear) else None
    )
    try:
        with pytest.raises(LetheError, match="is off by"):
            run(model, ROWS, verify=True)
    finally:
        handle.remove()


def test_values_in_a_dataclass_are_right_though_not_checked_alone() -> None:
    @dataclasses.dataclass
    class Told:
        logits: Tensor

    class Telling(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = plain()

        def forward(self, given: Tensor) -> Told:
            return Told(self.inner(given))

    model = Telling()
    with pytest.warns(UserWarning, match="single records were not"):
        told = run(model, ROWS, verify=True, loss=lambda output: squares(output.logits))  # pyright: ignore
    again = run(model.inner, ROWS, verify=True)
    assert all(torch.equal(told[parameter], again[parameter]) for parameter in again)


def test_lazy_layers_without_a_shape_are_named() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.LazyLinear(2))
    with pytest.raises(InputError, match=r"1\.weight \(2 in all\) has no shape"), Clipper(model).recording():
        pass
    model(torch.zeros(1, 4))
    run(model, ROWS, verify=True)
