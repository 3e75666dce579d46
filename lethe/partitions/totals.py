"""Sums of what blocks give, in a fixed order and with the rounding of each addition carried along."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from lethe.calculus.domains import FloatArray


def total(parts: Iterable[tuple[Any, ...]]) -> tuple[FloatArray, ...]:
    """Sums of tuples of arrays, entry by entry, in float64, by Neumaier's summation: as if added in twice the precision.

    Args:
        parts: of each block, all of the same shapes, at least one.
    """
    sums: list[FloatArray] = []
    lost: list[FloatArray] = []
    for values in parts:
        arrays = [np.asarray(value, dtype=np.float64) for value in values]
        if not sums:
            sums, lost = [array.copy() for array in arrays], [np.zeros_like(array) for array in arrays]
            continue
        for place, array in enumerate(arrays):
            before = sums[place]
            after = before + array
            lost[place] += np.where(np.abs(before) >= np.abs(array), (before - after) + array, (array - after) + before)
            sums[place] = after
    return tuple(one + rest for one, rest in zip(sums, lost, strict=True))
