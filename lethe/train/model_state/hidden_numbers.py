"""Detection of tensors that share a longer storage: torch.save writes whole storages."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor, nn

from lethe.train.core.tensors import inner_tensors, local


def hidden_numbers(model: nn.Module) -> dict[str, bytes]:
    """Which parameters and buffers lie in a larger storage, with a digest of its other bytes, unless these are 0.

    Where `p.data` is the head of a longer tensor, the file that torch.save(model.state_dict()) writes holds the rest as well.
    """
    held: dict[int, list[tuple[str, Tensor]]] = {}
    for name, given in (*model.named_parameters(), *model.named_buffers()):
        for tensor in inner_tensors(given) or [local(given)]:
            if tensor.layout == torch.strided and not tensor.is_meta and not tensor.is_quantized:
                held.setdefault(tensor.untyped_storage().data_ptr(), []).append((name, tensor.detach()))
    found: dict[str, bytes] = {}
    for parts in held.values():
        rest = _beside([tensor for _, tensor in parts])
        if rest is not None and bool(rest.any()):
            found[parts[0][0]] = hashlib.blake2b(rest.cpu().numpy().tobytes(), digest_size=16).digest()
    return found


def _beside(tensors: list[Tensor]) -> Tensor | None:
    """The bytes of the storage that belong to none of the tensors; None: there are none."""
    storage = tensors[0].untyped_storage()
    size = storage.nbytes()
    if any(tensor.is_contiguous() and tensor.numel() * tensor.element_size() == size for tensor in tensors):
        return None
    free = torch.ones(size, dtype=torch.bool, device=tensors[0].device)
    for tensor in tensors:
        width = tensor.element_size()
        own = torch.zeros(size // width, dtype=torch.bool, device=free.device)
        own.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).fill_(True)
        free[: len(own) * width].view(-1, width)[own] = False
    whole = torch.empty(0, dtype=torch.uint8, device=free.device).set_(storage)
    return whole[free]
