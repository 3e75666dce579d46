"""Whether a linear model whitens its rows within its fit: by what was asked for, and by public facts."""

from __future__ import annotations

from typing import Any

import numpy as np

from lethe.errors import InputError
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.inputs.validation import declared_switch
from lethe.estimators.models.whitened_rows import PlannedWhitening, planned_whitening
from lethe.partitions.table import ExaminedTable
from lethe.run.run import Neighbours

_MOST_COLUMNS = 1024  # of a covariance that a default asks for


def chosen_whitening(
    whiten: bool | str,
    table: Any,
    budget: PrivacyBudget,
    *,
    may_choose: bool,
    against: str | None,
    intercept: bool,
    by_users: bool,
    neighbours: Neighbours,
    regression: bool,
) -> PlannedWhitening | None:
    """What is released to whiten rows by; None: nothing.

    Args:
        whiten: "auto", or whether it is asked for.
        table: of which the form and the shape are asked.
        budget: the total.
        may_choose: whether "auto" may.
        against: why a model of this kind has none; None: it may have.
        intercept: whether one is fitted.
        by_users: whether rows belong to users.
        neighbours: replace_one or zero_out.
        regression: whether least squares are fitted, Huber's included.
    Raises:
        InputError: it is asked for and cannot be had.
    """
    asked = declared_switch("whiten", whiten)
    if asked is False:
        return None
    against = against or _against(table, intercept=intercept, by_users=by_users)
    records, columns = table.shape
    if asked is None and (not may_choose or against is not None or columns > _MOST_COLUMNS):
        return None
    if against is not None:
        raise InputError(f"whiten = True: {against}.", source="the option whiten", remedy='leave it at "auto", or set it to False')
    return planned_whitening(records, columns, budget, neighbours=neighbours, regression=regression)


def _against(table: Any, *, intercept: bool, by_users: bool) -> str | None:
    """Why these rows cannot be whitened within a fit, None where they can."""
    if not intercept:
        return "fit_intercept = False, and only an intercept makes up for the mean that is taken off"
    if by_users:
        return "the moments are released from single rows, of which one user may have many"
    if isinstance(table, ExaminedTable):
        return "the table is in blocks; make PrivateWhitening a step before this one"
    return None if isinstance(table, np.ndarray) else "the table is sparse, and its zeros would not stay zeros"
