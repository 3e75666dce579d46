"""The made-up designs, loss and regulariser are registered for each test of this folder."""

import pytest
from made_up_runs import MADE_UP, MadeUpLoss, MadeUpRegulariser

from lethe.run.batches import DESIGNS
from lethe.run.losses import LOSSES
from lethe.run.regularisers import REGULARISERS


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for one in MADE_UP:
        monkeypatch.setitem(DESIGNS, one.design, one)
    monkeypatch.setitem(LOSSES, MadeUpLoss.kind, MadeUpLoss)
    monkeypatch.setitem(REGULARISERS, MadeUpRegulariser.kind, MadeUpRegulariser)
