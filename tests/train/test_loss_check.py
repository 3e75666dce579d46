"""The loss that fit is given: found where it mixes records by detached values, left alone where it does not."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import lethe
from lethe.errors import InputError
from lethe.train import Fitted, fit
from lethe.train.checks.loss import CheckedLoss
from lethe.train.clipping import Clipper

TARGETS = torch.arange(10) % 3


def same(output: Tensor) -> Any:
    return output


def checked(loss: Callable[[Any, Any], Tensor], targets: Tensor = TARGETS, features: int = 3, outputs: Any = same) -> Clipper:
    torch.manual_seed(0)
    clipper = Clipper(nn.Linear(4, features).double())
    with clipper.recording():
        told = clipper.model(torch.randn(len(targets), 4, dtype=torch.float64))
    losses = CheckedLoss(loss, clipper)(outputs(told), targets)
    clipper.backward(losses)
    return clipper


def entropies(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, targets, reduction="none")


def of_tokens(outputs: Tensor, targets: Tensor) -> Tensor:
    """Divided by the tokens that the whole batch holds."""
    each = functional.cross_entropy(outputs.unflatten(1, (3, -1)).transpose(1, 2), targets, reduction="none", ignore_index=0)
    return each.sum(1) / (targets != 0).sum()


def above_the_median(outputs: Tensor, targets: Tensor) -> Tensor:
    losses = entropies(outputs, targets)
    return losses * (losses > losses.median())


def of_the_largest(outputs: Tensor, targets: Tensor) -> Tensor:
    sizes = outputs.detach().abs().amax(1)
    return entropies(outputs, targets) * (sizes >= sizes.max())


MIXING: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "in units of their mean": lambda outputs, targets: entropies(outputs, targets) / entropies(outputs, targets).detach().mean(),
    "above the median": above_the_median,
    "by rarity": lambda outputs, targets: entropies(outputs, targets) / torch.bincount(targets, minlength=3)[targets],
    "over the number of records": lambda outputs, targets: entropies(outputs, targets) / len(outputs),
    "centred outputs": lambda outputs, targets: entropies(outputs * (1 + 1e-6 * outputs.detach().mean(0)), targets),
    "the largest alone": of_the_largest,
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", MIXING)
def test_a_loss_that_mixes_records_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"loss: the loss of record \d depends on the other records"):
        checked(MIXING[name])


@pytest.mark.parametrize("beside", ["weights of classes", "one number", "no tensor", "flat targets"])
def test_targets_that_have_no_row_for_each_record_hide_nothing(beside: str) -> None:
    """Whose length is another one than that of the losses, first among several; or none at all."""
    torch.manual_seed(0)
    clipper = Clipper(nn.Linear(4, 3).double())
    with clipper.recording():
        told = clipper.model(torch.randn(10, 4, dtype=torch.float64))
    targets: dict[str, Any] = {
        "weights of classes": {"a": torch.ones(3), "wanted": TARGETS},
        "one number": {"a": torch.ones(()), "wanted": TARGETS},
        "no tensor": None,
        "flat targets": TARGETS.repeat(2),
    }

    def above_the_median_of_all(outputs: Tensor, given: Any) -> Tensor:
        wanted = given["wanted"] if isinstance(given, dict) else TARGETS[: len(outputs)]
        return above_the_median(outputs, wanted)

    with pytest.raises(InputError, match="depends on the other records"):
        CheckedLoss(above_the_median_of_all, clipper)(told, targets[beside])


def test_a_loss_normalised_by_the_tokens_of_a_batch_is_refused() -> None:
    targets = torch.randint(3, (10, 3), generator=torch.Generator().manual_seed(0))
    with pytest.raises(InputError, match="depends on the other records"):
        checked(of_tokens, targets, features=9)
    checked(lambda outputs, targets: of_tokens(outputs, targets) * (targets != 0).sum(), targets, features=9)


HONEST: dict[str, Callable[[Any, Any], Tensor]] = {
    "cross entropy": nn.CrossEntropyLoss(reduction="none"),
    "smoothed": nn.CrossEntropyLoss(reduction="none", label_smoothing=0.1, weight=torch.tensor([1.0, 2.0, 3.0]).double()),
    "squares": lambda outputs, targets: (outputs - functional.one_hot(targets, 3)).square().mean(1),
    "hinge": nn.MultiMarginLoss(reduction="none"),
    "of a dictionary": lambda outputs, targets: entropies(outputs["logits"], targets),
    "of logits that are almost certain": lambda outputs, targets: entropies(1e6 * outputs, targets),
    "zero for most": lambda outputs, targets: entropies(outputs, targets).sub(1).relu(),
    "infinite for one": lambda outputs, targets: entropies(outputs, targets) + torch.where(outputs[:, 0] > 1, torch.inf, 0.0),
    "of chances, which refuses NaN": lambda outputs, targets: functional.binary_cross_entropy(
        outputs.sigmoid().clamp(0, 1), functional.one_hot(targets, 3).double(), reduction="none"
    ).sum(1),
}


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("name", HONEST)
def test_an_honest_loss_passes_without_a_word(name: str) -> None:
    for _ in range(3):
        outputs: Any = (lambda output: {"logits": output, "scale": torch.ones(1)}) if name == "of a dictionary" else same
        checked(HONEST[name], outputs=outputs)


def fails(error: Exception) -> Any:
    raise error


@pytest.mark.parametrize(
    ("loss", "kind", "said"),
    [
        (lambda outputs, targets: fails(RuntimeError("on purpose")), RuntimeError, "^on purpose$"),
        (lambda outputs, targets: fails(NotImplementedError("on purpose")), NotImplementedError, "^on purpose$"),
        (lambda outputs, targets: fails(ValueError("on purpose")), ValueError, "^on purpose$"),
        (lambda outputs, targets: torch.empty(2**50), RuntimeError, r"^\[enforce fail.*can't allocate memory"),
        (lambda outputs, targets: outputs @ outputs, InputError, r"(?s)of outputs, float64 of shape \(10, 3\).* RuntimeError: mat1"),
        (lambda outputs, targets: entropies(outputs, targets[1:]), InputError, r"(?s)and targets, int64 of shape \(10,\).* ValueError"),
        (lambda outputs, targets: outputs.logits, InputError, "computes nothing: AttributeError"),
    ],
)
def test_what_a_loss_raises_on_purpose_is_its_own(loss: Callable[[Any, Any], Tensor], kind: type[Exception], said: str) -> None:
    """Nor is memory that is short a fault of outputs and targets."""
    with pytest.raises(kind, match=said):
        checked(loss)


def test_a_loss_is_not_asked_where_nothing_is_checked() -> None:
    asked: list[int] = []

    def counting(outputs: Tensor, targets: Tensor) -> Tensor:
        asked.append(len(outputs))
        return entropies(outputs, targets)

    clipper = Clipper(nn.Linear(4, 3), verify=False)
    with clipper.recording():
        outputs = clipper.model(torch.randn(10, 4))
    clipper.backward(CheckedLoss(counting, clipper)(outputs, TARGETS))
    assert asked == [10]


def fitted(loss: Callable[[Any, Any], Tensor]) -> Fitted[nn.Module]:
    run = lethe.Run(records=20, batches=lethe.Cyclic(size=10), passes=1, step_size=0.1, clip_norm=1.0, noise_multiplier=1.0, release="all")
    torch.manual_seed(0)
    data = (torch.randn(20, 4).numpy(), np.arange(20) % 3)
    return fit(nn.Linear(4, 3), loss, data, run, seed=1)


@pytest.mark.parametrize(
    ("loss", "reason"),
    [
        (lambda outputs, targets: entropies(outputs, targets)[torch.arange(len(outputs)).repeat(1 + (len(outputs) == 1))], "more than one"),
        (lambda outputs, targets: entropies(functional.dropout(outputs), targets), "random"),
    ],
)
def test_what_could_not_be_asked_of_the_loss_is_said(loss: Callable[[Any, Any], Tensor], reason: str) -> None:
    with pytest.warns(UserWarning, match=reason):
        found = fitted(loss)
    assert reason in found.checked
    assert "the loss was not" in found.checked


def test_a_loss_that_needs_two_records_is_said_so_once() -> None:
    def needing(outputs: Tensor, targets: Tensor) -> Tensor:
        if len(outputs) < 2:
            raise ValueError("at least two records")
        return entropies(outputs, targets)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert "at least two records" in fitted(needing).checked
    assert len([warning for warning in caught if "could not check the loss" in str(warning.message)]) == 1


def test_the_check_draws_nothing_and_moves_no_buffer() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
            self.get_buffer("calls").add_(1)
            return entropies(outputs + torch.rand(()) * 0, targets)

    loss = Noisy()
    clipper = Clipper(nn.Linear(4, 3))
    with clipper.recording():
        outputs = clipper.model(torch.randn(10, 4))
    torch.manual_seed(5)
    with pytest.warns(UserWarning, match="random"):
        CheckedLoss(loss, clipper)(outputs, TARGETS)
    told = torch.rand(3)
    torch.manual_seed(5)
    torch.rand(())
    assert torch.equal(torch.rand(3), told)
    assert float(loss.get_buffer("calls")) == 1


class Remembering:
    """Its values are those of the cross-entropy; its gradients grow with the outputs that it was asked of before the present ones."""

    def __init__(self) -> None:
        self.last, self.before = torch.zeros(1), 0.0

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if not torch.equal(self.last, outputs):
            self.last, self.before = outputs.detach().clone(), float(self.last.square().mean())
        moved = outputs.sum(1)
        return functional.cross_entropy(outputs, targets, reduction="none") + self.before * (moved - moved.detach())


def test_a_memory_that_only_gradients_show_is_refused() -> None:
    with pytest.raises(InputError, match="asked of other records in between"):
        checked(Remembering())
