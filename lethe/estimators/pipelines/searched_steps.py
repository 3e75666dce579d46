"""What a private search may fit: a model of this package, or a pipeline of its transformers and of what learns nothing before one.

Its candidates are parameters by name, and for each the unfitted model that they make. All of it is public.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sklearn.base import clone, is_classifier
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import ParameterGrid
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

from lethe.errors import InputError
from lethe.estimators.models.linear_model import PrivateLinearModel
from lethe.estimators.pipelines.tries import is_gaussian
from lethe.estimators.preprocessing.data_free import learns_nothing, lesson_of
from lethe.estimators.preprocessing.moments import PrivatePCA, PrivateWhitening
from lethe.estimators.preprocessing.scaler import PrivateQuantileClipper, PrivateStandardScaler
from lethe.estimators.preprocessing.transformer import PrivateTransformer

# By their types and not those of subclasses, which may do anything. Each is mu-GDP whatever its parameters are.
_PRIVATE = (PrivatePCA, PrivateQuantileClipper, PrivateStandardScaler, PrivateWhitening)
_OWN = ("epsilon", "delta", "allow_large_delta", "neighbours", "classes", "random_state", "seed_noise")

Step = PrivateLinearModel | PrivateTransformer


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ParameterCandidate:
    """One choice of parameters."""

    parameters: Mapping[str, Any]  # by name, as `set_params` takes them
    model: Any  # with them, not fitted
    gaussian: Mapping[str, bool]  # for each private step, by the prefix of its parameters, whether a fit is mu-GDP whatever the data


def candidates_of(estimator: Any, grid: Any) -> list[ParameterCandidate]:
    """One for each point of a grid as of scikit-learn's ParameterGrid; no parameter that is the same for all candidates may be in it."""
    private_steps(estimator)
    return [_candidate(estimator, parameters) for parameters in _points(grid)]


def _points(grid: Any) -> list[dict[str, Any]]:
    try:
        points = list(ParameterGrid(grid))
    except (TypeError, ValueError) as error:
        raise InputError(f"candidates: {error}", source="the argument candidates") from None
    if not points:
        raise InputError("candidates: the list is empty; at least one is needed.", source="the argument candidates")
    for name in (name for point in points for name in point):
        own = name.rsplit("__", 1)[-1]
        if own in _OWN:
            raise InputError(
                f"candidates: {name} is among the parameters; it is the same for all of them.",
                source="the argument candidates",
                remedy=f"set {own} of the {'estimator' if own == 'classes' else 'search'}",
            )
    return points


def _candidate(estimator: Any, parameters: dict[str, Any]) -> ParameterCandidate:
    changed: Any = clone(estimator)
    model: Any = clone(changed.set_params(**parameters))
    steps = private_steps(model)
    for prefix, step in steps.items():
        if step.seed_noise:
            raise InputError(
                f"estimator: {f'step {prefix[:-2]}: ' if prefix else ''}its noise is seeded, and every try needs noise of its own.",
                source=f"the parameter {prefix}seed_noise of the estimator",
                remedy="set seed_noise and random_state of the search instead",
            )
    if is_classifier(model) != is_classifier(estimator):
        raise InputError(
            f"candidates: {parameters}: some models among them are classifiers and some are not.",
            source="the argument candidates",
            remedy="search classifiers and regressions apart",
        )
    return ParameterCandidate(parameters=parameters, model=model, gaussian=gaussian_steps(steps))


def private_steps(estimator: Any) -> dict[str, Step]:
    """The private steps of an estimator in the order in which they are fitted, by the prefix of their parameters; of a model alone "".

    Raises:
        InputError: another estimator or another step; a pipeline that keeps what it fitted, or that tells how often it did.
    """
    if isinstance(estimator, PrivateLinearModel):
        return {"": estimator}
    if type(estimator) is not Pipeline:
        raise InputError(
            f"estimator: got {type(estimator).__name__}; it needs a private linear model of lethe.estimators, or a Pipeline ending in one.",
            source="the argument estimator",
            remedy="give an unfitted model of lethe.estimators, or scikit-learn's Pipeline itself of them",
        )
    steps = dict(_walk(estimator, ""))
    final = _listed(estimator)[-1][1]
    if not isinstance(final, PrivateLinearModel):
        raise InputError(
            f"estimator: the pipeline ends in {_named(final)}; it needs a private linear model of lethe.estimators there.",
            source="the last step of the pipeline",
            remedy="end it in a model such as LogisticRegression of lethe.estimators",
        )
    return steps


def model_prefix(estimator: Any) -> str:
    """The prefix of the model's own parameters: "" of a model, the last step's of a pipeline."""
    return f"{estimator.steps[-1][0]}__" if isinstance(estimator, Pipeline) else ""


def gaussian_steps(steps: dict[str, Step]) -> dict[str, bool]:
    """For each step, whether its parameters say that a fit is mu-GDP."""
    return {prefix: is_gaussian(step) if isinstance(step, PrivateLinearModel) else True for prefix, step in steps.items()}


def _walk(pipeline: Pipeline, above: str) -> Iterator[tuple[str, Step]]:
    _refuse_memory(pipeline)
    listed = _listed(pipeline)
    for place, (name, step) in enumerate(listed):
        last_of_all = not above and place == len(listed) - 1
        prefix = f"{above}{name}__"
        if type(step) is Pipeline:
            yield from _walk(step, prefix)
        elif type(step) in _PRIVATE or (last_of_all and isinstance(step, PrivateLinearModel)):
            yield prefix, step
        elif not (step is None or (isinstance(step, str) and step == "passthrough")):
            _refuse_learning(name, step)


def _listed(pipeline: Pipeline) -> list[tuple[str, Any]]:
    steps = pipeline.steps
    if not isinstance(steps, list) or not steps or not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in steps):
        raise InputError("estimator: the pipeline has no list of (name, step) pairs.", source="the argument steps of the Pipeline")
    return [(str(name), step) for name, step in steps]


def _refuse_memory(pipeline: Pipeline) -> None:
    if pipeline.memory is not None:
        raise InputError(
            f"estimator: memory = {pipeline.memory!r}; a cache keeps private tables on disk, and gives one fit's noise to the next.",
            source="the argument memory of the Pipeline",
            remedy="leave it at None",
        )
    if pipeline.verbose:
        raise InputError(
            "estimator: verbose = True prints a line for every fit, and how often a search tried is secret.",
            source="the argument verbose of the Pipeline",
            remedy="leave it at False",
        )
    if pipeline.transform_input is not None:
        raise InputError(
            f"estimator: transform_input = {pipeline.transform_input!r}; a search passes records and targets only.",
            source="the argument transform_input of the Pipeline",
            remedy="leave it at None",
        )


def _refuse_learning(name: str, step: Any) -> None:
    """Unless the step learns nothing from records, and says nothing of them."""
    if learns_nothing(step):
        _refuse_telling(name, step)
        return
    remedy = "put a private step of lethe.estimators in its place, or fit it on public data and transform the records before the search"
    lesson = lesson_of(step)
    if lesson is not None:
        raise InputError(
            f"estimator: step {name!r}, {type(step).__name__}: {lesson.what}.",
            source=f"step {name!r} of the pipeline",
            remedy=f"{lesson.remedy}; or transform the records before the search, with what was not read off them",
        )
    if isinstance(step, ColumnTransformer | FeatureUnion):
        why = f"step {name!r}, {type(step).__name__}, fits several steps side by side, whose shares a search does not divide"
        remedy = "put its private steps one behind the other"
    elif isinstance(step, PrivateLinearModel):
        why = f"step {name!r}, {type(step).__name__}, is a model; one is allowed, at the end of the outermost pipeline"
    else:
        why = f"step {name!r}, {_named(step)}, may learn from records without privacy"
    raise InputError(f"estimator: {why}.", source=f"step {name!r} of the pipeline", remedy=remedy)


def _refuse_telling(name: str, step: Any) -> None:
    """An encoder that stops at a category it does not know, or warns of it, once a try: how often a search tried is secret."""
    if not isinstance(step, OneHotEncoder | OrdinalEncoder):
        return
    if step.handle_unknown not in ("ignore", "infrequent_if_exist", "use_encoded_value") or getattr(step, "drop", None) is not None:
        quiet = 'handle_unknown="ignore" and drop=None' if isinstance(step, OneHotEncoder) else 'handle_unknown="use_encoded_value"'
        raise InputError(
            f"estimator: step {name!r}, {type(step).__name__}, speaks of records with a category that it does not know, once a try.",
            source=f"step {name!r} of the pipeline",
            remedy=f"set {quiet}",
        )


def _named(step: Any) -> str:
    return repr(step) if step is None or isinstance(step, str) else type(step).__name__
