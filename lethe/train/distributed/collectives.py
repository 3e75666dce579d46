"""Collective operations of `torch.distributed` on many tensors at once, with readable errors where another process has stopped. `Workers`
and `Placement` call them to add up clipped sums; small tensors travel together.
"""

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
    """Within: what the process group raises becomes an error for people."""
    try:
        yield
    except RuntimeError as error:
        raise StoppedElsewhere(
            f"the other processes cannot be reached: {str(error).splitlines()[0] if str(error) else type(error).__name__}",
            source="torch.distributed",
            remedy="read what they wrote; one of them may be gone. With nccl, call torch.cuda.set_device(local_rank) in each first.",
        ) from error


def exchange(tensors: Iterable[Tensor], operation: Callable[[Tensor], object]) -> None:
    """Do so with each tensor, in place; small neighbours travel as one."""
    for bucket in _buckets(tensors):
        single = len(bucket) == 1 and bucket[0].is_contiguous()
        flat = bucket[0] if single else torch.cat([tensor.reshape(-1) for tensor in bucket])
        if flat.numel():
            with reached():
                operation(flat)
        if not single:
            for tensor, part in zip(bucket, flat.split([tensor.numel() for tensor in bucket]), strict=True):
                tensor.copy_(part.view_as(tensor))


def scatter_sums(tensors: Iterable[Tensor], dimensions: Sequence[int], *, rank: int, world_size: int) -> Iterator[Tensor]:
    """Of each tensor's sum over all processes this process's part, as `torch.chunk` divides it, and DTensor does; it may be empty.

    The tensors are taken as they are needed, and let go as soon as they were sent.
    """
    ahead = iter(dimensions)
    for bucket in _buckets(tensors):
        divided = [_chunks(tensor, next(ahead), world_size) for tensor in bucket]
        bucket.clear()
        shapes = [chunks[rank].shape for chunks in divided]
        rows = [torch.cat([part.reshape(-1) for part in parts]) for parts in zip(*divided, strict=True)]
        del divided
        sent = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        del rows
        received = sent[0] if world_size == 1 else torch.empty_like(sent[0])
        if world_size > 1 and sent.numel():
            with reached():  # from version 2.13 on it has another name, and the old one warns
                getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)(received, sent.view(-1))
        del sent
        sizes = [shape.numel() for shape in shapes]
        for part, shape in zip(received[: sum(sizes)].split(sizes), shapes, strict=True):  # the rest is padding
            yield part.view(shape)


def _chunks(tensor: Tensor, dimension: int, world_size: int) -> list[Tensor]:
    chunks = tensor.detach().chunk(world_size, dimension)
    return [*chunks, *[tensor.narrow(dimension, 0, 0)] * (world_size - len(chunks))]


def _buckets(tensors: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """The tensors in order, small neighbours of one type together."""
    bucket: list[Tensor] = []
    numbers = 0
    for tensor in tensors:
        numbers += tensor.numel()
        if bucket and (tensor.dtype != bucket[0].dtype or numbers > _BUCKET):
            yield bucket
            bucket, numbers = [], tensor.numel()
        bucket.append(tensor.detach())
    if bucket:
        yield bucket


def device_types() -> list[str]:
    """The kinds of devices whose tensors the process group exchanges."""
    return [pair.split(":")[0] for pair in dist.get_backend_config().split(",")]
