"""The error of a workload under a strategy's noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg

from lethe.calculus.correlated.matrices import as_matrix, real_array, require_strategy
from lethe.calculus.correlated.sensitivity import sensitivity
from lethe.calculus.domains import FloatArray, outside, require_vector
from lethe.calculus.rounding import as_bound


def require_workload(workload: ArrayLike, steps: int) -> FloatArray:
    """A workload for so many steps as an array, or raise InputError.

    Args:
        workload: A: the first column of a Toeplitz matrix, shape (T,), or a matrix, shape (T, T).
        steps: T.
    """
    given = real_array("workload", workload)
    if given.shape not in ((steps,), (steps, steps)) or not np.isfinite(given).all() or not given.any():
        raise outside("workload", f"shape {given.shape}", f"finite numbers of shape ({steps},) or ({steps}, {steps}), not all 0")
    return given


def noise_squares(strategy: ArrayLike, workload: ArrayLike) -> float:
    r"""$\|A C^{-1}\|_F^2$: the sum of the squared errors of all T outputs $A C^{-1} z$, a coordinate, where $z$ has variance 1;
    infinity where it overflows.

    Args:
        strategy: C, shape (T,) or (T, T).
        workload: A, shape (T,) or (T, T).
    """
    given = require_strategy(strategy)
    asked = require_workload(workload, len(given))
    if given.ndim == 1 and asked.ndim == 1:
        from scipy import signal  # which loads scipy.stats: importing lethe stays light

        with np.errstate(over="ignore", invalid="ignore"):
            column = np.asarray(signal.lfilter([1.0], np.trim_zeros(given, "b"), asked), dtype=np.float64)  # pyright: ignore
            return as_bound(float(np.sum(np.arange(len(given), 0, -1) * np.square(column))))
    with np.errstate(over="ignore", invalid="ignore"):
        solved = linalg.solve_triangular(as_matrix(given), as_matrix(asked).T, lower=True, trans="T", check_finite=False)
        return as_bound(float(np.sum(np.square(solved))))


def output_square(strategy: ArrayLike, weights: ArrayLike) -> float:
    r"""$\|C^{-\top}a\|^2$: the squared error of one output $a^\top C^{-1}z$, a coordinate, where $z$ has variance 1; infinity where it
    overflows.

    Args:
        strategy: C, shape (T,) or (T, T).
        weights: $a \ge 0$, how much of each step's noise the output has, shape (T,).
    Raises:
        InputError: what is no strategy, or no weights for it.
    """
    given = require_strategy(strategy)
    asked = require_vector("weights", weights, low=0.0)
    if len(asked) != len(given):
        raise outside("weights", f"{len(asked)} numbers", f"one for each of {len(given)} steps")
    with np.errstate(over="ignore", invalid="ignore"):
        if given.ndim == 1:
            from scipy import signal

            solved = np.asarray(signal.lfilter([1.0], np.trim_zeros(given, "b"), asked[::-1]), dtype=np.float64)  # pyright: ignore
        else:
            solved = linalg.solve_triangular(given, asked, lower=True, trans="T", check_finite=False)
        return as_bound(float(np.sum(np.square(solved))))


def mean_squared_error(strategy: ArrayLike, workload: ArrayLike, slots: int) -> float:
    r"""$\frac1T\|A C^{-1}\|_F^2\,\mathrm{sens}(C)^2$: the squared error of an output, a coordinate, in the mean over the T outputs, at
    $\mu = 1$ and contributions of norm at most 1.

    Args:
        strategy: C, shape (T,) or (T, T).
        workload: A, shape (T,) or (T, T).
        slots: steps of a pass; a record takes part in one of them, the same in every pass.
    Raises:
        InputError: what is no strategy or no workload for it.
    Reference: Choquette-Choo et al. 2023, arXiv:2211.06530.
    """
    return noise_squares(strategy, workload) * sensitivity(strategy, slots) ** 2 / len(np.asarray(strategy))
