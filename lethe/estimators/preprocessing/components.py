"""Private principal components."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils.validation import check_is_fitted

from lethe.calculus.domains import outside
from lethe.estimators.inputs.norms import private_norm
from lethe.estimators.inputs.tables import read_rows
from lethe.estimators.inputs.validation import declared_norm
from lethe.estimators.partitioned.transformed import Coordinates
from lethe.estimators.preprocessing.transformer import PrivateTransformer, gaussian_cost
from lethe.mechanisms.base import Array
from lethe.mechanisms.moments import noisy_mean, second_moment

_MEAN_SHARE = 0.2  # of the squared mu: a mean has d entries, the second moments have d(d+1)/2


class PrivatePCA(ClassNamePrefixFeaturesOutMixin, PrivateTransformer):
    r"""Principal components of $\frac1n\sum_i x_ix_i^\top + E - \hat m\hat m^\top$: noisy second moments, less those of a noisy mean.

    In fitting, rows are projected on a ball around 0, and noise is in proportion to its squared radius: scale and centre the features
    first. `transform` is linear in the rows as they come. Tables must be dense.

    Args:
        n_components: how many, at most d; None: all.
        feature_norm: a public bound R on the rows' norms, on which longer rows are projected; "auto": a private quantile of the norms,
            for a twentieth of the budget (in squared mu); None is refused.
        centre: whether to take a private mean off, for a fifth of the budget.
    Attributes: those of `PrivateTransformer`; `components_` (orthonormal rows, strongest first), `explained_variance_` and
    `explained_variance_ratio_` as the noisy moments have them, `mean_`, `n_components_`, `feature_norm_`.
    """

    n_components: int | None = field(default=None, kw_only=False)
    feature_norm: float | str | None = "auto"
    centre: bool = True

    def fit(self, X: Any, y: Any = None) -> Self:
        """Release a norm where none is given, a mean, and second moments.

        Args:
            X: records, shape (n, d); or a table in blocks, of which mean and second moments are two passes.
            y: not used; of a table in blocks it may be the name of a column that is no feature.
        Raises:
            InputError, ValueError: data or parameters that cannot be used; nothing is released then.
        """
        centred = self._switch("centre")
        radius, start = declared_norm(self.feature_norm), self._start(X, y)
        (records, columns), budget = start.table.shape, start.budget
        count = _components(self.n_components, columns)
        public = [f"{columns} columns, and their names", *([] if radius is None else [f"feature_norm = {radius:g}"])]
        self._pay(budget.as_gaussian, budget, records)
        if radius is None:
            radius, cost = private_norm(start.norms(), budget, neighbours=self.neighbours, generator=start.generator)
            budget = budget.with_spent(cost)
        mean = np.zeros(columns)
        if centred:
            mean, cost = noisy_mean(
                start.table, norm=radius, target=budget.share(_MEAN_SHARE), neighbours=self.neighbours, generator=start.generator
            )
            budget = budget.with_spent(cost)
        found = second_moment(
            start.table,
            norm=radius,
            target=budget.settle(gaussian_cost),
            neighbours=self.neighbours,
            records=records,
            generator=start.generator,
        )
        values, vectors = np.linalg.eigh(found.matrix / records - np.outer(mean, mean))
        values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1].T
        signs = np.sign(vectors[np.arange(columns), np.abs(vectors).argmax(axis=1)])
        self.components_, self.mean_, self.feature_norm_ = np.ascontiguousarray((vectors * signs[:, None])[:count]), mean, radius
        self.n_components_ = self._n_features_out = count
        self.explained_variance_ = values[:count].copy()
        self.explained_variance_ratio_ = self.explained_variance_ / max(float(values.sum()), np.finfo(np.float64).tiny)
        self._state(
            [*budget.spent, found.statement], budget, records, why=[f"noisy second moments of rows of norm {radius:.3g}"], public=public
        )
        return self

    def transform(self, X: Any) -> Any:
        """Coordinates along the components, shape (n, n_components_); a table in blocks is one again."""
        count = getattr(self, "n_components_", None)
        return self._apply(X, lambda: Coordinates(self.mean_, self.components_), width=count)

    def inverse_transform(self, X: Any) -> Array:
        """The points of the space of the columns with these coordinates, shape (n, d)."""
        check_is_fitted(self)
        return read_rows(X) @ self.components_ + self.mean_


def _components(count: Any, columns: int) -> int:
    if count is None:
        return columns
    if isinstance(count, bool | np.bool_) or not isinstance(count, int | np.integer) or not 1 <= count <= columns:
        raise outside("n_components", count, f"a whole number from 1 to the {columns} columns, or None")
    return int(count)
