"""Several processes: every record in exactly one of them, and as many micro-batches in all; and steps that are skipped."""

from itertools import chain
from typing import Any

import pytest
import torch
from data_cases import by_step, listed, make_run, numbered, oracle, runs, seeded
from helpers import DESIGNS
from hypothesis import given
from hypothesis import strategies as st

from lethe.errors import InputError
from lethe.run.run import Run
from lethe.train.data import BatchStream, shard


@pytest.mark.slow
@given(size=st.integers(0, 50), world=st.integers(1, 9), first=st.integers(0, 5))
def test_shards_partition_and_are_balanced(size: int, world: int, first: int) -> None:
    for batch in (slice(first, first + size), torch.arange(first, first + size)):
        parts = [listed(shard(batch, rank, world)) for rank in range(world)]
        assert list(chain.from_iterable(parts)) == list(range(first, first + size))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.slow
@given(run=runs(), world=st.integers(1, 4), physical=st.none() | st.integers(1, 4), seed=st.integers(0, 99))
def test_the_processes_together_load_every_record_once(run: Run, world: int, physical: int | None, seed: int) -> None:
    ranks = [
        list(BatchStream(run, numbered(run.records), seeded(seed), physical_size=physical, rank=rank, world_size=world))
        for rank in range(world)
    ]
    assert len({len(batches) for batches in ranks}) == 1
    for together in zip(*ranks, strict=True):
        assert len({(batch.step, batch.last, tuple(listed(batch.whole))) for batch in together}) == 1
    for step, drawn in enumerate(oracle(run, seed), start=1):
        assert list(chain.from_iterable(by_step(batches)[step] for batches in ranks)) == drawn


def steps_of(stream: BatchStream, count: int | None = None) -> list[tuple[int, list[int]]]:
    """The next so many steps, or all of them."""
    steps: list[tuple[int, list[int]]] = []
    for batch in stream:
        if len(steps) == count:
            break
        if batch.last:
            steps.append((batch.step, listed(batch.whole)))
            if len(steps) == count:
                break
    stream.close()
    return steps


@pytest.mark.nightly(by_day="test_resuming_after_every_step")
@pytest.mark.slow
@given(design=st.sampled_from(DESIGNS), before=st.integers(0, 5), skipped=st.integers(0, 6))
def test_what_follows_is_what_would_have_followed(design: str, before: int, skipped: int) -> None:
    run = make_run(design, steps=11)
    whole = steps_of(BatchStream(run, numbered(run.records), seeded(5)))
    stream = BatchStream(run, numbered(run.records), seeded(5))
    first = steps_of(stream, before) if before else []
    assert [listed(batch) for batch in stream.skip(skipped)] == [records for _, records in whole[before : before + skipped]]
    assert stream.steps_done == before + skipped
    state = stream.state_dict()
    assert first + steps_of(stream) == whole[:before] + whole[before + skipped :]
    again = BatchStream(run, numbered(run.records), seeded(99))
    again.load_state_dict(state)
    assert steps_of(again) == whole[before + skipped :]


@pytest.mark.parametrize(("steps", "message"), [(-1, "steps: got -1"), (True, "steps: got True"), (12, "11 steps are left")])
def test_refusals(steps: Any, message: str) -> None:
    run = make_run("poisson", steps=11)
    stream = BatchStream(run, numbered(run.records), seeded(5))
    with pytest.raises(InputError, match=message):
        stream.skip(steps)
    assert stream.steps_done == 0
