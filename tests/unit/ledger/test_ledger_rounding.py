"""A planned run is reserved with room for the rounding of its hidden iterates, which is known once it is trained."""

from pathlib import Path

import numpy as np
import pytest

import lethe
from lethe.errors import BudgetExceededError
from lethe.ledger import Budget, Ledger, Spending

pytest.importorskip("torch")

import torch
from doors import fit_linear
from torch import nn

from lethe.train import TrainOptions, fit  # without torch there is nothing to import

RECORDS, WIDTH, CLASSES, EPSILON, DELTA = 6000, 200, 10, 2.0, 1e-5


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger.open(tmp_path / "ledger.sqlite", make=True)
    made.create("patients", neighbours="replace_one", budget=Budget(epsilon=EPSILON, delta=DELTA), by="keeper")
    return made


@pytest.mark.slow
@pytest.mark.parametrize("by_hand", [False, True])
def test_what_rounding_adds_was_reserved(ledger: Ledger, by_hand: bool) -> None:
    numbers = np.random.default_rng(0)
    data = numbers.normal(size=(RECORDS, WIDTH)), numbers.integers(CLASSES, size=RECORDS)
    loss = lethe.losses.Softmax(feature_norm=1.0, classes=CLASSES)
    shape = lethe.Run(
        records=RECORDS, batches=lethe.batches.Cyclic(20), passes=2, step_size=0.5, loss=loss, release="last", neighbours="replace_one"
    )
    run = lethe.plan(shape, epsilon=1.0, delta=DELTA)
    number = ledger.reserve("patients", lethe.certify(run, delta=DELTA), by="team").number if by_hand else None
    fitted = fit_linear(run, *data, classes=CLASSES, ledger=Spending(ledger, "patients", by="team", reservation=number))
    (line,) = ledger.show("patients").lines
    assert line.state == "settled"
    assert lethe.certify(run, delta=DELTA).epsilon < lethe.certify(fitted, delta=DELTA).epsilon


@pytest.mark.slow
def test_a_coarse_model_is_warned_of_and_told_to_be_trained_in_float64(ledger: Ledger) -> None:
    """mu = sqrt(T) 2 lambda G over the noise, with G = M u N/2 and N/2 = 100: the start, 100 moves of .5, and the noise."""
    shape = lethe.Run(
        records=RECORDS,
        batches=lethe.batches.Cyclic(600),
        passes=10,
        step_size=0.5,
        clip_norm=1.0,
        release="last",
        neighbours="replace_one",
    )
    run = lethe.plan(shape.replace(loss=lethe.losses.Convex(smoothness=0.5)), epsilon=1.0, delta=DELTA)
    data = torch.full((RECORDS, WIDTH), 0.01), torch.arange(RECORDS) % CLASSES
    loss, model = nn.CrossEntropyLoss(reduction="none"), nn.Linear(WIDTH, CLASSES)
    nn.init.ones_(model.weight)
    nn.init.zeros_(model.bias)
    with (
        pytest.warns(UserWarning, match=r"about mu = 0\.0032.*model\.double"),
        pytest.raises(BudgetExceededError, match=r"model\.double\(\)"),
    ):
        fit(model, loss, data, run, options=TrainOptions(ledger=Spending(ledger, "patients", by="team")))
    assert [line.state for line in ledger.show("patients").lines] == ["voided"]
    fit(model.double(), loss, (data[0].double(), data[1]), run, options=TrainOptions(ledger=Spending(ledger, "patients", by="team")))
    assert [line.state for line in ledger.show("patients").lines] == ["voided", "settled"]
