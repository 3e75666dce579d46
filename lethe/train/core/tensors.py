"""The parameters of a network, or their gradients, as one vector: checked, and walked through piece by piece."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass  # torch has no public name for it

from lethe.errors import InputError


def checked_tensors(tensors: Iterable[Tensor], *, device: torch.device | None = None) -> tuple[Tensor, ...]:
    """The tensors, if each can be changed in place without harm.

    Args:
        tensors: what to check.
        device: the device they must be on; None: any.
    Raises:
        InputError: a single tensor in place of many, or one that is given twice, is no float32 or float64, has entries that share
            memory, or lies on another device.
    """
    if isinstance(tensors, Tensor):
        raise InputError("tensors: got one tensor; it needs a list of tensors.", remedy="put it into a list.")
    checked = tuple(tensors)
    for place, tensor in enumerate(checked):
        if not isinstance(tensor, Tensor):
            raise InputError(f"tensors[{place}]: got {type(tensor).__name__}; it needs a tensor.", remedy="leave out what has no gradient.")
        if tensor.dtype not in (torch.float32, torch.float64):
            raise InputError(
                f"tensors[{place}]: got {tensor.dtype}; it needs float32 or float64: noise on coarser numbers is not Gaussian.",
                remedy="keep sums, noise and parameters in float32, and cast copies for the forward pass.",
            )
        if tensor.layout is not torch.strided or not (tensor.is_contiguous() or 0 not in tensor.stride()):
            raise InputError(f"tensors[{place}]: its entries share memory, or are not stored.", remedy="give tensor.contiguous().")
        if device is not None and tensor.device.type != device.type:
            raise InputError(f"tensors[{place}]: is on {tensor.device}; it needs to be on {device}.", source="the generator's device")
    if len({id(tensor) for tensor in checked}) < len(checked):
        raise InputError("tensors: the same tensor is given twice.", remedy="give shared parameters once.")
    return checked


def sharing_memory(named: Mapping[str, Tensor]) -> tuple[str, ...]:
    """The names of two strided tensors that lie on the same bytes of memory, or twice that of one that lies on itself; empty: none do.

    Args:
        named: the tensors; each is counted once, whatever names it has.
    """
    spans: list[tuple[int, int, str]] = []
    for name, tensor in named.items():
        if tensor.numel() and not tensor.is_meta:
            reach = 1 + sum((size - 1) * stride for stride, size in zip(tensor.stride(), tensor.shape, strict=True))
            if reach < tensor.numel() or (reach > tensor.numel() and bool((np.bincount(_places(tensor)) > 1).any())):
                return name, name
            spans.append((tensor.data_ptr(), tensor.data_ptr() + reach * tensor.element_size(), name))
    before: list[tuple[int, int, str]] = []
    for first, last, name in sorted(spans):
        before = [span for span in before if span[1] > first]
        if met := next((other for _, _, other in before if _meet(named[other], named[name])), None):
            return met, name
        before.append((first, last, name))
    return ()


def _places(tensor: Tensor) -> NDArray[np.int64]:
    """Where its numbers lie in memory, in bytes over their size, from its first one on."""
    places = np.zeros(tuple(tensor.shape), dtype=np.int64)
    for dimension, (stride, size) in enumerate(zip(tensor.stride(), tensor.shape, strict=True)):
        places += (stride * np.arange(size)).reshape(-1, *[1] * (tensor.dim() - 1 - dimension))
    return places.ravel()


def _meet(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors have a byte of memory in common, such as two columns of one table have not."""
    between = second.data_ptr() - first.data_ptr()
    sizes = first.element_size(), second.element_size()
    if sizes[0] != sizes[1] or between % sizes[0]:
        return True
    return bool(np.isin(_places(first), _places(second) + between // sizes[0]).any())


def is_shard(tensor: Tensor) -> bool:
    """Whether it is a DTensor, of which this process holds a part. By name: importing the class takes as long as a short training."""
    return _is_shard_class(type(tensor))


@functools.cache
def _is_shard_class(given: type) -> bool:
    return any(kind.__name__ == "DTensor" and kind.__module__.startswith("torch.") for kind in given.__mro__)


def inner_tensors(tensor: Tensor) -> list[Tensor] | None:
    """The plain tensors in which a wrapper (a quantised weight of torchao) keeps its numbers; None: it is no wrapper, or a shard."""
    if is_shard(tensor) or not is_traceable_wrapper_subclass(tensor):
        return None
    names, _ = tensor.__tensor_flatten__()
    held = [getattr(tensor, name) for name in names]
    return [part for one in held for part in (inner_tensors(one) or [one])]


def local(tensor: Tensor) -> Tensor:
    """What this process holds of a tensor, without padding and in the same memory; may be empty. Nothing is exchanged."""
    if not is_shard(tensor):
        return tensor
    with torch.no_grad():
        return tensor.to_local()  # pyright: ignore[reportAttributeAccessIssue]


def whole(tensor: Tensor) -> Tensor:
    """A sharded tensor gathered from all processes, which must call this together; any other tensor itself."""
    return tensor.detach().full_tensor() if is_shard(tensor) else tensor  # pyright: ignore[reportAttributeAccessIssue]


def as_part_of(parameter: Tensor, part: Tensor) -> Tensor:
    """This process's part of a gradient, as the gradient of its parameter: sharded as that is, and rounded to its type.

    Args:
        parameter: whole or sharded.
        part: of the shape of `local(parameter)`.
    """
    part = part.to(parameter.dtype)
    if not is_shard(parameter):
        return part
    from torch.distributed.tensor import DTensor

    mesh, placements = parameter.device_mesh, parameter.placements  # pyright: ignore[reportAttributeAccessIssue]
    return DTensor.from_local(part, mesh, placements, run_check=False, shape=parameter.shape, stride=parameter.stride())


def pieces(tensor: Tensor, size: int) -> Iterator[Tensor]:
    """Detached flat views of at most `size` entries that make up the tensor, or the tensor itself if it is not contiguous."""
    tensor = tensor.detach()
    if tensor.is_contiguous():
        yield from tensor.view(-1).split(size)
    else:
        yield tensor


def contents(tensor: Tensor) -> bytes:
    """The bytes of its numbers, in the order of its indices, for a hash; of a wrapper those of its inner tensors, and what these are."""
    if (inner := inner_tensors(tensor)) is not None:
        return b"".join(repr((tuple(part.shape), part.dtype)).encode() + contents(part) for part in inner)
    if tensor.is_quantized:
        return contents(tensor.int_repr()) + contents(tensor.dequantize())  # the latter for its scales
    flat = _row(tensor.detach().cpu())
    return flat.view(torch.uint8).numpy().tobytes()


def on_cpu(tensor: Tensor) -> bool:
    """Whether asking for a truth value of its numbers costs nothing. A GPU has to be waited for, and wants few, large operations."""
    return tensor.device.type == "cpu"


# Compute capabilities of NVIDIA's chips that multiply numbers of float64 about as fast as those of float32: P100, V100, A100, H100, B200.
# Others, made for pictures, take 32 or 64 times as long.
_FAST_DOUBLES = frozenset(((6, 0), (7, 0), (8, 0), (9, 0), (10, 0)))


@functools.cache
def has_fast_doubles(device: torch.device) -> bool:
    """Whether products of float64 numbers take about as long as those of float32 numbers there, or up to twice as long.

    Args:
        device: a CPU, or a GPU.
    """
    return device.type != "cuda" or torch.version.hip is not None or torch.cuda.get_device_capability(device) in _FAST_DOUBLES


WHOLE_NUMBERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Bytes of a number -> the whole numbers that its bits can be read as."""

_AT_ONCE = 2**24  # numbers that a GPU compares at once: of 4 bytes, it holds 64 MiB for it


@torch.no_grad()
def same_bits(now: Sequence[Tensor], before: Sequence[Tensor]) -> list[bool]:
    """Whether two lists of tensors agree in shape, type, device and every bit.

    Args:
        now: any tensors.
        before: as many, strided.
    """
    answers = [False] * len(now)
    elsewhere: dict[int, tuple[Tensor, Tensor]] = {}
    for place, (one, other) in enumerate(zip(now, before, strict=True)):
        alike = (one.shape, one.dtype, one.device, one.layout) == (other.shape, other.dtype, other.device, other.layout)
        if not alike or one.is_meta:
            continue
        bits, expected = _bits(local(one)), _bits(local(other))
        if on_cpu(bits):  # NumPy compares several times as fast as torch.equal does
            answers[place] = bool((bits.numpy() == expected.numpy()).all())
        else:
            elsewhere[place] = _row(bits), _row(expected)
    for place, same in zip(elsewhere, _equal(list(elsewhere.values())), strict=True):
        answers[place] = same
    return answers


def _equal(pairs: Sequence[tuple[Tensor, Tensor]]) -> list[bool]:
    """Whether whole numbers in one dimension agree, pair by pair: many in one operation, and a GPU is waited for once.

    Differences, which run over at both ends, are 0 only where both are equal; then all their bytes are.
    """
    places: list[int] = []
    largest: list[Tensor] = []
    for lot in _lots(pairs):
        places += (place for place, _, _ in lot)
        differences = torch._foreach_sub([one for _, one, _ in lot], [other for _, _, other in lot])  # pyright: ignore[reportPrivateImportUsage]
        largest += torch._foreach_max([difference.view(torch.uint8) for difference in differences])  # pyright: ignore[reportPrivateImportUsage]
    differ = torch.stack([byte.to(largest[0].device) for byte in largest]).tolist() if largest else []
    apart = {place for place, byte in zip(places, differ, strict=True) if byte}
    return [place not in apart for place in range(len(pairs))]


def _lots(pairs: Sequence[tuple[Tensor, Tensor]]) -> Iterator[list[tuple[int, Tensor, Tensor]]]:
    """Pieces of the pairs, with their places, of one type and device each time and of not too many numbers; none is empty."""
    begun: dict[object, list[tuple[int, Tensor, Tensor]]] = defaultdict(list)
    numbers: dict[object, int] = defaultdict(int)
    for place, (first, second) in enumerate(pairs):
        for one, other in zip(first.split(_AT_ONCE), second.split(_AT_ONCE), strict=True):
            kind, count = (one.dtype, one.device), one.numel()
            if begun[kind] and numbers[kind] + count > _AT_ONCE:
                yield begun.pop(kind)
                numbers[kind] = 0
            if count:
                begun[kind].append((place, one, other))
                numbers[kind] += count
    yield from (lot for lot in begun.values() if lot)


def _row(tensor: Tensor) -> Tensor:
    """Its numbers in one dimension, one beside the other."""
    flat = tensor.contiguous().reshape(-1)
    return flat if flat.stride(0) == 1 else flat.clone(memory_format=torch.contiguous_format)  # a single number that was expanded


def _bits(tensor: Tensor) -> Tensor:
    real = torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor.detach()
    return real.view(WHOLE_NUMBERS[real.element_size()])


def dimension(tensors: Iterable[Tensor]) -> int:
    """How many numbers the tensors hold together."""
    return sum(tensor.numel() for tensor in tensors)
