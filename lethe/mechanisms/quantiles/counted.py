"""What a released quantile asks of records that are not in memory: their values if they are few, else how many are at most a point."""

from __future__ import annotations

from typing import Protocol

from lethe.mechanisms.base import Array


class CountedSizes(Protocol):
    """A size of each of very many records."""

    def __len__(self) -> int:
        """n."""
        ...

    def at_most(self, points: Array, low: float, high: float) -> Array:
        """How many sizes are at most each point, in logarithms, once they are clipped to the range: shape (k,).

        Args:
            points: logarithms, shape (k,).
            low, high: the range, > 0.
        """
        ...


class UnseenColumns(Protocol):
    """The columns of a table in blocks."""

    @property
    def shape(self) -> tuple[int, int]:
        """Records and columns."""
        ...

    @property
    def many(self) -> bool:
        """Whether they are too many to gather, so that they are counted."""
        ...

    def column(self, place: int) -> Array:
        """One column, shape (n,), in the order of the records."""
        ...

    def at_most(self, points: Array, far: float) -> Array:
        """How many entries are at most each point, in the coordinate of the range, clipped to `far`: shape (d, k) as points."""
        ...
