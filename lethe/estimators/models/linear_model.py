"""PrivateLinearModel: base class of the private classifiers and regressors.

A classifier or regressor calls `_plan` with its loss: budget, bound on the rows, whitening and mechanism are chosen from public facts. The
function it returns trains on the targets; `_release` then keeps the weights and their certificate.
"""

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from lethe.calculus.domains import require_nonnegative, require_switch
from lethe.certificates.statement import Statement
from lethe.errors import InputError
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.choice.choose import Choice, choose
from lethe.estimators.choice.mechanism import AnyRecords, Outcome, Penalties, RandomSources
from lethe.estimators.choice.runs import release_record, secret_design, training_record
from lethe.estimators.inputs.facts import CONSTANT, PublicFacts
from lethe.estimators.inputs.ranges import norm_cost, private_norm
from lethe.estimators.inputs.records import Records, UserRecords, UserRows, row_by_row, row_norms, rows_of_users
from lethe.estimators.inputs.tables import SPARSE, bounded_weights, declared_norm, declared_passes, read_table
from lethe.estimators.models.score_rule import ScoreRule
from lethe.estimators.models.whitened_rows import WhitenedRows, chosen_whitening, whitened_rows
from lethe.estimators.options import options_of
from lethe.estimators.partitioned.records import BlockRecords, BlockUsers, PreparedRows, users_in_blocks
from lethe.estimators.partitioned.tables import norms_of
from lethe.estimators.private_estimator import PrivateEstimator, with_constructor
from lethe.mechanisms.base import Array
from lethe.partitions.table import ExaminedTable
from lethe.run.active_spender import known_in_force
from lethe.run.losses import LeastSquares, Logistic, Softmax, TruncatedLogistic, TruncatedSoftmax
from lethe.run.losses.inverse_links import ridge_shift, ridge_shifts
from lethe.run.losses.linear import LinearLoss
from lethe.run.run import Run

Users = UserRows | BlockUsers | None


@with_constructor
class PrivateLinearModel(PrivateEstimator):
    r"""A linear model whose weights are $(\epsilon, \delta)$-differentially private.

    Rows are projected on a ball, $x \mapsto x\min(1, R/\|x\|)$ with R = `feature_norm_`, in training and in prediction; within it scores
    are linear.

    Args:
        feature_norm: a public bound R, on which longer rows are projected; "auto": a private quantile of the norms, paid for with a
            twentieth of the budget; None is refused.
        fit_intercept: whether to fit one; it is a constant feature of size 0.3 R, regularised as the others.
    Attributes: those of `PrivateEstimator`, and `coef_`, `intercept_`, `n_iter_` (passes; 0 for zero weights), `run_` (None where the
    mechanism is none), `n_averaged_` (the result is the mean of so many last iterates of the run), `mechanism_`, `feature_norm_`;
    `certificate_` is a Certificate where a run is all that was released, else a Statement; both are sealed to `coef_` and `intercept_`.
    """

    feature_norm: float | str | None = "auto"
    fit_intercept: bool = True

    coef_: Array = field(init=False)
    run_: Run | None = field(init=False)
    n_averaged_: int = field(init=False)
    n_iter_: int = field(init=False)
    mechanism_: str = field(init=False)
    _trained: PublicFacts = field(init=False)
    _run_alone: bool = field(init=False)
    _in_passes: bool = field(init=False)
    feature_norm_: float = field(init=False)
    whitened_: WhitenedRows | None = field(init=False)
    takes_options: ClassVar[frozenset[str]] = PrivateEstimator.takes_options | {
        *("mechanism", "batches", "passes", "schedule", "release", "whiten", "max_weight", "rows_per_user")
    }
    _keeps_loss = False  # whether its name says which loss is trained on
    _against_whitening: ClassVar[str | None] = None  # why a model of this kind never whitens its rows

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _plan(
        self,
        table: Any,
        loss: LinearLoss,
        *,
        budget: PrivacyBudget,
        chance: RandomSources,
        users: Users,
        sample_weight: Any,
        alpha: float,
        l1: float = 0.0,
        target_bound: float | None = None,
        costs: Sequence[Statement] = (),
        keeps_loss: bool | None = None,
    ) -> Callable[..., tuple[Array, Array]]:
        """Choose a mechanism by public facts alone, and reserve what the fit will cost; what is returned trains as was planned.

        `costs` are of what the caller releases, before it or after.
        """
        # The loss is one on rows of norm at most 1, of targets in units in which it depends on no release; so does an l1 above 0.
        intercept, options = require_switch("fit_intercept", self.fit_intercept), options_of(self)
        (count, columns), in_blocks = table.shape, isinstance(table, ExaminedTable)
        records = count if users is None else users.users
        weights = None if in_blocks else bounded_weights(sample_weight, count=count, max_weight=options.max_weight)
        weighted = "weights" in table.source.read.roles if in_blocks else weights is not None
        radius = declared_norm(self.feature_norm)
        if radius is None and users is not None:
            raise row_by_row('feature_norm = "auto"', "a number R that no row is longer than, or is projected on")
        budget = budget.with_spent(*costs)
        if radius is None:
            budget = budget.with_spent(norm_cost(count, budget))
        whole = budget
        whitening = chosen_whitening(
            options.whiten,
            table,
            budget,
            may_choose=options.mechanism == "auto",
            against=self._against_whitening,
            intercept=intercept,
            by_users=users is not None,
            regression=isinstance(loss, LeastSquares),
        )
        if whitening is not None:
            budget = budget.with_spent(whitening.cost)
        secret = secret_design(options.mechanism, options.batches)  # pyright: ignore[reportArgumentType]
        penalties = self._penalties_on(radius or 1.0, alpha, l1, weighted=weighted)
        facts = PublicFacts(
            records=records,
            columns=columns,
            loss=loss,
            intercept=intercept,
            neighbours=self.neighbours,
            ridge=0.0 if radius is None or whitening is not None else penalties.ridge,
            l1=penalties.l1,
            target_bound=target_bound,
            keeps_loss=self._keeps_loss if keeps_loss is None else keeps_loss,
            weighted=weighted,
            batches=(secret if in_blocks or secret == "cyclic_poisson" else None) or options.batches,  # pyright: ignore[reportArgumentType]
            passes=declared_passes(options.passes),
            schedule=options.schedule,  # pyright: ignore[reportArgumentType]
            unit="record" if users is None else "user",
            in_blocks=in_blocks,
            release=options.release,  # pyright: ignore[reportArgumentType]
        )
        choice = self._choose(facts, budget)
        if choice.plan.name == "zeros":  # for which no row is looked at
            budget, whitening = whole, None
        self._pay(lambda: budget.with_all(choice.plan.guarantee()), budget, records, unit=facts.unit)

        def train(
            targets: Any,
            loss: LinearLoss,
            *,
            budget: PrivacyBudget,
            public: Sequence[str],
            l1: float = 0.0,
            corrected: Callable[[AnyRecords, Outcome], tuple[Outcome, Statement]] | None = None,
        ) -> tuple[Array, Array]:
            """Weights (d, k) and intercepts (k,), of targets, or what makes them of a block's; everything else that fit sets is set.

            What was trained is `corrected` by one more release.
            """
            public_facts = [f"{columns} columns, and their names", *public]
            if users is not None:
                counted = "all rows" if (rows_limit := options.rows_per_user) is None else f"at most {rows_limit} rows, chosen at random,"
                public_facts.append(f"{users.users} users; of each {counted} count by the mean of their losses")
            rows: Any = table
            norm = radius
            norms: Any = norms_of(rows) if norm is None or not in_blocks else None
            released = norm is None
            if norm is None:
                norm, cost = private_norm(norms, budget, generator=chance.norm, columns=columns)
                budget = budget.with_spent(cost)
            else:
                public_facts.append(f"feature_norm = {norm:g}")
            why, whitened, feature_norm = choice.lines(), None, norm
            if whitening is not None:
                rows, whitened, cost = whitened_rows(rows, whitening, feature_norm=norm, budget=budget, generator=chance.norm)
                budget, norm, released, norms = budget.with_spent(cost), whitened.norm, True, row_norms(rows)
                why.append(whitening.why)
            penalties = self._penalties_on(norm, alpha, l1, weighted=weighted)
            if released and penalties.ridge > 0.0:
                why.append(f"the ridge asked for is {penalties.ridge:.3g} on rows of norm 1; the larger of the two is taken")
            settings: dict[str, Any] = {"loss": loss, "feature_norm": norm, "intercept": intercept}
            if in_blocks:
                public_facts.append(f"records in {len(rows.seen)} blocks, in the order in which they are stored")
                if secret_design(options.mechanism, options.batches) is not None:  # pyright: ignore[reportArgumentType]
                    public_facts.append("NOT public: which records are in a batch, of which each worker is told those that it holds")
                assert not isinstance(users, UserRows)
                data = BlockRecords(rows, PreparedRows(targets=targets, max_weight=float(options.max_weight), users=users, **settings))
            else:
                settings |= {"weights": weights, "order": chance.order, "norms": norms}
                data = UserRecords(users, rows, targets, **settings) if isinstance(users, UserRows) else Records(rows, targets, **settings)
            outcome = choice.plan.train(data, chance, penalties)
            if corrected is not None:
                outcome, cost = corrected(data, outcome)
                budget = budget.with_spent(cost)
            self.mechanism_, self.feature_norm_, self.whitened_ = choice.plan.name, feature_norm, whitened
            self._state([*budget.spent, outcome.statement], budget, records, why=why, public=public_facts)
            self.run_, self.n_iter_, self.n_averaged_ = outcome.run, outcome.passes, outcome.averaged
            self._run_alone, self._in_passes, self._trained = outcome.run is not None and not budget.spent, in_blocks, outcome.facts
            scaled: Array = outcome.weights[:columns] / norm
            constant = _intercepts(outcome) if intercept else np.zeros(loss.outputs)
            if whitened is None:
                return scaled, constant
            of_features, offset = whitened.of_features(scaled, feature_norm)
            return of_features, constant + offset

        return train

    def _choose(self, facts: PublicFacts, budget: PrivacyBudget) -> Choice:
        """The mechanism, by public facts alone: nothing is paid for yet, and no record was looked at."""
        return choose(options_of(self).mechanism, facts, budget, paid=self.ledger is not None or known_in_force() is not None)

    def _penalties_on(self, radius: float, alpha: float, l1: float, *, weighted: bool) -> Penalties:
        """What was asked for, for rows of norm 1."""
        # Weights are over max_weight, and so is all that stands beside them; a penalty on w is one on R w, the weights of the rows over R.
        unit = float(options_of(self).max_weight) if weighted else 1.0
        ridge, sparse = (
            require_nonnegative(*named_penalty, allow_infinity=False) / unit for named_penalty in (("alpha", alpha), ("l1", l1))
        )
        return Penalties(ridge=ridge / radius / radius, l1=sparse / radius)

    def _grouped(self, users: Any, table: Any) -> tuple[Users, int, RandomSources]:
        """Whose rows are whose, None where each is a record; how many users or records there are; and the randomness of such a fit."""
        options, rows = options_of(self), table.shape[0]
        if isinstance(table, ExaminedTable):
            if options.rows_per_user is not None:
                raise InputError(
                    "rows_per_user: rows of one user may lie in several blocks, and are not chosen among there.",
                    source="the option rows_per_user",
                    remedy="leave it at None: a user's loss is the mean over all its rows",
                )
            in_blocks = users_in_blocks(table, options.max_weight)
            count = rows if in_blocks is None else in_blocks.users
            return in_blocks, count, self._randomness(count, stored_order=True)
        if users is None:
            if options.rows_per_user is not None:
                raise InputError("rows_per_user: given, and fit was not told whose rows are whose.", remedy="give it users=ids.")
            return None, rows, self._randomness(rows)
        count = rows_of_users(users, count=rows, rows_per_user=None, generator=None).users
        chance = self._randomness(count)
        return rows_of_users(users, count=rows, rows_per_user=options.rows_per_user, generator=chance.norm), count, chance

    def _release(self, coefficients: Array, intercepts: Any) -> None:
        """Set coef_ and intercept_, as they are released: the certificate of the run, or the statement, will be sealed for them."""
        self.coef_, self.intercept_ = coefficients, intercepts
        if self._run_alone and self.run_ is not None:
            record = training_record(self.run_, coefficients, intercepts, in_blocks=self._in_passes, averaged=self.n_averaged_)
            for claim in self._callers:
                record = record.with_declared(claim.name, claim.detail)
            self._proof = record
        else:
            self._proof = release_record(self.statement_, coefficients, intercepts)

    def _scores(self, X: Any) -> Array:
        """The linear function of rows as they were trained on, projected; without the intercept, shape (n,) or (n, k) as `coef_` has it."""
        check_is_fitted(self)
        table = read_table(self, X, reset=False, **SPARSE)
        scores = np.asarray(table @ self.coef_.T)
        with np.errstate(divide="ignore"):
            shorter = np.minimum(self.feature_norm_ / row_norms(table), 1.0)
        return (scores.T * shorter).T

    @property
    def score_rule(self) -> ScoreRule:
        """How scores and probabilities are computed from what was released."""
        facts, size = self._trained, CONSTANT if self.fit_intercept else 0.0
        return ScoreRule(loss=facts.loss, envelope=facts.envelope, constant=size, feature_norm=self.feature_norm_, whitened=self.whitened_)


def _intercepts(outcome: Outcome) -> Array:
    """Shape (k,); of classes free of the ridge, as far as rows lie about 0 and are alike in all directions."""
    facts, constant, ridge = outcome.facts, CONSTANT * outcome.weights[-1], outcome.ridge / CONSTANT**2
    covariance = outcome.weights[:-1].T @ outcome.weights[:-1] / max(facts.columns, 1)
    match facts.loss:
        case Logistic() | TruncatedLogistic():
            cut = min(facts.envelope / facts.norm, 1.0) if facts.envelope else facts.loss.slope_scale
            return constant + ridge_shift(float(constant[0]), float(covariance[0, 0]) ** 0.5, ridge, cut)
        case Softmax() | TruncatedSoftmax() if ridge > 0.0:
            return constant + ridge_shifts(facts.loss, constant, covariance, ridge)
        case _:
            return constant
