"""The candidates of a private search: parameters by name, and for each the unfitted model that they make. All of it is public."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sklearn.base import clone, is_classifier
from sklearn.model_selection import ParameterGrid

from lethe.errors import InputError
from lethe.estimators.search.searched_steps import gaussian_steps, private_steps

_OWN = ("epsilon", "delta", "allow_large_delta", "neighbours", "classes", "random_state", "seed_noise")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ParameterCandidate:
    """One choice of parameters.

    Args:
        parameters: by name, as `set_params` takes them.
        model: with them, not fitted.
        gaussian: for each private step, by the prefix of its parameters, whether a fit is mu-GDP whatever the data.
    """

    parameters: Mapping[str, Any]
    model: Any
    gaussian: Mapping[str, bool]


def candidates_of(estimator: Any, grid: Any) -> list[ParameterCandidate]:
    """One for each point of a grid.

    Args:
        estimator: a model of this package, or a pipeline as in `searched_steps`.
        grid: as scikit-learn's ParameterGrid.
    Raises:
        InputError: no such estimator or grid, a parameter that is the same for all candidates, or a step whose noise is seeded.
        ValueError: scikit-learn's, for a parameter that nothing has.
    """
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
