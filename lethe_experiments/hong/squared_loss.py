r"""How far one record moves the gradient of the squared loss $f(\theta; x) = \frac12(x^\top\theta - 1)^2$: Lemma C.5.

Reference: Hong, Wang, Zhou 2022, FAccT, Lemma C.5; doi:10.1145/3531146.3533070.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.domains import require_count, require_nonnegative, require_positive, require_vector
from lethe.errors import InputError
from lethe_experiments.standing import PublishedNumber, refuted


def gradient_sensitivity(features: ArrayLike, parameters: ArrayLike) -> float:
    r"""Of the mean gradient of these records, at these parameters, one record zeroed out and N kept; the lemma's equality, which holds.

    $$\max_i\frac1N\|\nabla f(\theta; x_i)\| = \max_i\frac1N\sqrt{2f(\theta; x_i)}\,\|x_i\|$$

    Args:
        features: rows $x_i$, shape (N, D).
        parameters: $\theta$, shape (D,).
    Raises:
        InputError: shapes do not go together, or a number is not finite.
    """
    rows, theta = np.asarray(features, dtype=np.float64), require_vector("parameters", parameters, low=-np.inf)
    if rows.ndim != 2 or not len(rows) or rows.shape[1] != theta.size or not np.isfinite(rows).all():
        raise InputError(f"features: got shape {rows.shape}; it needs finite rows of {theta.size} numbers.")
    return float(np.max(np.abs(rows @ theta - 1.0) * np.linalg.norm(rows, axis=1))) / len(rows)


def largest_sensitivity(*, parameter_norm: float, records: int, feature_norm: float = 1.0) -> float:
    r"""The same for every data set: $\frac B N(1 + B\|\theta\|)$ for rows of norm at most B; reached by $x_i = -B\theta/\|\theta\|$.

    A mechanism needs it over all data sets and all $\theta$ that it may come to, so parameters have to be bounded.

    Args:
        parameter_norm: $\|\theta\| \ge 0$, at most.
        records: $N \ge 1$.
        feature_norm: $B > 0$.
    Raises:
        InputError: an argument is outside its range.
    """
    longest, norm = require_positive("feature_norm", feature_norm), require_nonnegative("parameter_norm", parameter_norm)
    return longest * (1.0 + longest * norm) / require_count("records", records)


def printed_sensitivity(*, dimension: int, smoothness: float, parameter_norm: float) -> PublishedNumber:
    r"""The lemma's inequality, which is false: $\frac12(DM\|\theta\|^2 + 1)$, for centred rows of norm at most 1.

    Two records $\pm1$ at $\theta = -\frac12$, M = D = 1: the sensitivity is .75, and it claims .625. It bounds the mean loss, which no
    record's gradient is bounded by.

    Args:
        dimension: $D \ge 1$.
        smoothness: $M > 0$ of the mean loss.
        parameter_norm: $\|\theta\| \ge 0$.
    Raises:
        InputError: an argument is outside its range.
    """
    norm = require_nonnegative("parameter_norm", parameter_norm)
    value = (require_count("dimension", dimension) * require_positive("smoothness", smoothness) * norm * norm + 1.0) / 2.0
    return refuted(value, r"\frac12(DM\|\theta\|^2 + 1)", "a bound of the mean loss, not of a record's gradient; use largest_sensitivity")
