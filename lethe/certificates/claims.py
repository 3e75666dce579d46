"""Claims: what may be asked of anything that has a guarantee for a number of records."""

from __future__ import annotations

from typing import Any

from lethe.calculus.large_delta import delta_for, open_delta


class Claims:
    """Epsilon, delta and trade-off of a certificate, a statement or a total, asked in the same words and with the same refusals."""

    __slots__ = ()

    def epsilon_at(self: Any, delta: float, *, allow_large_delta: bool = False) -> float:
        r"""The epsilon that the guarantee gives at another delta.

        Args:
            delta: in (0, 1), and below 1/records where their number is known.
            allow_large_delta: take a delta of 1/records or more, with which a record may be published whole.
        Raises:
            InputError: the delta is not in that range, and no large one was allowed.
        """
        level = open_delta(delta) if self.records is None else delta_for(self.records, delta, allow_large_delta=allow_large_delta)
        return self.guarantee.epsilon(level)

    def delta_at(self: Any, epsilon: float) -> float:
        """The delta that the guarantee gives at epsilon >= 0."""
        return self.guarantee.delta(epsilon)

    def tradeoff(self: Any, type_one: float) -> float:
        """The least chance of a type II error that a test of one record with this chance of a type I error, in [0, 1], can have."""
        return self.guarantee.tradeoff(type_one)
