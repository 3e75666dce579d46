"""Numbers that enter the losses of all records of a batch alike, read off the graph; and whether one is a count of the batch's tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from lethe.train.clipping.checks.graphs import Node, kind_of

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
    return [(kind, value) for node in nodes if (kind := kind_of(node)) in _KINDS for value in _shared(node, records)]


def _shared(node: Node, records: int) -> Iterable[float]:
    for name in _NAMES:
        try:
            value = getattr(node, name, None)
        except RuntimeError:
            continue
        if isinstance(value, Tensor) and value.numel() == 1 and not value.is_complex() and (value.dim() == 0 or records != 1):
            value = value.item()
        if isinstance(value, bool | int | float):
            yield float(value)


def counted_tokens(value: float, batch: Sequence[Tensor]) -> str | None:
    """What of a batch of sequences a number, or its inverse, counts; None: nothing.

    Args:
        value: that scales all losses alike.
        batch: its tensors; those with a row of whole numbers or of zeros and ones for each record are looked at.
    """
    if not value:
        return None
    for place, tensor in enumerate(batch):
        if tensor.dim() < 2 or (tensor.is_floating_point() and not bool(((tensor == 0) | (tensor == 1)).all())) or tensor.is_complex():
            continue
        for what, count in _counts(tensor):
            if count > len(tensor) and any(abs(found - count) <= _ROUNDED * count for found in (abs(value), abs(1 / value))):
                return f"the {what} in tensor {place} of the batch, {count}"
    return None


def _counts(tensor: Tensor) -> Iterator[tuple[str, int]]:
    for part, where in ((tensor, ""), (tensor[:, 1:], " but the first of each record")):
        yield f"entries{where}", part.numel()
        yield f"entries other than 0{where}", int(torch.count_nonzero(part))
        if not part.is_floating_point() and part.dtype is not torch.bool:
            yield f"entries other than {_IGNORED}{where}", int((part != _IGNORED).sum())
            yield f"entries above 0{where}", int((part > 0).sum())
            yield f"entries of at least 0{where}", int((part >= 0).sum())
