"""Layers that are given several rows of each record, one record after the other."""

from __future__ import annotations

import dataclasses
from typing import Any

from torch import Tensor

from lethe.train.clipping.rules.parts import Part, Rows
from lethe.train.clipping.rules.rule import Use
from lethe.train.clipping.unfollowed import UnfollowedError

# Numbers that may be formed for the rows of all records: 2^27 float32 are 512 MiB.
_LIMIT = 2**27


def with_positions(use: Use, rows: int) -> Use:
    """A call with B x k rows as one with B records of k positions.

    Args:
        use: of a layer that is given one tensor and gives one.
        rows: k.
    """

    def apart(entry: Any) -> Any:
        whole = isinstance(entry, Tensor) and entry.dim() > 0 and len(entry) == len(use.grad_output)
        return entry.unflatten(0, (-1, rows)) if whole else entry

    return dataclasses.replace(
        use,
        inputs=tuple(apart(entry) for entry in use.inputs),
        keywords={key: apart(entry) for key, entry in use.keywords.items()},
        grad_output=apart(use.grad_output),
    )


def added_up(part: Part, rows: int, numbers: int) -> Rows:
    """The gradients of records, from those of their rows, which are formed.

    Args:
        part: of B x k rows.
        rows: k.
        numbers: that the parameter has.
    Raises:
        UnfollowedError: there are too many to be formed.
    """
    if part.squared_norms().numel() * numbers > _LIMIT:
        raise UnfollowedError(
            f"a layer is given {rows} rows of each record, whose gradients of {numbers} numbers each would not fit into memory.",
            source="the model's forward pass",
            remedy="take smaller micro-batches",
        )
    return Rows(part.per_record().unflatten(0, (-1, rows)).sum(1))
