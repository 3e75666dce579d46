"""Check of hand-written attention: records whose attention pattern is decided by rounding."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from lethe.train.clipping.checks.graphs import Node, kind_of, nearest, of_kind, saved
from lethe.train.clipping.rules.attention.core import left_to_rounding, longest, one_is_left_to_rounding
from lethe.train.core.tensors import on_cpu

_WIDE = (torch.float32, torch.float64)
_SMALL, _LARGE = 1e-12, 1e17  # between these a length of float32 numbers is not far off
_ROOM = 1.01  # for its rounding
_AT_ONCE = 2**25  # numbers of queries, keys and values that are copied beside each other
_SOFTMAX = ("Softmax", "SafeSoftmax")  # the second is torch's own attention with dropout, or with a mask that it does not fuse


class _Attended(NamedTuple):
    """Queries, keys and values of one attention, shapes (..., positions, d), the first dimension of records, or records x heads."""

    query: Tensor
    key: Tensor
    values: Sequence[Tensor]
    scale: float
    """Of scores, at most."""


def unsteady_records(nodes: Iterable[Node], records: int) -> Tensor | None:
    """Which records' gradients some attention of the graph leaves to rounding, see `unsteady`; None where there is no attention.

    Seen are torch's scaled_dot_product_attention, and softmax of a product of batches.

    Args:
        nodes: of the graph from the losses to its leaves.
        records: B; tensors with the records, or records and heads, in front are looked at.
    Returns:
        Shape (B,), bool, or None.
    """
    seen = [attended for attended in _attended(nodes) if _has_rows(attended, records)]
    doubted: list[tuple[_Attended, list[Tensor]]] = []
    for attended in seen:
        values = [value for value in attended.values if len(value) == len(attended.query)] or [attended.key]
        if not _far_from_rounding(attended.query, attended.key, values, attended.scale):
            doubted.append((attended, values))
    told = iter(_longest([tensor for attended, values in doubted for tensor in (attended.query, attended.key, *values)]))
    asked: dict[tuple[int, float, torch.dtype, torch.device], list[tuple[Tensor, ...]]] = {}
    for attended, values in doubted:
        q, k, *others = islice(told, 2 + len(values))
        asked.setdefault((len(q), attended.scale, attended.query.dtype, q.device), []).extend((q, k, v) for v in others)
    if not asked:
        return torch.zeros(records, dtype=torch.bool, device=seen[0].query.device) if seen else None
    found = [_unsteady(lengths, scale, dtype, records) for (_, scale, dtype, _), lengths in asked.items()]
    return torch.stack(found).any(0)


def _longest(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Of each row of tensors of shape (rows, ..., positions, d) the length of its longest vector; on a GPU of several tensors at once."""
    alike: dict[object, list[int]] = {}
    for place, tensor in enumerate(tensors):
        alike.setdefault(place if on_cpu(tensor) else (tensor.shape, tensor.dtype, tensor.device), []).append(place)
    found: dict[int, Tensor] = {}
    for places in alike.values():
        size = max(1, _AT_ONCE // max(1, tensors[places[0]].numel()))
        for some in (places[first : first + size] for first in range(0, len(places), size)):
            if len(some) == 1:
                found[some[0]] = _of_rows(longest(tensors[some[0]]))
            else:
                found.update(zip(some, map(_of_rows, longest(torch.stack([tensors[place] for place in some]))), strict=True))
    return [found[place] for place in range(len(tensors))]


def _unsteady(lengths: Sequence[tuple[Tensor, ...]], scale: float, dtype: torch.dtype, records: int) -> Tensor:
    """Of several attentions at once."""
    q, k, v = (torch.stack(column) for column in zip(*lengths, strict=True))
    return left_to_rounding(q, k, v, scale, dtype).view(len(lengths), records, -1).any(2).any(0)


def _far_from_rounding(query: Tensor, key: Tensor, values: Sequence[Tensor], scale: float) -> bool:
    """Whether no record is left to rounding by bounds that are quicker to take, where numbers lie together; else False."""
    given = (query, key, *values)
    if not all(tensor.dtype in _WIDE and tensor.numel() and on_cpu(tensor) for tensor in given):  # a GPU takes longer to ask
        return False
    bounds = [_bound_of(tensor) for tensor in given]
    if any(bound is None for bound in bounds):
        return False
    lengths = [float(bound()) * _ROOM for bound in bounds if bound is not None]
    if not all(_SMALL < length < _LARGE for length in lengths):  # squares vanish, overflow or are nan
        return False
    q, k, *others = lengths
    return not any(one_is_left_to_rounding(q, k, v, scale, query.dtype) for v in others)


def _bound_of(tensor: Tensor) -> Callable[[], Tensor | float] | None:
    """What tells that no vector along the last dimension is longer than so much; None: it is quicker to ask each."""
    lain = tensor.permute(sorted(range(tensor.dim()), key=tensor.stride, reverse=True))
    if lain.is_contiguous():
        return lambda: math.sqrt(tensor.shape[-1]) * max(abs(float(end)) for end in lain.aminmax())
    if tensor.dim() == 4 and tensor.stride()[1::2] == (tensor.shape[3], 1):  # heads beside each other, as if they were one
        return lambda: torch.linalg.vector_norm(tensor.transpose(1, 2).flatten(2), dim=-1).max()
    return None


def _of_rows(lengths: Tensor) -> Tensor:
    return lengths.flatten(1).amax(1) if lengths.dim() > 1 else lengths


def _has_rows(attended: _Attended, records: int) -> bool:
    first = len(attended.query)
    return attended.query.dim() > 2 and first > 0 and first % records == 0 and len(attended.key) == first


def _attended(nodes: Iterable[Node]) -> Iterator[_Attended]:
    by_softmax: dict[Node, list[Tensor]] = {}
    for node in of_kind(nodes, lambda kind: kind.startswith("ScaledDotProduct") or kind in _SOFTMAX or _multiplies(kind)):
        kind = kind_of(node)
        if kind.startswith("ScaledDotProduct"):
            given = [tensor.detach() for name in ("query", "key", "value") if (tensor := saved(node, name)) is not None]
            if len(given) == 3:
                scale = getattr(node, "_saved_scale", None)
                yield _Attended(given[0], given[1], given[2:], abs(scale) if scale else math.sqrt(1 / given[0].shape[-1]))
        elif kind in _SOFTMAX:
            by_softmax.setdefault(node, [])
        elif _multiplies(kind) and (softmax := nearest((node.next_functions[-2][0],), lambda name: name in _SOFTMAX)) is not None:
            value = _factors(node)[1]
            by_softmax.setdefault(softmax, []).extend(() if value is None else (value.detach(),))
    for softmax, values in by_softmax.items():
        product = nearest((softmax.next_functions[0][0],), _multiplies)
        query, key = (None, None) if product is None else _factors(product)
        if query is not None and key is not None:
            yield _Attended(query.detach(), key.detach().mT, values, 1.0)


def _multiplies(kind: str) -> bool:
    return kind in ("Bmm", "Baddbmm")


def _factors(product: Node) -> tuple[Tensor | None, Tensor | None]:
    names = ("self", "mat2") if kind_of(product) == "Bmm" else ("batch1", "batch2")
    return saved(product, names[0]), saved(product, names[1])
