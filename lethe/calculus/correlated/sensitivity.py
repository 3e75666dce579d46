"""Sensitivity of a strategy under a fixed order: a record takes part in one slot of every pass."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.correlated.matrices import require_strategy
from lethe.calculus.domains import FloatArray, require_count
from lethe.calculus.rounding import above, root_above

_UNIT = 2.0**-52


def slot_sensitivities(strategy: ArrayLike, slots: int) -> FloatArray:
    r"""How far one record moves $C G$ if its contributions have norm at most 1, for each slot: $\max_{\|\delta_s\|\le 1}\|C\delta\|_F$.

    A record of slot j takes part in the steps $S_j = \{j, j+\ell, j+2\ell, \ldots\}$. Its contributions $\delta_s$ are vectors of any
    dimension. With $X = C^\top C$

    $$\|C\delta\|_F^2 = \sum_{s,s'\in S_j} X_{ss'}\langle\delta_s,\delta_{s'}\rangle
    \le \min\Big(\sum_{s,s'\in S_j}|X_{ss'}|,\ |S_j|\,\lambda_{\max}(X_{S_jS_j})\Big).$$

    The first follows from $|\langle\delta_s,\delta_{s'}\rangle| \le 1$ and is attained, by equal contributions, where no entry of $X$ on
    $S_j$ is negative; the second from $\sum_s\|\delta_s\|^2 \le |S_j|$.

    Args:
        strategy: C, shape (T,) or (T, T) as `require_strategy` takes it.
        slots: $\ell$, the steps of a pass; 1: the record takes part in every step.
    Returns:
        Rounded up, one for each slot that some step reaches, shape (min(l, T),).
    Raises:
        InputError: what is no strategy, or no number of slots.
    Reference: Choquette-Choo, McMahan, Rush, Thakurta 2023, arXiv:2211.06530 (vector contributions and non-negative $X$).
    """
    given, slots = require_strategy(strategy), require_count("slots", slots)
    return _of_column(given, slots) if given.ndim == 1 else _of_matrix(given, slots)


def column_norms(strategy: ArrayLike) -> FloatArray:
    r"""How far a contribution of norm 1 at one step moves $CG$: $\|C_{\cdot s}\|$, rounded up, shape (T,).

    Args:
        strategy: C, shape (T,) or (T, T) as `require_strategy` takes it.
    Raises:
        InputError: what is no strategy.
    """
    given = require_strategy(strategy)
    squares = np.cumsum(np.square(given))[::-1] if given.ndim == 1 else np.square(given).sum(axis=0)
    return np.asarray(root_above(above(squares, (len(given) + 16) * _UNIT)))


def band_count(strategy: ArrayLike) -> int:
    r"""How many diagonals reach the last entry that is not 0: the smallest b with $C_{ts} = 0$ where $t - s \ge b$.

    Args:
        strategy: C, shape (T,) or (T, T) as `require_strategy` takes it.
    Raises:
        InputError: what is no strategy.
    """
    given = require_strategy(strategy)
    if given.ndim == 1:
        return int(np.flatnonzero(given)[-1]) + 1
    rows, columns = np.nonzero(given)
    return int((rows - columns).max()) + 1


def sensitivity(strategy: ArrayLike, slots: int) -> float:
    """The largest of `slot_sensitivities`, which see."""
    return float(slot_sensitivities(strategy, slots).max())


def _of_column(column: FloatArray, slots: int) -> FloatArray:
    """Entries are not negative, so equal contributions are the worst: the response to ones in the record's steps.

    The response to slot j is that to slot 0, j steps later, and cut where the run ends.
    """
    steps = len(column)
    squares = np.cumsum(np.square(response(column, slots)))
    squares = squares[steps - min(slots, steps) :][::-1]
    return np.asarray(root_above(above(squares, (3 * steps + 16) * _UNIT)))


def response(column: FloatArray, slots: int) -> FloatArray:
    r"""$\sum_m c_{t-m\ell}$: what equal contributions at steps 0, l, 2l, ... become, shape (T,).

    Args:
        column: of a Toeplitz strategy, shape (T,).
        slots: l.
    """
    steps = len(column)
    slots = min(slots, steps)
    padded = np.zeros(-(-steps // slots) * slots)
    padded[:steps] = column
    return np.cumsum(padded.reshape(-1, slots), axis=0).ravel()[:steps]


def _of_matrix(matrix: FloatArray, slots: int) -> FloatArray:
    return np.array([_of_columns(matrix[slot:, slot::slots]) for slot in range(min(slots, len(matrix)))])


def _of_columns(columns: FloatArray) -> float:
    rows, count = columns.shape
    gram = columns.T @ columns
    # What rounding can do to an entry is at most this many units of the product of the columns' norms; they sum to the square of the sum.
    unit = (rows + count + 16) * _UNIT
    norms = np.sqrt(np.diagonal(gram)).sum()
    entries = float(np.abs(gram).sum()) + unit * float(norms) ** 2
    if gram.min() < 0.0:
        largest = float(np.linalg.eigvalsh(gram)[-1]) + (unit + 16 * count * _UNIT) * float(np.trace(gram))
        entries = min(entries, count * largest)
    return float(root_above(above(entries, (count * count + 16) * _UNIT)))
