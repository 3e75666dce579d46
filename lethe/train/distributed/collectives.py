"""Collective operations of `torch.distributed` on many tensors at once, with errors for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor

from lethe.errors import LetheError

# Numbers that travel together: enough to make the start of a transfer cheap beside it.
_BUCKET = 2**20


class StoppedElsewhere(LetheError):
    """Another process ended the run, or cannot be reached."""


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


def exchange(tensors: Iterable[Tensor], operation: Callable[[Tensor], object]) -> None:
    """Do so with each tensor, in place; small neighbours of one type travel as one, and empty ones not at all."""
    bucket: list[Tensor] = []
    numbers = 0
    for tensor in (one.detach() for one in tensors if one.numel()):
        numbers += tensor.numel()
        if bucket and (tensor.dtype != bucket[0].dtype or numbers > _BUCKET):
            _exchange_bucket(bucket, operation)
            bucket, numbers = [], tensor.numel()
        bucket.append(tensor)
    if bucket:
        _exchange_bucket(bucket, operation)


def _exchange_bucket(bucket: Sequence[Tensor], operation: Callable[[Tensor], object]) -> None:
    alone = len(bucket) == 1 and bucket[0].is_contiguous()
    flat = bucket[0] if alone else torch.cat([tensor.reshape(-1) for tensor in bucket])
    with reached():
        operation(flat)
    if not alone:
        for tensor, part in zip(bucket, flat.split([tensor.numel() for tensor in bucket]), strict=True):
            tensor.copy_(part.view_as(tensor))


def device_types() -> list[str]:
    """The kinds of devices whose tensors the process group exchanges."""
    return [pair.split(":")[0] for pair in dist.get_backend_config().split(",")]
