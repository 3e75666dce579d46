"""Huber's loss under its own name."""

from __future__ import annotations

from typing import ClassVar

from lethe.run.losses.least_squares import LeastSquares


class Huber(LeastSquares):
    """Huber's loss: the same function as `LeastSquares`, for runs that mean its linear part and not a bound on residuals of squares.

    Args:
        residual_bound: B > 0, in target units, where the loss turns from a square into a line.
    """

    summary: ClassVar[str] = "Huber regression"
    kind: ClassVar[str] = "huber"
