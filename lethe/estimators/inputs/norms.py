"""The feature norm as a released quantile, where no public bound is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from lethe.calculus.guarantees import GDP
from lethe.certificates.findings import enforced
from lethe.estimators.budget import Budget
from lethe.estimators.inputs.range_ends import end_is_informative, public_sizes, warn_of_end
from lethe.estimators.inputs.ranges import spread
from lethe.estimators.inputs.scale import warn_if_unscaled
from lethe.estimators.paying import planned_statement
from lethe.mechanisms.base import Array, Statement
from lethe.mechanisms.quantiles.counted import CountedSizes
from lethe.mechanisms.quantiles.quantile import private_quantile, quantile_cost, searched_quantiles
from lethe.mechanisms.quantiles.searched import COMPARISONS
from lethe.run.run import Neighbours

_QUANTILE = 0.75  # longer rows keep their direction, and a smaller bound lets less noise do
NORM_SHARE = 0.05  # of the total squared mu
_WIDTH = 1e-3  # of what ties are spread over, of a norm


def norm_cost(records: int, budget: Budget, *, neighbours: Neighbours, counted: bool = False) -> Statement:
    """What `private_norm` of so many rows will cost, before it looks at one.

    Args:
        records: n.
        budget: the total.
        neighbours: replace_one or zero_out.
        counted: whether they are too many to gather.
    """
    guarantee = quantile_cost(_QUANTILE, records, budget.share(NORM_SHARE), "search" if counted else "auto")
    return planned_statement("feature norm", guarantee, neighbours=neighbours)


def private_norm(
    norms: Array | CountedSizes,
    budget: Budget,
    *,
    neighbours: Neighbours,
    generator: np.random.Generator | None,
    columns: int = 1,
) -> tuple[float, Statement]:
    """The 0.75 quantile of the rows' norms, released for a twentieth of the budget (in squared mu), and what it costs.

    Args:
        norms: of the rows, shape (n,); n is public.
        budget: the total.
        neighbours: replace_one or zero_out.
        generator: None where privacy matters.
        columns: d, public; with two or more, a released norm that says that they are not scaled is warned of.
    """
    share = budget.share(NORM_SHARE)
    return released_norm(norms, quantile=_QUANTILE, share=share, neighbours=neighbours, generator=generator, columns=columns)


def released_norm(
    norms: Array | CountedSizes,
    *,
    quantile: float,
    share: GDP,
    neighbours: Neighbours,
    generator: np.random.Generator | None,
    columns: int = 1,
) -> tuple[float, Statement]:
    """A quantile of the rows' norms, and what it costs.

    Args:
        norms: of the rows, shape (n,); n is public. Ties are spread by a thousandth: all rows may have the same norm,
            or one beyond the public range. Of norms that can only be counted the quantile is searched for.
        quantile: in (0, 1).
        share: what it may cost.
        neighbours: replace_one or zero_out.
        generator: None where privacy matters.
        columns: as `private_norm`.
    """
    count = len(norms)
    counted = not isinstance(norms, np.ndarray)
    low, high = public_sizes(quantile, count, share, searched=counted)
    least, most = low * (1.0 - _WIDTH / 2.0), high * (1.0 + _WIDTH / 2.0)
    settings: dict[str, Any] = {"low": least, "high": most, "target": share, "neighbours": neighbours, "records": count}
    settings |= {"spacing": "logarithmic", "generator": generator}
    if isinstance(norms, np.ndarray):
        found = private_quantile(np.clip(norms, low, high) * (1.0 + spread(np.zeros(count), width=_WIDTH)), quantile=quantile, **settings)
    else:
        (found,) = searched_quantiles(lambda points: norms.at_most(points, low, high), quantiles=[quantile], **settings)
    if end_is_informative(quantile, count, share):
        ratio = (most / least) ** (0.5**COMPARISONS) if found.method == "search" else 1.0 + _WIDTH
        for end, beyond, there in ((low, "Smaller ones", found.value <= least * ratio), (high, "Larger ones", found.value >= most / ratio)):
            if there:
                warn_of_end(f"the {quantile:g} quantile of the norms", end, beyond=beyond)
                break
        else:
            warn_if_unscaled(found.value, columns)
    statement, public = found.statement, f"[{low:g}, {high:g}] for every data set of {count} records, fixed in the code"
    return min(max(found.value, low), high), replace(
        statement,
        name=f"feature norm ({statement.name} of the rows' norms)",
        findings=enforced(statement.findings, {"public range": public}),
    )
