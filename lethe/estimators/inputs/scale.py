"""A warning of columns on raw scales, from numbers that are public or were paid for, and never from the records themselves."""

from __future__ import annotations

import math
import warnings

_FAR = 256.0  # times the longest row of columns in [-1, 1]; pixels from 0 to 255, which have one unit, stay below


class UnscaledColumnsWarning(UserWarning):
    """A released norm says that columns are far from [-1, 1]: where their units differ, the largest is all that is learned from."""


def warn_if_unscaled(released_norm: float, columns: int) -> None:
    r"""Say so where the norm is above $256\sqrt d$; it was paid for, so this tells nothing more.

    Args:
        released_norm: of the rows, as released.
        columns: d, public. One column alone has one unit.
    """
    longest = math.sqrt(columns)
    if columns < 2 or not released_norm > _FAR * longest:
        return
    warnings.warn(
        f"feature_norm: the released norm of the rows is {released_norm:.3g}; {columns} columns within [-1, 1] make none longer than "
        f"{longest:.3g}. Where columns have different units, the largest is all that is learned from: scale them by publicly known ranges, "
        "such as by a PublicScaler.",
        UnscaledColumnsWarning,
        stacklevel=6,  # at the line that called fit
    )
