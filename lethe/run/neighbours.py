"""Neighbouring relations, which of them a batch design admits, and the unit that one of two neighbours lacks or has changed."""

from __future__ import annotations

from typing import Any, Literal, Never

from pydantic import ValidationInfo

from lethe.errors import InputError

Neighbours = Literal["replace_one", "zero_out", "add_or_remove"]
"""replace_one and zero_out change one record, into another or into one without gradient; add_or_remove changes their number by one."""

OF_ONE_NUMBER: frozenset[Neighbours] = frozenset({"replace_one", "zero_out"})
"""The relations of a design in which a removed record would move others into other batches: the number of records stays."""

ANY_NUMBER: frozenset[Neighbours] = frozenset({"replace_one", "zero_out", "add_or_remove"})
"""The relations of a design in which a removed record leaves all other records' batches as they were."""

Unit = Literal["record", "user"]
"""What is clipped once, is drawn into batches, and enters or leaves as a whole. record: each record by itself. user: all records of one
user together; `records` of the Run then counts users."""

NOUNS: dict[Unit, tuple[str, str]] = {"record": ("record", "records"), "user": ("user", "users")}
"""A unit in words: one, and several."""


def usual(relation: Any, info: ValidationInfo) -> Any:
    """The `neighbours` of a run, of which the batches are known by now. None, as Opacus and TensorFlow Privacy count: one record added or
    removed; where a removed record would move others, its contribution set to zero."""
    batches = info.data.get("batches")
    if relation is not None or batches is None:  # batches that cannot be read are refused by themselves
        return relation
    return "add_or_remove" if "add_or_remove" in batches.neighbours else "zero_out"


def apart(neighbours: Neighbours) -> float:
    """How many gradient bounds apart one record's contributions to neighbouring data sets can be."""
    match neighbours:
        case "replace_one":
            return 2.0
        case "zero_out" | "add_or_remove":
            return 1.0
    raise _unknown(neighbours)


def _unknown(neighbours: Never) -> InputError:
    return InputError(f"neighbours: got {neighbours!r}; it needs replace_one, zero_out or add_or_remove.", source="neighbours")
