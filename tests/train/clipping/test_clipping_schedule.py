"""When the self-check looks, and that glances find what begins late."""

from collections import Counter
from typing import Any

import pytest
import torch
from per_record import clipped, rows, small
from torch import nn

from lethe.errors import InputError
from lethe.train.clipping import Clipper
from lethe.train.clipping.schedule import Depth, Schedule
from lethe.train.clipping.survey import survey
from lethe.train.core.comparison import chance


def depths(sizes: list[int]) -> list[Depth]:
    schedule, found, made = Schedule(), survey(small()), list[Depth]()
    for size in sizes:
        made.append(schedule.due(found, size))
        schedule.over(size, made[-1])
        if made[-1] is Depth.THOROUGH and size > 1:
            schedule.passed(found, size)
    return made


def never(count: int) -> int:
    return count - 1


def test_a_thorough_check_then_glances_at_powers_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chance, "randrange", never)
    made = depths([8] * 20)
    assert made[0] is Depth.THOROUGH
    assert [number for number, depth in enumerate(made, 1) if depth is Depth.GLANCE] == [2, 4, 8, 16]
    assert Depth.THOROUGH not in made[1:]


def test_single_records_are_not_checked_at_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chance, "randrange", never)
    assert [number for number, depth in enumerate(depths([1] * 20), 1) if depth] == [1, 2, 4, 8, 16]


def test_a_batch_that_grew_by_half_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chance, "randrange", never)
    made = depths([8, 8, 12, 8, 13, 8, 19, 20])
    assert [number for number, depth in enumerate(made, 1) if depth is Depth.THOROUGH] == [1, 5, 8]


@pytest.mark.slow
def test_some_batches_are_glanced_at_by_chance() -> None:
    found = Counter(depths([8] * 20_000))
    assert 80 <= found[Depth.GLANCE] - 14 <= 250  # 156 expected, 12 is one standard deviation
    assert found[Depth.THOROUGH] == 2  # the first and number 4096


class Late(nn.Module):
    """Mixes once it is told to, by values or by gradients."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layers, self.kind, self.begun = small(), kind, False

    def forward(self, given: torch.Tensor) -> Any:
        hidden = self.layers(given)
        if not self.begun:
            return hidden
        return hidden - (hidden.detach() if self.kind == "values" else hidden).mean(0)


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["values", "gradients"])
@pytest.mark.parametrize("drawn", [False, True])
def test_what_begins_late_is_found_at_the_next_glance(kind: str, drawn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chance, "randrange", never)
    model = Late(kind)
    clipper = Clipper(model)
    for _ in range(3 if not drawn else 4):
        clipped(clipper, rows())
    model.begun = True
    if drawn:
        monkeypatch.setattr(chance, "randrange", lambda count: 0)
        model.begun = False
        clipped(clipper, rows())
        model.begun = True
    with pytest.raises(InputError, match="depends on the other records"):
        clipped(clipper, rows())


@pytest.mark.slow
def test_a_recording_that_was_not_used_leaves_nothing_to_compare_with() -> None:
    model = small()
    clipper = Clipper(model)
    with clipper.recording():
        model(rows())
    with torch.no_grad():
        next(model.parameters()).mul_(2)
    clipped(clipper, rows())
    assert clipper.verified == "checked"
