"""Tensors of PyTorch as bytes; only imported where PyTorch is."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass  # torch has no public name for it

from lethe.certificates.weights.digest import RawTensor
from lethe.errors import InputError

_EXTRA = "_extra_state"  # what a module may keep in a state dict beside parameters and buffers: anything at all


def _raw_tensor(name: str, tensor: torch.Tensor) -> RawTensor:
    """The tensor's numbers, wherever they are, as bytes.

    Args:
        name: for messages.
        tensor: dense.
    Raises:
        InputError: it is sparse, quantised, without storage, or a shard, or the machine is not little-endian.
    """
    if hasattr(tensor, "full_tensor"):
        raise InputError(
            f"weights: {name!r} is a DTensor, of which this process holds a shard.",
            source="fully_shard",
            remedy="give the whole: get_model_state_dict with full_state_dict=True, of torch.distributed.checkpoint.state_dict.",
        )
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta or sys.byteorder != "little":
        raise InputError(f"weights: {name!r} has no plain numbers in memory ({tensor.layout}, {tensor.dtype}, {tensor.device}).")
    dense = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
    return RawTensor(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), dense.view(torch.uint8).numpy())


def raw_state(state: Mapping[str, Any]) -> dict[str, RawTensor]:
    """The parameters and buffers of a state dict; what modules keep in it besides, as `_extra_state`, is no tensor and is left out.

    A tensor that wraps others, such as a quantised weight of torchao, counts as these, called NAME.INNER.

    Raises:
        InputError: an entry is no tensor, or of a kind that has no plain numbers, or two are called alike.
    """
    kept = {name: entry for name, entry in state.items() if not (str(name).endswith(_EXTRA) and not isinstance(entry, torch.Tensor))}
    strange = [name for name, entry in kept.items() if not isinstance(entry, torch.Tensor)]
    if strange:
        raise InputError(
            f"weights: {strange[0]!r} is {type(kept[strange[0]]).__name__}, no tensor.", remedy="give model.state_dict() and nothing else."
        )
    raw: dict[str, RawTensor] = {}
    for name, entry in kept.items():
        for inner, tensor in _plain(name, entry):
            if inner in raw:
                raise InputError(
                    f"weights: two tensors are called {inner!r}.", source="a tensor that wraps others, which are named after it"
                )
            raw[inner] = _raw_tensor(inner, tensor)
    return raw


def _plain(name: str, tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    if hasattr(tensor, "full_tensor") or not is_traceable_wrapper_subclass(tensor):
        yield name, tensor
        return
    for key in tensor.__tensor_flatten__()[0]:
        yield from _plain(f"{name}.{key}", getattr(tensor, key))
