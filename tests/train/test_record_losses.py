"""Losses as people write them: of one output, with their mean, with parameters of their own, of all outputs with all targets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from doors import arguments
from networks import CLASSES, COLUMNS, CROSS_ENTROPY, flat, make_data, make_network, make_network_run
from torch import Tensor, nn
from torch.nn import functional

from lethe.errors import InputError
from lethe.train import PrivacyEngine, TrainOptions, fit

RUN = make_network_run(noise_multiplier=1.0)
FEATURES, LABELS = make_data()
REAL = FEATURES[:, :1] + 0.1


def trained(loss: Any, targets: Tensor, outputs: int, **options: Any) -> Tensor:
    """The parameters after a seeded training of a linear model."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Linear(COLUMNS, outputs).double()
    return flat(fit(model, loss, (FEATURES, targets), RUN, **arguments({"seed": 0, **options})).model)


def looped(loss: Any, targets: Tensor, outputs: int) -> Tensor:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Linear(COLUMNS, outputs).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    engine = PrivacyEngine(
        model, optimizer, lambda batch: loss(model(batch[0]), batch[1]), (FEATURES, targets), RUN, options=TrainOptions(seed=0)
    )
    loader = engine.batches()
    for batch in loader:
        engine.backward(batch)
        optimizer.step()
        optimizer.zero_grad()
    return flat(model)


ONE_OUTPUT = [nn.BCEWithLogitsLoss, nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss]


@pytest.mark.parametrize("options", [{}, {"physical_size": 1}, {"physical_size": 4}, {"isolation": "declared"}])
@pytest.mark.parametrize("kind", ONE_OUTPUT)
def test_losses_of_one_output_are_taken_as_they_come(kind: Any, options: dict[str, Any]) -> None:
    targets = REAL.sigmoid()
    plain = kind(reduction="none")
    by_hand = trained(lambda outputs, wanted: plain(outputs, wanted)[:, 0], targets, 1, **options)
    assert torch.equal(trained(plain, targets, 1, **options), by_hand)


def test_gaussian_losses_of_one_output_and_a_loop_s_own() -> None:
    def gaussian(outputs: Tensor, wanted: Tensor) -> Tensor:
        return functional.gaussian_nll_loss(outputs[:, :1], wanted, outputs[:, 1:].exp(), reduction="none")

    assert torch.equal(trained(gaussian, REAL, 2), trained(lambda outputs, wanted: gaussian(outputs, wanted)[:, 0], REAL, 2))
    mean = nn.MSELoss(reduction="none")
    one = looped(mean, REAL, 1)
    assert torch.equal(one, looped(lambda outputs, wanted: mean(outputs, wanted)[:, 0], REAL, 1))


WEIGHTS = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
MEANS: dict[str, tuple[Any, Callable[[Tensor, Tensor], Tensor], Tensor, int]] = {
    "cross entropy": (nn.CrossEntropyLoss(), nn.CrossEntropyLoss(reduction="none"), LABELS, CLASSES),
    "with weights of classes": (
        nn.CrossEntropyLoss(weight=WEIGHTS),
        nn.CrossEntropyLoss(weight=WEIGHTS, reduction="none"),
        LABELS,
        CLASSES,
    ),
    "its function": (functional.cross_entropy, nn.CrossEntropyLoss(reduction="none"), LABELS, CLASSES),
    "of several numbers": (
        nn.MSELoss(),
        lambda outputs, wanted: (outputs - wanted).square().mean(1),
        FEATURES[:, :2].contiguous(),
        2,
    ),
    "of one number": (nn.HuberLoss(), lambda outputs, wanted: nn.HuberLoss(reduction="none")(outputs, wanted)[:, 0], REAL, 1),
}


@pytest.mark.parametrize("options", [{}, {"physical_size": 1}])
@pytest.mark.parametrize("name", MEANS)
def test_a_mean_of_pytorch_s_own_is_each_record_s(name: str, options: dict[str, Any]) -> None:
    mean, own, targets, outputs = MEANS[name]
    assert torch.equal(trained(mean, targets, outputs, **options), trained(own, targets, outputs, **options))
    assert getattr(mean, "reduction", "mean") == "mean"  # the user's own is as it was


def test_a_mean_in_a_loop_is_refused() -> None:
    with pytest.raises(InputError, match="a mean hides the records"):
        looped(nn.CrossEntropyLoss(), LABELS, CLASSES)


class Halved(nn.CrossEntropyLoss):
    """What a class of the user's own computes nobody knows."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return super().forward(input, target) / 2


@pytest.mark.parametrize(
    "loss", [Halved(), lambda outputs, wanted: functional.cross_entropy(outputs, wanted), nn.CrossEntropyLoss(reduction="sum")]
)
def test_other_means_hide_the_records(loss: Any) -> None:
    with pytest.raises(InputError, match=r"losses: got shape \(\).*a mean hides the records"):
        fit(make_network(), loss, (FEATURES, LABELS), RUN)


def test_the_mean_over_classes_of_many_positions_is_refused() -> None:
    """Positions that do not count, or count more, would enter it otherwise than PyTorch's."""
    model = nn.Sequential(nn.Linear(COLUMNS, 6), nn.Unflatten(1, (3, 2))).double()
    with pytest.raises(InputError, match=r"losses: got shape \(\d+, 2\)"):
        fit(model, nn.CrossEntropyLoss(), (FEATURES, LABELS[:, None].expand(-1, 2).contiguous()), RUN)


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("loss", [nn.MSELoss(), nn.MSELoss(reduction="none")])
def test_a_table_of_all_outputs_with_all_targets_is_refused(loss: Any) -> None:
    run = make_network_run("full", noise_multiplier=1.0)
    for flattened in (False, True):
        model = nn.Sequential(nn.Linear(COLUMNS, 1), *([nn.Flatten(0)] if flattened else [])).double()
        with pytest.raises(InputError, match=r"(?s)of every output with every target.*targets\[:, None\]"):
            fit(model, loss, (FEATURES, REAL if flattened else REAL[:, 0].contiguous()), run)


def test_targets_without_the_dimension_of_the_outputs_are_told_how_they_get_it() -> None:
    with pytest.raises(InputError, match=r"(?s)it computes nothing.*targets\[:, None\], where the model has one output"):
        fit(
            nn.Linear(COLUMNS, 1).double(),
            nn.BCEWithLogitsLoss(),
            (FEATURES, REAL[:, 0].sigmoid()),
            make_network_run("full", noise_multiplier=1.0),
        )


class Tempered(nn.Module):
    """A loss with a temperature of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3, dtype=torch.float64))

    def forward(self, outputs: Any, targets: torch.Tensor) -> torch.Tensor:
        return CROSS_ENTROPY(outputs * self.scale, targets)


@pytest.mark.parametrize("physical_size", [None, 1])
def test_parameters_of_a_loss_are_trained_by_nobody_and_refused(physical_size: int | None) -> None:
    tempered = Tempered()
    with pytest.raises(InputError, match="parameters of its own"):
        fit(make_network(), tempered, make_data(), RUN, options=TrainOptions(physical_size=physical_size))
    fit(make_network(), tempered.requires_grad_(False), make_data(), RUN, options=TrainOptions(physical_size=physical_size))
