"""Ranges of columns and bounds on norms of rows, released as noisy quantiles where no public ones are known.

A scaler, a regression or a linear model with "auto" as its bound calls these with its records and a part of its budget; the quantiles come
from `lethe.mechanisms.quantiles`.

Warnings of ranges and norms that tell little follow from what was released, and so tell nothing more.
"""

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from lethe.calculus.guarantees import GDP
from lethe.certificates.statement import Statement
from lethe.estimators.budget import PrivacyBudget, planned_statement
from lethe.mechanisms.base import Array
from lethe.mechanisms.quantiles.located_quantiles import (
    LARGEST,
    SMALLEST,
    ColumnsInMemory,
    CountedColumns,
    LocatedQuantiles,
    located_cost,
    located_quantiles,
)
from lethe.run.run import Neighbours

_FEW = 25.0  # n mu of a column: with 20, a third of generated ranges was missed, with 30, one in a hundred
_QUANTILE = 0.75  # of the norms: longer rows keep their direction, and a smaller bound lets less noise do
# Of the total squared mu for a norm: as much as makes n mu 30, within these bounds.
_NORM_SHARE = {"units": 30.0, "smallest": 0.05, "largest": 0.15}
_FAR = 256.0  # times the longest row of columns in [-1, 1]; pixels from 0 to 255, which have one unit, stay below


class ReleasedRangeWarning(UserWarning):
    """A released range or norm is not to be relied on."""


class RangeEndWarning(ReleasedRangeWarning):
    """A released quantile is at the end of the public range: values may lie beyond it."""


class UndetectedRangeWarning(ReleasedRangeWarning):
    """There are too few records for this epsilon: where the values lie can hardly be told from the noise, or not at all."""


class UnscaledColumnsWarning(UserWarning):
    """A released norm says that columns are far from [-1, 1]: where their units differ, the largest is all that is learned from."""


def private_ranges(
    table: np.ndarray[Any, Any] | CountedColumns,
    *,
    tail: float,
    share: GDP,
    name: str,
    give: str,
    of_target: bool = False,
    of_sizes: bool = False,
    neighbours: Neighbours,
    generator: np.random.Generator | None,
) -> LocatedQuantiles:
    """The `tail` (of sizes the 0.5) and `1 - tail` quantiles of every column, with a warning where nothing could be told.

    Of targets no guesses.
    """
    columns = ColumnsInMemory(table) if isinstance(table, np.ndarray) else table
    records, width = columns.shape
    located = located_quantiles(
        columns,
        tails=(0.5 if of_sizes else tail, tail),
        signed=not of_sizes,
        guesses=not of_target,
        target=share,
        neighbours=neighbours,
        name=name,
        generator=generator,
    )

    def column_words(flags: Any) -> str:
        listed = np.flatnonzero(flags).tolist()
        first_columns = f"{', '.join(map(str, listed[:5]))}{' and others' if len(listed) > 5 else ''}"
        return name if width == 1 else f"{name}, columns {first_columns}, counted from 0"

    if located.beyond.any():
        _warn(_END, what=column_words(located.beyond), beyond="Larger values")
    if located.undetected.any():
        so = "all of them count as 0, or nearly so"
        _warn(_UNDETECTED, what=column_words(located.undetected), records=records, so=so, give=give)
    elif records * share.mu < _FEW * math.sqrt(width):
        _warn(_FEW_RECORDS, what=name, records=records, give=give)
    if of_target and located.tiny.any():
        _warn(_TINY, what=column_words(located.tiny), so="these count as 0, or nearly so")
    return located


def norm_cost(records: int, budget: PrivacyBudget) -> Statement:
    """What `private_norm` of so many rows will cost, before it looks at one."""
    share = budget.planned_share(records, **_NORM_SHARE)
    return planned_statement("feature norm", located_cost(1, share, budget.neighbours), neighbours=budget.neighbours)


def private_norm(
    norms: Array | CountedColumns, budget: PrivacyBudget, *, generator: np.random.Generator | None, columns: int = 1
) -> tuple[float, Statement]:
    """The 0.75 quantile of rows' norms, shape (n,), n public, for 5 to 15 % of the budget (in squared mu), and its cost."""
    share = budget.planned_share(norms.shape[0], **_NORM_SHARE)
    return released_norm(norms, quantile=_QUANTILE, share=share, neighbours=budget.neighbours, generator=generator, columns=columns)


def released_norm(
    norms: Array | CountedColumns,
    *,
    quantile: float,
    share: GDP,
    neighbours: Neighbours,
    generator: np.random.Generator | None,
    columns: int = 1,
    what: str = "the norms of the rows",
    give: str = "feature_norm=R",
) -> tuple[float, Statement]:
    """A quantile of the rows' norms, shape (n,), and what it costs; the smallest size where nothing could be told, with a warning."""
    counted = ColumnsInMemory(norms) if isinstance(norms, np.ndarray) else norms
    name = f"the {quantile:g} quantile of {what}"
    tails = (min(1.0 - quantile, 0.8 * quantile), 1.0 - quantile)  # only the upper one is used; the lower one says where to look closer
    located = located_quantiles(counted, tails=tails, signed=False, target=share, neighbours=neighbours, name=name, generator=generator)
    value = float(located.high[0])
    so = f"{value:.3g} is taken: of longer ones nothing is left but the direction"
    longest = math.sqrt(columns)
    if located.undetected[0]:
        _warn(_UNDETECTED, what=name, records=counted.shape[0], so=so, give=give)
    elif located.tiny[0]:
        _warn(_TINY, what=name, so=so)
    elif located.beyond[0]:
        _warn(_END, what=name, beyond="Larger ones")
    elif columns >= 2 and value > _FAR * longest:  # one column alone has one unit
        _warn(_UNSCALED, value=value, columns=columns, longest=longest)
    return value, replace(located.statement, name=f"feature norm ({name})")


@contextmanager
def withheld() -> Iterator[list[tuple[str, type[Warning]]]]:
    """Show no warning of what runs inside; afterwards the list holds those of released ranges, which follow from what was released."""
    texts: list[tuple[str, type[Warning]]] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield texts
    texts += [(str(warning.message), warning.category) for warning in caught if isinstance(warning.message, ReleasedRangeWarning)]


_END = (
    RangeEndWarning,
    f"{{what}}: released at the end of the public range, {LARGEST:.3g}. {{beyond}} count as if they were at it, and cannot be told apart. "
    "Rescale by a public constant before, or give a public bound in place of a released one.",
)
_TINY = (
    RangeEndWarning,
    f"{{what}}: at least half are below {SMALLEST:.3g}, and the others are too few to be told from the noise, so {{so}}. "
    "Rescale by a public constant before, give a public bound in place of a released one, or a larger epsilon.",
)
_UNDETECTED = (
    UndetectedRangeWarning,
    "{what}: {records} records are too few at this epsilon to tell from the noise where the values lie, so {so}. "
    "Give public bounds, {give}; or more records, or a larger epsilon.",
)
_FEW_RECORDS = (
    UndetectedRangeWarning,
    "{what}: {records} records are few for this epsilon; the released range may be several times too wide, or too narrow. "
    "Give public bounds, {give}; or more records, or a larger epsilon.",
)
_UNSCALED = (
    UnscaledColumnsWarning,
    "feature_norm: the released norm of the rows is {value:.3g}; {columns} columns within [-1, 1] make none longer than {longest:.3g}. "
    "Where columns have different units, the largest is all that is learned from: scale them by publicly known ranges, such as by a "
    "PublicScaler.",
)


def _warn(kind: tuple[type[Warning], str], **words: Any) -> None:
    warnings.warn(kind[1].format(**words), kind[0], stacklevel=5)  # about at the line that called fit
