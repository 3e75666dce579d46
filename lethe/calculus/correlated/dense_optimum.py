"""The best lower-triangular strategy for a pattern of participation."""

from __future__ import annotations

import numpy as np
from scipy import linalg, optimize

from lethe.calculus.correlated.error import mean_squared_error, require_workload
from lethe.calculus.correlated.matrices import MOST_DENSE, as_matrix, binary_tree, prefix_sums, square_root
from lethe.calculus.correlated.toeplitz_optimum import banded_toeplitz
from lethe.calculus.domains import FloatArray, require_count

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

    Args:
        steps: T <= 4096.
        slots: steps of a pass; a record takes part in one of them, the same in every pass.
        workload: A, shape (T,) or (T, T); None: prefix sums.
        bands: p: each step's noise depends on the p - 1 before it; None: on all.
        iterations: of L-BFGS; None: at most 400, and as many as take about a minute.
    Returns:
        C, shape (T, T).
    Raises:
        InputError: an argument is outside its range.
    Reference: Choquette-Choo et al. 2023, arXiv:2211.06530; Denisov et al. 2022, arXiv:2202.08312 (one participation).
    """
    steps, slots = require_count("steps", steps, high=MOST_DENSE), require_count("slots", slots)
    width = steps if bands is None else require_count("bands", bands, high=steps)
    asked = prefix_sums(steps) if workload is None else require_workload(workload, steps)
    if iterations is None:
        iterations = min(400, max(8, round(_WORK / (8.0 * float(steps) ** 3))))
    full = as_matrix(asked)
    rows, columns = np.nonzero(np.tril(np.triu(np.ones((steps, steps), dtype=bool), 1 - width)))

    def loss(entries: FloatArray) -> tuple[float, FloatArray]:
        matrix = np.zeros((steps, steps))
        matrix[rows, columns] = entries
        value, gradient = _error(matrix, full, slots)
        return value, gradient[rows, columns]

    known = [square_root(steps, 1), square_root(steps, width)] + ([binary_tree(steps)] if bands is None else [])
    if asked.ndim == 1 or slots > 1:
        columns_only = asked if asked.ndim == 1 else None
        for narrow in {min(slots, width), min(32, width)}:
            column = np.zeros(steps)
            column[:narrow] = banded_toeplitz(steps, slots, narrow, workload=columns_only)
            known.append(column)
    start = min(known, key=lambda one: mean_squared_error(one, asked, slots))
    found = optimize.minimize(
        loss, as_matrix(start)[rows, columns], jac=True, method="L-BFGS-B", options={"maxiter": iterations, "maxcor": 8, "ftol": 1e-7}
    )
    best = np.zeros((steps, steps))
    best[rows, columns] = found.x
    candidates = [as_matrix(start)]
    if np.isfinite(best).all() and np.diagonal(best).all():
        candidates.append(best * np.sign(np.diagonal(best))[:, None])  # signs of rows are signs of noise
    levelled = [one / _slot_norms(one, slots)[0] for one in candidates]
    return min(levelled, key=lambda one: mean_squared_error(one, asked, slots))


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
