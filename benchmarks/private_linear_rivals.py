"""What the benchmark of private linear models compares: ours by mechanism, diffprivlib, DP-SGD by Opacus, and no privacy.

All are about one record replaced by another, the number of records public. Ours and Opacus are held to (epsilon, delta); diffprivlib 0.6.6
to epsilon alone, which is stronger and all that it has. That it assumes replacement is seen from its source: the noise of
`LogisticRegression` has scale 2 * data_norm / epsilon, two gradients apart (Chaudhuri, Monteleoni, Sarwate 2011, Algorithm 2, once a
class), and `LinearRegression` takes means and moments to move by their whole range. As published the latter spends epsilon / (d + 1)
more than it was given, and takes the squares of a column to move by the square of the lower bound; both favour it here.
Opacus's accountant is about adding and removing a record, so its noise is planned by Lethe instead.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from private_linear_data import Array, Problem
from sklearn import linear_model

from lethe.accounting.plan import plan
from lethe.errors import CalibrationError, InputError
from lethe.estimators import LinearRegression, LogisticRegression
from lethe.estimators.choice.choose import NAMES as MECHANISMS
from lethe.estimators.options import EstimatorOptions
from lethe.run.batches import Poisson
from lethe.run.losses import Unknown
from lethe.run.run import Run

DELTA = 1e-5
OURS = tuple(name for name in MECHANISMS if name != "sgd")
NO_PRIVACY, DIFFPRIVLIB, OPACUS = "no privacy", "diffprivlib", "Opacus DP-SGD"
_SLOTS, _PASSES, _STEP = 64, 20, 2.0  # of DP-SGD; not tuned

Predict = Callable[[Array], Array]


class NotPossible(Exception):
    """A method cannot train this problem; the text says why."""


def train(method: str, problem: Problem, epsilon: float, seed: int) -> tuple[Predict, str]:
    """A way to predict, and what was chosen.

    Raises:
        NotPossible: the method cannot train this problem, or is not installed.
    """
    if method == NO_PRIVACY:
        return _plain(problem), ""
    if method == DIFFPRIVLIB:
        return _diffprivlib(problem, epsilon, seed), ""
    if method == OPACUS:
        return _opacus(problem, epsilon, seed), ""
    return _ours(method, problem, epsilon, seed)


def score(problem: Problem, predicted: Array) -> float:
    """Accuracy, or the coefficient of determination, on the test part."""
    truth = problem.test_targets
    if problem.classes:
        return float(np.mean(predicted == truth))
    return 1.0 - float(np.sum((predicted - truth) ** 2) / np.sum((truth - truth.mean()) ** 2))


def _ours(method: str, problem: Problem, epsilon: float, seed: int) -> tuple[Predict, str]:
    common: dict[str, Any] = {
        "epsilon": epsilon,
        "delta": DELTA,
        "neighbours": "replace_one",
        "options": EstimatorOptions(mechanism=method),
        "feature_norm": 1.0,
        "random_state": seed,
        "seed_noise": True,
    }
    if problem.classes:
        model = LogisticRegression(**common, classes=list(range(problem.classes)))
    else:
        model = LinearRegression(**common, target_bound=problem.target_range)
    try:
        model.fit(problem.train, problem.train_targets)
    except (InputError, CalibrationError) as error:
        raise NotPossible(error.what) from None
    assert model.statement_.planned.epsilon(model.delta_) <= epsilon  # of the same fit with fresh noise
    return model.predict, model.mechanism_


def _plain(problem: Problem) -> Predict:
    model = linear_model.LogisticRegression(max_iter=1_000) if problem.classes else linear_model.LinearRegression()
    return model.fit(problem.train, problem.train_targets).predict


def _diffprivlib(problem: Problem, epsilon: float, seed: int) -> Predict:
    if importlib.util.find_spec("diffprivlib") is None:
        raise NotPossible("not installed")
    from diffprivlib import models  # pyright: ignore[reportMissingImports]

    if problem.classes:
        model = models.LogisticRegression(epsilon=epsilon, data_norm=1.0, random_state=seed)
    else:
        bounds = (-problem.column_bound, problem.column_bound)
        model = models.LinearRegression(epsilon=epsilon, bounds_X=bounds, bounds_y=problem.target_range, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on deprecated parameters of scikit-learn, and on steps of its solver
        return model.fit(problem.train, problem.train_targets).predict


@lru_cache(maxsize=32)
def _noise_multiplier(records: int, epsilon: float) -> float:
    """Of DP-SGD with every iterate released, for one record replaced."""
    run = Run(
        records=records,
        batches=Poisson(size=records // _SLOTS),
        passes=_PASSES,
        step_size=_STEP,
        clip_norm=1.0,
        loss=Unknown(),
        release="all",
        neighbours="replace_one",
    )
    found = plan(run, epsilon=epsilon, delta=DELTA).noise_multiplier
    assert isinstance(found, float)
    return found


def _opacus(problem: Problem, epsilon: float, seed: int) -> Predict:
    if importlib.util.find_spec("opacus") is None:
        raise NotPossible("not installed")
    from opacus import PrivacyEngine  # pyright: ignore[reportMissingImports]

    torch.manual_seed(seed)
    scores = max(problem.classes, 1)
    centre = 0.0 if problem.target_range is None else float(np.mean(problem.target_range))
    kind = torch.long if problem.classes else torch.float32
    rows = torch.tensor(problem.train, dtype=torch.float32)
    targets = torch.tensor(problem.train_targets - centre).to(kind)
    model = torch.nn.Linear(rows.shape[1], scores)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    size = len(rows) // _SLOTS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on the generator, which is secure only on request
        private, optimiser, loader = PrivacyEngine().make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=_STEP if problem.classes else _STEP / 4.0),
            data_loader=torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows, targets), batch_size=size),
            noise_multiplier=_noise_multiplier(len(rows), epsilon),
            max_grad_norm=1.0,
        )
        for _ in range(_PASSES):
            for batch, wanted in loader:
                optimiser.zero_grad()
                found = private(batch)
                loss = torch.nn.functional.cross_entropy(found, wanted) if problem.classes else 0.5 * ((found[:, 0] - wanted) ** 2).mean()
                loss.backward()
                optimiser.step()
    weights, bias = model.weight.detach().double().numpy(), model.bias.detach().double().numpy()

    def predict(features: Array) -> Array:
        reached = features @ weights.T + bias
        return reached.argmax(axis=1).astype(np.float64) if problem.classes else reached[:, 0] + centre

    return predict
