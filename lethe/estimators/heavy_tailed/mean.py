"""PrivateMean: the mean of records with heavy tails or outliers.

Called by users as `PrivateMean(...).fit(X)`: a mean of clipped records whose clip norm is given, or released from a part of the records
(base.py). The solver is `lethe.heavy_tailed`'s.
"""

import math
from typing import Any, Self

import numpy as np

from lethe.calculus.domains import outside
from lethe.estimators.heavy_tailed.base import (
    PRIVATE,
    Fact,
    HeavyTailedEstimator,
    declared,
    part_of,
    refuse_many,
    released_centre,
    released_moment,
    released_size,
    set_aside,
    whole_cost,
)
from lethe.estimators.heavy_tailed.linear import PARAMETERS, ClippedLinearMean, HeavyTailedBlocks
from lethe.estimators.inputs.records import row_norms
from lethe.estimators.inputs.tables import FEWEST_RECORDS, declared_passes, read_table
from lethe.estimators.options import options_of
from lethe.estimators.partitioned.tables import columns_of, examined
from lethe.estimators.private_estimator import with_constructor
from lethe.heavy_tailed import Moments, Problem, multi_pass
from lethe.heavy_tailed.oracles import ClippedMean, noise_scale
from lethe.heavy_tailed.problem import some_records
from lethe.heavy_tailed.sets import require_point
from lethe.heavy_tailed.settings import clip_grid, gradient_errors
from lethe.mechanisms.base import Array
from lethe.partitions.dask_tables import table_in_blocks
from lethe.partitions.table import ConsecutiveRecords

MEAN_SOLVERS = ("clipped_mean", "multi_pass")
_PASSES = 10  # of multi_pass
_QUANTILE = 0.9  # of the distances from the centre, where practical settings clip


@with_constructor
class PrivateMean(HeavyTailedEstimator):
    r"""The mean of rows: $\min_w E\frac12\|w - x\|^2$ by clipped gradients $w - x$, started at a centre.

    "clipped_mean" takes one step: $c + \frac1n\sum_i\Pi_C(x_i - c) + $ noise. "multi_pass" moves the point about which rows are clipped,
    with steps $1/t$, so that noise averages out: for a centre that is far off. Rows are clipped, by the option `parameters`, "practical" at
    $r_k$; "theory" at $r_k(\epsilon n/\sqrt d)^{1/k}$; "optimised" where the bound of the mean squared error is least.

    Args:
        moment: a public $r_k$ with $E\|x - c\|^k \le r_k^k$, or "private"; for practical settings the 0.9 quantile of $\|x - c\|$ is
            released in its place, which outliers do not move.
        centre: c, public numbers, one a column; "private": medians of the columns, released from the records set aside.
        epsilon, delta, neighbours, random_state, seed_noise, ledger, options: as of `HeavyTailedEstimator`.
    Attributes: those of `HeavyTailedEstimator`, and `mean_`, `centre_`, `error_bound_`: a bound of the root mean squared distance of
    `mean_` from the expectation, if the moment is one; None for multi_pass, and where a quantile stands for the moment.
    """

    centre: Any = PRIVATE

    def fit(self, X: Any, y: Any = None) -> Self:
        """Estimate the mean of records X of shape (n, d), an array or a frame; y is not used.

        Of a table in blocks the first records in the stored order are set aside for constants; y may be a column that is no feature.
        Of what cannot be used nothing is released.
        """
        blocks = table_in_blocks(X, y if isinstance(y, str) else None, targets=False)
        table: Any
        if blocks is None:
            table = np.asarray(read_table(self, X, dtype="float64", ensure_min_samples=FEWEST_RECORDS))
        else:
            table = examined(self, blocks, targets=False)
        count, columns = table.shape
        budget, chance = self._budget(count), self._randomness(count, stored_order=blocks is not None)
        options = options_of(self)
        name = "clipped_mean" if isinstance(options.mechanism, str) and options.mechanism == "auto" else options.mechanism
        if name not in MEAN_SOLVERS:
            raise outside("mechanism", options.mechanism, "auto, " + " or ".join(MEAN_SOLVERS))
        if options.parameters not in PARAMETERS:
            raise outside("parameters", options.parameters, "one of " + ", ".join(PARAMETERS))
        passes = (declared_passes(options.passes) or _PASSES) if name == "multi_pass" else 1
        moment = declared("moment", self.moment)
        stated = Moments(order=options.order, bound=1.0 if moment is None else moment)
        released = isinstance(self.centre, str) and self.centre == PRIVATE
        centre = None if released else require_point("centre", self.centre, columns)
        whole = whole_cost(budget)
        data: Any = table[chance.order] if blocks is None else HeavyTailedBlocks(ConsecutiveRecords(table, 0, count))
        first = set_aside(count, whole) if moment is None or centre is None else 0
        if blocks is not None and moment is None and options.parameters != "practical":
            refuse_many(first)
        each = part_of(whole, 2) if moment is None and centre is None else whole
        facts = list[Fact]()
        self._pay(budget.as_gaussian, budget, count)
        aside: Any = some_records(data, slice(0, first)) if first else None
        noise: dict[str, Any] = {"neighbours": self.neighbours, "generator": chance.norm}
        if centre is None:
            columns_aside = columns_of(aside.records if isinstance(aside, HeavyTailedBlocks) else aside)
            facts.append(released_centre(columns_aside, each, **noise))
            centre = facts[-1].value
        if moment is None:
            sizes = aside.lengths(_gradient, centre) if isinstance(aside, HeavyTailedBlocks) else row_norms(_gradient(centre, aside))
            release, at = (released_size, _QUANTILE) if options.parameters == "practical" else (released_moment, stated.order)
            facts.append(release(sizes, at, each, **noise))
            moment = facts[-1].value
        problem = Problem(gradient=_gradient, dimension=columns, smoothness=1.0, moments=Moments(order=stated.order, bound=moment))
        rho, rest = 0.5 * whole.mu * whole.mu, some_records(data, slice(first, count))
        clip = _clip_norm(options.parameters, problem, len(rest), rho)
        solution = multi_pass(
            problem,
            rest,
            oracle=(ClippedMean if blocks is None else ClippedLinearMean)(clip_norm=clip, rho=rho),
            passes=passes,
            step_size=1.0 / np.arange(1.0, passes + 1.0),
            start=centre,
            generator=chance.mechanism,
        )
        errors = gradient_errors(problem, batch_size=len(rest), clip_norm=clip, rho=rho)
        self.mechanism_, self.moment_, self.plan_, self.centre_ = name, moment, None, centre
        self.mean_ = solution.parameters.copy()
        stands = name == "clipped_mean" and not (self.moment == PRIVATE and options.parameters == "practical")
        self.error_bound_ = math.sqrt(errors.squared) if stands else None
        stored = [] if blocks is None else [f"records in {len(table.seen)} blocks, of which the first {first} are set aside"]
        declared_values = [f"{key} = {getattr(self, key)}" for key in ("moment", "centre") if not isinstance(getattr(self, key), str)]
        why = [
            f"{name}, clipped to {clip:.4g}, {options.parameters} settings",
            "a row farther than that from the centre counts as one at that distance: of skewed columns the mean comes out nearer to it",
        ]
        public = [f"{columns} columns, and their names", *stored, *declared_values]
        self._state_solved(solution, facts, budget, first=first, records=count, why=why, public=public)
        return self


def _gradient(parameters: Array, records: Any) -> Array:
    with np.errstate(over="ignore"):  # a row that overflows counts 0
        return parameters - records


def _clip_norm(parameters: str, problem: Problem, count: int, rho: float) -> float:
    moments, d = problem.known_moments(), problem.dimension
    if parameters == "practical":
        return moments.raw(d)
    if parameters == "theory":
        return moments.raw(d) * (noise_scale(rho) * count / math.sqrt(d)) ** (1.0 / moments.order)
    clips = clip_grid(moments.raw(d), count, d, rho)
    return min(clips, key=lambda clip: gradient_errors(problem, batch_size=count, clip_norm=clip, rho=rho).squared)
