"""What a training keeps of the sums of clipped gradients: nothing, once a step has used them."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from networks import CROSS_ENTROPY, make_data, make_network, make_network_run
from torch import Tensor

from lethe.train import fit
from lethe.train.clipping import Clipper


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("make", [None, torch.optim.Adam])
@pytest.mark.parametrize("physical_size", [None, 2])
def test_the_sums_of_a_step_are_gone_when_the_next_are_computed(
    make: Any, physical_size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else two whole gradients were there where one is needed."""
    taken: list[weakref.ref[Tensor]] = []
    left: list[int] = []
    take = Clipper.take

    def noted(self: Clipper) -> Any:
        sums = take(self)
        taken.extend(weakref.ref(total) for total in sums.values())
        return sums

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        left.append(sum(one() is not None for one in taken))
        return CROSS_ENTROPY(outputs, targets)

    monkeypatch.setattr(Clipper, "take", noted)
    model = make_network()
    optimizer = None if make is None else make(model.parameters(), lr=0.1)
    run = make_network_run("shuffled", steps=4)
    fit(model, loss, make_data(), run, optimizer=optimizer, physical_size=physical_size)
    assert len(taken) == 4 * len(list(model.parameters()))
    assert set(left) == {0}
