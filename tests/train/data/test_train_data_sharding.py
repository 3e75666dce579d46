"""Several processes: every record in exactly one of them, and as many micro-batches in all."""

from itertools import chain

import pytest
import torch
from data_cases import by_step, listed, numbered, oracle, runs, seeded
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
        list(BatchStream(run, numbered(run.records), seeded(seed), physical_size=physical, rank=rank, world_size=world, prefetch=0))
        for rank in range(world)
    ]
    assert len({len(batches) for batches in ranks}) == 1
    for together in zip(*ranks, strict=True):
        assert len({(batch.step, batch.last, tuple(listed(batch.whole))) for batch in together}) == 1
    for step, drawn in enumerate(oracle(run, seed), start=1):
        assert list(chain.from_iterable(by_step(batches)[step] for batches in ranks)) == drawn


@pytest.mark.parametrize(("rank", "world"), [(2, 2), (-1, 2), (0, 0), (True, 2), (0.0, 2), ("0", 1)])
def test_ranks_out_of_range_are_refused(rank: object, world: object) -> None:
    with pytest.raises(InputError):
        shard(slice(0, 4), rank, world)  # type: ignore[arg-type]
