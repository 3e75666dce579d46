"""Splitting of a batch among processes and into micro-batches."""

from __future__ import annotations

from lethe.errors import InputError
from lethe.train.core.samplers import Batch
from lethe.train.data.sources.base import length, require_whole


def shard(batch: Batch, rank: int, world_size: int) -> Batch:
    r"""The records of a batch that fall to one process: places $\lfloor kr/W \rfloor$ to $\lfloor k(r+1)/W \rfloor$ of its k.

    Every record falls to exactly one process, and no two processes differ by more than one record.

    Args:
        batch: the whole batch, the same in every process.
        rank: r, from 0 to W - 1.
        world_size: W >= 1, the number of processes.
    Raises:
        InputError: a rank or a number of processes out of range.
    """
    world = require_whole("world_size", world_size, 1)
    place = require_whole("rank", rank, 0)
    if place >= world:
        raise InputError(f"rank: got {place}; with world_size = {world} it needs to be at most {world - 1}.")
    size = length(batch)
    return part(batch, size * place // world, size * (place + 1) // world)


def pieces(size: int, physical_size: int | None, world_size: int) -> int:
    """The number of micro-batches into which every process cuts its share of a batch, >= 1; the same in all of them.

    Args:
        size: records of the batch.
        physical_size: the most records of a micro-batch; None: no limit.
        world_size: the number of processes.
    """
    if physical_size is None:
        return 1
    largest_share = -(-size // world_size)
    return max(1, -(-largest_share // physical_size))


def part(batch: Batch, first: int, stop: int) -> Batch:
    """Some records of a batch: those of the range that exist.

    Args:
        batch: the places of its records.
        first, stop: the range, counted from 0, without `stop`.
    """
    if isinstance(batch, slice):
        return slice(min(batch.start + first, batch.stop), min(batch.start + stop, batch.stop))
    return batch[first:stop]
