"""privacy_of: the joint privacy of everything that was fitted on the same data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lethe.calculus.domains import require_delta
from lethe.calculus.large_delta import delta_for
from lethe.certificates.findings import holds
from lethe.certificates.statement import Statement
from lethe.errors import InputError
from lethe.estimators.pipelines.fitted_parts import FittedPart, parts_of
from lethe.estimators.report import privacy_report
from lethe.mechanisms.base import joint

_PUBLIC = (
    "the names, the number and the types of the columns",
    "all parameters: among them the ranges, categories, values to fill in, means and covariances that were given",
    "what privacy_report_ of each private part lists",
)
_NO_OTHERS = holds(
    "no other fits",
    "no other fit on these records, or its score, is published or decided this one",
    evidence="declared",
)


def privacy_of(fitted: Any) -> Statement:
    """One statement for a fitted pipeline, or for several fitted estimators.

    Every private estimator counts as often as it is listed, in pipelines within lists too, and in the branches of a ColumnTransformer or a
    FeatureUnion, which see the same records. A step that is known to learn nothing from records is free
    (`lethe.estimators.preprocessing.data_free`). One that says it needs no fit, such as a FunctionTransformer of a function of one's own,
    is taken to treat every record by itself, with constants that were not read off them, and a FrozenEstimator to have been fitted on
    other records: the findings of the statement say so, as declared. All else is refused.

    What is looked at are the objects as they are now. How often something else was fitted on the same records they do not know: the
    statement says, as declared, that no other fit decided this one or is published. A `GridSearchCV` and its like are refused, since they
    choose by looking at the records; its `best_estimator_` alone does not know what it was chosen from: what is declared of it is false.

    Args:
        fitted: a pipeline, an estimator, or a list of them, all fitted on the same records.
    Raises:
        InputError: no private step, a step that learned from the data without privacy or may have, or two relations.
    """
    return _total(list(parts_of(fitted)), fitted)


def privacy_report_of(fitted: Any, delta: float, *, allow_large_delta: bool = False) -> str:
    r"""A page on a fitted pipeline: what `privacy_of` proves of it, which part costs what, what each rests on, and what is not covered.

    Args:
        fitted: as `privacy_of`.
        delta: $\delta \in [0, 1)$, and below 1/records, at which epsilons are shown.
        allow_large_delta: whether a delta >= 1/records is meant; the page then says so.
    Raises:
        InputError: as `privacy_of`, or a delta out of its range.
    """
    level = require_delta(delta)
    parts = list(parts_of(fitted))
    records = max((part.records for part in parts if part.records is not None), default=None)
    if records is not None and level > 0.0:
        delta_for(records, level, allow_large_delta=allow_large_delta)
    total = _total(parts, fitted)
    return privacy_report(
        total,
        [replace(part.statement, name=f"{part.where}: {part.statement.name}") for part in parts if part.statement is not None],
        delta=level,
        records=records,
        free=[part.where for part in parts if part.statement is None and not part.declared],
        public=_PUBLIC,
    )


def _total(parts: Sequence[FittedPart], fitted: Any) -> Statement:
    statements = [part.statement for part in parts if part.statement is not None]
    if not statements:
        raise InputError(
            f"privacy_of: nothing in {type(fitted).__name__} has a statement_.", remedy="give fitted private estimators of lethe.estimators"
        )
    total = statements[0] if len(statements) == 1 else joint(statements)
    taken = [_NO_OTHERS] + [holds(f"step '{part.where}'", part.declared, evidence="declared") for part in parts if part.declared]
    return replace(total, findings=tuple(dict.fromkeys((*total.findings, *taken))))
