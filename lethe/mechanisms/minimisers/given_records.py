"""Records as they are given to a perturbed minimiser, in memory or in blocks, and the objective over them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from lethe.errors import InputError
from lethe.mechanisms.base import Array
from lethe.mechanisms.minimisers.linear_objective import LinearObjective
from lethe.mechanisms.minimisers.newton import is_factored
from lethe.mechanisms.minimisers.summed_objective import SummedObjective
from lethe.mechanisms.rows import projected_rows
from lethe.partitions.record_sums import RecordSums
from lethe.run.losses.linear import LinearLoss


@dataclass(frozen=True, slots=True, eq=False)
class GivenRecords:
    """Checked records.

    Args:
        data: rows, shape (m, D), and targets, shape (m,); or sums over records in blocks.
        loss: l, with the bound on the rows' norms.
    """

    data: tuple[Array, Array] | RecordSums
    loss: LinearLoss

    @property
    def present(self) -> int:
        """m, the records that are present."""
        return len(self.data) if isinstance(self.data, RecordSums) else len(self.data[0])

    @property
    def shape(self) -> tuple[int, int]:
        """(D, k), of the weights."""
        return self.data.columns if isinstance(self.data, RecordSums) else self.data[0].shape[1], self.loss.outputs

    def objective(self, *, records: int, regularisation: float, tilt: Array | None = None) -> LinearObjective | SummedObjective:
        r"""The regularised risk.

        Args:
            records: n, public.
            regularisation: $\lambda > 0$.
            tilt: shape (D, k), or None.
        """
        common: dict[str, Any] = {"records": records, "loss": self.loss, "regularisation": float(regularisation), "tilt": tilt}
        if isinstance(self.data, RecordSums):
            return SummedObjective(sums=self.data, factored=is_factored(math.prod(self.shape)), **common)
        return LinearObjective(rows=self.data[0], targets=self.data[1], **common)


def given_records(features: Any, targets: Any, loss: LinearLoss) -> GivenRecords:
    """Check records, in memory or in blocks.

    Args:
        features: shape (m, d), longer rows are projected; or RecordSums, whose rows have the intercept's column already.
        targets: shape (m,), as the loss takes them; None where features are RecordSums, which have their own.
        loss: l.
    Raises:
        InputError: no such table or targets, or rows in blocks that may be longer than the loss supposes.
    """
    if not isinstance(features, RecordSums):
        rows = projected_rows(features, feature_norm=loss.feature_norm, intercept=loss.intercept)
        return GivenRecords((rows, loss.check_targets(targets, len(rows))), loss)
    if targets is not None:
        raise InputError("targets: records in blocks come with their own.", source="the argument targets", remedy="give None")
    features.require_norm(loss.row_norm)
    return GivenRecords(features, loss)
