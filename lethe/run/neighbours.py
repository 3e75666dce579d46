"""Which data sets count as neighbours, and which of these relations a batch design admits."""

from __future__ import annotations

from typing import Literal, Never

from lethe.errors import InputError

Neighbours = Literal["replace_one", "zero_out", "add_or_remove"]
"""replace_one and zero_out change one record, into another or into one without gradient; add_or_remove changes their number by one."""

OF_ONE_NUMBER: frozenset[Neighbours] = frozenset({"replace_one", "zero_out"})
"""The relations of a design in which a removed record would move others into other batches: the number of records stays."""

ANY_NUMBER: frozenset[Neighbours] = frozenset({"replace_one", "zero_out", "add_or_remove"})
"""The relations of a design in which a removed record leaves all other records' batches as they were."""


def unknown_neighbours(neighbours: Never) -> InputError:
    """The error for a relation that a `match` does not know."""
    return InputError(f"neighbours: got {neighbours!r}; it needs replace_one, zero_out or add_or_remove.", source="neighbours")
