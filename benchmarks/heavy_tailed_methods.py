"""What the benchmark of heavy-tailed models compares: smooth solvers with every kind of settings, a Lipschitz baseline, no privacy."""

from __future__ import annotations

from typing import Any

import numpy as np
from heavy_tailed_data import Array, Problem
from sklearn.linear_model import LogisticRegression

from lethe.errors import LetheError
from lethe.estimators import HeavyTailedLinearRegression, HeavyTailedLogisticRegression
from lethe.estimators.options import EstimatorOptions

DELTA = 1e-5
ZERO, NO_PRIVACY, LIPSCHITZ, ALL_PRIVATE = "zero vector", "no privacy", "accelerated, Lipschitz", "multi_pass, constants private"
_PLANNED = [(solver, kind) for solver in ("one_pass", "accelerated", "proximal") for kind in ("practical", "optimised", "theory")]
_SOLVERS = {f"{solver}, {kind}": (solver, kind) for solver, kind in (("multi_pass", "practical"), *_PLANNED)}
METHODS = (*_SOLVERS, ALL_PRIVATE, LIPSCHITZ, NO_PRIVACY, ZERO)
ONCE = (NO_PRIVACY, ZERO)
"""Those that epsilon does not matter to."""


class NotPossible(Exception):
    """A method cannot train this problem; the text says why."""


def train(method: str, problem: Problem, records: int, epsilon: float, seed: int) -> Array:
    """Weights from the first records, the intercept last if the problem has one.

    Raises:
        NotPossible: a constant is not known, there are too few records, or it would take too long.
    """
    features, targets = problem.features[:records], problem.targets[:records]
    columns = features.shape[1] + problem.intercept
    if method == ZERO:
        return np.zeros(columns)
    if method == NO_PRIVACY:
        return _plain(problem, features, targets)
    solver, kind = _SOLVERS.get(method, ("multi_pass" if method == ALL_PRIVATE else "accelerated", "practical"))
    known = problem.constants
    if method == ALL_PRIVATE and "start" not in known:
        raise NotPossible("the same as multi_pass, practical: no constant is known")
    if solver in ("one_pass", "proximal") and "strong_convexity" not in known:
        raise NotPossible("no strong convexity is known")
    moment = {LIPSCHITZ: "lipschitz", ALL_PRIVATE: ""}.get(method, "start" if kind == "practical" else "uniform")
    own: dict[str, Any] = {"classes": [0.0, 1.0]} if problem.kind == "logistic" else {}
    make = HeavyTailedLinearRegression if problem.kind == "linear" else HeavyTailedLogisticRegression
    model = make(
        epsilon=epsilon,
        delta=DELTA,
        moment=known.get(moment, "private"),
        radius=None if method == ALL_PRIVATE else problem.radius,
        smoothness="private" if method == ALL_PRIVATE else known.get("smoothness", "private"),
        options=EstimatorOptions(mechanism=solver, parameters=kind, strong_convexity=known.get("strong_convexity")),
        fit_intercept=problem.intercept,
        random_state=seed,
        seed_noise=True,
        **own,
    )
    try:
        model.fit(features, targets)
    except LetheError as error:
        raise NotPossible(error.what) from None
    weights = np.ravel(model.coef_)
    return np.append(weights, model.intercept_) if problem.intercept else weights


def _plain(problem: Problem, features: Array, targets: Array) -> Array:
    """Least squares, or logistic regression with next to no penalty."""
    rows = np.hstack([features, np.ones((len(features), 1))]) if problem.intercept else features
    if problem.kind == "linear":
        return np.asarray(np.linalg.lstsq(rows, targets, rcond=None)[0], dtype=np.float64)
    # A penalty of 1 on the sum of the losses keeps it finite where classes can be told apart.
    return LogisticRegression(C=1.0, fit_intercept=False, max_iter=300).fit(rows, targets).coef_[0]
