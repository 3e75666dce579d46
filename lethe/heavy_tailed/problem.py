"""The problem a solver is given: per-record gradients, where the parameters live, and what is publicly known of both."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.calculus.domains import outside, require_count, require_nonnegative, require_positive
from lethe.errors import InputError
from lethe.heavy_tailed.moments import Moments
from lethe.heavy_tailed.sets import Array, ConvexSet, WholeSpace

Column = NDArray[np.generic]


class RecordsInBlocks(ABC):
    """Records that are not in memory; of their gradients an oracle gets what it asks of `gradients`, and not the rows."""

    @abstractmethod
    def __len__(self) -> int:
        """n."""

    @abstractmethod
    def part(self, block: slice) -> RecordsInBlocks:
        """Consecutive ones."""

    @abstractmethod
    def gradients(self, problem: Problem, parameters: Array) -> Any:
        """What stands for their gradients, with a shape (s, d)."""


Records = Column | tuple[Column, ...] | RecordsInBlocks
Gradient = Callable[[Array, Records], Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    r"""Minimise $F(w) = E f(w, x)$ over a convex set, $x$ drawn from an unknown distribution of which there are n records.

    Args:
        gradient: (parameters, shape (d,); some records) -> their gradients, shape (s, d). Row i may depend on the parameters and record i
            only: privacy rests on this, and it cannot be checked.
        dimension: d.
        domain: the set W.
        smoothness: $\beta \ge 0$ of F, in loss per parameter unit squared; None: not known.
        strong_convexity: $\mu > 0$ of F; None: not known.
        pl_constant: $\mu > 0$ of the proximal Polyak-Lojasiewicz inequality of F and the solver's regulariser; None: not known.
        moments: what is known of the gradients' size; None: nothing.
    Raises:
        InputError: a number out of range, numbers that contradict one another, or a domain of another dimension.
    """

    gradient: Gradient
    dimension: int
    domain: ConvexSet = field(default_factory=WholeSpace)
    smoothness: float | None = None
    strong_convexity: float | None = None
    pl_constant: float | None = None
    moments: Moments | None = None

    def __post_init__(self) -> None:
        if not callable(self.gradient):
            raise outside("gradient", self.gradient, "a function of parameters and records")
        object.__setattr__(self, "dimension", require_count("dimension", self.dimension))
        if not isinstance(self.domain, ConvexSet):
            raise outside("domain", self.domain, "a set of lethe.heavy_tailed, such as Ball(radius=1.0)")
        self.domain.check(self.dimension)
        if self.moments is not None and not isinstance(self.moments, Moments):
            raise outside("moments", self.moments, "Moments, or None")
        if self.smoothness is not None:
            object.__setattr__(self, "smoothness", require_nonnegative("smoothness", self.smoothness, allow_infinity=False))
        for name in ("strong_convexity", "pl_constant"):
            value = getattr(self, name)
            if value is None:
                continue
            object.__setattr__(self, name, require_positive(name, value))
            if self.smoothness is not None and value > self.smoothness:
                raise InputError(
                    f"{name} = {value!r}; it is at most smoothness = {self.smoothness!r}.",
                    source=f"the arguments {name} and smoothness",
                    remedy="check which of the two was meant",
                )

    def known(self, name: str) -> float:
        """A constant that a method needs: `smoothness`, `strong_convexity` or `pl_constant`.

        Raises:
            InputError: it is None.
        """
        return float(self._needed(name, "take a method that does without"))

    def known_moments(self) -> Moments:
        """The moments.

        Raises:
            InputError: they are None.
        """
        return self._needed("moments", "release them by estimated_moments")

    def _needed(self, name: str, otherwise: str) -> Any:
        value = getattr(self, name)
        if value is None:
            raise InputError(f"{name} = None; this method needs it.", source="the problem", remedy=f"give {name}, or {otherwise}")
        return value

    def distance(self, bound: float | None = None) -> float:
        r"""A bound of $\|w_0 - w^*\|$: this one, or the diameter of the domain.

        Raises:
            InputError: it is not finite, or outside of [1e-60, 1e60].
        """
        if bound is None and self.domain.diameter == math.inf:
            raise InputError(
                "distance: the domain is unbounded and no distance was given; these parameters need one.",
                source="the problem's domain",
                remedy="give the domain, or distance: how far the start can be from the minimiser",
            )
        return require_distance(self.domain.diameter if bound is None else bound)

    def gradients(self, parameters: Array, records: Records) -> Array:
        """The gradients of some records in float64, shape (s, d); of records in blocks what stands for them.

        Raises:
            InputError: the function returned another shape or something else than numbers.
        """
        if isinstance(records, RecordsInBlocks):
            return records.gradients(self, parameters)
        rows = np.asarray(self.gradient(parameters, records))
        wanted = (count_records(records), self.dimension)
        if rows.shape != wanted or rows.dtype.kind not in "iuf":
            raise InputError(
                f"gradient: returned shape {rows.shape} of {rows.dtype}; it needs numbers of shape {wanted}, one row a record.",
                source="the problem's gradient",
                remedy="return each record's gradient, not their mean",
            )
        return rows.astype(np.float64, copy=False)


def require_distance(value: object) -> float:
    """Return a distance in [1e-60, 1e60] as a float, or raise InputError."""
    distance = require_positive("distance", value)
    if not 1e-60 <= distance <= 1e60:
        raise outside("distance", value, "a number in [1e-60, 1e60]; rescale the parameters")
    return distance


def require_problem(problem: object) -> Problem:
    """Return a problem, or raise InputError."""
    if not isinstance(problem, Problem):
        raise InputError(
            f"problem = {problem!r}; it needs a Problem of lethe.heavy_tailed.",
            source="the argument problem",
            remedy="give Problem(gradient=..., dimension=...)",
        )
    return problem


def count_records(records: Records) -> int:
    """The number of records; InputError of no array, or of arrays of different lengths, or of none at all."""
    if isinstance(records, RecordsInBlocks):
        return len(records)
    columns = records if isinstance(records, tuple) else (records,)
    if not columns or not all(isinstance(column, np.ndarray) and column.ndim >= 1 for column in columns):
        raise InputError(
            f"records: got {type(records).__name__}; it needs an array, or a tuple of arrays, with one entry a record.",
            source="the argument records",
            remedy="give numpy arrays, such as (features, targets)",
        )
    lengths = {len(column) for column in columns}
    if len(lengths) != 1 or 0 in lengths:
        raise InputError(
            f"records: arrays of length {sorted(lengths)}; all need the same length, at least 1.",
            source="the argument records",
            remedy="give every array one entry a record",
        )
    return lengths.pop()


def some_records(records: Records, rows: slice | NDArray[np.int64]) -> Records:
    """The records of a block, or of these numbers; InputError of records in blocks, of which only consecutive ones are read."""
    if not isinstance(records, RecordsInBlocks):
        return tuple(column[rows] for column in records) if isinstance(records, tuple) else records[rows]
    if isinstance(rows, slice):
        return records.part(rows)
    raise InputError("records: in blocks; this solver draws records at random.", remedy="take multi_pass, or records in memory")
