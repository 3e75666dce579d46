"""A private StandardScaler."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import OneToOneFeatureMixin
from sklearn.utils.validation import check_is_fitted

from lethe.certificates.findings import enforced
from lethe.certificates.statement import Statement
from lethe.estimators.inputs.tables import read_rows
from lethe.estimators.partitioned.transformed import Standardised
from lethe.estimators.preprocessing.bounds import declared_bounds, released_bounds
from lethe.estimators.preprocessing.transformer import PrivateTransformer, gaussian_cost
from lethe.mechanisms.base import Array
from lethe.mechanisms.standardise import standardise

_BOUNDS_SHARE = 0.5  # of the squared mu, for private bounds
_TAIL, _WIDER = 0.05, 1.5
# Least standard deviations, in half widths. A tenth of the records is at the 0.05 and 0.95 quantiles or beyond, at two thirds of the half
# width: so 0.2 holds for released bounds by itself, but for a column almost constant, whose rare values would come out enormous.
_LEAST, _LEAST_RELEASED = 0.01, 0.2
_GIVEN = {"public bounds": "a parameter, taken as public"}
_RELEASED = {"public bounds": "released before, by the code, and counted"}


class PrivateStandardScaler(OneToOneFeatureMixin, PrivateTransformer):
    r"""Columns clipped to bounds, minus a private mean, over a private standard deviation.

    Tables must be dense: taking a mean off leaves no zeros.

    Args:
        bounds: a public pair (low, high), numbers or one a column, or "auto": one and a half times the range between two private
            quantiles of each column, for half of the budget (in squared mu).
    Attributes: those of `PrivateTransformer`, and `low_`, `high_`, `mean_`, `scale_`, `var_`, each of shape (d,).
    """

    bounds: Any = "auto"

    def fit(self, X: Any, y: Any = None) -> Self:
        """Release bounds where they are not given, then means and scales.

        Args:
            X: records, shape (n, d); or a table in blocks, of which means and scales are one pass, and bounds three more.
            y: not used; of a table in blocks it may be the name of a column that is no feature.
        Raises:
            InputError, ValueError: data or parameters that cannot be used; nothing is released then.
        """
        start = self._start(X, y)
        records, columns = start.table.shape
        bounds, budget, parts = declared_bounds(self.bounds, columns), start.budget, list[Statement]()
        public = [f"{columns} columns, and their names", *([] if bounds is None else ["bounds of the columns"])]
        why = _GIVEN
        self._pay(budget.as_gaussian, budget, records)
        if bounds is None:
            bounds = released_bounds(
                start.columns(),
                tail=_TAIL,
                wider=_WIDER,
                share=budget.share(_BOUNDS_SHARE),
                give="bounds=(low, high)",
                neighbours=self.neighbours,
                generator=start.generator,
            )
            assert bounds.statement is not None
            parts, why = [bounds.statement], _RELEASED
            budget = budget.with_spent(bounds.statement)
        found = standardise(
            start.table,
            low=bounds.low,
            high=bounds.high,
            target=budget.settle(gaussian_cost),
            neighbours=self.neighbours,
            records=records,
            least_scale=_LEAST_RELEASED if parts else _LEAST,
            generator=start.generator,
        )
        moments = replace(found.statement, findings=enforced(found.statement.findings, why))
        self.low_, self.high_, self.mean_, self.scale_ = found.low, found.high, found.mean, found.scale
        self.var_ = np.square(found.scale)
        how = "given bounds" if not parts else f"bounds released for {_BOUNDS_SHARE:g} of the squared mu"
        self._state([*parts, moments], budget, records, why=[f"noisy moments within {how}"], public=public)
        return self

    def transform(self, X: Any) -> Any:
        """Rows clipped and standardised, shape (n, d); a table in blocks is one again, whose blocks are standardised as they are read."""
        return self._apply(X, lambda: Standardised(self.low_, self.high_, self.mean_, self.scale_))

    def inverse_transform(self, X: Any) -> Array:
        """Rows in the units they came in, shape (n, d); what was clipped stays clipped."""
        check_is_fitted(self)
        return read_rows(X) * self.scale_ + self.mean_
