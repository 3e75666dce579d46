"""The fields of a Run about clipping: norm, groups and method."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from lethe.errors import InputError

ClipMethod = Literal["clip", "normalise", "automatic"]
r"""`clip` $v\min(1, C/\|v\|)$, a projection; `normalise` $vC/\|v\|$ (0 stays 0); `automatic` $vC/(\|v\|+0.01)$."""

# Groups of 0.6 and 0.8 make 1, but for rounding; the code that clips stays below its norm by a far larger margin.
_ROUNDING = 1 + 1e-14


def _as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


ClipGroups = Annotated[tuple[Annotated[float, Field(gt=0)], ...] | None, BeforeValidator(_as_tuple)]
"""Norms of groups of parameters, or None: one norm for all."""


def refuse_clipping(clip_norm: float | None, method: ClipMethod, groups: tuple[float, ...] | None) -> None:
    r"""Refuse a clip method or groups without a clip norm, and groups whose norms add up to more than it: $\sqrt{\sum_k C_k^2} > C$.

    Args:
        clip_norm: C > 0, in loss per parameter unit; None: nothing is clipped.
        method: how a record's gradient is clipped.
        groups: $C_k > 0$ of every group of parameters; None: one norm for all.
    Raises:
        InputError: see above.
    """
    if groups == ():
        raise InputError("clip_groups: got none; it needs a norm for each group.", remedy="leave it out: one norm for all parameters.")
    if clip_norm is None:
        if method != "clip" or groups is not None:
            name, got = ("clip_method", method) if method != "clip" else ("clip_groups", groups)
            raise InputError(f"{name}: got {got}, and clip_norm is null: nothing is clipped.", remedy="set clip_norm.")
        return
    if groups is not None and not math.hypot(*groups) <= clip_norm * _ROUNDING:
        raise InputError(
            f"clip_groups: together they bound a record by {math.hypot(*groups):.17g}; clip_norm says {clip_norm:.17g}.",
            source="clip_groups and clip_norm",
            remedy="make the root of the sum of their squares at most clip_norm.",
        )
