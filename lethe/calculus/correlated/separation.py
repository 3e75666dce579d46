"""Sensitivity of a strategy where a record may take part in any steps that lie far enough apart."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.correlated.matrices import MOST_DENSE, as_matrix, require_strategy
from lethe.calculus.correlated.sensitivity import band_count, column_norms
from lethe.calculus.domains import FloatArray, outside, require_count
from lethe.calculus.rounding import above, root_above

_UNIT = 2.0**-52


def separated_sensitivity(strategy: ArrayLike, separation: int, participations: int | None = None) -> float:
    r"""How far one record moves $CG$ if it takes part in at most k steps, any two of them b or more apart, with norm at most 1.

    With $X = C^\top C$ and the sets S of at most k such steps, $\|C\delta\|_F^2 \le \max_S\sum_{s,s'\in S}|X_{ss'}|$, which is

    - of a Toeplitz strategy whose column $c_0 \ge c_1 \ge \ldots \ge 0$ does not rise: the sum for $S = \{0, b, 2b, \ldots\}$; exact.
    - of at most b bands: $\max_S\sum_{s\in S}\|C_{\cdot s}\|^2$, since the columns of S do not overlap; exact, for entries of any sign.
    - else at most $\max_S\sum_{s\in S}v_s$ with $v_s = \max_{S\ni s}\sum_{s'\in S}|X_{ss'}|$.

    The steps may be chosen along the way, in view of all that was released. No batch design of a Run has records meet such steps and no
    others; fixed slots, a special case, have `slot_sensitivities`.

    Args:
        strategy: C, shape (T,) or (T, T) as `require_strategy` takes it.
        separation: b; 1: any steps.
        participations: k; None: as many as there can be, ceil(T / b).
    Returns:
        Rounded up.
    Raises:
        InputError: what is no strategy, or no whole numbers; more than 4096 steps of a column that is neither narrow nor falling.
    Reference: Choquette-Choo et al. 2023, arXiv:2306.08153 (bands, and the last bound); Kalinin & Lampert 2024, arXiv:2405.13763
    (falling columns).
    """
    given, separation = require_strategy(strategy), require_count("separation", separation)
    steps = len(given)
    longest = -(-steps // separation)
    count = longest if participations is None else min(require_count("participations", participations), longest)
    if given.ndim == 1 and np.all(np.diff(given) <= 0.0):
        return _falling(given, separation, count)
    if band_count(given) <= separation:
        squares = np.square(column_norms(given))
        # The columns of a Toeplitz strategy are the shorter the later: the first of the steps are the worst.
        early = given.ndim == 1
        most = squares[::separation][:count].sum() if early else _heaviest(squares[:, None], separation, count)[0]
        return float(root_above(above(most, (count + 16) * _UNIT)))
    if steps > MOST_DENSE:
        raise outside("strategy", f"{steps} steps of a column that rises", f"at most {MOST_DENSE} steps, few bands, or a column that falls")
    return _of_matrix(as_matrix(given), separation, count)


def _falling(column: FloatArray, separation: int, count: int) -> float:
    """The response to ones at 0, b, 2b, ... at the first k of them."""
    reached = np.zeros_like(column)
    for start in range(0, separation * count, separation):
        reached[start:] += column[: len(column) - start]
    return float(root_above(above(float(np.square(reached).sum()), (3 * len(column) + 16) * _UNIT)))


def _of_matrix(matrix: FloatArray, separation: int, count: int) -> float:
    steps = len(matrix)
    gram = np.abs(matrix.T @ matrix)
    squares = np.diagonal(gram).copy()
    places = np.arange(steps)
    gram[np.abs(np.subtract.outer(places, places)) < separation] = 0.0
    values = squares + _heaviest(gram, separation, count - 1)
    found = float(_heaviest(values[:, None], separation, count)[0])
    # What rounding can do to an entry is at most this many units of the product of the columns' norms.
    found += (steps + 16) * _UNIT * count**2 * float(squares.max())
    return float(root_above(above(found, (4 * count + 16) * _UNIT)))


def _heaviest(weights: FloatArray, separation: int, count: int) -> FloatArray:
    """For each column the largest sum of at most `count` entries that lie `separation` or more rows apart, shape (columns,).

    Args:
        weights: none negative, shape (rows, columns).
        separation: b.
        count: k.
    """
    rows, columns = weights.shape
    best = np.zeros((rows + 1, columns))  # of the first so many rows
    for _ in range(count):
        before, best = best, np.zeros((rows + 1, columns))
        for row in range(rows):
            np.maximum(best[row], before[max(row + 1 - separation, 0)] + weights[row], out=best[row + 1])
    return best[-1]
