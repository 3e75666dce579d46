"""Small regularised risks with a tilt, for the tests of what finds their minimisers."""

from __future__ import annotations

import numpy as np
from helpers import LINEAR_LOSSES

from lethe.mechanisms.minimisers.linear_objective import LinearObjective
from lethe.run.losses import LeastSquares
from lethe.run.losses.linear import LinearLoss

LOSSES = LINEAR_LOSSES


def risk(
    loss: LinearLoss,
    *,
    regularisation: float = 0.01,
    count: int = 120,
    columns: int = 4,
    fall: float = 0.0,
    norm: float = 1.0,
) -> LinearObjective:
    """Rows of norm at most `norm` whose columns shrink with the power `fall`; three records more than there are rows."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((count, columns)) / np.arange(1, columns + 1) ** fall
    rows *= norm / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
    targets = rng.standard_normal(count) if isinstance(loss, LeastSquares) else rng.integers(0, max(loss.outputs, 2), count) * 1.0
    tilt = 0.02 * norm * rng.standard_normal((columns, loss.outputs)) / np.sqrt(columns / 4.0)
    return LinearObjective(
        records=count + 3, rows=rows, targets=targets, loss=loss.on_rows(norm), regularisation=regularisation * norm**2, tilt=tilt
    )
