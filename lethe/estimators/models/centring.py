# READ FIRST: A_NOTE_FROM_THE_COORDINATOR.md at the root of this worktree
r"""Rows less a private mean: of what all rows share no class learns anything, but it takes its part of the norm that noise is measured by.

With rows u of norm at most 1 and a noisy mean $\hat m$ of them, a model is trained on $v = (u - m)/r$, projected on the ball of radius 1:

$$m = \hat m\Big(1 - \frac{d\sigma^2}{\|\hat m\|^2}\Big)_+,\qquad r^2 = 1 - s + e,\quad s = (\|\hat m\|^2 - d\sigma^2)_+,\quad
  e = \frac{d\sigma^2s}{s + d\sigma^2},$$

where $\sigma$ is the noise of an entry of $\hat m$, s is about $\|\mathbb Eu\|^2$ and e the squared error of m, so that r is public once
$\hat m$ is. Rows that share nothing stay as they are: then m is 0, r is 1, and what is lost is the price of the mean. An intercept makes
up for m, so that a model without one has none taken off.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from lethe.errors import InputError
from lethe.estimators.budget import Budget
from lethe.estimators.inputs.facts import PublicFacts
from lethe.estimators.inputs.records import fits_densely
from lethe.estimators.paying import planned_statement
from lethe.mechanisms.base import Array, Statement, gaussian_guarantee, gaussian_noise_std, require_swap
from lethe.mechanisms.row_mean import noisy_mean
from lethe.run.run import Neighbours

CENTRE_SHARE = 0.03  # of the total squared mu
_SHORTEST = 0.1  # r at least: rows that are all alike are noise in the end
# Of "auto": the most noise, d sigma^2, with which a mean tells where rows of norm 1 are, and the most entries that are copied.
_MOST_NOISE, _MOST_ENTRIES = 0.1, 2**24


class Centre(NamedTuple):
    """What is taken off rows of norm at most 1, and what they are then over.

    Args:
        mean: m, shape (d,).
        size: r > 0.
    """

    mean: Array
    size: float

    def applied(self, rows: Array) -> Array:
        """$(u - m)/r$, not yet projected."""
        return (rows - self.mean) / self.size


def wants_centring(centre: object, facts: PublicFacts, budget: Budget, *, dense: bool) -> bool:
    """Whether a mean is taken off, from public facts alone.

    Args:
        centre: the parameter: True, False or "auto".
        facts: the problem.
        budget: the total.
        dense: whether the table is an array in memory.
    Raises:
        InputError: True where there is no intercept, or no dense table of records; or none of the three.
    """
    if isinstance(centre, bool | np.bool_):
        if centre:
            _refuse(facts, dense=dense)
        return bool(centre)
    if not isinstance(centre, str) or centre != "auto":
        raise InputError(f'centre = {centre!r}; it needs True, False or "auto".', source="the parameter centre")
    possible = facts.intercept and dense and facts.unit == "record" and facts.records * facts.columns <= _MOST_ENTRIES
    return facts.release == "all" and possible and facts.columns * _noise_std(facts.records, budget, facts.neighbours) ** 2 <= _MOST_NOISE


def centre_cost(records: int, budget: Budget, *, neighbours: Neighbours) -> Statement:
    """What `private_centre` will cost, before it looks at a row.

    Args:
        records: n.
        budget: the total.
        neighbours: replace_one or zero_out.
    """
    swap = require_swap(neighbours)
    guarantee = gaussian_guarantee(swap, gaussian_noise_std(swap, budget.share(CENTRE_SHARE)))
    return planned_statement("mean of the rows", guarantee, neighbours=neighbours, records=records)


def private_centre(
    rows: Array, budget: Budget, *, neighbours: Neighbours, generator: np.random.Generator | None
) -> tuple[Centre, Statement]:
    """The centre of rows, and what it costs.

    Args:
        rows: of norm at most 1, shape (n, d); n is public.
        budget: the total.
        neighbours: replace_one or zero_out.
        generator: None where privacy matters.
    """
    records, columns = rows.shape
    mean, statement = noisy_mean(rows, norm=1.0, target=budget.share(CENTRE_SHARE), neighbours=neighbours, generator=generator)
    noise = columns * _noise_std(records, budget, neighbours) ** 2
    square = float(np.square(mean).sum())
    shared = max(square - noise, 0.0)
    if shared == 0.0:
        return Centre(np.zeros(columns), 1.0), statement
    left = 1.0 - shared + noise * shared / (shared + noise)
    return Centre(mean * (shared / square), min(max(math.sqrt(max(left, 0.0)), _SHORTEST), 1.0)), statement


def _noise_std(records: int, budget: Budget, neighbours: Neighbours) -> float:
    """Of an entry of the mean."""
    return gaussian_noise_std(require_swap(neighbours), budget.share(CENTRE_SHARE)) / records


def _refuse(facts: PublicFacts, *, dense: bool) -> None:
    reason = None
    if not facts.intercept:
        reason = "fit_intercept = False, and only an intercept makes up for what is taken off"
    elif facts.unit != "record":
        reason = "a mean of users' rows is not known here"
    elif not dense:
        reason = "the table is sparse or in blocks, and taking a mean off leaves no zeros"
    elif not fits_densely(facts.records, facts.columns):
        reason = f"a copy of {facts.records} x {facts.columns} features is too large"
    if reason is not None:
        raise InputError(f"centre = True: {reason}.", source="the parameter centre", remedy='leave centre at "auto", or set it to False')
