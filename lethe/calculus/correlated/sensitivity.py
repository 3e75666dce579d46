"""Of a strategy of correlated noise: how far one record moves what it releases, in fixed order or at steps far enough apart; and the error
that its noise leaves in a workload.

C is the strategy (noise is $C^{-1}z$), G the gradients of all steps, one row each; a slot is the place in a pass at which a record takes
part. `theorems.correlated_noise` turns sensitivities into a guarantee, and the planners turn both into a choice of C.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg

from lethe.calculus.correlated.matrices import MOST_DENSE, as_matrix, real_array, require_strategy
from lethe.calculus.domains import FloatArray, outside, require_count, require_vector
from lethe.calculus.rounding import above, as_bound, root_above

_UNIT = 2.0**-52


def slot_sensitivities(strategy: ArrayLike, slots: int) -> FloatArray:
    r"""How far one record moves $C G$ if its contributions have norm at most 1, for each slot: $\max_{\|\delta_s\|\le 1}\|C\delta\|_F$.

    A record of slot j takes part in the steps $S_j = \{j, j+\ell, j+2\ell, \ldots\}$. With $X = C^\top C$ (docs/theory.md, Theorem 14)

    $$\|C\delta\|_F^2 \le \min\Big(\sum_{s,s'\in S_j}|X_{ss'}|,\ |S_j|\,\lambda_{\max}(X_{S_jS_j})\Big),$$

    the first of which is attained, by equal contributions, where no entry of $X$ on $S_j$ is negative.

    C has shape (T,) or (T, T); $\ell$ is the steps of a pass, and with 1 a record takes part in every step. Rounded up, one for each slot
    that some step reaches, shape (min(l, T),). Reference: Choquette-Choo, McMahan, Rush, Thakurta 2023, arXiv:2211.06530 (vector
    contributions and non-negative $X$).
    """
    matrix, slots = require_strategy(strategy), require_count("slots", slots)
    if matrix.ndim == 1:
        return _of_column(matrix, slots)
    return np.array([_of_columns(matrix[slot:, slot::slots]) for slot in range(min(slots, len(matrix)))])


def column_norms(strategy: ArrayLike) -> FloatArray:
    r"""How far a contribution of norm 1 at one step moves $CG$: $\|C_{\cdot s}\|$, rounded up, shape (T,)."""
    matrix = require_strategy(strategy)
    squares = np.cumsum(np.square(matrix))[::-1] if matrix.ndim == 1 else np.square(matrix).sum(axis=0)
    return np.asarray(root_above(above(squares, (len(matrix) + 16) * _UNIT)))


def band_count(strategy: ArrayLike) -> int:
    r"""How many diagonals reach the last entry that is not 0: the smallest b with $C_{ts} = 0$ where $t - s \ge b$."""
    matrix = require_strategy(strategy)
    if matrix.ndim == 1:
        return int(np.flatnonzero(matrix)[-1]) + 1
    rows, columns = np.nonzero(matrix)
    return int((rows - columns).max()) + 1


def sensitivity(strategy: ArrayLike, slots: int) -> float:
    """The largest of `slot_sensitivities`: how far a record in any slot moves $CG$."""
    return float(slot_sensitivities(strategy, slots).max())


def _of_column(column: FloatArray, slots: int) -> FloatArray:
    """Equal contributions are the worst; the response to those of slot j is that to slot 0, j steps later, and cut where the run ends."""
    steps = len(column)
    squares = np.cumsum(np.square(response(column, slots)))
    squares = squares[steps - min(slots, steps) :][::-1]
    return np.asarray(root_above(above(squares, (3 * steps + 16) * _UNIT)))


def response(column: FloatArray, slots: int) -> FloatArray:
    r"""$\sum_m c_{t-m\ell}$: what equal contributions at steps 0, l, 2l, ... of a Toeplitz strategy become, shape (T,)."""
    steps = len(column)
    slots = min(slots, steps)
    padded = np.zeros(-(-steps // slots) * slots)
    padded[:steps] = column
    return np.cumsum(padded.reshape(-1, slots), axis=0).ravel()[:steps]


def _of_columns(columns: FloatArray) -> float:
    """How far contributions of norm at most 1 at these columns move $CG$: the root of their sum of absolute inner products."""
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


def separated_sensitivity(strategy: ArrayLike, separation: int, participations: int | None = None) -> float:
    """How far one record moves $CG$ if it takes part in at most k steps, any two of them b or more apart, with norm at most 1.

    Exact of falling Toeplitz columns and of at most b bands, else an upper bound (docs/theory.md, "Steps that lie apart"). The steps may be
    chosen along the way, in view of all that was released. No batch design of a Run has records meet such steps and no others; fixed slots,
    a special case, have `slot_sensitivities`. C has shape (T,) or (T, T); None for k: as many as there can be, ceil(T / b). Rounded up.

    Raises:
        InputError: more than 4096 steps of a column that is neither narrow nor falling.
    Reference: Choquette-Choo et al. 2023, arXiv:2306.08153; Kalinin & Lampert 2024, arXiv:2405.13763 (falling columns).
    """
    matrix, separation = require_strategy(strategy), require_count("separation", separation)
    steps = len(matrix)
    longest = -(-steps // separation)
    count = longest if participations is None else min(require_count("participations", participations), longest)
    if matrix.ndim == 1 and np.all(np.diff(matrix) <= 0.0):
        return _falling(matrix, separation, count)
    if band_count(matrix) <= separation:
        squares = np.square(column_norms(matrix))
        # The columns of a Toeplitz strategy are the shorter the later: the first of the steps are the worst.
        early = matrix.ndim == 1
        square = squares[::separation][:count].sum() if early else _heaviest(squares[:, None], separation, count)[0]
        return float(root_above(above(square, (count + 16) * _UNIT)))
    if steps > MOST_DENSE:
        raise outside("strategy", f"{steps} steps of a column that rises", f"at most {MOST_DENSE} steps, few bands, or a column that falls")
    return _of_separated(as_matrix(matrix), separation, count)


def _falling(column: FloatArray, separation: int, count: int) -> float:
    """The response to ones at 0, b, 2b, ... at the first k of them."""
    reached = np.zeros_like(column)
    for start in range(0, separation * count, separation):
        reached[start:] += column[: len(column) - start]
    return float(root_above(above(float(np.square(reached).sum()), (3 * len(column) + 16) * _UNIT)))


def _of_separated(matrix: FloatArray, separation: int, count: int) -> float:
    """Of a matrix, any participations that are far enough apart: a bound by the heaviest choice of columns."""
    steps = len(matrix)
    gram = np.abs(matrix.T @ matrix)
    squares = np.diagonal(gram).copy()
    indices = np.arange(steps)
    gram[np.abs(np.subtract.outer(indices, indices)) < separation] = 0.0
    values = squares + _heaviest(gram, separation, count - 1)
    square = float(_heaviest(values[:, None], separation, count)[0])
    # What rounding can do to an entry is at most this many units of the product of the columns' norms.
    square += (steps + 16) * _UNIT * count**2 * float(squares.max())
    return float(root_above(above(square, (4 * count + 16) * _UNIT)))


def _heaviest(weights: FloatArray, separation: int, count: int) -> FloatArray:
    """For each column of weights, none negative, the largest sum of at most `count` entries that lie `separation` or more rows apart."""
    rows, columns = weights.shape
    best = np.zeros((rows + 1, columns))  # of the first so many rows
    for _ in range(count):
        before, best = best, np.zeros((rows + 1, columns))
        for row in range(rows):
            np.maximum(best[row], before[max(row + 1 - separation, 0)] + weights[row], out=best[row + 1])
    return best[-1]


def require_workload(workload: ArrayLike, steps: int) -> FloatArray:
    """A workload A for T steps as an array, of shape (T,), the first column of a Toeplitz matrix, or (T, T); or raise InputError."""
    array = real_array("workload", workload)
    if array.shape not in ((steps,), (steps, steps)) or not np.isfinite(array).all() or not array.any():
        raise outside("workload", f"shape {array.shape}", f"finite numbers of shape ({steps},) or ({steps}, {steps}), not all 0")
    return array


def noise_squares(strategy: ArrayLike, workload: ArrayLike) -> float:
    r"""$\|A C^{-1}\|_F^2$: the sum of the squared errors of all T outputs $A C^{-1} z$, a coordinate, where $z$ has variance 1; infinity
    where it overflows. C and A have shape (T,) or (T, T).
    """
    matrix = require_strategy(strategy)
    target = require_workload(workload, len(matrix))
    if matrix.ndim == 1 and target.ndim == 1:
        from scipy import signal  # which loads scipy.stats: importing lethe stays light

        with np.errstate(over="ignore", invalid="ignore"):
            column = np.asarray(signal.lfilter([1.0], np.trim_zeros(matrix, "b"), target), dtype=np.float64)  # pyright: ignore
            return as_bound(float(np.sum(np.arange(len(matrix), 0, -1) * np.square(column))))
    with np.errstate(over="ignore", invalid="ignore"):
        solved = linalg.solve_triangular(as_matrix(matrix), as_matrix(target).T, lower=True, trans="T", check_finite=False)
        return as_bound(float(np.sum(np.square(solved))))


def output_square(strategy: ArrayLike, weights: ArrayLike) -> float:
    r"""$\|C^{-\top}a\|^2$: the squared error of one output $a^\top C^{-1}z$, a coordinate, where $z$ has variance 1; infinity where it
    overflows. $a \ge 0$, shape (T,), is how much of each step's noise the output has.
    """
    matrix = require_strategy(strategy)
    target = require_vector("weights", weights, low=0.0)
    if len(target) != len(matrix):
        raise outside("weights", f"{len(target)} numbers", f"one for each of {len(matrix)} steps")
    with np.errstate(over="ignore", invalid="ignore"):
        if matrix.ndim == 1:
            from scipy import signal

            solved = np.asarray(signal.lfilter([1.0], np.trim_zeros(matrix, "b"), target[::-1]), dtype=np.float64)  # pyright: ignore
        else:
            solved = linalg.solve_triangular(matrix, target, lower=True, trans="T", check_finite=False)
        return as_bound(float(np.sum(np.square(solved))))


def mean_squared_error(strategy: ArrayLike, workload: ArrayLike, slots: int) -> float:
    r"""$\frac1T\|A C^{-1}\|_F^2\,\mathrm{sens}(C)^2$: the squared error of an output, a coordinate, in the mean over the T outputs, at
    $\mu = 1$ and contributions of norm at most 1.

    C and A have shape (T,) or (T, T); a record takes part in one of the `slots` steps of a pass, the same in every pass. Reference:
    Choquette-Choo et al. 2023, arXiv:2211.06530.
    """
    return noise_squares(strategy, workload) * sensitivity(strategy, slots) ** 2 / len(np.asarray(strategy))
