r"""The best strategy for a pattern of participation: banded Toeplitz, buffered linear Toeplitz, or any lower-triangular matrix.

`lethe.noise_allocation.correlate` calls it for the noise that does least harm. C is the strategy (noise is $C^{-1}z$), A the workload,
$\hat g$ the noisy gradients, $\sigma$ the noise of z; a slot is a place in a pass, and a record takes part in one slot of every pass.

The iterates of SGD are $x_t = x_0 - \sum_sA_{ts}\hat g_s$ with A from step sizes and momentum: along given gradients a coordinate has the
mean squared error $\frac1T\|AC^{-1}\|_F^2\sigma^2$, and at a given $\mu$ $\sigma$ is proportional to $\mathrm{sens}(C)$. So
$\frac1T\|AC^{-1}\|_F^2\mathrm{sens}(C)^2$ is minimised; for one participation it is convex in $X = C^\top C$, and $\min_X\mathrm{tr}(A^\top
AX^{-1}) \ge 2\,\mathrm{tr}(V^{1/2}A^\top AV^{1/2})^{1/2} - \sum_sv_s$ for any weights $v \ge 0$, $V = \mathrm{diag}(v)$.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import linalg, optimize

from lethe.calculus.correlated.matrices import MOST_DENSE, as_matrix, binary_tree, blt_column, prefix_sums, square_root
from lethe.calculus.correlated.sensitivity import mean_squared_error, require_workload, response
from lethe.calculus.domains import FloatArray, outside, require_count

# Where rounding ends the search, or the inverse of a strategy overflows.
_HOPELESS = 1e30


class Buffers(NamedTuple):
    r"""A buffered linear Toeplitz strategy: $c_0 = 1$, $c_k = \sum_i \omega_i\theta_i^{k-1}$.

    Scales $\omega_i \ge 0$, decays $\theta_i \in [0, 1)$.
    """

    scales: tuple[float, ...]
    decays: tuple[float, ...]


def banded_toeplitz(steps: int, slots: int, bands: int, *, workload: FloatArray | None = None) -> FloatArray:
    r"""The banded Toeplitz strategy of the smallest `mean_squared_error`, found by L-BFGS over $c_1, \ldots, c_{p-1} \ge 0$ at $c_0 = 1$.

    Never worse than independent noise and than the square root of the prefix sums cut to as many bands: these are tried too.

    T steps; a record takes part in one of the `slots` steps of a pass, the same in every pass; with p <= T bands each step's noise depends
    on the p - 1 before it. The workload is a Toeplitz column, shape (T,), by default the prefix sums. The result has shape (p,). Reference:
    McKenna 2024, arXiv:2405.15913; Choquette-Choo et al. 2023, arXiv:2306.08153 (banded strategies).
    """
    steps, slots = require_count("steps", steps), require_count("slots", slots)
    bands = require_count("bands", bands, high=steps)
    target = _require_toeplitz(workload, steps)
    from scipy import signal  # which loads scipy.stats: importing lethe stays light

    identity, root = square_root(steps, 1), square_root(steps, bands)
    if bands == 1:
        return identity[:1]

    def loss(tail: FloatArray) -> tuple[float, FloatArray]:
        column = np.concatenate(([1.0], tail))
        padded = np.concatenate((column, np.zeros(steps - bands)))
        value, gradient = _log_error(padded, lambda values: signal.lfilter([1.0], column, values), target, slots, bands)
        return value, gradient[1:]

    solution = optimize.minimize(
        loss, root[1:bands], jac=True, method="L-BFGS-B", bounds=[(0.0, None)] * (bands - 1), options={"maxiter": 500}
    )
    best = np.concatenate(([1.0], solution.x, np.zeros(steps - bands)))
    return min((best, root, identity), key=lambda column: mean_squared_error(column, target, slots))[:bands]


def buffered_toeplitz(steps: int, slots: int, buffers: int, *, workload: FloatArray | None = None) -> Buffers:
    r"""The buffered linear Toeplitz strategy of the smallest `mean_squared_error` that L-BFGS finds; noise then needs d buffers.

    Never worse than independent noise. At most 10 buffers, d; the workload, shape (T,), and the slots are as for `banded_toeplitz`.
    Reference: McMahan, Xu, Zhang 2024, arXiv:2408.08868.
    """
    steps, slots = require_count("steps", steps), require_count("slots", slots)
    buffers = require_count("buffers", buffers, high=10)
    target = _require_toeplitz(workload, steps)
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
        value, gradient = _log_error(column, lambda values: signal.fftconvolve(inverted, values)[:steps], target, slots, steps)
        by_omega = powers @ gradient[1:]
        by_theta = omegas / thetas * ((powers * lags) @ gradient[1:])
        return value, np.concatenate((by_omega * omegas, by_theta * thetas * (1.0 - thetas)))

    # Decay times spread over the length of the run, as the square root's slow decay needs.
    times = np.geomspace(1.5, max(3.0, 0.5 * steps), buffers)
    start = np.concatenate((np.log(0.5 / times**0.5 / buffers**0.5), np.log(times)))
    bounds = [(-30.0, 3.0)] * buffers + [(-10.0, 25.0)] * buffers
    solution = optimize.minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 1000})
    omegas, thetas = read(solution.x)
    best = Buffers(tuple(omegas.tolist()), tuple(thetas.tolist()))
    nothing = Buffers((0.0,) * buffers, (0.0,) * buffers)
    return min((best, nothing), key=lambda buffers: mean_squared_error(blt_column(*buffers, steps), target, slots))


def banded_inverse(steps: int, slots: int, bands: int, *, workload: FloatArray | None = None) -> FloatArray:
    r"""The coefficients d of $C^{-1}$, banded and Toeplitz, of the smallest `mean_squared_error` that L-BFGS finds: $d_0 = 1$, the others
    not above 0, their sum not below.

    Never worse than independent noise, nor than the inverse of the square root of the prefix sums cut to as many bands. T, slots, p <= T
    bands and the workload are as for `banded_toeplitz`; the result has shape (p,). Reference: arXiv:2505.12128, 2601.22334.
    """
    steps, slots = require_count("steps", steps), require_count("slots", slots)
    bands = require_count("bands", bands, high=steps)
    target = _require_toeplitz(workload, steps)
    from scipy import signal

    lags = np.arange(1, bands)
    root = np.append(1.0, np.cumprod((lags - 1.5) / lags))
    identity = np.append(1.0, np.zeros(bands - 1))
    if bands == 1:
        return identity

    def error(coefficients: FloatArray) -> tuple[float, FloatArray]:
        column = np.asarray(signal.lfilter([1.0], coefficients, np.append(1.0, np.zeros(steps - 1))), dtype=np.float64)
        value, gradient = _log_error(column, lambda values: signal.lfilter(coefficients, [1.0], values), target, slots, steps)
        return value, -_correlated(gradient, signal.lfilter([1.0], coefficients, column), bands)  # delta c = -c c delta d

    def read(point: FloatArray) -> FloatArray:
        return np.exp(point - np.logaddexp.reduce(np.append(point, 0.0)))

    def loss(point: FloatArray) -> tuple[float, FloatArray]:
        shares = read(point)
        value, gradient = error(np.append(1.0, -shares))
        return value, -shares * (gradient[1:] - gradient[1:] @ shares)

    start = np.log(-root[1:] / root.sum())
    solution = optimize.minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[(-40.0, 40.0)] * (bands - 1), options={"maxiter": 500})
    return min((np.append(1.0, -read(solution.x)), root, identity), key=lambda candidate: error(candidate)[0])


def _inverse_of_buffers(omegas: FloatArray, thetas: FloatArray, steps: int) -> FloatArray:
    r"""The first column of $C^{-1}$, by the eigenvalues of $\mathrm{diag}(\theta) - \sqrt\omega\sqrt\omega^\top$; shape (T,)."""
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
        twice_inverted = inverse(noise)
    if not (0.0 < total < _HOPELESS and np.isfinite(twice_inverted).all()):
        return np.log(_HOPELESS), np.zeros(bands)
    answer = response(column, slots)
    squares = float(answer @ answer)
    by_noise = -2.0 * _correlated(weighted, twice_inverted, bands)
    by_response = 2.0 * response(answer[::-1].copy(), slots)[::-1][:bands] if slots < steps else 2.0 * answer[:bands]
    return np.log(total) + np.log(squares), by_noise / total + by_response / squares


def _correlated(first: FloatArray, second: FloatArray, lags: int) -> FloatArray:
    """The sum over t of one[t + k] other[t], for k below `lags`."""
    if lags <= 64:
        return np.array([first[lag:] @ second[: len(second) - lag] for lag in range(lags)])
    from scipy import signal

    return signal.fftconvolve(first, second[::-1])[len(second) - 1 :][:lags]


def _require_toeplitz(workload: FloatArray | None, steps: int) -> FloatArray:
    target = prefix_sums(steps) if workload is None else require_workload(workload, steps)
    if target.ndim != 1:
        raise outside("workload", f"shape {target.shape}", f"a Toeplitz column of shape ({steps},); a dense strategy takes any workload")
    return target


# Multiplications that a search may take: about a minute on one core.
_WORK = 1e12


def dense(
    steps: int, slots: int, *, workload: FloatArray | None = None, bands: int | None = None, iterations: int | None = None
) -> FloatArray:
    r"""The lower-triangular strategy of the smallest `mean_squared_error` that L-BFGS finds, with sensitivity 1.

    Over all lower-triangular M, banded where `bands` says so: $C = M N^{-1}$ with $N$ diagonal and the same within a slot, so that every
    slot has the sensitivity 1: $n_j^2 = \sum_{s,s'\in S_j}|(M^\top M)_{ss'}|$. The search begins at the best of several known strategies,
    and its result is never worse than the identity, the square root of the prefix sums, and the binary tree (the first two of them cut to
    `bands`, the third only without).

    T <= 4096 steps; slots and bands, None for all steps, are as for `banded_toeplitz`; the workload has shape (T,) or (T, T), by default
    the prefix sums. Iterations are those of L-BFGS; None: at most 400, and as many as take about a minute. The result has shape (T, T).
    Reference: Choquette-Choo et al. 2023, arXiv:2211.06530; Denisov et al. 2022, arXiv:2202.08312 (one participation).
    """
    steps, slots = require_count("steps", steps, high=MOST_DENSE), require_count("slots", slots)
    width = steps if bands is None else require_count("bands", bands, high=steps)
    target = prefix_sums(steps) if workload is None else require_workload(workload, steps)
    if iterations is None:
        iterations = min(400, max(8, round(_WORK / (8.0 * float(steps) ** 3))))
    full = as_matrix(target)
    rows, columns = np.nonzero(np.tril(np.triu(np.ones((steps, steps), dtype=bool), 1 - width)))

    def loss(entries: FloatArray) -> tuple[float, FloatArray]:
        matrix = np.zeros((steps, steps))
        matrix[rows, columns] = entries
        value, gradient = _error(matrix, full, slots)
        return value, gradient[rows, columns]

    strategies = [square_root(steps, 1), square_root(steps, width)] + ([binary_tree(steps)] if bands is None else [])
    if target.ndim == 1 or slots > 1:
        columns_only = target if target.ndim == 1 else None
        for narrow in {min(slots, width), min(32, width)}:
            column = np.zeros(steps)
            column[:narrow] = banded_toeplitz(steps, slots, narrow, workload=columns_only)
            strategies.append(column)
    start = min(strategies, key=lambda strategy: mean_squared_error(strategy, target, slots))
    solution = optimize.minimize(
        loss, as_matrix(start)[rows, columns], jac=True, method="L-BFGS-B", options={"maxiter": iterations, "maxcor": 8, "ftol": 1e-7}
    )
    best = np.zeros((steps, steps))
    best[rows, columns] = solution.x
    candidates = [as_matrix(start)]
    if np.isfinite(best).all() and np.diagonal(best).all():
        candidates.append(best * np.sign(np.diagonal(best))[:, None])  # signs of rows are signs of noise
    levelled = [strategy / _slot_norms(strategy, slots)[0] for strategy in candidates]
    return min(levelled, key=lambda strategy: mean_squared_error(strategy, target, slots))


def _error(matrix: FloatArray, workload: FloatArray, slots: int) -> tuple[float, FloatArray]:
    r"""$\log\|A N M^{-1}\|_F^2$ and its gradient by M."""
    steps = len(matrix)
    diagonal = np.diagonal(matrix)
    if not (np.isfinite(matrix).all() and np.abs(diagonal).min() > 1e-12 * np.abs(diagonal).max()):
        return 700.0, np.zeros_like(matrix)
    norms, signs = _slot_norms(matrix, slots)
    # B^T = M^{-T} (A N)^T
    noise = linalg.solve_triangular(matrix, (workload * norms).T, lower=True, trans="T", check_finite=False)
    total = float(np.sum(np.square(noise)))
    if not 0.0 < total < 1e300:
        return 700.0, np.zeros_like(matrix)
    inner = linalg.solve_triangular(matrix, noise, lower=True, check_finite=False)  # M^{-1} B^T
    gradient = -2.0 * (noise @ inner.T)
    by_norm = 2.0 * np.einsum("st,ts->s", inner, workload)
    by_slot = np.zeros(min(slots, steps))
    np.add.at(by_slot, np.arange(steps) % slots, by_norm)
    gradient += matrix @ (signs * (by_slot[np.arange(steps) % slots] / norms))
    return np.log(total), np.tril(gradient) / total


def _slot_norms(matrix: FloatArray, slots: int) -> tuple[FloatArray, FloatArray]:
    """The sensitivity of each step's slot, shape (T,), and the signs of the entries of its Gram matrix, 0 between slots, shape (T, T)."""
    steps = len(matrix)
    norms, signs = np.zeros(steps), np.zeros((steps, steps))
    for slot in range(min(slots, steps)):
        of_slot = matrix[:, slot::slots]
        gram = of_slot.T @ of_slot
        signs[slot::slots, slot::slots] = np.sign(gram)
        norms[slot::slots] = np.sqrt(np.abs(gram).sum())
    return norms, signs
