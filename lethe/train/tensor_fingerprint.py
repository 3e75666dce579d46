"""A tensor's values told again by a few sums of its bits, where a copy would take too much memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lethe.train.network.tensors import WHOLE_NUMBERS

_COLUMNS = 1024


def fingerprint(tensor: Tensor) -> tuple[Any, ...]:
    """Of a tensor's shape, type and bits: sums over the rows and the columns of its bits as a table of whole numbers.

    One number that is another always shows. Nothing of the tensor's size is kept.
    """
    described = (tuple(tensor.shape), tensor.dtype, tensor.device)
    if tensor.is_meta or tensor.layout != torch.strided or tensor.is_quantized:
        return (*described, id(tensor), 0 if tensor.is_inference() else tensor._version)
    values = tensor.detach().contiguous()
    flat = (torch.view_as_real(values) if values.is_complex() else values).reshape(-1)
    bits = flat.view(WHOLE_NUMBERS[flat.element_size()])
    even = len(bits) - len(bits) % _COLUMNS
    table = bits[:even].view(-1, _COLUMNS)
    sums = torch.cat([table.sum(0, dtype=torch.int64), table.sum(1, dtype=torch.int64), bits[even:].to(torch.int64)])
    return (*described, sums.cpu().numpy().tobytes())
