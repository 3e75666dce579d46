r"""Published errors of matrix mechanisms for prefix sums, against the number of steps and of passes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from scipy import linalg

from lethe.calculus.correlated.matrices import as_matrix, binary_tree, blt_column, prefix_sums, square_root
from lethe.calculus.correlated.optimum import banded_toeplitz, buffered_toeplitz, dense
from lethe.calculus.correlated.sensitivity import mean_squared_error, sensitivity
from lethe.calculus.domains import FloatArray, require_count
from lethe_experiments.base import Cell, Progress, Reproduction

COLUMNS = ("passes", "steps", "mechanism", "measure", "error", "at_least", "published", "published_as")
ONE_PASS = (16, 64, 256, 1024)
MANY_PASSES = ((4, 256), (16, 256), (64, 256))
MOST_DENSE = 256  # a search at 1024 steps takes minutes

_BANDS, _BUFFERS = 32, 3
_UPPER = "the best there is: at most 1 + ln(n)/pi (Mathias 1993; reached by Henzinger, Upadhyay 2025)"
_LIMIT = "the best there is: 0.701 to 0.748 + ln(n)/pi for large n (Henzinger, Kalinin, Upadhyay 2025); the upper one"
_JAX = "computed by JAX Privacy 2.0.0"
_SQUARE = "closed form: the sum of the squares of binom(2k, k)/4^k"

# Squared: steps, passes, bands (None: dense), as JAX Privacy 2.0.0 finds them: `dense.optimize`, `toeplitz.optimize_banded_toeplitz`.
_ELSEWHERE = (
    (32, 1, None, 3.579999382137288),
    (32, 4, None, 16.219080381535417),
    (64, 1, 8, 7.09676191688255),
    (256, 1, 32, 9.528398447376961),
)


def matrix_mechanisms(progress: Progress | None = None, *, sizes: tuple[int, ...] = ONE_PASS) -> Reproduction:
    """Error of matrix mechanisms for prefix sums against steps and passes, beside published bounds and numbers."""
    cases = [(1, steps) for steps in sizes] + [case for case in MANY_PASSES if case[1] <= max(sizes)]
    rows: list[tuple[Cell, ...]] = []
    for done, (passes, steps) in enumerate(cases):
        if progress is not None:
            progress(done, len(cases) + 1)
        rows += _rows(passes, steps)
    rows += [_elsewhere(*one) for one in _ELSEWHERE]
    if progress is not None:
        progress(len(cases) + 1, len(cases) + 1)
    return Reproduction(
        name="matrix-mechanisms",
        title="Error of matrix mechanisms for prefix sums, against steps and passes",
        source="Henzinger, Kalinin, Upadhyay 2025, arXiv:2509.14334, and the bounds it cites; Fichtenberger, Henzinger, Upadhyay 2023, "
        "arXiv:2202.11205 (square root); Denisov et al. 2022, arXiv:2202.08312 (dense); McKenna 2024, arXiv:2405.15913 (banded); "
        "McMahan, Xu, Zhang 2024, arXiv:2408.08868 (buffered); JAX Privacy 2.0.0.",
        shape="errors",
        columns=COLUMNS,
        rows=tuple(rows),
        notes=(
            "error: the largest standard deviation of a partial sum (max), or the root of the mean of their squares (mean), at 1-GDP for "
            "contributions of norm 1. A record takes part once a pass, in the same slot.",
            "at_least: for one pass no matrix mechanism is below it. max: (2 + ln((2n+1)/3))/pi, Matousek, Nikolov, Talwar 2020. mean: the "
            "nuclear norm of the prefix sums over n, Henzinger, Upadhyay, Upadhyay 2023.",
            "published, beside the dense strategy: of the best mechanism that there is. In the mean an asymptote without its "
            "o(1), which small n exceed; of max a bound, though the dense strategy is optimised for the mean.",
            "The tables of errors in papers on several passes show pictures or accuracies that could not be read here; for several passes "
            "what is beside is the number of JAX Privacy, whose search for dense strategies of 4 passes ends 0.6 % lower in the square.",
        ),
    )


def largest_at_least(steps: int) -> float:
    r"""$\frac1\pi\big(2 + \ln\frac{2n+1}3\big)$: no mechanism for one pass has a smaller largest error.

    Args:
        steps: n.
    Reference: Matousek, Nikolov, Talwar 2020, arXiv:1408.1376.
    """
    return (2.0 + math.log((2.0 * require_count("steps", steps) + 1.0) / 3.0)) / math.pi


def mean_at_least(steps: int) -> float:
    r"""$\frac1n\sum_{j=1}^n\frac{1}{2\sin\frac{(2j-1)\pi}{4n+2}}$, the nuclear norm over n: none for one pass has a smaller mean error.

    Args:
        steps: n.
    Reference: Henzinger, Upadhyay, Upadhyay 2023, arXiv:2211.05006.
    """
    count = require_count("steps", steps)
    angles = (2.0 * np.arange(1, count + 1) - 1.0) * math.pi / (4 * count + 2)
    return float(np.sum(0.5 / np.sin(angles))) / count


def largest_error(strategy: FloatArray, slots: int) -> float:
    r"""$\max_t\|(AC^{-1})_{t\cdot}\|\,\mathrm{sens}(C)$ of the prefix sums A.

    Args:
        strategy: C, shape (T,) or (T, T).
        slots: steps of a pass.
    """
    workload = as_matrix(prefix_sums(len(strategy)))
    rows = linalg.solve_triangular(as_matrix(strategy), workload.T, lower=True, trans="T").T
    return float(np.linalg.norm(rows, axis=1).max()) * sensitivity(strategy, slots)


def mean_error(strategy: FloatArray, slots: int) -> float:
    r"""$\big(\frac1T\|AC^{-1}\|_F^2\big)^{1/2}\,\mathrm{sens}(C)$ of the prefix sums A.

    Args:
        strategy: C, shape (T,) or (T, T).
        slots: steps of a pass.
    """
    return math.sqrt(mean_squared_error(strategy, prefix_sums(len(strategy)), slots))


def _rows(passes: int, steps: int) -> list[tuple[Cell, ...]]:
    slots, once = steps // passes, passes == 1
    rows: list[tuple[Cell, ...]] = []
    for name, made in _MECHANISMS.items():
        if name == "dense" and steps > MOST_DENSE:
            continue
        strategy = made(steps, slots)
        for measure, measured, least in (("max", largest_error, largest_at_least), ("mean", mean_error, mean_at_least)):
            published = _published(name, measure, steps) if once else (None, None)
            rows.append((passes, steps, name, measure, measured(strategy, slots), least(steps) if once else None, *published))
    return rows


def _published(name: str, measure: str, steps: int) -> tuple[float | None, str | None]:
    if name == "independent":
        return math.sqrt(steps if measure == "max" else (steps + 1) / 2), "closed form"
    if measure == "max":
        if name == "square root":
            return math.fsum((math.comb(2 * k, k) / 4**k) ** 2 for k in range(min(steps, 500))) + _tail(steps), _SQUARE
        return (1.0 + math.log(steps) / math.pi, _UPPER) if name == "dense" else (None, None)
    return (0.748 + math.log(steps) / math.pi, _LIMIT) if name == "dense" else (None, None)


def _tail(steps: int) -> float:
    """The terms from the 500th on, by logarithms: the binomials leave the range of doubles."""
    return math.fsum(math.exp(2.0 * (math.lgamma(2 * k + 1) - 2.0 * math.lgamma(k + 1) - k * math.log(4.0))) for k in range(500, steps))


def _elsewhere(steps: int, passes: int, bands: int | None, squared: float) -> tuple[Cell, ...]:
    slots = steps // passes
    strategy = dense(steps, slots) if bands is None else _padded(banded_toeplitz(steps, slots, bands), steps)
    name = "dense" if bands is None else f"banded, {bands}"
    least = mean_at_least(steps) if passes == 1 else None
    return passes, steps, name, "mean", mean_error(strategy, slots), least, math.sqrt(squared), _JAX


def _padded(column: FloatArray, steps: int) -> FloatArray:
    return np.concatenate((column, np.zeros(steps - len(column))))


_MECHANISMS: Mapping[str, Callable[[int, int], FloatArray]] = {
    "independent": lambda steps, slots: square_root(steps, 1),
    "binary tree": lambda steps, slots: binary_tree(steps),
    "square root": lambda steps, slots: square_root(steps),
    "banded": lambda steps, slots: _padded(banded_toeplitz(steps, slots, min(steps, _BANDS)), steps),
    "buffered": lambda steps, slots: blt_column(*buffered_toeplitz(steps, slots, _BUFFERS), steps),
    "dense": lambda steps, slots: dense(steps, slots),
}
