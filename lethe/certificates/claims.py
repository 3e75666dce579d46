"""Claims: the questions that anything with a guarantee answers (epsilon, delta, attack rates, sources), and its file.

Base class of `Certificate`, `Statement` and `Total`, so that each has `epsilon_at`, `delta_at`, `tradeoff`, `attack_rates`, `save` and
`load` with the same refusals.
"""

import os
from collections.abc import Sequence
from typing import Any, Self, cast

from lethe.calculus.large_delta import delta_for, open_delta
from lethe.certificates.attack_rates import AttackRates
from lethe.certificates.keys import PublicKey
from lethe.documents.strict import read_document, write_document
from lethe.errors import InputError

UNREADABLE = (KeyError, TypeError, ValueError, OverflowError, AttributeError, RecursionError)
"""Exceptions that reading a file of another kind, or a damaged one, may raise; they become an `InputError`."""


class Claims:
    """Epsilon, delta, trade-off, sources and file of a certificate, a statement or a total, with the same refusals."""

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

    def attack_rates(self: Any, false_positive_rates: Sequence[float] = (0.01, 0.001)) -> AttackRates:
        r"""What the best membership attack may reach: its advantage, its true positive rates; and the nearest Gaussian mechanism's $\mu$.

        Raises:
            InputError: a rate is outside [0, 1].
        """
        return AttackRates.of(self.guarantee, false_positive_rates)

    def cite(self: Any) -> str:
        """The sources of what was used, one a line."""
        return "\n".join(f"[{citation.key}] {citation.text}" for citation in self.citations)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, key: PublicKey | None = None) -> Self:
        """Read one from a file that `save` wrote; `key` as for `from_dict`.

        Raises:
            InputError: the file cannot be read, or `from_dict` refuses what it holds.
        """
        return cast(Any, cls).from_dict(read_document(path), source=str(path), key=key)

    def save(self: Any, path: str | os.PathLike[str]) -> None:
        """Write it to a .json (or .yaml) file, whole or not at all."""
        write_document(path, self.to_dict())


def no_such_document(kind: str, error: Exception, source: str | None, remedy: str) -> InputError:
    """The error of content that is none of a kind, of what reading it stumbled over."""
    reason = f"{error} is missing" if isinstance(error, KeyError) else str(error).splitlines()[0].rstrip(".")
    return InputError(f"not a {kind}: {reason}.", source=source, remedy=remedy)
