"""The steps at which influence is measured, when there are too many to measure all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from lethe.calculus.domains import require_count
from lethe.errors import InputError

Spacing = Literal["geometric", "even"]

_ALL_OF = 32
_OTHERWISE = 16


def choose_probes(steps: int, wanted: int | Sequence[int] | None = None, spacing: Spacing = "geometric") -> npt.NDArray[np.intp]:
    """The steps to measure, counted from 1, increasing; the first and the last are among them unless a list says otherwise.

    Args:
        steps: T >= 1.
        wanted: how many (at most; some fall together when T is small), or the steps themselves; None: all up to 32, else 16.
        spacing: "geometric": the number of steps left after the probe grows by a constant factor, since the influence bends most near
            the end, where quick modes have not died out yet; "even": equal distances.
    Raises:
        InputError: fewer than two of several, a step outside 1..T or named twice, or another spacing.
    """
    steps = require_count("steps", steps, low=1)
    if spacing not in ("geometric", "even"):
        raise InputError(f"spacing: got {spacing!r}; it needs geometric or even.")
    if isinstance(wanted, Sequence | np.ndarray) and not isinstance(wanted, str | bytes):
        named = [require_count("probes", step, low=1, high=steps) for step in wanted]
        if not named or len(set(named)) < len(named):
            raise InputError(f"probes: got {list(wanted)!r}; it needs at least one step, none twice.")
        return np.array(sorted(named), dtype=np.intp)
    if wanted is None:
        wanted = steps if steps <= _ALL_OF else _OTHERWISE
    count = require_count("probes", wanted, low=min(2, steps))
    if count >= steps:
        return np.arange(1, steps + 1)
    # Steps left, the last one included: from T down to 1.
    left = np.geomspace(steps, 1, count) if spacing == "geometric" else np.linspace(steps, 1, count)
    return np.unique(steps + 1 - np.round(left).astype(np.intp))
