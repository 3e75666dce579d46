"""HeavyTailedLinearModel: what private linear models for features and targets with heavy tails or outliers share."""

from __future__ import annotations

from dataclasses import field
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from lethe.calculus.domains import require_positive
from lethe.errors import InputError
from lethe.estimators.heavy_tailed.base import PRIVATE, HeavyTailedEstimator, declared, whole_cost
from lethe.estimators.heavy_tailed.blocks import LinearBlocks, ScoredRows
from lethe.estimators.heavy_tailed.facts import Fact, part_of, released_curvature, released_size, set_aside
from lethe.estimators.heavy_tailed.linear import LinearScoreProblem, Slope, gradient_rows, linear_records
from lethe.estimators.heavy_tailed.moment import refuse_many, released_moment
from lethe.estimators.heavy_tailed.solvers import UNIFORM, chosen_solver, solve
from lethe.estimators.inputs.tables import read_table
from lethe.estimators.inputs.validation import declared_passes
from lethe.estimators.options import options_of
from lethe.heavy_tailed import BallDomain, Moments
from lethe.heavy_tailed.problem import some_records
from lethe.heavy_tailed.sets import WholeSpace
from lethe.mechanisms.base import Array
from lethe.partitions.table import ConsecutiveRecords, ExaminedTable

_PASSES = 30  # of multi_pass
_QUANTILE = 0.75  # of the gradients' norms at 0, where practical settings clip


class HeavyTailedLinearModel(HeavyTailedEstimator):
    r"""Base class of the linear models for heavy-tailed data.

    $$\min_{\|w\| \le R} E\,l(\langle w, x\rangle, y)$$

    by clipped gradients, started at 0. Neither features nor targets need a bound; gradients longer than the clip norm, which is set from
    the moment, keep their direction. Scaling the columns by public constants to a like size helps.

    Args:
        moment: a public $r_k$ with $E\|l'x\|^k \le r_k^k$ for all w of the domain, $E\sup_w$ for "localised" and "strongly_convex"; or
            "private": of the largest in the domain; for practical settings the 0.75 quantile of the norms at w = 0 in its place, which
            outliers do not move.
        radius: R, public; None: no bound, which only multi_pass can do with. The intercept counts.
        smoothness: public $\beta$ of the expected loss; "private": from the largest eigenvalue of the second moments of clipped rows.
        fit_intercept: whether to append a constant feature 1.
    Attributes: those of `HeavyTailedEstimator`, and `coef_`, `intercept_`, `smoothness_`.
    """

    radius: float | None = None
    smoothness: float | str = PRIVATE
    fit_intercept: bool = True

    coef_: Array = field(init=False)
    takes_options: ClassVar[frozenset[str]] = HeavyTailedEstimator.takes_options | {"strong_convexity"}
    _loss_slope: ClassVar[Slope]
    _curvature: ClassVar[float]

    @staticmethod
    def _largest(norms: Array, targets: Array, radius: float | None) -> Array:
        r"""At least the norm of each record's gradient in the domain, shape (m,); at w = 0 with None."""
        raise NotImplementedError

    def _scores(self, X: Any) -> Array:
        """The linear function of rows as they come, without the intercept, shape (n,) or (n, 1) as `coef_` has it."""
        check_is_fitted(self)
        rows = np.asarray(read_table(self, X, reset=False, dtype="float64"))
        return rows @ self.coef_.T

    def _train(self, table: Any, targets: Any, *, public: list[str]) -> tuple[Array, float]:
        """Release what is not given, solve, and set everything but coef_ and intercept_.

        Args:
            table: shape (n, d), finite; or in blocks, looked through.
            targets: as the loss takes them, shape (n,); of a table in blocks what makes them.
            public: lines on what else was taken as public.
        Returns:
            The weights, shape (d,), and the intercept.
        """
        intercept, asked = self._switch("fit_intercept"), options_of(self)
        count, columns = table.shape
        in_blocks = isinstance(table, ExaminedTable)
        budget, chance = self._budget(count), self._randomness(count, stored_order=in_blocks)
        moment, smoothness = declared("moment", self.moment), declared("smoothness", self.smoothness)
        radius = None if self.radius is None else require_positive("radius", self.radius)
        strongly = None if asked.strong_convexity is None else require_positive("strong_convexity", asked.strong_convexity)
        passes = declared_passes(asked.passes) or _PASSES
        name = chosen_solver(asked.mechanism, asked.parameters, strongly=strongly is not None)
        if radius is None and name != "multi_pass":
            raise InputError(
                f'radius = None: the mechanism "{name}" needs a bounded domain.',
                source="the parameter radius",
                remedy="give a public bound of the norm of the weights, or take multi_pass with practical parameters",
            )
        if in_blocks and name in UNIFORM:
            raise InputError(
                f'mechanism = "{name}": it draws records at random, again and again; a table in blocks is read in its stored order.',
                source="the option mechanism",
                remedy='take "multi_pass", or "one_pass", "accelerated" or "proximal", which read it once',
            )
        # Constants first: a moment out of its range is refused before anything is released.
        stated = Moments(order=asked.order, bound=1.0 if moment is None else moment, kind="uniform" if name in UNIFORM else "raw")
        whole = whole_cost(budget)
        first = set_aside(count, whole) if moment is None or smoothness is None else 0
        data: Any
        if in_blocks:
            if moment is None and asked.parameters != "practical":
                refuse_many(first)
            data = LinearBlocks(ConsecutiveRecords(table, 0, count), ScoredRows(targets, intercept))
            public = [*public, f"records in {len(table.seen)} blocks, of which the first {first} in the stored order are set aside"]
        else:
            rows = np.hstack([table, np.ones((count, 1))]) if intercept else table
            data = linear_records(np.asarray(rows, dtype=np.float64)[chance.order], targets[chance.order])
        each = part_of(whole, 2) if moment is None and smoothness is None else whole
        facts = list[Fact]()
        self._pay(budget.as_gaussian, budget, count)
        aside: Any = some_records(data, slice(0, first)) if first else None
        if smoothness is None:
            rows, norms = (aside, aside.sizes()) if isinstance(aside, LinearBlocks) else (aside[0], aside[2])
            facts.append(released_curvature(rows, norms, each, neighbours=self.neighbours, generator=chance.norm))
            smoothness = facts[-1].value * self._curvature
        if moment is None:
            practical = asked.parameters == "practical" and name not in UNIFORM
            within, largest = None if practical else radius, type(self)._largest
            sizes = aside.sizes(largest, within) if isinstance(aside, LinearBlocks) else largest(aside[2], aside[1], within)
            facts.append(
                released_size(sizes, _QUANTILE, each, neighbours=self.neighbours, generator=chance.norm)
                if practical
                else released_moment(sizes, stated.order, each, neighbours=self.neighbours, generator=chance.norm)
            )
            moment = facts[-1].value
        problem = LinearScoreProblem(
            gradient=gradient_rows(self._loss_slope),
            slope=self._loss_slope,
            dimension=columns + (1 if intercept else 0),
            domain=WholeSpace() if radius is None else BallDomain(radius=radius),
            smoothness=smoothness,
            strong_convexity=strongly,
            pl_constant=strongly,
            moments=Moments(order=stated.order, bound=moment, kind=stated.kind),
        )
        found = solve(
            name,
            asked.parameters,
            problem,
            some_records(data, slice(first, count)),
            0.5 * whole.mu * whole.mu,
            passes=passes,
            generator=chance.draws.mechanism,
        )
        self.mechanism_, self.moment_, self.smoothness_ = name, moment, smoothness
        # A quantile in the place of a moment bounds no risk.
        self.plan_ = None if declared("moment", self.moment) is None and asked.parameters == "practical" else found.plan
        constants = {"moment": self.moment, "smoothness": self.smoothness, "radius": radius, "strong_convexity": strongly}
        known = [f"{key} = {value:g}" for key, value in constants.items() if isinstance(value, int | float)]
        self._state_solved(
            found.solution,
            facts,
            budget,
            first=first,
            records=count,
            why=_lines(name, asked.parameters, self.plan_),
            public=[f"{columns} columns, and their names", *public, *known],
        )
        weights = found.solution.parameters
        return weights[:columns].copy(), float(weights[-1]) if intercept else 0.0


def _lines(name: str, parameters: str, plan: Any) -> list[str]:
    lines = [f"{name}, {parameters} settings"]
    if plan is not None:
        lines += [f"expected excess risk at most {plan.bound:.4g} if the constants hold", *plan.notes]
    return lines
