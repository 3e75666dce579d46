"""How many records a batch has is chance: where it is any other size of the model's as well, records are still told apart."""

from typing import Any
from unittest.mock import patch

import pytest
import torch
from layer_cases import CLIP, F64, clipped, flat, near, truth
from torch import Tensor, nn

from lethe.train.clip.clipper import Clipper

LENGTH = 6


class Masked(nn.Module):
    """A layer that has no rule, which is given a mask as wide as there are places, and gives one tensor, or two."""

    def __init__(self, *, both: bool) -> None:
        super().__init__()
        self.words, self.mix, self.both = nn.Embedding(9, 3), Attending(both=both), both

    def forward(self, batch: Tensor) -> Tensor:
        given = self.mix(self.words(batch), torch.full((LENGTH, LENGTH), -9.0, dtype=F64).triu(1))
        return (given[0] + given[1] if self.both else given).square().sum((1, 2))


class Attending(nn.Module):
    def __init__(self, *, both: bool) -> None:
        super().__init__()
        self.scale, self.both = nn.Parameter(torch.randn(3)), both

    def forward(self, given: Tensor, mask: Tensor) -> Any:
        mixed = ((given * self.scale) @ given.mT + mask).softmax(-1) @ given
        return (mixed, given * self.scale) if self.both else mixed


class WithPlaces(nn.Module):
    """Words and places, which are looked up once for all records, or computed of coordinates."""

    def __init__(self, places: str) -> None:
        super().__init__()
        self.words, self.numbers, self.points = nn.Embedding(9, 3), nn.Embedding(LENGTH, 3), nn.Linear(2, 3)
        self.points.requires_grad_(places == "points")
        self.numbers.requires_grad_(places != "points")
        self.places = places

    def forward(self, batch: Tensor) -> Tensor:
        line = torch.arange(LENGTH)
        if self.places == "points":
            found = self.points(torch.stack([line.double().sin(), line.double().cos()], dim=1))
        else:
            found = self.numbers(line if self.places == "line" else line[None])
        hidden = torch.tanh(self.words(batch) + found)
        return (hidden * hidden.cumsum(1)).sum((1, 2))


@pytest.mark.parametrize("places", ["line", "row", "points"])
@pytest.mark.parametrize("records", [1, 2, 3, LENGTH])
def test_a_batch_of_as_many_records_as_places(places: str, records: int) -> None:
    """Not looked at by itself: fewer records than before, and neither the first nor the second batch."""
    torch.manual_seed(0)
    model = WithPlaces(places).to(F64)
    clipper = Clipper(model, model, CLIP)
    with patch("lethe.train.clip.clipper.chance.randrange", return_value=1):
        for size in (4, LENGTH - 1, records, records):
            batch = torch.randint(9, (size, LENGTH))
            clipper.add(batch)
            near(flat(clipper.take()), clipped(truth(model, batch, losses=model)))
    assert clipper.ways == {"fast"}


@pytest.mark.parametrize("both", [False, True])
def test_a_mask_of_as_many_rows_as_records(both: bool) -> None:
    torch.manual_seed(0)
    model = Masked(both=both).to(F64)
    clipper = Clipper(model, model, CLIP)
    with patch("lethe.train.clip.clipper.chance.randrange", return_value=1):
        for size in (LENGTH - 1, LENGTH - 1, LENGTH, LENGTH):
            batch = torch.randint(9, (size, LENGTH))
            clipper.add(batch)
            near(flat(clipper.take()), clipped(truth(model, batch, losses=model)))
    assert clipper.ways == {"fast"}


# How places are given, whether the records count, and how often the clipper has asked for a look: of batches 1, 2 and 4 in any case.
CALLS = [("row", True, 1), ("row", True, 2), ("row", True, 2), ("row", True, 3), ("line", False, 4), ("line", True, 5), ("line", True, 5)]


def test_a_call_of_another_kind_is_looked_at_before_it_counts() -> None:
    """Where nothing counts there is nothing to look at, and nothing is learnt."""
    torch.manual_seed(0)
    model = WithPlaces("row").to(F64)
    clipper = Clipper(model, model, CLIP)
    looks = patch.object(clipper, "_look", wraps=clipper._look)
    with patch("lethe.train.clip.clipper.chance.randrange", return_value=1), looks as looked:
        for places, counted, expected in CALLS:
            model.places = places
            batch = torch.randint(9, (LENGTH, LENGTH))
            clipper.add(batch, counted=torch.full((LENGTH,), counted))
            near(flat(clipper.take()), clipped(truth(model, batch, losses=model)) * counted)
            assert looked.call_count == expected
