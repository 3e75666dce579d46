"""The problem a solver is given: per-record gradients, the domain of the parameters, and public constants: moments in place of a bound.

Users and the estimators for heavy tails build a `Problem`; every solver of this package takes one.

Its constants are declared before the data are seen: measuring it on private data without noise is a release of those data. Wrong numbers
cost accuracy and never privacy.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lethe.calculus.domains import outside, require_count, require_nonnegative, require_positive
from lethe.errors import InputError
from lethe.heavy_tailed.sets import Array, ConvexSet, WholeSpace

Kind = Literal["raw", "uniform", "central"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    r"""A bound of order $k$ on per-record gradients $g = \nabla f(w, x)$, $x$ drawn from the distribution of the data.

    "raw": $\sup_w (E\|g\|^k)^{1/k} \le r$. "uniform": $(E\sup_w\|g\|^k)^{1/k} \le r$, which implies it. "central", for each coordinate:
    $\sup_w E|g_j - E g_j|^k \le \gamma$ and $\|E g\| \le \sqrt d\,\gamma^{1/k}$.

    Args:
        order: $k \ge 2$.
        bound: $r > 0$ in loss per parameter; for "central" it is $\gamma^{1/k}$, in the same unit.
        kind: which of the three.
        second: the same of order 2, at most `bound`; None: `bound`, since moments grow with their order.
        half: the same of order $k/2$, for `localised`; None: `bound`.
    Raises:
        InputError: a number out of range, or a lower-order bound above `bound`.
    Reference: Lowy & Razaviyayn 2023, arXiv:2209.07403, Assumptions 1, 2 and 3.

    Examples:
        >>> from lethe.heavy_tailed import Moments
        >>> Moments(order=2, bound=6.0).order
        2.0
    """

    order: float
    bound: float
    kind: Kind = "raw"
    second: float | None = None
    half: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or self.kind not in ("raw", "uniform", "central"):
            raise outside("kind", self.kind, "raw, uniform or central")
        order, bound = _order(self.order), require_positive("bound", self.bound)
        if not 1e-60 <= bound <= 1e60:
            raise outside("bound", self.bound, "a number in [1e-60, 1e60]; rescale the loss")
        object.__setattr__(self, "order", order)
        object.__setattr__(self, "bound", bound)
        for name in ("second", "half"):
            value = getattr(self, name)
            if value is not None and require_positive(name, value) > bound:
                raise InputError(
                    f"{name} = {value!r}; a moment of lower order is at most bound = {bound:g}.",
                    source=f"the arguments {name} and bound",
                    remedy=f"leave {name} out, or lower it to the bound",
                )

    def raw(self, dimension: int) -> float:
        r"""$r_k$. From "central" $2\sqrt d\,\gamma^{1/k}$, by Minkowski's inequality; the paper's Lemma 21 has a 4."""
        return self.bound * (2.0 * math.sqrt(dimension) if self.kind == "central" else 1.0)

    def raw_second(self, dimension: int) -> float:
        """$r_2$, derived as `raw`."""
        second = self.bound if self.second is None else self.second
        return second * (2.0 * math.sqrt(dimension) if self.kind == "central" else 1.0)


def clipping_bias(order: float, bound: float, clip_norm: float) -> float:
    r"""How far clipping to norm C can move a mean whose summands have $E\|z\|^k \le r^k$.

    $$\|E\,\Pi_C(z) - E z\| \le E(\|z\| - C)_+ \le c_k\,\frac{r^k}{C^{k-1}},\qquad c_k = \frac{(k-1)^{k-1}}{k^k}$$

    $c_k$ is the smallest constant with $(u - C)_+ \le c_k u^k/C^{k-1}$ for all $u, C > 0$, 1/4 at $k = 2$, with equality at
    $u = kC/(k-1)$: attained by $\|z\| \in \{0, kC/(k-1)\}$ in one direction. 0 for $C = \infty$.

    For $k \ge 2$, $r > 0$ and $C > 0$; in the unit of r; infinity where it overflows.
    """
    k = _order(order)
    return math.exp((k - 1.0) * math.log1p(-1.0 / k)) / k * _scaled(k, bound, clip_norm)


def printed_clipping_bias(order: float, bound: float, clip_norm: float) -> float:
    """As printed, true and 2.7 to 4 times too large: $r^k/((k-1)C^{k-1})$ (Lemma 6)."""
    return _scaled(_order(order), bound, clip_norm) / (order - 1.0)


def _order(value: object) -> float:
    order = require_positive("order", value)
    if order < 2.0:
        raise outside("order", value, "a finite number >= 2")
    return order


def _scaled(order: float, bound: float, clip_norm: float) -> float:
    """$r^k/C^{k-1}$."""
    size = require_positive("bound", bound)
    if isinstance(clip_norm, float) and clip_norm == math.inf:
        return 0.0
    logarithm = math.log(size) + (order - 1.0) * (math.log(size) - math.log(require_positive("clip_norm", clip_norm)))
    return math.exp(logarithm) if logarithm < 709.0 else math.inf


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
        """The value of a field; an error that names it where the problem does not have it."""
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
        shape = (count_records(records), self.dimension)
        if rows.shape != shape or rows.dtype.kind not in "iuf":
            raise InputError(
                f"gradient: returned shape {rows.shape} of {rows.dtype}; it needs numbers of shape {shape}, one row a record.",
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
        raise outside("problem", problem, "a Problem(gradient=..., dimension=...) of lethe.heavy_tailed")
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
