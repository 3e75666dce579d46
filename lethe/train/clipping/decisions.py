"""Which tensors have one row per record: decided once by shape, and kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from lethe.train.clipping.unfollowed import UnfollowedError


class Decisions:
    """Remembers, for the n-th question of each kind in a recording, the answer of the first recording that asked it.

    Without this, sixteen positions would pass for sixteen records in a batch of that size.
    """

    def __init__(self) -> None:
        self._settled: dict[Hashable, tuple[bool, ...]] = {}
        self._asked: Counter[Hashable] = Counter()

    def begin(self) -> None:
        """A new recording begins."""
        self._asked.clear()

    def forget(self) -> None:
        """Drop all answers: the batch that gave them was refused."""
        self._settled.clear()

    def settle(self, question: Hashable, fits: Sequence[bool], records: int | None) -> tuple[bool, ...]:
        """Which of the tensors hold records.

        Args:
            question: what is asked, equal in every recording.
            fits: which tensors have B entries along the dimension of records.
            records: B; of at most one record nothing is learned: every answer gives the same gradients.
        Raises:
            InputError: a tensor that held records before does not fit now.
        """
        key = (question, self._asked[question])
        self._asked[question] += 1
        if records is None or (records < 2 and key not in self._settled):
            return tuple(fits)
        settled = self._settled.setdefault(key, tuple(fits))
        if any(before and not now for before, now in zip(settled, fits, strict=True)):
            raise UnfollowedError(
                f"a tensor that held the records in an earlier batch has no dimension of {records} records now ({question}).",
                source="the model's forward pass",
                remedy="give every batch the same layout, records along the first dimension.",
            )
        return settled
