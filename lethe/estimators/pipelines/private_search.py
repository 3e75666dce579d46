r"""PrivateSearch: parameters chosen privately, in the manner of scikit-learn's RandomizedSearchCV.

Called by users: choosing parameters by scores on private records costs privacy, which scikit-learn's searches do not count.

A public split sets m of the n records aside. One try draws a candidate, fits it on the others with a guarantee G, and scores it on the m
with Gaussian noise, $\mathrm{score} = \frac1m\sum_i s_i + N(0, \sigma^2)$, $s_i \in [0, 1]$. A record that changes is on one side of the
split, which does not depend on it. On the side of training the try is a fit and work on what it released; on the other the fit has
the same law, and the score moves by at most 1/m. So one try has the worse of two guarantees, not their sum (parallel composition), and
with $\sigma$ such that the score has G too, one try has G. `lethe.mechanisms.selection` then says what the best of K tries
costs, K random.

A fit may be that of a pipeline: G is divided among its private steps before anything is fitted (`lethe.estimators.pipelines.shares`),
the same G for every candidate, and the statement of every fitted step is compared with its part.
"""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

from sklearn.base import MetaEstimatorMixin, clone, is_classifier
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.utils import Tags, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from lethe.calculus.domains import as_number, outside, require_positive
from lethe.calculus.noise_generators import noise_generator
from lethe.certificates.findings import Finding, holds
from lethe.errors import InputError
from lethe.estimators.inputs.ranges import withheld
from lethe.estimators.inputs.tables import FEWEST_RECORDS, FRAME, SPARSE, listed_classes, public_labels, read_table, read_table_and_targets
from lethe.estimators.options import options_of
from lethe.estimators.partitioned.tables import examined, examined_labels
from lethe.estimators.pipelines.searched_steps import (
    SCORINGS,
    ParameterCandidate,
    Scoring,
    SidesInBlocks,
    SidesInMemory,
    candidates_of,
    leaves,
    model_prefix,
    private_steps,
    refuse_steps_in_memory,
)
from lethe.estimators.pipelines.shares import Try, declared_shares, law_of_tries, one_try, step_tries
from lethe.estimators.private_estimator import PrivateEstimator, with_constructor
from lethe.mechanisms.base import Array, gaussian_noise_std
from lethe.mechanisms.metrics import CLASSIFIES, TWO_CLASSES, PublicBounds, area, gains, sensitivity_of
from lethe.mechanisms.selection import choose, selection_guarantee
from lethe.partitions.dask_tables import table_in_blocks
from lethe.partitions.table import ExaminedTable
from lethe.run.active_spender import paid_as_a_whole


class _Tried(NamedTuple):
    """One fitted candidate, its accuracy, before noise, on the records set aside, and what it said of released ranges."""

    model: Any
    score: float
    ends: list[tuple[str, type[Warning]]]


@with_constructor
class PrivateSearch(MetaEstimatorMixin, PrivateEstimator):
    r"""Parameters of a private linear model, or of a pipeline that ends in one, chosen by a private score, all within $(\epsilon, \delta)$.

    How often it tried, how long that took and the other models are not kept, and must not become known.

    One try is Gaussian, and cheaper, if every candidate names a mechanism of `tries.GAUSSIAN`, and numbers for `feature_norm` and
    `target_bound`; else each is taken as $(\epsilon', \delta')$-DP.

    Args:
        estimator: a model of this package, or scikit-learn's Pipeline of private transformers of this package, of steps that learn nothing
            (`PublicScaler` and those of `lethe.estimators.preprocessing.data_free`), and of such a model at its end. Epsilon, delta and
            neighbours of its own are not used.
        candidates: as scikit-learn's ParameterGrid: lists of values by name of the parameter, or a list of such. Public.
        epsilon: the target, > 0, for the search and the model together.
        tries: E[K] of the random number of tries, above 1, at most 1000, geometric; or a pair (E[K], eta): truncated negative binomial.
        held_out: the share of records that score, in (0, 1).
        score_bound: for a regression: the public residual $r_0 > 0$ from which a prediction counts as worthless.
        scoring: what candidates are compared by, in scikit-learn's words. Classifiers: "accuracy", "neg_log_loss" (of probabilities of at
            least .01) or, of two classes, "roc_auc" (by counts of ranks). Regressions: "r2" (one less the mean of $\min(r/r_0, 1)^2$) or
            "neg_mean_absolute_error". None: the first of these.
        random_state: for the public split, and other public choices; noise and secret draws come from fresh entropy.
        delta, neighbours, seed_noise, ledger, options: as of `PrivateEstimator`.
    Attributes: those of `PrivateEstimator`, and `best_estimator_`, `best_params_`, `best_score_` (with its noise), `score_noise_std_`,
    `classes_`.
    `best_estimator_` and each of its steps carry the statement of the whole search and no run: on their own they would seem to have cost
    less.
    Reference: Papernot & Steinke 2022, arXiv:2110.03620; McSherry 2009, Privacy integrated queries, Theorem 4 (parallel composition).
    """

    estimator: Any = field(kw_only=False)
    candidates: Any = field(kw_only=False)
    tries: float | tuple[float, float] = 10.0
    held_out: float = 0.2
    score_bound: float | None = None
    scoring: str | None = None

    takes_options: ClassVar[frozenset[str]] = PrivateEstimator.takes_options | {"shares"}

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.estimator_type, tags.classifier_tags, tags.regressor_tags = inner.estimator_type, inner.classifier_tags, inner.regressor_tags
        tags.target_tags.required = True
        tags.input_tags.sparse = inner.input_tags.sparse
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Search on records X of shape (n, d), an array, a frame or a CSR table, with y of shape (n,).

        Of a table in blocks (of `lethe.partitions`, a DataFrame or an Array of Dask) y is the name of a column, or a collection
        of Dask in the same partitions.
        """
        chosen = candidates_of(self.estimator, self.candidates)
        options = options_of(self)
        shares = _shares(options.shares, chosen)
        labelled = is_classifier(self.estimator)
        metric, bounds = self._metric(labelled), PublicBounds(error_bound=self._score_bound(labelled))
        table, targets, classes, public = self._records(X, y, chosen, labelled=labelled)
        if metric in TWO_CLASSES and (len(classes) != 2 or isinstance(table, ExaminedTable)):
            raise outside("scoring", self.scoring, "neg_log_loss or accuracy: ranks are counted of two classes, of a table in memory")
        records = table.shape[0]
        budget = self._budget(records)
        repetitions = law_of_tries(self.tries)
        chance = self._randomness(records)
        scored = self._scored(records)
        training, aside = chance.order[scored:], chance.order[:scored]
        attempt = one_try(budget, repetitions, gaussian=all(all(candidate.gaussian.values()) for candidate in chosen))
        parts = [
            step_tries(attempt, candidate.gaussian, step_shares, delta=budget.delta)
            for candidate, step_shares in zip(chosen, shares, strict=True)
        ]
        ranks, generator = metric in TWO_CLASSES, noise_generator(chance.norm)
        noise_std = 0.0 if ranks else gaussian_noise_std(1.0 / scored, attempt.target)
        score_of: Scoring = partial(gains, metric, bounds)
        if ranks:
            counted = gaussian_noise_std(sensitivity_of(metric, self.neighbours), attempt.target)
            score_of = partial(area, noise_std=counted, neighbours=self.neighbours, generator=generator)
        if isinstance(table, ExaminedTable):
            sides = SidesInBlocks(table, aside=aside, score_of=score_of)
        else:
            sides = SidesInMemory(table=table, targets=targets, training=training, aside=aside, score_of=score_of)
        order_seed = int(generator.integers(2**31))  # draws from NumPy's global generator would tell how often it tried

        def train(index: int) -> _Tried:
            model: Any = clone(chosen[index].model)
            for prefix, part in parts[index].items():
                overrides: dict[str, Any] = {
                    "epsilon": part.target.epsilon_bound,
                    "delta": part.target.delta_bound,
                    "options__allow_large_delta": options.allow_large_delta,
                    "neighbours": self.neighbours,
                    "random_state": order_seed,
                    "ledger": None,  # the search is paid as a whole
                }
                if self.seed_noise:
                    overrides |= {"seed_noise": True, "random_state": int(generator.integers(2**31))}
                model.set_params(**{f"{prefix}{name}": value for name, value in overrides.items()})
            if labelled:
                model.set_params(**{f"{model_prefix(model)}classes": classes})
            with withheld() as ends, paid_as_a_whole():  # tries are secret, and how many there were
                sides.fit(model)
                score = sides.score(model)
            _refuse_more(model, parts[index], chosen[index])
            return _Tried(model=model, score=score, ends=ends)

        self._pay(lambda: selection_guarantee(attempt.guarantee, repetitions, delta=budget.delta), budget, records)
        choice = choose(
            range(len(chosen)),
            train,
            lambda tried: tried.score + noise_std * float(generator.standard_normal()),
            repetitions=repetitions,
            train_guarantee=attempt.guarantee,
            score_guarantee="public",  # by parallel composition: see the top
            neighbours=self.neighbours,
            delta=budget.delta,
            generator=chance.norm,
        )
        assert choice.candidate is not None  # K is at least 1
        assert choice.result is not None
        assert choice.score is not None
        statement = replace(
            choice.statement,
            name=f"the best of a random number of tries among {len(chosen)} candidates, scored privately",
            findings=tuple(_findings(attempt, chosen, "counts of ranks" if ranks else "a mean", scored=scored, tries=repetitions.mean)),
        )
        self.best_estimator_, self.best_params_ = choice.result.model, dict(chosen[choice.candidate].parameters)
        self.best_score_, self.score_noise_std_ = choice.score, None if ranks else noise_std
        if metric in ("log_loss", "mean_absolute_error"):  # in their own units
            unit = bounds.largest(metric)
            self.best_score_, self.score_noise_std_ = (choice.score - 1.0) * unit, noise_std * unit
        if labelled:
            self.classes_ = classes
        public += [f"{records - scored} records to train on, {scored} to score on", f"the candidates, {len(chosen)} of them"]
        trained = "; ".join(step.statement_.name for step in private_steps(self.best_estimator_).values())
        why = [f"chosen by its score: {self.best_params_}", f"trained by {trained}"]
        self._state([statement], budget, records, why=why, public=public)
        self._charge_model()
        for text, category in choice.result.ends:
            warnings.warn(text, category, stacklevel=2)
        return self

    def _records(self, X: Any, y: Any, chosen: list[ParameterCandidate], *, labelled: bool) -> tuple[Any, Any, Any, list[str]]:
        """The table, its targets (None of one in blocks), the classes if there are any, and lines on what is public."""
        blocks, declared = table_in_blocks(X, y), self.estimator.get_params().get(f"{model_prefix(self.estimator)}classes")
        classes, public = None, list[str]()
        if blocks is None:
            table, targets = read_table_and_targets(self, X, y, numeric=not labelled, **self._checks(X))
            if labelled:
                classes, _, how = public_labels(declared, targets)
                public.append(listed_classes(how, classes))
            return table, targets, classes, public
        from lethe.train.linear.blocks import MOST_DRAWN  # loads torch, which takes seconds

        for candidate in chosen:
            refuse_steps_in_memory(candidate.model)
        if labelled:
            table, classes, _, how = examined_labels(self, blocks, declared)
            public.append(listed_classes(how, classes))
        else:
            table = examined(self, blocks, targets=True)
        if table.shape[0] > MOST_DRAWN:
            raise InputError(
                f"X: got {table.shape[0]} records; a split draws a number for each in one place, of at most {MOST_DRAWN}.",
                source="the argument X",
                remedy="search on some of the records",
            )
        where = f"records in {len(table.seen)} blocks, in the order in which they are stored"
        passes = "NOT public: how many passes over the blocks there were, and how long they took"
        return table, None, classes, [*public, where, passes]

    def _metric(self, labelled: bool) -> str:
        metrics = {name: name.removeprefix("neg_") for name in SCORINGS if (name.removeprefix("neg_") in CLASSIFIES) == labelled}
        lacking = {"neg_log_loss": "predict_proba", "roc_auc": "decision_function"}
        has = [name for name in metrics if name not in lacking or hasattr(self.estimator, lacking[name])]
        if self.scoring is not None and self.scoring not in has:
            raise outside("scoring", self.scoring, f"one of {', '.join(has)}, or None")
        return metrics[has[0] if self.scoring is None else self.scoring]

    def _score_bound(self, labelled: bool) -> float | None:
        if labelled:
            return None
        if self.score_bound is None:
            raise InputError(
                "score_bound = None: without a bound on what one prediction counts, one record could move the score without bound.",
                source="the parameter score_bound",
                remedy="give a residual, known without looking at the data, from which a prediction is worthless",
            )
        return require_positive("score_bound", self.score_bound)

    def _scored(self, records: int) -> int:
        share = as_number("held_out", self.held_out, "a number above 0 and below 1")
        if not 0.0 < share < 1.0:
            raise outside("held_out", self.held_out, "a number above 0 and below 1")
        scored = max(1, math.floor(share * records))
        if records - scored < FEWEST_RECORDS:
            raise InputError(
                f"held_out = {share:g}: of {records} records it leaves {records - scored} to train on; it needs {FEWEST_RECORDS}.",
                source="the parameter held_out",
                remedy="lower it, or give more records",
            )
        return scored

    def _charge_model(self) -> None:
        """The cost of the search on the model chosen and on each of its steps, which must not claim that of one fit."""
        inner: Any = self.best_estimator_
        steps: dict[str, Any] = dict(private_steps(inner))
        for one in {id(part): part for part in (inner, *steps.values())}.values():
            one.statement_ = one.certificate_ = self.statement_
            one.delta_, one.epsilon_, one.privacy_report_ = self.delta_, self.epsilon_, self.privacy_report_
            one.n_samples_seen_ = self.n_samples_seen_
            if hasattr(one, "run_"):
                one.run_ = None

    def _best(self, X: Any) -> tuple[Any, Any]:
        check_is_fitted(self)
        return self.best_estimator_, read_table(self, X, reset=False, **self._checks(X))

    def _checks(self, X: Any) -> dict[str, Any]:
        """What is looked at in a table: of a frame nothing, where a step of the pipeline takes its columns by their names."""
        frame = (hasattr(X, "iloc") or hasattr(X, "__dataframe__")) and isinstance(self.estimator, Pipeline)
        return FRAME if frame and any(isinstance(step, ColumnTransformer) for _, step in leaves(self.estimator)) else SPARSE

    def predict(self, X: Any) -> Any:
        """The predictions of the chosen model."""
        model, table = self._best(X)
        return model.predict(table)

    def score(self, X: Any, y: Any) -> float:
        """The model's accuracy or coefficient of determination, without noise: not to be published of training data."""
        model, table = self._best(X)
        return model.score(table, y)

    @available_if(lambda self: hasattr(self.estimator, "decision_function"))
    def decision_function(self, X: Any) -> Array:
        """The scores of the chosen model."""
        model, table = self._best(X)
        return model.decision_function(table)

    @available_if(lambda self: hasattr(self.estimator, "predict_proba"))
    def predict_proba(self, X: Any) -> Array:
        """The class probabilities of the chosen model."""
        model, table = self._best(X)
        return model.predict_proba(table)


def _shares(requested: Any, chosen: list[ParameterCandidate]) -> list[dict[str, float]]:
    """Of the private steps of every candidate; a name that is in none is refused."""
    shares = [declared_shares(requested, candidate.gaussian) for candidate in chosen]
    names = {prefix.removesuffix("__") for candidate in chosen for prefix in candidate.gaussian}
    for name in requested or ():
        if name not in names:
            raise outside("shares", name, f"names of private steps: {', '.join(sorted(names - {''})) or 'there are none'}")
    return shares


def _findings(attempt: Try, chosen: Sequence[ParameterCandidate], score: str, *, scored: int, tries: float) -> Iterator[Finding]:
    """What the code of the search makes true: of one try, all candidates, the records set aside, and the mean number of tries."""
    cost = attempt.guarantee.describe()
    yield holds("one fit", f"at most {cost}, calibrated to it; its own certificate was compared", evidence="checked")
    if (largest := max(len(candidate.gaussian) for candidate in chosen)) > 1:
        split = "each with a part of its guarantee that was fixed before; the parts add up to it"
        yield holds("steps", f"of a fit at most {largest} learn from records, {split}", evidence="checked")
        yield holds("rows", "every step transforms a row by itself, with numbers that were released", evidence="enforced")
    yield holds("one score", f"{score} of {scored} records, each of a bounded part, with noise: {cost}", evidence="enforced")
    sides = "a fit and its score see different records, by a split that no record has a part in: one try costs the worse of the two"
    yield holds("disjoint records", sides, evidence="enforced")
    yield holds("number of tries", f"random and secret, {tries:.6g} on average, drawn apart from the data", evidence="enforced")
    yield holds("noise of each try", "every fit and every score draws its own", evidence="enforced")


def _refuse_more(model: Any, parts: Mapping[str, Try], candidate: ParameterCandidate) -> None:
    """A step that cost more than its part, by its own statement."""
    for prefix, step in private_steps(model).items():
        guarantee, part = step.statement_.planned, parts[prefix]
        if not part.covers(guarantee):
            what = f"a fit of step {prefix.removesuffix('__')}" if prefix else "a fit"
            raise InputError(
                f"candidates: {dict(candidate.parameters)}: {what} cost {guarantee.describe()}, more than it may in one try: "
                f"{part.guarantee.describe()}.",
                source="the argument candidates",
                remedy='set mechanism="auto" for one of the candidates: then every try is charged as (epsilon, delta)-DP',
            )
