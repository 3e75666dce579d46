"""Neighbouring relations, and which of them a batch design admits."""

from __future__ import annotations

from typing import Literal, Never

from lethe.errors import InputError

Neighbours = Literal["replace_one", "zero_out", "add_or_remove"]
"""replace_one and zero_out change one record, into another or into one without gradient; add_or_remove changes their number by one."""

OF_ONE_NUMBER: frozenset[Neighbours] = frozenset({"replace_one", "zero_out"})
"""The relations of a design in which a removed record would move others into other batches: the number of records stays."""

ANY_NUMBER: frozenset[Neighbours] = frozenset({"replace_one", "zero_out", "add_or_remove"})
"""The relations of a design in which a removed record leaves all other records' batches as they were."""


def apart(neighbours: Neighbours) -> float:
    """How many gradient bounds apart one record's contributions to neighbouring data sets can be.

    Raises:
        InputError: an unknown relation.
    """
    match neighbours:
        case "replace_one":
            return 2.0
        case "zero_out" | "add_or_remove":
            return 1.0
    raise _unknown(neighbours)


def _unknown(neighbours: Never) -> InputError:
    return InputError(f"neighbours: got {neighbours!r}; it needs replace_one, zero_out or add_or_remove.", source="neighbours")
