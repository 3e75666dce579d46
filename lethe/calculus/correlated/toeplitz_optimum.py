"""The best banded Toeplitz strategy, and the best buffered linear one."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import optimize

from lethe.calculus.correlated.error import mean_squared_error, require_workload
from lethe.calculus.correlated.matrices import blt_column, prefix_sums, square_root
from lethe.calculus.correlated.sensitivity import response
from lethe.calculus.domains import FloatArray, outside, require_count

# Where rounding ends the search, or the inverse of a strategy overflows.
_HOPELESS = 1e30


class Buffers(NamedTuple):
    r"""A buffered linear Toeplitz strategy: $c_0 = 1$, $c_k = \sum_i \omega_i\theta_i^{k-1}$.

    Args:
        scales: $\omega_i \ge 0$.
        decays: $\theta_i \in [0, 1)$.
    """

    scales: tuple[float, ...]
    decays: tuple[float, ...]


def banded_toeplitz(steps: int, slots: int, bands: int, *, workload: FloatArray | None = None) -> FloatArray:
    r"""The banded Toeplitz strategy of the smallest `mean_squared_error`, found by L-BFGS over $c_1, \ldots, c_{p-1} \ge 0$ at $c_0 = 1$.

    Never worse than independent noise and than the square root of the prefix sums cut to as many bands: these are tried too.

    Args:
        steps: T.
        slots: steps of a pass; a record takes part in one of them, the same in every pass.
        bands: p <= T: each step's noise depends on the p - 1 before it.
        workload: a Toeplitz column, shape (T,); None: prefix sums.
    Returns:
        $c_0..c_{p-1}$, shape (p,).
    Raises:
        InputError: an argument is outside its range, or the workload is not Toeplitz.
    Reference: McKenna 2024, arXiv:2405.15913; Choquette-Choo et al. 2023, arXiv:2306.08153 (banded strategies).
    """
    steps, slots = require_count("steps", steps), require_count("slots", slots)
    bands = require_count("bands", bands, high=steps)
    asked = _require_toeplitz(workload, steps)
    from scipy import signal  # which loads scipy.stats: importing lethe stays light

    identity, root = square_root(steps, 1), square_root(steps, bands)
    if bands == 1:
        return identity[:1]

    def loss(tail: FloatArray) -> tuple[float, FloatArray]:
        column = np.concatenate(([1.0], tail))
        inverse: Callable[[FloatArray], FloatArray] = lambda values: signal.lfilter([1.0], column, values)  # noqa: E731
        value, gradient = _log_error(np.concatenate((column, np.zeros(steps - bands))), inverse, asked, slots, bands)
        return value, gradient[1:]

    found = optimize.minimize(
        loss, root[1:bands], jac=True, method="L-BFGS-B", bounds=[(0.0, None)] * (bands - 1), options={"maxiter": 500}
    )
    best = np.concatenate(([1.0], found.x, np.zeros(steps - bands)))
    return min((best, root, identity), key=lambda column: mean_squared_error(column, asked, slots))[:bands]


def buffered_toeplitz(steps: int, slots: int, buffers: int, *, workload: FloatArray | None = None) -> Buffers:
    r"""The buffered linear Toeplitz strategy of the smallest `mean_squared_error` that L-BFGS finds; noise then needs d buffers.

    Never worse than independent noise.

    Args:
        steps: T.
        slots: steps of a pass; a record takes part in one of them, the same in every pass.
        buffers: d, at most 10.
        workload: a Toeplitz column, shape (T,); None: prefix sums.
    Raises:
        InputError: an argument is outside its range, or the workload is not Toeplitz.
    Reference: McMahan, Xu, Zhang 2024, arXiv:2408.08868.
    """
    steps, slots = require_count("steps", steps), require_count("slots", slots)
    buffers = require_count("buffers", buffers, high=10)
    asked = _require_toeplitz(workload, steps)
    from scipy import signal

    lags = np.arange(steps - 1, dtype=np.float64)

    def read(point: FloatArray) -> tuple[FloatArray, FloatArray]:
        return np.exp(point[:buffers]), 1.0 / (1.0 + np.exp(-point[buffers:]))

    def loss(point: FloatArray) -> tuple[float, FloatArray]:
        omegas, thetas = read(point)
        with np.errstate(under="ignore"):
            powers = thetas[:, None] ** lags
        column = np.concatenate(([1.0], omegas @ powers))
        inverted = _inverse_of_buffers(omegas, thetas, steps)
        value, gradient = _log_error(column, lambda values: signal.fftconvolve(inverted, values)[:steps], asked, slots, steps)
        by_omega = powers @ gradient[1:]
        by_theta = omegas / thetas * ((powers * lags) @ gradient[1:])
        return value, np.concatenate((by_omega * omegas, by_theta * thetas * (1.0 - thetas)))

    # Decay times spread over the length of the run, as the square root's slow decay needs.
    times = np.geomspace(1.5, max(3.0, 0.5 * steps), buffers)
    start = np.concatenate((np.log(0.5 / times**0.5 / buffers**0.5), np.log(times)))
    bounds = [(-30.0, 3.0)] * buffers + [(-10.0, 25.0)] * buffers
    found = optimize.minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 1000})
    omegas, thetas = read(found.x)
    best = Buffers(tuple(omegas.tolist()), tuple(thetas.tolist()))
    nothing = Buffers((0.0,) * buffers, (0.0,) * buffers)
    return min((best, nothing), key=lambda one: mean_squared_error(blt_column(*one, steps), asked, slots))


def _inverse_of_buffers(omegas: FloatArray, thetas: FloatArray, steps: int) -> FloatArray:
    r"""The first column of $C^{-1}$: $p_0 = 1$, $p_k = -\sqrt\omega^\top H^{k-1}\sqrt\omega$ with $H = \mathrm{diag}(\theta) -
    \sqrt\omega\sqrt\omega^\top$, shape (T,)."""
    roots = np.sqrt(omegas)
    values, vectors = np.linalg.eigh(np.diag(thetas) - np.outer(roots, roots))
    weights = np.square(roots @ vectors)
    with np.errstate(under="ignore", over="ignore", invalid="ignore"):
        return np.concatenate(([1.0], -(weights @ values[:, None] ** np.arange(steps - 1))))


def _log_error(
    column: FloatArray, inverse: Callable[[FloatArray], FloatArray], workload: FloatArray, slots: int, bands: int
) -> tuple[float, FloatArray]:
    r"""$\log(\|A C^{-1}\|_F^2\,\mathrm{sens}^2)$ and its gradient by $c_0..c_{p-1}$: of power series $\delta(a/c) = -(a/c^2)\,\delta c$."""
    steps = len(column)
    with np.errstate(over="ignore", invalid="ignore"):
        noise = inverse(workload)
        weighted = np.arange(steps, 0, -1) * noise
        total = float(weighted @ noise)
        again = inverse(noise)
    if not (0.0 < total < _HOPELESS and np.isfinite(again).all()):
        return np.log(_HOPELESS), np.zeros(bands)
    answer = response(column, slots)
    squares = float(answer @ answer)
    by_noise = -2.0 * _correlated(weighted, again, bands)
    by_response = 2.0 * response(answer[::-1].copy(), slots)[::-1][:bands] if slots < steps else 2.0 * answer[:bands]
    return np.log(total) + np.log(squares), by_noise / total + by_response / squares


def _correlated(one: FloatArray, other: FloatArray, lags: int) -> FloatArray:
    """The sum over t of one[t + k] other[t], for k below `lags`."""
    if lags <= 64:
        return np.array([one[lag:] @ other[: len(other) - lag] for lag in range(lags)])
    from scipy import signal

    return signal.fftconvolve(one, other[::-1])[len(other) - 1 :][:lags]


def _require_toeplitz(workload: FloatArray | None, steps: int) -> FloatArray:
    asked = prefix_sums(steps) if workload is None else require_workload(workload, steps)
    if asked.ndim != 1:
        raise outside("workload", f"shape {asked.shape}", f"a Toeplitz column of shape ({steps},); a dense strategy takes any workload")
    return asked
