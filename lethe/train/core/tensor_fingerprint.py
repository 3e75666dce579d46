"""Fingerprints of tensors by sums over their bits, where a copy would take too much memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lethe.train.core.tensors import WHOLE_NUMBERS, inner_tensors, local, same_bits

_COLUMNS = 1024

_SPARSE_ROWS = (torch.sparse_csr, torch.sparse_bsr)
_SPARSE_COLUMNS = (torch.sparse_csc, torch.sparse_bsc)


def strided_parts(tensor: Tensor) -> list[Tensor] | None:
    """The strided tensors that a tensor consists of: itself, the indices and values of a sparse one, or what a wrapper wraps; None of
    other kinds."""
    if (inner := inner_tensors(tensor)) is not None:
        parts = [strided_parts(part) for part in inner]
        return None if None in parts else [part for some in parts if some is not None for part in some]
    tensor = tensor.detach()
    if tensor.is_meta or tensor.is_quantized:
        return None
    if tensor.layout == torch.strided:
        return [tensor]
    if tensor.layout == torch.sparse_coo:
        merged = tensor.coalesce()
        return [merged.indices(), merged.values()]
    if tensor.layout in _SPARSE_ROWS:
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in _SPARSE_COLUMNS:
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return None


def same_numbers(now: Tensor, before: Tensor) -> bool:
    """Whether two tensors of any layout have the same numbers, NaN included; False where that cannot be told."""
    if (now.layout, now.shape, now.dtype) != (before.layout, before.shape, before.dtype):
        return False
    parts, others = strided_parts(now), strided_parts(before)
    if parts is None or others is None:
        return now is before or (not now.is_meta and now.is_quantized and torch.equal(now, before))
    return len(parts) == len(others) and all(same_bits(parts, others))


def fingerprint(tensor: Tensor) -> tuple[Any, ...]:
    """A fingerprint of a tensor's shape, type and bits: sums over the rows and the columns of its bits as a table of whole numbers.

    One number that is another always shows. Nothing of the tensor's size is kept.
    """
    tensor = local(tensor)
    described = (tuple(tensor.shape), tensor.dtype, tensor.device)
    if (inner := inner_tensors(tensor)) is not None:
        return (*described, *(fingerprint(part) for part in inner))
    if tensor.layout != torch.strided and (parts := strided_parts(tensor)) is not None:
        return (*described, *(fingerprint(part) for part in parts))
    if tensor.is_meta or tensor.layout != torch.strided or tensor.is_quantized:
        return (*described, id(tensor), 0 if tensor.is_inference() else tensor._version)
    values = tensor.detach().contiguous()
    flat = (torch.view_as_real(values) if values.is_complex() else values).reshape(-1)
    bits = flat.view(WHOLE_NUMBERS[flat.element_size()])
    even = len(bits) - len(bits) % _COLUMNS
    table = bits[:even].view(-1, _COLUMNS)
    sums = torch.cat([table.sum(0, dtype=torch.int64), table.sum(1, dtype=torch.int64), bits[even:].to(torch.int64)])
    return (*described, sums.cpu().numpy().tobytes())
