"""How large correlated noise is at each step, next to what is drawn for it."""

from __future__ import annotations

import math

import numpy as np
from scipy import linalg

from lethe.calculus.domains import FloatArray
from lethe.run.noise.base import CorrelatedNoise

# The square of a growth that no arithmetic survives.
_TOO_MUCH = 1e40


def growths(noise: CorrelatedNoise, steps: int) -> FloatArray:
    r"""The standard deviation of each step's noise, where that of a draw is 1: $\sqrt{(C^{-1}C^{-\top})_{tt}}$, shape (T,).

    Args:
        noise: correlated.
        steps: T.
    Returns:
        Infinity from the step on at which it overflows, or may.
    Raises:
        InputError: it is noise for another number of steps.
    """
    strategy = noise.strategy(steps)
    with np.errstate(over="ignore", invalid="ignore"):
        if strategy.ndim == 2:
            inverse = linalg.solve_triangular(strategy, np.eye(steps), lower=True)
            squares = np.square(inverse).sum(axis=1)
        else:
            squares, stream, total = np.full(steps, math.inf), noise.stream(), 0.0
            for step in range(steps):
                total += float(stream.next(float(step == 0))) ** 2
                if not total < _TOO_MUCH:
                    break
                squares[step] = total
        found = np.sqrt(squares)
    return np.where(np.isfinite(found), found, math.inf)
