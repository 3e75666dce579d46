"""One door to training: each kind of model goes through `fit`, with losses as people write them, and comes out as a `Fitted`."""

from __future__ import annotations

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
from lethe.run.run import Run
from lethe.train import Fitted, Head, Linear, fit
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


RUN = make_network_run(noise_multiplier=1.0)
FEATURES, LABELS = make_data()
REAL = FEATURES[:, :1] + 0.1


def trained(loss: Any, targets: Tensor, outputs: int, **options: Any) -> Tensor:
    """The parameters after a seeded training of a linear model."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Linear(COLUMNS, outputs).double()
    return flat(fit(model, loss, (FEATURES, targets), RUN, **arguments({"seed": 0, **options})).model)


def each(kind: Any, **options: Any) -> Any:
    """The loss of a record by a class of PyTorch's, the mean over its own numbers."""
    plain = kind(reduction="none", **options)
    return lambda outputs, wanted: plain(outputs, wanted).reshape(len(outputs), -1).mean(1)


WEIGHTS = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
MEANS: dict[str, tuple[Any, Any, Tensor, int]] = {
    "cross entropy": (nn.CrossEntropyLoss(), each(nn.CrossEntropyLoss), LABELS, CLASSES),
    "with weights of classes": (nn.CrossEntropyLoss(weight=WEIGHTS), each(nn.CrossEntropyLoss, weight=WEIGHTS), LABELS, CLASSES),
    "its function": (functional.cross_entropy, each(nn.CrossEntropyLoss), LABELS, CLASSES),
    "of several numbers": (nn.MSELoss(), each(nn.MSELoss), FEATURES[:, :2].contiguous(), 2),
    "of one number": (nn.HuberLoss(), each(nn.HuberLoss), REAL, 1),
    "one a record": (nn.BCEWithLogitsLoss(reduction="none"), each(nn.BCEWithLogitsLoss), REAL.sigmoid(), 1),
}


@pytest.mark.parametrize("options", [{}, {"physical_size": 1}, {"physical_size": 4}])
@pytest.mark.parametrize("name", MEANS)
def test_a_mean_of_pytorch_s_own_is_each_record_s(name: str, options: dict[str, Any]) -> None:
    mean, own, targets, outputs = MEANS[name]
    torch.testing.assert_close(trained(mean, targets, outputs, **options), trained(own, targets, outputs, **options), rtol=0, atol=1e-14)
    assert getattr(mean, "reduction", "mean") in ("mean", "none")  # the user's own is as it was
