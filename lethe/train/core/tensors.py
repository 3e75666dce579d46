"""The parameters of a network, or their gradients, as one vector: checked, counted, hashed, and gathered from shards. Noise, clipping and
checkpoints need all trained numbers exactly once; shared memory or an unknown type would break that, and is refused. A shard is the part of
a tensor that one process holds under `fully_shard` (FSDP2).
"""

import functools
from collections.abc import Iterable, Mapping
from itertools import pairwise

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass  # torch has no public name for it

from lethe.errors import InputError


def checked_tensors(tensors: Iterable[Tensor], *, device: torch.device | None = None) -> tuple[Tensor, ...]:
    """The tensors; InputError for one that is no float32 or float64, has entries that share memory, or lies on another device."""
    checked = tuple(tensors)
    for index, tensor in enumerate(checked):
        if tensor.dtype not in (torch.float32, torch.float64):
            raise InputError(
                f"tensors[{index}]: got {tensor.dtype}; it needs float32 or float64: noise on coarser numbers is not Gaussian.",
                remedy="keep sums, noise and parameters in float32, and cast copies for the forward pass.",
            )
        if tensor.layout is not torch.strided or not (tensor.is_contiguous() or 0 not in tensor.stride()):
            raise InputError(f"tensors[{index}]: its entries share memory, or are not stored.", remedy="give tensor.contiguous().")
        if device is not None and tensor.device.type != device.type:
            raise InputError(f"tensors[{index}]: is on {tensor.device}; it needs to be on {device}.", source="the generator's device")
    return checked


def sharing_memory(named: Mapping[str, Tensor]) -> tuple[str, ...]:
    """The names of two strided tensors whose stretches of memory overlap, or twice that of one that may lie on itself; empty: none do."""
    spans: list[tuple[int, int, str]] = []
    for name, tensor in named.items():
        if tensor.numel() and not tensor.is_meta:
            reach = 1
            for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
                if size > 1 and stride < reach:
                    return name, name
                reach += (size - 1) * stride
            spans.append((tensor.data_ptr(), tensor.data_ptr() + reach * tensor.element_size(), name))
    for (_, end, before), (start, _, after) in pairwise(sorted(spans)):
        if start < end:
            return before, after
    return ()


def is_shard(tensor: Tensor) -> bool:
    """Whether it is a DTensor, of which this process holds a part. Importing the class takes as long as a short training."""
    return hasattr(tensor, "full_tensor")


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
    """This process's part of a gradient, of the shape of `local(parameter)`, as the parameter's: sharded, and of its type."""
    part = part.to(parameter.dtype)
    if not is_shard(parameter):
        return part
    from torch.distributed.tensor import DTensor

    mesh, placements = parameter.device_mesh, parameter.placements  # pyright: ignore[reportAttributeAccessIssue]
    return DTensor.from_local(part, mesh, placements, run_check=False, shape=parameter.shape, stride=parameter.stride())


def contents(tensor: Tensor) -> bytes:
    """The bytes of its numbers, in the order of its indices, for a hash; of a wrapper those of its inner tensors, and what these are."""
    if is_traceable_wrapper_subclass(tensor):  # a quantised weight of torchao
        inner = [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]]
        return b"".join(repr((tuple(part.shape), part.dtype)).encode() + contents(part) for part in inner)
    if tensor.is_quantized:
        return contents(tensor.int_repr()) + contents(tensor.dequantize())  # the latter for its scales
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    if flat.stride(0) != 1:  # a single number that was expanded
        flat = flat.clone(memory_format=torch.contiguous_format)
    return flat.view(torch.uint8).numpy().tobytes()


# Compute capabilities of NVIDIA's chips that multiply numbers of float64 about as fast as those of float32: P100, V100, A100, H100, B200.
# Others, made for pictures, take 32 or 64 times as long.
_FAST_DOUBLES = frozenset(((6, 0), (7, 0), (8, 0), (9, 0), (10, 0)))


@functools.cache
def has_fast_doubles(device: torch.device) -> bool:
    """Whether products of float64 numbers take about as long as those of float32 numbers there, or up to twice as long."""
    return device.type != "cuda" or torch.version.hip is not None or torch.cuda.get_device_capability(device) in _FAST_DOUBLES


def dimension(tensors: Iterable[Tensor]) -> int:
    """How many numbers the tensors hold together."""
    return sum(tensor.numel() for tensor in tensors)
