"""Weighted sums of records: two records are never added in less than float64, see docs/theory.md, section 15."""

from __future__ import annotations

import torch
from torch import Tensor

from lethe.train.core.tensors import on_cpu

# Numbers that are copied to float64 at a time: 2^17 are 1 MiB, which stays in a core's cache.
_WIDENED, _WIDENED_ON_GPU = 2**17, 2**24


def weighed(weights: Tensor, formed: Tensor) -> Tensor:
    r"""$\sum_i w_i G_i$ of formed tensors, float64, to which products of float32 numbers are exact.

    Args:
        weights: shape (B,), float64.
        formed: shape (B, *shape).
    """
    flat = formed.unsqueeze(-1).flatten(1)
    if flat.dtype == torch.float64:
        return (weights @ flat).view(formed.shape[1:])
    size = max(1, (_WIDENED if on_cpu(flat) else _WIDENED_ON_GPU) // max(1, len(flat)))
    if flat.shape[1] <= size:
        return (weights @ flat.double()).view(formed.shape[1:])
    total = flat.new_empty(flat.shape[1], dtype=torch.float64)
    for columns, part in zip(flat.split(size, dim=1), total.split(size), strict=True):
        torch.mv(columns.double().mT, weights, out=part)
    return total.view(formed.shape[1:])


def products_added(weights: Tensor, gradients: Tensor, inputs: Tensor) -> Tensor:
    r"""$\sum_i w_i g_i^\top x_i$, products and sum in float64.

    Args:
        weights: shape (B,), float64.
        gradients, inputs: shapes (B, T, p) and (B, T, d).
    """
    columns = gradients.double() * weights[:, None, None]
    return columns.flatten(0, 1).mT @ inputs.double().flatten(0, 1)
