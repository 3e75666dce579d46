"""One record that decides how the sum of all others is rounded: it moves the computed sums by no more than is counted.

The others bring the sum to a power of two, and it decides on which side of that the sum goes on. What the records
after it add is half a unit of rounding there, on one side, and a whole one on the other: in float32 these are all lost or all doubled.
The clipper's own sums, of every kind of layer, are attacked in tests/laws/train/test_sums_of_records.py.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import pytest
import torch
from networks import fit_network
from private_loops import Loop, losses_of
from processes import Processes
from torch import Tensor, nn

import lethe
from lethe.train.network import plan

COUNTED = 1.001  # of what is counted: rounding of the weights, after the noise, is post-processing, and averages out over coordinates
NUMBERS, NOISE = 16, 4.0  # of trained numbers, which all have the same gradient


def targets_of(records: int, part: int, sign: float) -> Tensor:
    """Each record's gradient, shorter than 1 over all numbers, in float32; after the first ones `part` add half a unit of rounding."""
    top = (1 - 1e-5) / math.sqrt(NUMBERS)
    before = int(0.6 * records) // part * part
    power = 2.0 ** math.floor(math.log2(0.9 * before * top))
    targets = torch.full((records,), 0.51 * 2.0**-23 * power / part)
    targets[:before] = power / before
    targets[0] = sign * top
    return targets


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.sum(1) * targets


def run_of(records: int, release: str = "all") -> lethe.Run:
    fields: dict[str, Any] = {"release": release, "neighbours": "replace_one", "noise_multiplier": NOISE, "step_size": float(records)}
    return lethe.Run(records=records, batches=lethe.batches.Full(), steps=1, clip_norm=1.0, **fields)


def trained(rank: int, door: str, sign: float, run: lethe.Run, part: int, processes: int = 1) -> Tensor:
    """The trained numbers, in this process; the records of all processes but the first add nothing."""
    model = nn.Linear(8, 2, bias=False)
    nn.init.zeros_(model.weight)
    targets = torch.zeros(run.records)
    targets[: run.records // processes] = targets_of(run.records // processes, part, sign)
    data, options = (torch.ones(run.records, 8), targets), {"seed": 1, "physical_size": part}
    if door == "fit":
        fit_network(run, model, loss, data, **options)
    else:
        plain = functools.partial(torch.optim.SGD, lr=run.step_size)
        Loop(run, model=model, losses=losses_of(model, loss), data=data, optimizer=plain, **options).whole()
    return model.weight.detach().double()


def moved(ends: list[Tensor], run: lethe.Run) -> float:
    """How far apart two worlds end along the attacked direction, over what is counted."""
    return abs(float((ends[0] - ends[1]).sum())) / math.sqrt(NUMBERS) / float(run.sensitivities[0])


@pytest.mark.parametrize(("door", "release"), [("fit", "all"), ("fit", "last"), ("loop", "all")])  # loops certify no last iterate
def test_micro_batches_move_by_no_more_than_is_counted(door: str, release: str) -> None:
    """In float32 sums it was 1.003 times as much in parts of 8, and 1.05 in parts of 128."""
    run = run_of(256 * 32, release)
    assert 0.99 < moved([trained(0, door, sign, run, 32) for sign in (1.0, -1.0)], run) <= COUNTED


@pytest.mark.parametrize("door", ["fit", "loop"])
def test_every_door_clips_to_so_much_less(door: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The margin itself is too small to be seen; with one of a quarter, a record moves the sum by three quarters."""
    seen: list[tuple[int | None, int]] = []

    def quarter(run: lethe.Run, part: int | None, *, processes: int) -> float:
        seen.append((part, processes))
        return 0.25

    monkeypatch.setattr(plan, "margin_of", quarter)
    run = run_of(64)
    assert moved([trained(0, door, sign, run, 8) for sign in (1.0, -1.0)], run) == pytest.approx(0.75, rel=1e-4)
    assert seen == [(8, 1)] * 2


def test_two_processes_move_by_no_more_than_is_counted(processes: Processes) -> None:
    run = run_of(2 * 256 * 32)
    ends = [processes.run(2, trained, "fit", sign, run, 32, 2)[0] for sign in (1.0, -1.0)]
    assert 0.99 < moved(ends, run) <= COUNTED
