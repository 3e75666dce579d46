"""Record by record in whole trainings: `fit`, and a loop of one's own with batches of one record."""

import warnings
from typing import Any

import pytest
import torch
from lone_models import MODELS, ROWS, Unfollowed, plainly
from per_record import assert_same, clipped_sums, gradients_of_records
from torch import Tensor, nn
from torch.nn import functional

import lethe
from lethe.errors import RecordByRecordWarning
from lethe.train import PrivacyEngine, fit
from lethe.train.clipping.unfollowed import RECORD_BY_RECORD


def plan(**options: Any) -> lethe.Run:
    return lethe.Run(
        records=6, batches=lethe.Full(), steps=2, step_size=0.5, clip_norm=1.0, noise_multiplier=1e-9, release="all", **options
    )


def descended(model: nn.Module, targets: Tensor) -> list[Tensor]:
    """Two steps of the run by hand."""
    for _ in range(2):
        gradients: dict[nn.Parameter, list[Tensor]] = {parameter: [] for parameter in model.parameters()}
        for record in range(len(ROWS)):
            loss = functional.cross_entropy(model(ROWS[[record]]), targets[[record]])
            told: Any = torch.autograd.grad(loss, list(gradients), allow_unused=True)
            for parameter, gradient in zip(gradients, told, strict=True):
                gradients[parameter].append(torch.zeros_like(parameter) if gradient is None else gradient)
        sums = clipped_sums({parameter: torch.stack(rows) for parameter, rows in gradients.items()}, 1.0)
        with torch.no_grad():
            for parameter, total in sums.items():
                parameter -= 0.5 * total / 6
    return [parameter.detach() for parameter in model.parameters()]


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["a function of one's own", "a reentrant checkpoint"])
def test_fit_and_a_loop_of_ones_own_train_it(name: str) -> None:
    targets = torch.tensor([0, 1, 2, 0, 1, 2])
    torch.manual_seed(0)
    model = MODELS[name]().double()
    start = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    expected = plainly(model, lambda: descended(model, targets))
    model.load_state_dict(start)
    with pytest.warns(RecordByRecordWarning):
        fitted = fit(model, nn.CrossEntropyLoss(reduction="none"), (ROWS, targets), plan())
    assert fitted.report.gradients == RECORD_BY_RECORD
    assert "record by record" in fitted.checked
    for parameter, truth in zip(model.parameters(), expected, strict=True):
        assert torch.allclose(parameter, truth, atol=1e-7)
    model.load_state_dict(start)
    engine = PrivacyEngine(plan(), physical_size=1)
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.5)
    _, optimizer, loader = engine.make_private(module=model, optimizer=optimizer, data=(ROWS, targets))
    criterion = nn.CrossEntropyLoss(reduction="none")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for inputs, wanted in loader:
            with engine.recording():
                losses = engine.losses(criterion, model(inputs), wanted)
            engine.backward(losses)
            optimizer.step()
            optimizer.zero_grad()
    for parameter, truth in zip(model.parameters(), expected, strict=True):
        assert torch.allclose(parameter, truth, atol=1e-7)
    engine.recorded_run()
    assert engine.report.gradients == RECORD_BY_RECORD
    assert not any("self-check" in line for line in engine.declared)


def test_one_per_cent_more_would_be_seen() -> None:
    model = Unfollowed().double()
    gradients = gradients_of_records(model, ROWS)
    right = clipped_sums(gradients, 1.0)
    with pytest.raises(AssertionError):
        assert_same({parameter: 1.01 * tensor for parameter, tensor in right.items()}, right, 6.0)
