"""Check of hand-written attention: records whose attention pattern is decided by rounding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from lethe.train.clipping.checks.graphs import Node, kind_of, nearest, saved
from lethe.train.clipping.rules.attention.core import unsteady


class _Attended(NamedTuple):
    """Queries, keys and values of one attention, shape (B or B x heads, positions, d), and an upper bound of what scores are scaled by."""

    query: Tensor
    key: Tensor
    value: Tensor
    scale: float | None


def unsteady_records(nodes: Iterable[Node], records: int) -> Tensor | None:
    """Which records' gradients some attention of the graph leaves to rounding, see `unsteady`; None where there is no attention.

    Seen are torch's scaled_dot_product_attention, and softmax of a product of batches.

    Args:
        nodes: of the graph from the losses to its leaves.
        records: B; tensors with the records, or records and heads, in front are looked at.
    Returns:
        Shape (B,), bool, or None.
    """
    found = [
        unsteady(*attended[:3], heads=1, scale=attended.scale).view(records, -1).any(1)
        for attended in _attended(nodes)
        if _has_rows(attended, records)
    ]
    return torch.stack(found).any(0) if found else None


def _has_rows(attended: _Attended, records: int) -> bool:
    first = len(attended.query)
    return first > 0 and first % records == 0 and len(attended.key) == len(attended.value) == first


def _attended(nodes: Iterable[Node]) -> Iterator[_Attended]:
    for node in nodes:
        kind = kind_of(node)
        if kind.startswith("ScaledDotProduct"):
            given = [tensor.detach().flatten(1, -2) for name in ("query", "key", "value") if (tensor := saved(node, name)) is not None]
            if len(given) == 3:
                yield _Attended(given[0], given[1], given[2], None)
        elif kind == "Softmax":
            yield from _of_softmax(node, None)
        elif _multiplies(kind) and (softmax := nearest((node.next_functions[-2][0],), lambda name: name == "Softmax")) is not None:
            yield from _of_softmax(softmax, _factors(node)[1])


def _multiplies(kind: str) -> bool:
    return kind in ("Bmm", "Baddbmm")


def _factors(product: Node) -> tuple[Tensor | None, Tensor | None]:
    names = ("self", "mat2") if kind_of(product) == "Bmm" else ("batch1", "batch2")
    return saved(product, names[0]), saved(product, names[1])


def _of_softmax(softmax: Node, value: Tensor | None) -> Iterator[_Attended]:
    product = nearest((softmax.next_functions[0][0],), _multiplies)
    query, key = (None, None) if product is None else _factors(product)
    if query is not None and key is not None:
        keys = key.detach().mT
        yield _Attended(query.detach(), keys, keys if value is None else value.detach(), 1.0)
