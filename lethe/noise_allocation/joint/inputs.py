"""Input checks of the joint problem."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lethe.calculus.domains import require_positive, require_vector
from lethe.errors import InputError
from lethe.noise_allocation.joint.gaps import Booleans
from lethe.run.schedules.base import Array
from lethe.theorems.shift.engine import checked_batches

_SMALLEST_UNIT = 1e-200
_LEAST_TOLERANCE, _LARGEST_TOLERANCE = 1e-9, 1e-2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JointProblem:
    """Checked arrays of one length T >= 1."""

    weights: Array
    lipschitz: Array
    sensitivity: Array
    batches: int
    mu: float
    noisy: Booleans
    floor: Array
    """0 where no noise is allowed."""
    diameter: Array | None
    tolerance: float

    @property
    def steps(self) -> int:
        """T."""
        return self.weights.size

    @property
    def variance_unit(self) -> float:
        r"""$(\max_t s_t / \mu)^2$; 1 if nothing is touched."""
        largest = float(np.max(self.sensitivity))
        return (largest / self.mu) ** 2 if largest > 0.0 else 1.0

    def in_own_units(self) -> JointProblem:
        r"""The same problem with $\mu = 1$, $\max s_t = 1$ and $\max q_t = 1$; variances are to be multiplied by `variance_unit`.

        Raises:
            InputError: the unit, or the floor in it, is beyond what doubles hold.
        """
        largest = float(np.max(self.sensitivity)) or 1.0
        try:
            unit = self.variance_unit
        except OverflowError:
            unit = math.inf
        with np.errstate(all="ignore"):
            floor = self.floor / unit
            diameter = None if self.diameter is None else self.diameter / largest
        if not (_SMALLEST_UNIT < unit < 1.0 / _SMALLEST_UNIT and bool(np.all(floor < 1.0 / _SMALLEST_UNIT))):
            raise InputError(
                f"(sensitivity / mu)^2 = ({largest:g} / {self.mu:g})^2 is beyond what doubles hold, alone or beside the floor.",
                source="the arguments sensitivity, mu and floor",
                remedy="choose another unit of length.",
            )
        return replace(
            self,
            weights=self.weights / np.max(self.weights),
            sensitivity=self.sensitivity / largest,
            mu=1.0,
            floor=floor,
            diameter=diameter,
        )


def joint_problem(
    weights: ArrayLike,
    lipschitz: ArrayLike,
    sensitivity: ArrayLike,
    batches_per_pass: SupportsIndex,
    mu: float,
    noisy: ArrayLike | None,
    floor: ArrayLike,
    diameter: ArrayLike | None,
    tolerance: float,
) -> JointProblem:
    """The arguments of `joint_cyclic` as arrays, or InputError.

    Args, Raises: as `joint_cyclic`; None where it has a default of its own.
    """
    q = require_vector("weights", weights, low=0.0, strict=True)
    columns = {
        "lipschitz": require_vector("lipschitz", lipschitz, low=0.0),
        "sensitivity": require_vector("sensitivity", sensitivity, low=0.0),
    }
    for name, column in columns.items():
        if column.size != q.size:
            raise InputError(
                f"weights has {q.size} entries, {name} {column.size}; they need one length, one entry a step.",
                source=f"the arguments weights and {name}",
                remedy="repeat a constant with numpy.full(steps, value).",
            )
    allowed = _mask(noisy, q.size)
    target = require_positive("tolerance", tolerance)
    if not _LEAST_TOLERANCE <= target <= _LARGEST_TOLERANCE:
        raise InputError(
            f"tolerance = {target:g}; it needs a number from {_LEAST_TOLERANCE:g} to {_LARGEST_TOLERANCE:g}.",
            source="the argument tolerance",
            remedy="1e-7 is a good choice.",
        )
    bound = None if diameter is None else _each("diameter", diameter, q.size, infinite=True)
    return JointProblem(
        weights=q,
        lipschitz=columns["lipschitz"],
        sensitivity=columns["sensitivity"],
        # With more batches than steps each position is touched once at most, as with as many.
        batches=min(checked_batches(batches_per_pass), q.size),
        mu=require_positive("mu", mu),
        noisy=allowed,
        floor=_each("floor", floor, q.size, infinite=False) * allowed,
        diameter=bound,
        tolerance=target,
    )


def _mask(given: ArrayLike | None, steps: int) -> Booleans:
    if given is None:
        return np.ones(steps, dtype=np.bool_)
    try:
        mask: NDArray[Any] = np.asarray(given)
    except ValueError:
        mask = np.zeros(0)
    if mask.dtype != np.bool_ or mask.shape != (steps,):
        raise InputError(
            f"noisy has shape {mask.shape} and holds {mask.dtype}; it needs {steps} truth values, one a step.",
            source="the steps that may have noise",
            remedy="give True where noise is allowed, or leave noisy out.",
        )
    return mask.astype(np.bool_)


def _each(name: str, given: ArrayLike, steps: int, *, infinite: bool) -> Array:
    """A number >= 0 for all steps, or one for each."""
    # A bool or a text becomes an array that holds no numbers, and is refused as such.
    single = np.isscalar(given)
    values = require_vector(name, np.array([given]) if single else given, low=0.0, allow_infinity=infinite)
    if not single and values.size != steps:
        raise InputError(
            f"{name} has {values.size} entries; it needs a number, or one entry for each of the {steps} steps.",
            source=f"the argument {name}",
            remedy="give one number for all steps, or as many as weights has.",
        )
    return np.full(steps, values[0]) if single else values
