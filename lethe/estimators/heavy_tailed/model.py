"""Private linear models for features and targets with heavy tails or outliers: least squares, and logistic regression.

Called by users as any estimator; they take records whose features have no public bound, where `LinearRegression` and `LogisticRegression`
would clip rows at a norm. Constants come from base.py, gradients and solvers from linear.py.
"""

from dataclasses import field
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from lethe.calculus.domains import require_positive, require_switch
from lethe.calculus.guarantees import ApproxDP
from lethe.errors import InputError
from lethe.estimators.heavy_tailed.base import (
    PRIVATE,
    Fact,
    HeavyTailedEstimator,
    declared,
    part_of,
    refuse_many,
    released_curvature,
    released_moment,
    released_size,
    set_aside,
    whole_cost,
)
from lethe.estimators.heavy_tailed.linear import (
    UNIFORM,
    HeavyTailedBlocks,
    LinearScoreProblem,
    ScoredRows,
    Slope,
    chosen_solver,
    gradient_rows,
    linear_records,
    solve,
)
from lethe.estimators.inputs.tables import declared_passes, listed_classes, public_labels, read_table, read_table_and_targets
from lethe.estimators.models.classifiers import LogisticRegression, PrivateClassifier
from lethe.estimators.options import options_of
from lethe.estimators.partitioned.tables import as_numbers, examined, examined_labels
from lethe.estimators.private_estimator import with_constructor
from lethe.heavy_tailed import BallDomain, Moments
from lethe.heavy_tailed.problem import some_records
from lethe.heavy_tailed.sets import WholeSpace
from lethe.mechanisms.base import Array
from lethe.partitions.dask_tables import table_in_blocks
from lethe.partitions.table import ConsecutiveRecords, ExaminedTable
from lethe.run.losses import Logistic

_PASSES = 30  # of multi_pass
_QUANTILE = 0.75  # of the gradients' norms at 0, where practical settings clip
_LOSS = Logistic(feature_norm=1.0)  # of which the slope alone is used: features are not bounded


@with_constructor
class HeavyTailedLinearModel(HeavyTailedEstimator):
    r"""Base class of the linear models for heavy-tailed data.

    $$\min_{\|w\| \le R} E\,l(\langle w, x\rangle, y)$$

    by clipped gradients, started at 0. Neither features nor targets need a bound; gradients longer than the clip norm, which is set from
    the moment, keep their direction. Scaling the columns by public constants to a like size helps.

    Args:
        moment: a public $r_k$ with $E\|l'x\|^k \le r_k^k$ for all w of the domain, $E\sup_w$ for "localised", "sampled_localised" and
            "strongly_convex"; or "private": of the largest in the domain; for practical settings the 0.75 quantile of the norms at w = 0 in
            its place, which outliers do not move.
        radius: R, public; None: no bound, which only multi_pass can do with. The intercept counts.
        smoothness: public $\beta$ of the expected loss; "private": from the largest eigenvalue of the second moments of clipped rows.
        fit_intercept: whether to append a constant feature 1.
        epsilon, delta, neighbours, random_state, seed_noise, ledger, options: as of `HeavyTailedEstimator`.
    Attributes: those of `HeavyTailedEstimator`, and `coef_`, `intercept_`, `smoothness_`.
    """

    radius: float | None = None
    smoothness: float | str = PRIVATE
    fit_intercept: bool = True

    takes_options: ClassVar[frozenset[str]] = HeavyTailedEstimator.takes_options | {"strong_convexity"}
    coef_: Array = field(init=False)
    _loss_slope: ClassVar[Slope]
    _curvature: ClassVar[float]

    @staticmethod
    def _largest(norms: Array, targets: Array, radius: float | None) -> Array:
        r"""At least the norm of each record's gradient in the domain, shape (m,); at w = 0 with None."""
        raise NotImplementedError

    def _scores(self, X: Any) -> Array:
        """The linear function of rows as they come, without the intercept, shape (n,) or (n, 1) as `coef_` has it."""
        check_is_fitted(self)
        return np.asarray(read_table(self, X, reset=False, dtype="float64")) @ self.coef_.T

    def _train(self, table: Any, targets: Any, *, public: list[str]) -> tuple[Array, float]:
        """Release what is not given, solve, and set everything but coef_ and intercept_."""
        intercept, options = require_switch("fit_intercept", self.fit_intercept), options_of(self)
        count, columns = table.shape
        in_blocks = isinstance(table, ExaminedTable)
        budget, chance = self._budget(count), self._randomness(count, stored_order=in_blocks)
        moment, smoothness = declared("moment", self.moment), declared("smoothness", self.smoothness)
        radius = None if self.radius is None else require_positive("radius", self.radius)
        strongly = None if options.strong_convexity is None else require_positive("strong_convexity", options.strong_convexity)
        passes = declared_passes(options.passes) or _PASSES
        name = chosen_solver(options.mechanism, options.parameters, strongly=strongly is not None)
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
        stated = Moments(order=options.order, bound=1.0 if moment is None else moment, kind="uniform" if name in UNIFORM else "raw")
        whole = whole_cost(budget)
        first = set_aside(count, whole) if moment is None or smoothness is None else 0
        data: Any
        if in_blocks:
            if moment is None and options.parameters != "practical":
                refuse_many(first)
            data = HeavyTailedBlocks(ConsecutiveRecords(table, 0, count), ScoredRows(targets, intercept))
            public = [*public, f"records in {len(table.seen)} blocks, of which the first {first} in the stored order are set aside"]
        else:
            rows = np.hstack([table, np.ones((count, 1))]) if intercept else table
            data = linear_records(np.asarray(rows, dtype=np.float64)[chance.order], targets[chance.order])
        each = part_of(whole, 2) if moment is None and smoothness is None else whole
        facts = list[Fact]()
        target = ApproxDP(budget.epsilon, budget.delta)
        self._pay((lambda: target) if name == "sampled_localised" else budget.as_gaussian, budget, count)
        aside: Any = some_records(data, slice(0, first)) if first else None
        noise: dict[str, Any] = {"neighbours": self.neighbours, "generator": chance.norm}
        if smoothness is None:
            rows, norms = (aside, aside.sizes()) if isinstance(aside, HeavyTailedBlocks) else (aside[0], aside[2])
            facts.append(released_curvature(rows, norms, each, **noise))
            smoothness = facts[-1].value * self._curvature
        if moment is None:
            practical = options.parameters == "practical" and name not in UNIFORM
            within, largest = None if practical else radius, type(self)._largest
            sizes = aside.sizes(largest, within) if isinstance(aside, HeavyTailedBlocks) else largest(aside[2], aside[1], within)
            release, at = (released_size, _QUANTILE) if practical else (released_moment, stated.order)
            facts.append(release(sizes, at, each, **noise))
            moment = facts[-1].value
        problem = LinearScoreProblem(
            gradient=gradient_rows(type(self)._loss_slope),
            slope=type(self)._loss_slope,
            dimension=columns + (1 if intercept else 0),
            domain=WholeSpace() if radius is None else BallDomain(radius=radius),
            smoothness=smoothness,
            strong_convexity=strongly,
            pl_constant=strongly,
            moments=Moments(order=stated.order, bound=moment, kind=stated.kind),
        )
        rest, rho = some_records(data, slice(first, count)), 0.5 * whole.mu * whole.mu
        solution, plan = solve(name, options.parameters, problem, rest, rho, target=target, passes=passes, generator=chance.mechanism)
        self.mechanism_, self.moment_, self.smoothness_ = name, moment, smoothness
        # A quantile in the place of a moment bounds no risk.
        self.plan_ = None if declared("moment", self.moment) is None and options.parameters == "practical" else plan
        why = [f"{name}, {options.parameters} settings"]
        if self.plan_ is not None:
            why += [f"expected excess risk at most {self.plan_.bound:.4g} if the constants hold", *self.plan_.notes]
        constants = {"moment": self.moment, "smoothness": self.smoothness, "radius": radius, "strong_convexity": strongly}
        constant_words = [f"{key} = {value:g}" for key, value in constants.items() if isinstance(value, int | float)]
        public = [f"{columns} columns, and their names", *public, *constant_words]
        self._state_solved(solution, facts, budget, first=first, records=count, why=why, public=public)
        weights = solution.parameters
        return weights[:columns].copy(), float(weights[-1]) if intercept else 0.0


class HeavyTailedLinearRegression(RegressorMixin, HeavyTailedLinearModel):
    r"""Least squares, $l = \frac12(\langle w, x\rangle - y)^2$.

    Args: as of `HeavyTailedLinearModel`.
    """

    _curvature = 1.0

    @staticmethod
    def _loss_slope(scores: Array, targets: Array) -> Array:
        return scores - targets

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags

    @staticmethod
    def _largest(norms: Array, targets: Array, radius: float | None) -> Array:
        finite = np.minimum(norms, 1e300)  # of a row whose norm overflows, times a target of 0
        with np.errstate(over="ignore"):
            return (np.abs(targets) + (0.0 if radius is None else radius * finite)) * finite

    def fit(self, X: Any, y: Any) -> Self:
        """Train on records X of shape (n, d), an array or a frame, with targets y of shape (n,); or on a table in blocks.

        Of that the first records in the stored order are set aside for constants, and y is the name of the target's column, or a collection
        of Dask in the same partitions. Of what cannot be used nothing is released.
        """
        blocks, targets = table_in_blocks(X, y), as_numbers
        if blocks is None:
            table, targets = read_table_and_targets(self, X, y, numeric=True, dtype="float64")
        else:
            table = examined(self, blocks, targets=True)
        self.coef_, self.intercept_ = self._train(table, targets, public=[])
        return self

    def predict(self, X: Any) -> Array:
        """Predicted targets, shape (n,)."""
        return self._scores(X) + self.intercept_


@with_constructor
class HeavyTailedLogisticRegression(ClassifierMixin, HeavyTailedLinearModel):
    r"""Logistic regression for two classes.

    Args:
        classes: the two labels, public; None: those in y, which the report then says is declared.
        epsilon, delta, neighbours, random_state, seed_noise, ledger, options: as of `HeavyTailedEstimator`.
        moment, radius, smoothness, fit_intercept: as of `HeavyTailedLinearModel`.
    """

    classes: Any = None

    _curvature = _LOSS.curvature_bound
    decision_function = PrivateClassifier.decision_function
    predict = PrivateClassifier.predict
    predict_proba = LogisticRegression.predict_proba
    predict_log_proba = LogisticRegression.predict_log_proba

    @staticmethod
    def _loss_slope(scores: Array, targets: Array) -> Array:
        return _LOSS.slopes(scores[:, None], targets)[:, 0]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = True
        return tags

    @staticmethod
    def _largest(norms: Array, targets: Array, radius: float | None) -> Array:
        return norms if radius is not None else 0.5 * norms

    def fit(self, X: Any, y: Any) -> Self:
        """As `HeavyTailedLinearRegression.fit`, with labels y of shape (n,)."""
        blocks = table_in_blocks(X, y)
        if blocks is None:
            table, labels = read_table_and_targets(self, X, y, numeric=False, dtype="float64")
            classes, targets, how = public_labels(self.classes, labels)
        else:
            table, classes, targets, how = examined_labels(self, blocks, self.classes)
        if len(classes) > 2:
            raise InputError(
                f"y: Only binary classification is supported. The type of the target is multiclass: {len(classes)} classes.",
                source="the argument y and the parameter classes",
                remedy="take lethe.estimators.LogisticRegression, or one model for each class",
            )
        weights, intercept = self._train(table, targets, public=[listed_classes(how, classes)])
        self.classes_ = classes
        self.coef_, self.intercept_ = weights[None, :], np.array([intercept])
        return self
