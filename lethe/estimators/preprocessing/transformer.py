"""PrivateTransformer: what private preprocessing shares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

from lethe.calculus.guarantees import GDP, Guarantee
from lethe.calculus.rounding import round_up
from lethe.certificates.statement import Statement
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.inputs.ranges import private_ranges
from lethe.estimators.inputs.tables import FEWEST_RECORDS, FLOATS, read_table
from lethe.estimators.partitioned.tables import columns_of, examined_features, transformed
from lethe.estimators.private_estimator import PrivateEstimator
from lethe.mechanisms.base import Array, target_mu
from lethe.partitions.dask_tables import table_in_blocks

Generator = np.random.Generator | None


def gaussian_cost(goal: Guarantee) -> GDP:
    """What a Gaussian mechanism costs at most that is calibrated to a goal, whatever its sensitivity, with which rounding differs."""
    return GDP(round_up(target_mu(goal), 1e-12))


class PrivateTransformer(TransformerMixin, PrivateEstimator):
    r"""A transformation of single rows whose numbers are $(\epsilon, \delta)$-differentially private.

    `transform` treats every row by itself, so what is fitted afterwards on the same records composes with it: `privacy_of(pipeline)` adds
    up.

    Args: as of `PrivateEstimator`; random_state matters only with seed_noise.
    Attributes: those of `PrivateEstimator`.
    """

    def _sparse(self) -> str | bool:
        """What `accept_sparse` is: whether zeros would stay zeros."""
        return False

    def _start(self, X: Any, y: Any = None) -> tuple[Any, PrivacyBudget, Generator]:
        """The table, checked, or in blocks and looked through, the whole budget, and the source of the noise; y as of `fit`."""
        blocks = table_in_blocks(X, y if isinstance(y, str) else None, targets=False)
        table = self._table(X, reset=True) if blocks is None else examined_features(self, blocks)
        generator = self._randomness(table.shape[0], stored_order=blocks is not None).norm
        return table, self._budget(table.shape[0]), generator

    def _quantiles(
        self, table: Any, *, tail: float, wider: float, share: GDP, give: str, generator: Generator
    ) -> tuple[Array, Array, Statement]:
        """The range between two quantiles of every column, made `wider` times as wide around its middle, and what it costs."""
        found = private_ranges(
            columns_of(table),
            tail=tail,
            share=share,
            name=f"ranges of {table.shape[1]} columns (their {tail:g} and {1.0 - tail:g} quantiles)",
            give=give,
            neighbours=self.neighbours,
            generator=generator,
        )
        middle, half = (found.low + found.high) / 2.0, wider * (found.high - found.low) / 2.0
        return middle - half, middle + half, found.statement

    def _apply(self, X: Any, function: Callable[[], Callable[[Any], Any]], *, width: int | None = None) -> Any:
        """Rows transformed; a table in blocks is one again, of `width` columns, whose blocks will be transformed as they are read.

        `function` makes what is asked of features, shape (m, d), once it is known that this is fitted; that must pickle.
        """
        check_is_fitted(self)
        blocks = table_in_blocks(X, targets=False)
        if blocks is None:
            return function()(self._table(X, reset=False))
        fitted: Any = self
        names = tuple(getattr(self, "feature_names_in_", range(fitted.n_features_in_)))
        return transformed(blocks, function(), names, width=width)

    def _table(self, X: Any, *, reset: bool) -> Any:
        least = FEWEST_RECORDS if reset else 1
        return read_table(self, X, reset=reset, accept_sparse=self._sparse(), dtype=FLOATS, ensure_min_samples=least)
