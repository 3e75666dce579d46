"""Runs, data and generators for the tests of data sources."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from helpers import DESIGNS
from helpers import batches as batches_of
from hypothesis import strategies as st
from torch.utils.data import Dataset

from lethe.run.run import Run
from lethe.train.core.samplers import Batch, draw_batches
from lethe.train.data.batches import LoadedBatch
from lethe.train.data.sources import fields_of

VARIABLE = ("poisson", "random_allocation", "balls_in_bins")


def make_run(design: str = "poisson", records: int = 23, size: int = 5, cap: int | None = None, **changes: Any) -> Run:
    batches: dict[str, Any] = batches_of(design, size)
    batches |= {} if cap is None else {"truncate_at": cap}
    fields: dict[str, Any] = {
        "passes": 3,
        "step_size": 0.1,
        "clip_norm": 1.0,
        "noise_multiplier": 1.0,
        "release": "last",
        "neighbours": "replace_one",
    }
    if "steps" in changes:
        del fields["passes"]
    return Run(records=records, batches=batches, **{**fields, **changes})


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """Any design, up to 24 records and 12 steps, whole passes or not."""
    records = draw(st.integers(1, 24))
    size = draw(st.integers(1, records))
    return make_run(draw(st.sampled_from(DESIGNS)), records, size, steps=draw(st.integers(1, 12)))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbered(records: int) -> tuple[np.ndarray, np.ndarray]:
    """Features and targets that say which record they are; never zero, so padding is told from records."""
    targets = np.arange(1, records + 1)
    return np.stack([targets * 10.0, targets + 0.5], 1), targets


def listed(batch: Batch | None) -> list[int]:
    return [] if batch is None else list(range(batch.start, batch.stop)) if isinstance(batch, slice) else batch.tolist()


def oracle(run: Run, seed: int = 0) -> list[list[int]]:
    """What draw_batches draws, record numbers by step."""
    return [listed(batch) for batch in draw_batches(run, seeded(seed))]


def by_step(batches: Iterator[LoadedBatch] | list[LoadedBatch]) -> dict[int, list[int]]:
    """The record numbers read off the loaded targets, rows that do not count left out."""
    steps: dict[int, list[int]] = {}
    for batch in batches:
        targets = batch.tensors[1] if batch.counted is None else batch.tensors[1][batch.counted]
        steps.setdefault(batch.step, []).extend((targets - 1).tolist())
    return steps


class Listed(Dataset[Any]):
    """A map-style data set over numbered records; it counts, and fails where it is told to."""

    def __init__(self, records: int, fails_at: int | None = None) -> None:
        self.features, self.targets = numbered(records)
        self.fails_at = fails_at
        self.read = 0

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        self.read += 1
        if index == self.fails_at:
            raise OSError(f"record {index} cannot be read")
        return self.features[index], int(self.targets[index])


RECORDS = 11
TOKENS = torch.arange(RECORDS * 5).reshape(RECORDS, 5)
SCORES = torch.linspace(0, 1, RECORDS, dtype=torch.float64)
NAMED = {"input_ids": TOKENS, "label": torch.arange(RECORDS) % 3}


def rows(*, uneven: bool = False, **others: Any) -> list[dict[str, Any]]:
    """Records as lists and numbers."""
    sizes = [3 if uneven and place % 2 == 0 else 5 for place in range(RECORDS)]
    return [{"input_ids": TOKENS[place, :size].tolist(), "label": place % 3, **others} for place, size in enumerate(sizes)]


def same(source: Any, expected: dict[str, torch.Tensor]) -> None:
    assert fields_of(source) == tuple(sorted(expected))
    for batch in (slice(2, 7), torch.tensor([7, 1, 1])):
        for name, tensor in zip(source.fields, source.fetch(batch), strict=True):
            assert tensor.dtype == expected[name].dtype
            assert torch.equal(tensor, expected[name][batch])
