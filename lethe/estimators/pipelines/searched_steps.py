"""What a private search may fit (a model, or a pipeline that ends in one), its candidates, and the two sides of its split.

private_search.py asks here, before anything is fitted, whether a model and its candidates can be searched, and for the records of either
side: those that train and those that score.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.model_selection import ParameterGrid
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder
from sklearn.utils import _safe_indexing  # pyright: ignore[reportPrivateUsage]  # rows of arrays, CSR tables and frames

from lethe.errors import InputError
from lethe.estimators.inputs.records import Index
from lethe.estimators.models.linear_model import PrivateLinearModel
from lethe.estimators.pipelines.shares import is_gaussian
from lethe.estimators.preprocessing.data_free import learns_nothing, lesson_of
from lethe.estimators.preprocessing.moments import PrivatePCA, PrivateWhitening
from lethe.estimators.preprocessing.scaler import PrivateQuantileClipper, PrivateStandardScaler, PrivateTransformer
from lethe.mechanisms.base import Array
from lethe.partitions.block import Block, targets_of
from lethe.partitions.passes import total
from lethe.partitions.table import ExaminedTable, chosen_records

# By their types and not those of subclasses, which may do anything. Each is mu-GDP whatever its parameters are.
_PRIVATE = (PrivatePCA, PrivateQuantileClipper, PrivateStandardScaler, PrivateWhitening)
_OF_THE_SEARCH = ("epsilon", "delta", "allow_large_delta", "neighbours", "classes", "random_state", "seed_noise")
# Arguments of a Pipeline that say how often it was fitted or keep what was, and what they have to be.
_SILENT = (
    ("memory", (None,), "a cache keeps private tables on disk, and gives one fit's noise to the next"),
    ("verbose", (False, 0), "it prints a line for every fit, and how often a search tried is secret"),
    ("transform_input", (None,), "a search passes records and targets only"),
)

_QUIET = ("ignore", "infrequent_if_exist", "use_encoded_value")

SCORINGS = ("accuracy", "neg_log_loss", "roc_auc", "r2", "neg_mean_absolute_error")  # in scikit-learn's words
Step = PrivateLinearModel | PrivateTransformer
Scoring = Callable[[Any, Any, Any], Array]
"""Of a model, rows and targets: numbers in [0, 1], one a row, the larger the better; or one number with noise."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ParameterCandidate:
    """One choice of parameters."""

    parameters: Mapping[str, Any]  # by name, as `set_params` takes them
    model: Any  # with them, not fitted
    gaussian: Mapping[str, bool]  # for each private step, by the prefix of its parameters, whether a fit is mu-GDP whatever the data


def candidates_of(estimator: Any, grid: Any) -> list[ParameterCandidate]:
    """One for each point of a grid as of scikit-learn's ParameterGrid; no parameter that is the same for all candidates may be in it."""
    private_steps(estimator)
    try:
        points = list(ParameterGrid(grid))
    except (TypeError, ValueError) as error:
        raise InputError(f"candidates: {error}", source="the argument candidates") from None
    if not points:
        raise InputError("candidates: the list is empty; at least one is needed.", source="the argument candidates")
    for name in (name for point in points for name in point):
        parameter = name.rsplit("__", 1)[-1]
        if parameter in _OF_THE_SEARCH:
            why, where = (
                f"{name} is among the parameters; it is the same for all of them",
                "estimator" if parameter == "classes" else "search",
            )
            raise InputError(f"candidates: {why}.", source="the argument candidates", remedy=f"set {parameter} of the {where}")
    return [_candidate(estimator, parameters) for parameters in points]


def _candidate(estimator: Any, parameters: dict[str, Any]) -> ParameterCandidate:
    """The model of one setting of parameters, unfitted, checked, and which of its private steps are Gaussian."""
    changed: Any = clone(estimator)
    model: Any = clone(changed.set_params(**parameters))
    steps = private_steps(model)
    for prefix, step in steps.items():
        if step.seed_noise:
            why = f"{f'step {prefix[:-2]}: ' if prefix else ''}its noise is seeded, and every try needs noise of its own"
            raise _refusal(why, f"the parameter {prefix}seed_noise", "set seed_noise and random_state of the search instead")
    gaussian = {prefix: not isinstance(step, PrivateLinearModel) or is_gaussian(step) for prefix, step in steps.items()}
    if is_classifier(model) != is_classifier(estimator):
        why = f"{parameters}: some models among the candidates are classifiers and some are not"
        raise _refusal(why, "the argument candidates", "search classifiers and regressions apart")
    return ParameterCandidate(parameters=parameters, model=model, gaussian=gaussian)


def private_steps(estimator: Any) -> dict[str, Step]:
    """The private steps of an estimator in the order in which they are fitted, by the prefix of their parameters; of a model alone ""."""
    if isinstance(estimator, PrivateLinearModel):
        return {"": estimator}
    needed = "a private linear model of lethe.estimators"
    if type(estimator) is not Pipeline:
        why = f"got {type(estimator).__name__}; it needs {needed}, or a Pipeline ending in one"
        raise _refusal(
            why, "the argument estimator", "give an unfitted model of lethe.estimators, or scikit-learn's Pipeline itself of them"
        )
    steps = dict(_walk(estimator, ""))
    final = estimator.steps[-1][1]
    if not isinstance(final, PrivateLinearModel):
        why = f"the pipeline ends in {_named(final)}; it needs {needed} there"
        raise _refusal(why, "the last step of the pipeline", "end it in a model such as LogisticRegression of lethe.estimators")
    return steps


def _refusal(why: str, source: str, remedy: str) -> InputError:
    return InputError(f"estimator: {why}.", source=source, remedy=remedy)


def model_prefix(estimator: Any) -> str:
    """The prefix of the model's own parameters: "" of a model, the last step's of a pipeline."""
    return f"{estimator.steps[-1][0]}__" if isinstance(estimator, Pipeline) else ""


def _walk(pipeline: Pipeline, above: str) -> Iterator[tuple[str, Step]]:
    """Private steps of a pipeline with their prefix, inner pipelines included; refuses any other step that learns."""
    for word, empty, why in _SILENT:
        if getattr(pipeline, word) not in empty:
            raise _refusal(
                f"{word} = {getattr(pipeline, word)!r}; {why}", f"the argument {word} of the Pipeline", f"leave it at {empty[0]}"
            )
    for index, (name, step) in enumerate(pipeline.steps):
        last_of_all = not above and index == len(pipeline.steps) - 1
        prefix = f"{above}{name}__"
        if type(step) is Pipeline:
            yield from _walk(step, prefix)
        elif type(step) in _PRIVATE or (last_of_all and isinstance(step, PrivateLinearModel)):
            yield prefix, step
        else:
            _refuse_learning(name, step)


def _refuse_learning(name: str, step: Any) -> None:
    """Unless the step learns nothing from records, and says nothing of them; nor does any branch of one that has several."""
    if step is None or (isinstance(step, str) and step in ("passthrough", "drop")):
        return
    where, kind = f"step {name!r} of the pipeline", f"step {name!r}, {_named(step)}"
    if learns_nothing(step):
        encodes = isinstance(step, OneHotEncoder | OrdinalEncoder)  # which may stop at a category that it does not know, or warn of it
        if encodes and (step.handle_unknown not in _QUIET or getattr(step, "drop", None) is not None):
            quiet = 'handle_unknown="ignore" and drop=None' if isinstance(step, OneHotEncoder) else 'handle_unknown="use_encoded_value"'
            raise _refusal(f"{kind}, speaks of records with a category that it does not know, once a try", where, f"set {quiet}")
        return
    lesson = lesson_of(step)
    if lesson is not None:
        remedy = f"{lesson.remedy}; or transform the records before the search, with what was not read off them"
        raise _refusal(f"{kind}: {lesson.what}", where, remedy)
    if type(step) in (ColumnTransformer, FeatureUnion):
        _refuse_branches(name, step)
        return
    if type(step) in _PRIVATE:
        why = f"{kind}, stands side by side with others, among which a search does not divide shares"
        raise _refusal(why, where, "put private steps one behind the other")
    remedy = "put a private step of lethe.estimators in its place, or fit it on public data and transform the records before the search"
    if isinstance(step, PrivateLinearModel):
        raise _refusal(f"{kind}, is a model; one is allowed, at the end of the outermost pipeline", where, remedy)
    raise _refusal(f"{kind}, may learn from records without privacy", where, remedy)


def _refuse_branches(name: str, step: Any) -> None:
    """Unless no branch learns, and the result is of the same kind whatever the records are."""
    where = f"step {name!r} of the pipeline"
    branches = step.transformer_list if isinstance(step, FeatureUnion) else [*step.transformers, ("remainder", step.remainder)]
    for inner, branch, *columns in branches:
        for label, part in branch.steps if type(branch) is Pipeline else [("", branch)]:
            _refuse_learning(" > ".join(filter(None, (name, inner, label))), part)
        if columns and callable(columns[0]) and type(columns[0]) is not make_column_selector:
            raise _refusal(f"step {name!r}: its columns are chosen by a function, once a try", where, "name the columns")
    if getattr(step, "sparse_threshold", 0) != 0:
        why = f"step {name!r}: whether its result is a sparse table depends on the share of zeros in the records"
        raise _refusal(why, where, "set sparse_threshold=0")


def _named(step: Any) -> str:
    return repr(step) if step is None or isinstance(step, str) else type(step).__name__


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SidesInMemory:
    """Of a table in memory."""

    # table, targets: shapes (n, d) and (n,)
    table: Any
    targets: Any
    # training, aside: numbers of records, of which none is in both
    training: Index
    aside: Index
    score_of: Scoring

    def fit(self, model: Any) -> None:
        """Fit a model on the rows to train on."""
        model.fit(_safe_indexing(self.table, self.training), self.targets[self.training])

    def score(self, model: Any) -> float:
        """The mean of what the rows aside score."""
        return float(np.mean(self.score_of(model, _safe_indexing(self.table, self.aside), self.targets[self.aside])))


class SidesInBlocks:
    """Of a table in blocks: fits are on blocks, and so are scores, one pass each. No pass is told of: how many there are is secret."""

    def __init__(self, table: ExaminedTable, *, aside: Index, score_of: Scoring) -> None:
        scored = np.zeros(table.shape[0], dtype=np.bool_)
        scored[aside] = True
        self._score_of, self._aside, self._training = score_of, chosen_records(table, scored), chosen_records(table, ~scored)

    def fit(self, model: Any) -> None:
        """On the blocks of one; the model then takes arrays without names, as one that was fitted on rows in memory."""
        model.fit(self._training, None)
        for step in [step for _, step in leaves(model)] if isinstance(model, Pipeline) else [model]:
            if hasattr(step, "feature_names_in_"):
                del step.feature_names_in_

    def score(self, model: Any) -> float:
        """On the blocks of the other: a pass."""
        _, counted = self._aside.examined(_counted_in, model, self._score_of)
        counts, records = total(counted)
        return float(counts / records)


def _counted_in(block: Block, model: Any, score_of: Scoring) -> tuple[np.float64, np.float64]:
    """Sum of the scores of a block's records, and their number."""
    if not len(block):
        return np.float64(0.0), np.float64(0.0)
    return np.float64(np.sum(score_of(model, block.features, targets_of(block)))), np.float64(len(block))


def refuse_steps_in_memory(estimator: Any) -> None:
    """Refuse a pipeline with steps that transform arrays only."""
    private = {id(step) for step in private_steps(estimator).values()}
    for name, step in leaves(estimator) if isinstance(estimator, Pipeline) else ():
        if id(step) not in private and step is not None and step != "passthrough":
            why = f"step {name!r}, {type(step).__name__}, transforms arrays in memory, and X is a table in blocks"
            remedy = "transform the table by it before, such as by frame.map_partitions, and leave the step out"
            raise _refusal(why, f"step {name!r} of the pipeline", remedy)


def leaves(pipeline: Pipeline) -> list[tuple[str, Any]]:
    """Its steps by their names, those of pipelines within it in their place."""
    named_steps: list[tuple[str, Any]] = []
    for name, step in pipeline.steps:
        named_steps += leaves(step) if isinstance(step, Pipeline) else [(name, step)]
    return named_steps
