"""Input checks of mechanisms: finite rows of bounded norm, and a constant feature for the intercept."""

from __future__ import annotations

from typing import Any

import numpy as np

from lethe.calculus.domains import require_positive
from lethe.certificates.findings import Finding, holds
from lethe.mechanisms.base import Array
from lethe.mechanisms.tables import require_table
from lethe.run.losses.targets import real_targets

_EPS = float(np.finfo(np.float64).eps)


def projected_rows(values: Any, *, feature_norm: float, intercept: bool = False) -> Array:
    r"""Every row scaled to norm at most R, and the constant 1 appended: $u \mapsto (u\min(1, R/\|u\|), 1)$.

    Each record is treated by itself, so neighbours stay neighbours. The projection is rounded inward by $(d+16)$ eps: the true norm of
    a row is at most R, rounding included.

    Args:
        values: shape (m, d), finite numbers; m = 0 is allowed: every record may be zeroed out.
        feature_norm: R > 0, public.
        intercept: whether to append 1, after the projection; the squared norm is then at most $R^2 + 1$.
    Raises:
        InputError: no table of real, finite numbers with a column, or R out of range.
    """
    radius = require_positive("feature_norm", feature_norm)
    table = require_table("features", values)
    # Through the largest entry, so that squares of 1e200 do not overflow and squares of 1e-200 do not vanish.
    largest = np.abs(table).max(axis=1, keepdims=True)
    unit = table / np.where(largest > 0.0, largest, 1.0)
    length = np.sqrt(np.square(unit).sum(axis=1, keepdims=True))
    limit = radius * (1.0 - (table.shape[1] + 16) * _EPS)
    with np.errstate(over="ignore"):
        inside = largest * length <= limit
    rows = np.where(inside, table, unit * (limit / np.where(length > 0.0, length, 1.0)))
    return np.hstack([rows, np.ones((len(rows), 1))]) if intercept else rows


def targets_within(values: Any, *, count: int, bound: float) -> Array:
    """Targets truncated at plus and minus `bound`, shape (n,).

    Args:
        values: anything that numpy makes an array of, shape (n,).
        count: n.
        bound: > 0, in the unit of the targets.
    Raises:
        InputError: not `count` finite numbers, or the bound is out of range.
    """
    limit = require_positive("target_bound", bound)
    return np.clip(real_targets(values, count=count), -limit, limit)


def projected(norm: float) -> Finding:
    """The hypothesis that every row has norm at most `norm`."""
    return holds("bounded features", f"every row has norm at most {norm:g}, projected by the code", evidence="enforced")
