"""Targets of blocks: what is asked of them in the first pass, and how each later pass turns them into what a loss takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lethe.errors import InputError
from lethe.estimators.inputs.labels import public_labels
from lethe.mechanisms.base import Array
from lethe.partitions.block import Block, Values, refused, targets_of

Labels = np.ndarray[Any, Any]


def nothing_else(block: Block) -> None:
    """No more is asked of a block than that its features are finite."""


def looked_at_labels(block: Block, classes: Any) -> Labels:
    """The labels that occur in a block, once each.

    Args:
        block: with labels.
        classes: the public list; None: there is none.
    Raises:
        InputError: missing or mixed labels, or one that is not in the list; it names the partition.
    """
    values = targets_of(block)
    if not len(values):
        return values
    try:
        if classes is None:  # at least two classes, which one block alone need not have
            found = np.unique(values)
            if values.dtype.kind == "f" and not np.isfinite(found).all():
                raise InputError("y: got missing values or infinity.", remedy="leave those records out before")
            public_labels(_with_another(found), found)
            return found
        return public_labels(classes, values)[0]
    except TypeError:
        raise refused(block.name, "y", "labels of several kinds, or missing ones", "write all labels as text, or as numbers") from None
    except ValueError as error:
        what = error.what if isinstance(error, InputError) else str(error)
        remedy = getattr(error, "remedy", None) or "write the labels in one way"
        raise refused(block.name, "y", what.rstrip("."), remedy) from None


@dataclass(frozen=True, slots=True, eq=False)
class ClassPlaces:
    """The place of every label in a sorted public list.

    Args:
        classes: the list, shape (K,).
    """

    classes: Labels

    @classmethod
    def of(cls, classes: Any, seen: list[Labels]) -> tuple[ClassPlaces, str]:
        """From the public list, or from the labels that were seen, and how the classes are known.

        Args:
            classes: the list, or None.
            seen: of blocks with records.
        Raises:
            InputError: fewer than two classes, or blocks with labels of different kinds.
        """
        together = np.concatenate([np.asarray(classes)] if classes is not None else _of_one_kind(seen))
        known, _, how = public_labels(classes, together)
        return cls(known), how

    def __call__(self, values: Values) -> Array:
        """Numbers from 0, shape (m,)."""
        return np.searchsorted(self.classes, values).astype(np.float64)


@dataclass(frozen=True, slots=True)
class Centred:
    """Targets minus a centre, truncated, in a unit.

    Args:
        centre: is taken off.
        limit: at plus and minus which they are truncated.
        unit: > 0.
    """

    centre: float
    limit: float
    unit: float

    def __call__(self, values: Values) -> Array:
        """Shape (m,)."""
        return np.clip(values.astype(np.float64) - self.centre, -self.limit, self.limit) / self.unit


def as_numbers(values: Values) -> Array:
    """Targets as they are, shape (m,)."""
    return values.astype(np.float64)


def _with_another(found: Labels) -> Labels:
    """The labels, and where it is only one some other of its kind."""
    if len(found) > 1:
        return found
    other = f"{found[0]}'" if found.dtype.kind not in "biuf" else float(found[0]) + 1.0
    return np.array([found[0], other]) if found.dtype.kind != "O" else np.array([found[0], other], dtype=object)


def _of_one_kind(seen: list[Labels]) -> list[Labels]:
    kinds = {labels.dtype.kind for labels in seen}
    if len(kinds) > 1:
        raise InputError(f"y: partitions hold labels of types {', '.join(sorted(kinds))}; they need one.", source="the argument y")
    return seen
