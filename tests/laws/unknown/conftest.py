"""The made-up designs, loss and regulariser are registered for each test of this folder."""

from __future__ import annotations

import pytest
from made_up_runs import (
    DrawnTogether,
    Elsewhere,
    FreshHeaps,
    MadeUpLoss,
    MadeUpRegulariser,
    PublicHeaps,
    PublicSlots,
    SecretHeaps,
    Swelling,
)

from lethe.run.batches import DESIGNS as CLASSES
from lethe.run.losses import LOSSES
from lethe.run.regularisers import REGULARISERS


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for one in (PublicSlots, PublicHeaps, SecretHeaps, FreshHeaps, DrawnTogether, Elsewhere, Swelling):
        monkeypatch.setitem(CLASSES, one.design, one)
    monkeypatch.setitem(LOSSES, MadeUpLoss.kind, MadeUpLoss)
    monkeypatch.setitem(REGULARISERS, MadeUpRegulariser.kind, MadeUpRegulariser)
