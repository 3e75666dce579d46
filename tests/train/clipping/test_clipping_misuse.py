"""The clipper given what it cannot use: models that mix records, losses of another kind, recordings out of order."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from per_record import assert_clips_like_single_records, clipped, rows, small, squares
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from lethe.errors import InputError
from lethe.train.clipping import Clipper


class Mixing(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.layer, self.last = kind, nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, given: Tensor) -> Tensor:
        if self.kind == "input":
            given = given - given.mean(0)
        hidden = self.layer(given)
        if self.kind == "hidden":
            hidden = hidden - hidden.mean(0)
        if self.kind == "detached":
            hidden = hidden - hidden.mean(0).detach()
        if self.kind == "flipped":
            return self.last(hidden.flip(0))
        return self.last(torch.tanh(hidden))


@pytest.mark.parametrize("kind", ["input", "hidden", "detached", "flipped"])
def test_models_that_mix_records_are_refused(kind: str) -> None:
    model = Mixing(kind).double()
    with pytest.raises(InputError, match=r"depends on the other records|is off by"):
        clipped(Clipper(model), rows())
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_losses_that_mix_records_are_refused() -> None:
    model = small()
    clipper = Clipper(model)
    with clipper.recording():
        output = model(rows())
    with pytest.raises(InputError, match=r"is off by|depends on the other records"):
        clipper.backward(squares(output - output.mean(0)))


@pytest.mark.slow
def test_batch_statistics_are_refused_and_frozen_ones_are_not() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, affine=False)).double()
    with pytest.raises(InputError, match="GroupNorm"):
        Clipper(model)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).double().eval()
    assert_clips_like_single_records(model, rows())
    clipper = Clipper(model)
    model.train()
    with pytest.raises(InputError, match="GroupNorm"), clipper.recording():
        pass


class Elsewhere(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.other = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, given: Tensor) -> Tensor:
        return functional.linear(torch.tanh(self.layer(given)), getattr(self, "held", [self.other.weight])[0])


@pytest.mark.parametrize("verify", [True, False])
def test_a_weight_that_was_taken_out_of_its_layer_is_refused(verify: bool) -> None:
    model = Elsewhere().double()
    model.held = [model.other.weight]  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match=r"other\.weight"):
        clipped(Clipper(model, verify=verify), rows())


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.first, self.layer, self.reentrant = nn.Linear(4, 4), nn.Linear(4, 4), reentrant

    def forward(self, given: Tensor) -> Any:
        return checkpoint(self.layer, self.first(given), use_reentrant=self.reentrant)


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("verify", [True, False])
def test_activation_checkpoints_are_refused(reentrant: bool, verify: bool) -> None:
    with pytest.raises(InputError, match="checkpoint"):
        clipped(Clipper(Checkpointed(reentrant).double(), verify=verify), rows())


class Overwriting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, given: Tensor) -> Tensor:
        given = given * 1.0
        hidden = self.layer(given)
        given.add_(1.0)
        return hidden


def test_inputs_changed_in_place_after_their_use_are_refused() -> None:
    with pytest.raises(InputError, match="in place"):
        clipped(Clipper(Overwriting().double(), verify=False), rows())


class Flattened(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.layer = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, given: Tensor) -> Tensor:
        return self.layer(self.first(given.view(-1, 2, 2)).view(-1, 2)).view(len(given), -1)


def test_records_that_are_flattened_with_positions_are_folded_back() -> None:
    torch.manual_seed(0)
    assert_clips_like_single_records(Flattened().double(), rows())


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("losses", "match"),
    [
        (lambda output: squares(output).mean(), "one loss a record"),
        (lambda output: output, "one loss a record"),
        (lambda output: squares(output)[:3], "got 3 for 6 records"),
        (lambda output: squares(output).detach(), "do not require grad"),
        (lambda output: squares(output).tolist(), "got list"),
        (lambda output: squares(output).long(), "int64"),
    ],
)
def test_losses_of_another_shape_are_refused(losses: Any, match: str) -> None:
    clipper = Clipper(small())
    with clipper.recording():
        output = clipper.model(rows())
    with pytest.raises(InputError, match=match):
        clipper.backward(losses(output))


def test_losses_of_another_pass_are_refused() -> None:
    clipper = Clipper(small(), verify=False)
    with pytest.raises(InputError, match="nothing was recorded"):
        clipper.backward(squares(clipper.model(rows())))
    with clipper.recording():
        first = clipper.model(rows())
    with clipper.recording():
        clipper.model(rows())
    with pytest.raises(InputError, match=r"do not come from the last recording|used outside"):
        clipper.backward(squares(first))
    with clipper.recording():
        output = clipper.model(rows())
    clipper.backward(squares(output))
    with pytest.raises(InputError, match="nothing was recorded"):
        clipper.backward(squares(output))


@pytest.mark.parametrize("counted", [torch.ones(6), torch.ones(5, dtype=torch.bool), [True] * 6])
def test_masks_of_another_kind_are_refused(counted: Any) -> None:
    with pytest.raises(InputError, match="counted"):
        clipped(Clipper(small()), rows(), counted=counted)


def test_what_is_no_model_or_has_nothing_to_train_is_refused() -> None:
    with pytest.raises(InputError, match=r"torch\.nn\.Module"):
        Clipper(lambda given: given)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="nothing to train"):
        Clipper(small().requires_grad_(False))
    with pytest.raises(InputError, match="records"), Clipper(small()).recording(records=True):
        pass


def test_an_open_recording_is_not_used() -> None:
    clipper = Clipper(small())
    with clipper.recording():
        losses = squares(clipper.model(rows()))
        with pytest.raises(InputError, match="still open"):
            clipper.backward(losses)
    with pytest.raises(InputError, match="another recording"), clipper.recording(), clipper.recording():
        pass


def by_vmap(layer: nn.Module, given: Tensor) -> Tensor:
    return torch.func.vmap(layer)(given)


def by_jvp(layer: nn.Module, given: Tensor) -> Tensor:
    return torch.func.jvp(layer, (given,), (torch.ones_like(given),))[1]


def by_grad(layer: nn.Module, given: Tensor) -> Tensor:
    return torch.func.vmap(torch.func.grad(lambda row: layer(row).square().sum()))(given)


def by_linearize(layer: nn.Module, given: Tensor) -> Tensor:
    return torch.func.linearize(layer, given)[0]


class Transformed(nn.Module):
    def __init__(self, transform: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.last, self.transform = nn.Linear(4, 3).double(), nn.Linear(4, 3).double(), transform

    def forward(self, given: Tensor) -> Tensor:
        return self.last(given) + self.transform(self.layer, given).sum(1, keepdim=True)


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("transform", [by_vmap, by_jvp, by_grad, pytest.param(by_linearize, marks=pytest.mark.nightly)])
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_layers_under_transforms_of_torch_func_are_refused(transform: Callable[[nn.Module, Tensor], Tensor], verify: bool) -> None:
    with pytest.raises(InputError, match=r"layer \(Linear\) runs under a transform"):
        clipped(Clipper(Transformed(transform), verify=verify), rows())
