"""Numbers that enter the losses of all records of a batch alike, read off the graph; and whether one is a count of the batch's tokens."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from lethe.train.clipping.checks.graphs import Node, kind_of, of_kind

_NAMES = ("_saved_self", "_saved_other", "_saved_exponent", "_saved_end", "_saved_weight")
_KINDS = ("Mul", "Div", "Pow", "Lerp")
_ROUNDED = 1e-6  # a count in float32, or its inverse
_IGNORED = -100  # the label that PyTorch's losses leave out

SharedNumbers = list[tuple[str, float]]


def shared_numbers(nodes: Iterable[Node], records: int) -> SharedNumbers:
    """The operations that scale by one number for all records, and the number.

    Args:
        nodes: of a graph.
        records: B.
    """
    with _disable_current_modes():  # a mode that watches operations is given a number that Python multiplied by, where it needs a tensor
        return [(kind_of(node), value) for node in of_kind(nodes, _KINDS.__contains__) for value in _shared(node, records)]


@lru_cache(256)
def _names_of(kind: type) -> tuple[str, ...]:
    """Those of the names that nodes of a class may have; of a class in Python any."""
    return _NAMES if kind.__dictoffset__ else tuple(name for name in _NAMES if hasattr(kind, name))


def _shared(node: Node, records: int) -> Iterable[float]:
    for name in _names_of(type(node)):
        try:
            value = getattr(node, name, None)
        except RuntimeError:
            continue
        if isinstance(value, Tensor) and value.numel() == 1 and not value.is_complex() and (value.dim() == 0 or records != 1):
            value = value.item()
        if isinstance(value, bool | int | float):
            yield float(value)


def token_counts(batch: Sequence[Tensor]) -> list[tuple[str, int]]:
    """What may be counted of a batch of sequences, in words, and the counts; those of no more than its records are left out.

    Args:
        batch: its tensors; those with a row of whole numbers or of zeros and ones for each record are looked at.
    """
    found: list[tuple[str, int]] = []
    for place, tensor in enumerate(batch):
        if tensor.dim() < 2 or (tensor.is_floating_point() and not bool(((tensor == 0) | (tensor == 1)).all())) or tensor.is_complex():
            continue
        counts = [(f"the {what} in tensor {place} of the batch, {count}", count) for what, count in _counts(tensor)]
        found += [(words, count) for words, count in counts if count > len(tensor)]
    return found


def counted_tokens(value: float, counts: Iterable[tuple[str, int]]) -> str | None:
    """What a number that scales all losses alike, or its inverse, counts, of `token_counts`; None: nothing."""
    if not value:
        return None
    sizes = abs(value), abs(1 / value)
    return next((words for words, count in counts if any(abs(size - count) <= _ROUNDED * count for size in sizes)), None)


def may_count(value: float, batch: Sequence[Tensor]) -> bool:
    """Whether a number, or its inverse, is a whole number larger than the batch: else it is none of its `token_counts`."""
    least = min((len(tensor) for tensor in batch if tensor.dim() > 1), default=0)
    sizes = (abs(value), abs(1 / value)) if value else ()
    return any(least + 0.5 < size < math.inf and abs(size - round(size)) <= 2 * _ROUNDED * size for size in sizes)


def _counts(tensor: Tensor) -> Iterator[tuple[str, int]]:
    for part, where in ((tensor, ""), (tensor[:, 1:], " but the first of each record")):
        yield f"entries{where}", part.numel()
        yield f"entries other than 0{where}", int(torch.count_nonzero(part))
        if not part.is_floating_point() and part.dtype is not torch.bool:
            yield f"entries other than {_IGNORED}{where}", int((part != _IGNORED).sum())
            yield f"entries above 0{where}", int((part > 0).sum())
            yield f"entries of at least 0{where}", int((part >= 0).sum())
