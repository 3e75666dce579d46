"""The interface of mean oracles: noisy means of a batch's gradients, and what they reveal."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

import numpy as np
from numpy.typing import NDArray

from lethe.calculus.domains import outside
from lethe.heavy_tailed.inputs import Array
from lethe.heavy_tailed.solution import Release


class MeanOracle(ABC):
    r"""A private estimate of a mean gradient.

    The privacy it states is that of everything one record takes part in: a solver that touches each record m times takes
    `shared(m)`, whose single means cost an m-th of it. The noise always comes from the size of the batch at hand.
    """

    @property
    def clip_level(self) -> float | None:
        """The clip norm or threshold; None if the oracle does not clip."""
        return None

    def for_records(self, records: int) -> Self:
        """Itself, for a solver on n records.

        Raises:
            InputError: what it states is too weak for so many.
        """
        del records
        return self

    @abstractmethod
    def mean(self, rows: Array, generator: np.random.Generator) -> Array:
        """A noisy mean of gradients of shape (s, d), as shape (d,); a row with a nan or an infinity counts as 0."""

    @abstractmethod
    def release(self, size: int, dimension: int) -> Release:
        """The privacy cost of one mean of a batch of that size."""

    @abstractmethod
    def shared(self, touches: int) -> MeanOracle:
        """The oracle whose `touches` uses on one record cost together what this one states.

        Raises:
            InputError: this oracle cannot be used more than once on a record.
        """


def require_rows(rows: object) -> Array:
    """Return gradients, one row a record and one record at least, or raise InputError."""
    if not isinstance(rows, np.ndarray) or rows.dtype.kind not in "iuf" or rows.ndim != 2 or rows.size == 0:
        got = f"{rows.dtype} of shape {rows.shape}" if isinstance(rows, np.ndarray) else rows
        raise outside("rows", got, "an array of numbers of shape (s, d), one row a record")
    return rows


def finite_rows(rows: Array) -> Array:
    """The rows in float64, in which they are clipped and added, with those that hold a nan or an infinity set to 0."""
    rows = rows.astype(np.float64, copy=False)
    good: NDArray[np.bool_] = np.all(np.isfinite(rows), axis=1)
    return rows if bool(good.all()) else np.where(good[:, None], rows, 0.0)
