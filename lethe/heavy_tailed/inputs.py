"""Input checks of solvers, and the random generator behind their noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lethe.calculus.domains import outside

Array = NDArray[np.float64]


def require_point(name: str, value: object, dimension: int) -> Array:
    """Return a finite float vector, a copy, or raise InputError.

    Args:
        name: what the error calls the vector.
        value: anything that numpy makes an array of.
        dimension: its length d.
    """
    needed = f"{dimension} finite numbers in one row"
    try:
        point = np.array(value)
    except (TypeError, ValueError):
        raise outside(name, value, needed) from None
    if point.dtype.kind not in "iuf" or point.shape != (dimension,) or not np.all(np.isfinite(point)):
        raise outside(name, value, needed)
    return point.astype(np.float64)
