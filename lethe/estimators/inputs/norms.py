"""The feature norm as a released quantile, where no public bound is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lethe.calculus.guarantees import GDP
from lethe.certificates.statement import Statement
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.inputs.range_warnings import warn_of_end, warn_of_tiny, warn_of_undetected
from lethe.estimators.inputs.scale import warn_if_unscaled
from lethe.estimators.paying import planned_statement
from lethe.mechanisms.base import Array
from lethe.mechanisms.quantiles.located import ColumnsInMemory, CountedColumns, located_cost, located_quantiles
from lethe.run.run import Neighbours

_QUANTILE = 0.75  # longer rows keep their direction, and a smaller bound lets less noise do
# Of the total squared mu: as much as makes n mu 30, within these bounds.
_UNITS, _LEAST, _MOST = 30.0, 0.05, 0.15


def norm_cost(records: int, budget: PrivacyBudget, *, neighbours: Neighbours) -> Statement:
    """What `private_norm` of so many rows will cost, before it looks at one.

    Args:
        records: n.
        budget: the total.
        neighbours: replace_one or zero_out.
    """
    return planned_statement("feature norm", located_cost(1, _share(records, budget), neighbours), neighbours=neighbours)


def _share(records: int, budget: PrivacyBudget) -> GDP:
    return budget.planned_share(records, units=_UNITS, least=_LEAST, most=_MOST)


def private_norm(
    norms: Array | CountedColumns,
    budget: PrivacyBudget,
    *,
    neighbours: Neighbours,
    generator: np.random.Generator | None,
    columns: int = 1,
) -> tuple[float, Statement]:
    """The 0.75 quantile of the rows' norms, released for 5 to 15 % of the budget (in squared mu), and what it costs.

    Args:
        norms: of the rows, shape (n,); n is public.
        budget: the total.
        neighbours: replace_one or zero_out.
        generator: None where privacy matters.
        columns: d, public; with two or more, a released norm that says that they are not scaled is warned of.
    """
    share = _share(norms.shape[0], budget)
    return released_norm(norms, quantile=_QUANTILE, share=share, neighbours=neighbours, generator=generator, columns=columns)


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
    """A quantile of the rows' norms, and what it costs; the smallest size where nothing could be told, with a warning.

    Args:
        norms: of the rows, shape (n,); or of a table in blocks, that count them.
        quantile: in (0, 1).
        share: what it may cost.
        neighbours: replace_one or zero_out.
        generator: None where privacy matters.
        columns: as `private_norm`.
        what: these norms are of.
        give: the parameter that needs no release.
    """
    counted = ColumnsInMemory(norms) if isinstance(norms, np.ndarray) else norms
    name = f"the {quantile:g} quantile of {what}"
    tails = (min(1.0 - quantile, 0.8 * quantile), 1.0 - quantile)  # only the upper one is used; the lower one says where to look closer
    located = located_quantiles(counted, tails=tails, signed=False, target=share, neighbours=neighbours, name=name, generator=generator)
    value = float(located.high[0])
    so = f"{value:.3g} is taken: of longer ones nothing is left but the direction"
    if located.undetected[0]:
        warn_of_undetected(name, counted.shape[0], so=so, give=give)
    elif located.tiny[0]:
        warn_of_tiny(name, so=so)
    elif located.beyond[0]:
        warn_of_end(name, beyond="Larger ones")
    else:
        warn_if_unscaled(value, columns)
    return value, replace(located.statement, name=f"feature norm ({name})")
