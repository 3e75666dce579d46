"""Tensors sent between the processes of `torch.distributed`: to process 0 as a sum, and from it as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

import torch
import torch.distributed as dist
from torch import Tensor

from lethe.errors import LetheError

# Numbers that travel together: enough to make the start of a transfer cheap beside it.
_BUCKET = 2**20


class StoppedElsewhere(LetheError):
    """Another process ended the run, or cannot be reached."""


def device_types() -> list[str]:
    """The kinds of devices whose tensors the process group exchanges."""
    return [pair.split(":")[0] for pair in dist.get_backend_config().split(",")]


def control_device() -> torch.device:
    """Where what the processes tell each other lies: the CPU if the process group exchanges tensors of it."""
    known = device_types()
    return torch.device("cpu" if "cpu" in known else known[0])  # without a number: the present GPU


@torch.no_grad()
def sum_to_root(tensors: Sequence[Tensor]) -> None:
    """The sums over all processes, in place, in process 0; what the others hold is of no use afterwards.

    Raises:
        StoppedElsewhere: the others cannot be reached.
    """
    for bucket in _buckets(tensors):
        _in_one_piece(bucket, lambda flat: dist.reduce(flat, dst=0))


@torch.no_grad()
def spread_from_root(tensors: Sequence[Tensor]) -> None:
    """Process 0's tensors in all processes, in place.

    Raises:
        StoppedElsewhere: the others cannot be reached.
    """
    for bucket in _buckets(tensors):
        _in_one_piece(bucket, lambda flat: dist.broadcast(flat, src=0))


@torch.no_grad()
def scatter_sums(tensors: Iterable[Tensor], dimensions: Sequence[int], *, rank: int, world_size: int) -> Iterator[Tensor]:
    """Of each tensor's sum over all processes this process's part, flat: as `torch.chunk` divides it, without padding, maybe empty.

    The tensors are taken as they are needed, and let go as soon as they were sent.

    Args:
        tensors: of the same shapes and types in all processes.
        dimensions: along which each is divided.
        rank, world_size: this process and their number.
    Raises:
        StoppedElsewhere: the others cannot be reached.
    """
    ahead = iter(dimensions)
    for bucket in _buckets(tensors, whole=True):
        divided = list(islice(ahead, len(bucket)))
        rows = [_rows(tensor, dimension, world_size) for tensor, dimension in zip(bucket, divided, strict=True)]
        sent = rows[0] if len(rows) == 1 else torch.cat(rows, dim=1)
        received = sent.new_empty(sent.shape[1])
        with reached():
            if world_size == 1:
                received.copy_(sent[0])
            elif sent.numel():
                # From version 2.13 on it has another name, and the old one warns.
                scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
                scatter(received, sent.reshape(-1))
        padded = received.split([row.shape[1] for row in rows])
        own = [_own(tensor, dimension, rank, world_size) for tensor, dimension in zip(bucket, divided, strict=True)]
        bucket.clear()
        del rows, sent, received
        for part, numbers in zip(padded, own, strict=True):
            yield part[:numbers]


def _rows(tensor: Tensor, dimension: int, world_size: int) -> Tensor:
    """What goes to each process, one row each, padded with zeros to the first one's length."""
    size = tensor.shape[dimension]
    chunk = -(-size // world_size)
    first = tensor.movedim(dimension, 0)
    if chunk * world_size != size:
        first = torch.cat([first, first.new_zeros((chunk * world_size - size, *first.shape[1:]))])
    # A part keeps the order of its dimensions: (process, place in its part, ...) with the divided one back where it was.
    return first.unflatten(0, (world_size, chunk)).movedim(1, dimension + 1).reshape(world_size, -1)


def _own(tensor: Tensor, dimension: int, rank: int, world_size: int) -> int:
    """How many numbers of a tensor are this process's."""
    size = tensor.shape[dimension]
    chunk = -(-size // world_size)
    mine = min(chunk, max(0, size - rank * chunk))
    return tensor.numel() // size * mine if size else 0


@contextmanager
def reached() -> Iterator[None]:
    """Within: what the process group raises becomes an error for people.

    Raises:
        StoppedElsewhere: the others cannot be reached.
    """
    try:
        yield
    except RuntimeError as error:
        raise StoppedElsewhere(
            f"the other processes cannot be reached: {str(error).splitlines()[0] if str(error) else type(error).__name__}",
            source="torch.distributed",
            remedy="read what they wrote; one of them may be gone. With nccl, call torch.cuda.set_device(local_rank) in each first.",
        ) from error


def _buckets(tensors: Iterable[Tensor], *, whole: bool = False) -> Iterator[list[Tensor]]:
    """The tensors in order, small neighbours of one type together; empty ones only if they are wanted."""
    bucket: list[Tensor] = []
    numbers = 0
    for tensor in tensors:
        if not (tensor.numel() or whole):
            continue
        if bucket and (tensor.dtype != bucket[0].dtype or numbers + tensor.numel() > _BUCKET):
            yield bucket
            bucket, numbers = [], 0
        bucket.append(tensor)
        numbers += tensor.numel()
    if bucket:
        yield bucket


def _in_one_piece(bucket: Sequence[Tensor], exchange: Callable[[Tensor], object]) -> None:
    """Exchange a bucket as one flat tensor; a single contiguous tensor without a copy."""
    alone = bucket[0].detach()
    with reached():
        if len(bucket) == 1 and alone.is_contiguous():
            exchange(alone)
            return
        flat = torch.cat([tensor.detach().reshape(-1) for tensor in bucket])
        exchange(flat)
    for tensor, part in zip(bucket, flat.split([tensor.numel() for tensor in bucket]), strict=True):
        tensor.copy_(part.view_as(tensor))
