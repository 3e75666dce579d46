"""Tensors sent between the processes of `torch.distributed`: to process 0 as a sum, and from it as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

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


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """The tensors in order, small neighbours of one type together."""
    bucket: list[Tensor] = []
    numbers = 0
    for tensor in tensors:
        if not tensor.numel():
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
