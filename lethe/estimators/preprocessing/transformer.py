"""PrivateTransformer: what private preprocessing shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

from lethe.calculus.guarantees import GDP, Guarantee
from lethe.calculus.rounding import round_up
from lethe.estimators.budget import Budget
from lethe.estimators.inputs.tables import read_table
from lethe.estimators.inputs.validation import FEWEST_RECORDS
from lethe.estimators.partitioned.tables import examined_features
from lethe.estimators.private_estimator import PrivateEstimator
from lethe.mechanisms.base import target_mu
from lethe.partitions.table import PartitionedTable


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Start:
    """What a fit begins with.

    Args:
        table: shape (n, d), float64 or float32, an array or a CSR table, or a table in blocks; finite.
        budget: the total.
        generator: of the noise; None: fresh entropy.
    """

    table: Any
    budget: Budget
    generator: np.random.Generator | None


def gaussian_cost(goal: Guarantee) -> GDP:
    """What a Gaussian mechanism costs at most that is calibrated to a goal, whatever its sensitivity, with which rounding differs."""
    return GDP(round_up(target_mu(goal), 1e-12))


class PrivateTransformer(TransformerMixin, PrivateEstimator):
    r"""A transformation of single rows whose numbers are $(\epsilon, \delta)$-differentially private.

    `transform` treats every row by itself, so what is fitted afterwards on the same records composes with it: `privacy_of(pipeline)` adds
    up.

    Args:
        random_state: matters only with seed_noise.
    Attributes: those of `PrivateEstimator`.
    """

    def _sparse(self) -> str | bool:
        """What `accept_sparse` is: whether zeros would stay zeros."""
        return False

    def _start(self, X: Any) -> Start:
        """Check the table and the parameters of the budget."""
        table = self._table(X, reset=True)
        records = table.shape[0]
        return Start(table=table, budget=self._budget(records), generator=self._randomness(records).norm)

    def _start_in_blocks(self, table: PartitionedTable) -> Start:
        """The same of a table in blocks, looked through."""
        found = examined_features(self, table)
        records = found.shape[0]
        return Start(table=found, budget=self._budget(records), generator=self._randomness(records, stored_order=True).norm)

    def _rows(self, X: Any) -> Any:
        """Rows to be transformed, with the columns that were fitted."""
        check_is_fitted(self)
        return self._table(X, reset=False)

    def _table(self, X: Any, *, reset: bool) -> Any:
        return read_table(
            self,
            X,
            reset=reset,
            accept_sparse=self._sparse(),
            dtype=[np.float64, np.float32],
            ensure_min_samples=FEWEST_RECORDS if reset else 1,
        )
