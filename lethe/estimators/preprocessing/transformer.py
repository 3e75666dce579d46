"""PrivateTransformer: what private preprocessing shares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

from lethe.calculus.guarantees import GDP, Guarantee
from lethe.calculus.rounding import round_up
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.inputs.records import row_norms
from lethe.estimators.inputs.tables import read_table
from lethe.estimators.inputs.validation import FEWEST_RECORDS
from lethe.estimators.partitioned.gathered import BlockColumns, BlockSizes, Norms
from lethe.estimators.partitioned.tables import examined_features
from lethe.estimators.partitioned.transformed import transformed
from lethe.estimators.private_estimator import PrivateEstimator
from lethe.mechanisms.base import Array, target_mu
from lethe.partitions.dask_tables import table_in_blocks
from lethe.partitions.table import ExaminedTable


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Start:
    """What a fit begins with.

    Args:
        table: shape (n, d), float64 or float32, an array or a CSR table, or a table in blocks; finite.
        budget: the total.
        generator: of the noise; None: fresh entropy.
    """

    table: Any
    budget: PrivacyBudget
    generator: np.random.Generator | None

    def norms(self, *, low: Array | None = None, high: Array | None = None) -> Array | BlockSizes:
        """The norms of its rows, each column clipped before where bounds are given.

        Args:
            low, high: shape (d,), or None.
        """
        if isinstance(self.table, ExaminedTable):
            return BlockSizes(self.table, Norms(low, high)).found()
        return row_norms(self.table if low is None else np.clip(self.table, low, high))

    def columns(self) -> Any:
        """What quantiles of columns are taken of."""
        return BlockColumns(self.table) if isinstance(self.table, ExaminedTable) else self.table


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

    def _start(self, X: Any, y: Any = None) -> Start:
        """Check the table and the parameters of the budget; a table in blocks is looked through.

        Args:
            X: as `fit` is given it.
            y: of a table in blocks the name of a column that is no feature; else not used.
        """
        blocks = table_in_blocks(X, y if isinstance(y, str) else None, targets=False)
        table = self._table(X, reset=True) if blocks is None else examined_features(self, blocks)
        records = table.shape[0]
        generator = self._randomness(records, stored_order=blocks is not None).norm
        return Start(table=table, budget=self._budget(records), generator=generator)

    def _apply(self, X: Any, function: Callable[[], Callable[[Any], Any]], *, width: int | None = None) -> Any:
        """Rows transformed; a table in blocks is one again, whose blocks will be transformed as they are read.

        Args:
            X: as `transform` is given it.
            function: makes what is asked of features, shape (m, d), once it is known that this is fitted; that must pickle.
            width: how many columns it makes; None: d.
        """
        blocks = table_in_blocks(X, targets=False)
        if blocks is None:
            return function()(self._rows(X))
        check_is_fitted(self)
        fitted: Any = self
        names = tuple(getattr(self, "feature_names_in_", range(fitted.n_features_in_)))
        return transformed(blocks, function(), names, width=width)

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
