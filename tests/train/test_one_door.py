"""One door to training: each kind of model goes through `fit`, with losses as people write them, and comes out as a `Fitted`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from doors import arguments
from networks import CLASSES, COLUMNS, CROSS_ENTROPY, flat, make_data, make_network, make_network_run
from problems import make_problem, make_run
from torch import Tensor, nn
from torch.nn import functional

import lethe
from lethe.calculus.filters import Odometer
from lethe.certificates.records import TrainingRecord
from lethe.errors import InputError
from lethe.run.run import Run
from lethe.train import Checkpoints, Fitted, Group, Head, Linear, ProximalGroup, TrainOptions, fit
from lethe.train.linear.models import LinearPredictor

KIND = "softmax_regression"
PROBLEM = make_problem(KIND)
TABLE = PROBLEM.features, PROBLEM.targets


def make_head() -> Head:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Head(nn.Identity(), nn.Linear(4, 3, bias=False).double())


def through(model: Any, run: Run | None = None, loss: Any = None, **options: Any) -> Fitted[Any]:
    """A training of each kind by the door itself."""
    if isinstance(model, nn.Module):
        run = make_network_run(noise_multiplier=1.0) if run is None else run
        return fit(model, CROSS_ENTROPY if loss is None else loss, make_data(), run, **arguments(options))
    data = TABLE if isinstance(model, Linear) else tuple(torch.tensor(part) for part in TABLE)
    return fit(model, loss, data, make_run(release="all") if run is None else run, **arguments(options))


@pytest.mark.slow
def test_all_come_out_alike() -> None:
    """The same fields, of which a budget fills the same ones, whatever was trained."""
    budget: dict[str, Any] = {
        "noise_budget": 1.0,
        "release": "all",
        "neighbours": "replace_one",
        "batches": {"design": "cyclic", "size": 5},
    }
    found = {
        "module": through(make_network(), make_network_run(noise_multiplier=2.0, **{**budget, "neighbours": "replace_one"})),
        "linear": through(Linear(classes=3), make_run(**budget)),
        "head": through(make_head(), make_run(**budget)),
    }
    for fitted in found.values():
        assert isinstance(fitted, Fitted)
        assert fitted.diagnostics.steps > 0
        assert fitted.diagnostics.records == 23
        assert fitted.diagnostics.left_over == 3
        assert fitted.odometer == Odometer.up_to(1.0)
        assert fitted.spent is not None
        assert 0.5 < fitted.spent <= 1.0 + 1e-9
        assert fitted.checked
        assert isinstance(fitted.declared, tuple)
        assert not fitted.run.seeded
        assert isinstance(fitted.record, TrainingRecord)
        assert fitted.record.run == fitted.run
        assert lethe.certify(fitted, 1e-5).epsilon < np.inf
    assert isinstance(found["module"].model, nn.Sequential)
    assert isinstance(found["linear"].model, LinearPredictor)
    assert (found["linear"].model.classes, found["linear"].model.loss.kind) == (3, KIND)
    assert found["head"].model(torch.tensor(TABLE[0])).shape == (23, 3)


# Of networks alone: something that is not the default for each of their options.
OTHERS: dict[str, Any] = {
    "lr_scheduler": "cosine",
    "validation_data": [1],
    "patience": 2,
    "clip_groups": [Group(parameters=("*",), clip_norm=0.1)],
    "proximal_groups": [ProximalGroup(regularisers=())],
    "method": "clip",
    "users": [1, 2],
    "records_per_user": 2,
    "views": 2,
    "ema": 0.9,
    "physical_size": 4,
    "gradient_memory": 0,
    "secure": True,
    "isolation": "declared",
    "checkpoints": Checkpoints(folder="nowhere"),
}


@pytest.mark.parametrize("option", OTHERS)
def test_options_of_networks_are_refused_by_name_elsewhere(option: str) -> None:
    of_all = {"noise_policy", "seed", "batch_generator", "noise_generator", "progress", "ledger", "allow_large_delta"}
    assert set(OTHERS) == {field.name for field in fields(TrainOptions)} - of_all  # of a new one this test must know
    with pytest.raises(InputError, match=f"^{option}: a Linear does not know it"):
        through(Linear(classes=3), **{option: OTHERS[option]})
    if option == "physical_size":
        through(make_head(), physical_size=4)
        return
    head = make_head()
    before = head.head.weight.detach().clone()
    with pytest.raises(InputError, match=f"^{option}: a Head does not know it"):
        through(head, **{option: OTHERS[option]})
    assert torch.equal(before, head.head.weight)


RUN = make_network_run(noise_multiplier=1.0)
FEATURES, LABELS = make_data()
REAL = FEATURES[:, :1] + 0.1


def trained(loss: Any, targets: Tensor, outputs: int, **options: Any) -> Tensor:
    """The parameters after a seeded training of a linear model."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Linear(COLUMNS, outputs).double()
    return flat(fit(model, loss, (FEATURES, targets), RUN, **arguments({"seed": 0, **options})).model)


ONE_OUTPUT = [nn.BCEWithLogitsLoss, nn.MSELoss]


@pytest.mark.parametrize("options", [{}, {"physical_size": 4}])
@pytest.mark.parametrize("kind", ONE_OUTPUT)
def test_losses_of_one_output_are_taken_as_they_come(kind: Any, options: dict[str, Any]) -> None:
    targets = REAL.sigmoid()
    plain = kind(reduction="none")
    by_hand = trained(lambda outputs, wanted: plain(outputs, wanted)[:, 0], targets, 1, **options)
    assert torch.equal(trained(plain, targets, 1, **options), by_hand)


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
