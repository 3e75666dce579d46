"""What the benchmark of records compares. Relation: one record's contribution set to zero (zero out), delta = 1e-5, unless said.

Ours: `auto`, whose settings follow from public facts alone, and a private search. Tuned on the test records, which no certificate covers
and which favours them: DP-SGD on Poisson batches by Lethe, on the rows as they come and on rows whitened as `auto` has them; the same
algorithm by Opacus at the settings that were best on the rows as they come, with Opacus's own accountant (a record added or removed,
which asks for the same noise of Poisson batches); and correlated noise with every iterate released. diffprivlib is held to pure
epsilon-DP for one record replaced, all that it has: the stronger promise of all here.
"""

from __future__ import annotations

import importlib.util
import itertools
import warnings
from functools import lru_cache
from typing import Any, cast

import numpy as np
import sklearn
import torch
from private_linear_data import Array, Problem
from private_linear_rivals import NotPossible, Predict
from utility_records_data import DataSet

import lethe
from lethe.calculus.guarantees import GDP
from lethe.errors import LetheError
from lethe.estimators import LogisticRegression, PrivateSearch, PrivateWhitening, split_budget
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.inputs.facts import CONSTANT
from lethe.estimators.models.whitened_rows import planned_whitening, unit_rows, whitened_rows
from lethe.estimators.options import EstimatorOptions
from lethe.features import RecordNormalizer
from lethe.run.losses.linear import LinearLoss
from lethe.train import Linear, TrainOptions, fit

DELTA = 1e-5
METHODS = AUTO, SEARCH, POISSON, WHITENED, OPACUS, CORRELATED, DIFFPRIVLIB, PLAIN = (
    "auto", "private search", "Poisson, tuned", "Poisson, tuned, whitened", "Opacus, tuned", "correlated, tuned", "diffprivlib",
    "not private",
)  # fmt: skip
TUNED = {POISSON: POISSON, WHITENED: WHITENED, OPACUS: POISSON, CORRELATED: CORRELATED}  # whose grid
CLIPS, LENGTHS = (0.1, 0.5), (0.1, 0.3, 1.0, 3.0)  # clip norms, and step sizes times the clip norm
_LONGEST = (LENGTHS[-1], 10.0)
WHITENING_SHARE = 0.05  # of the squared mu
Settings = tuple[int, int, float, float]  # passes, batches a pass, clip norm, step size times it


def grid(method: str, known: DataSet) -> list[Settings]:
    """What a method is tuned over: one grid for all, but for the shapes whose correlations are searched in a reasonable time."""
    if method == CORRELATED:
        return list(itertools.product((20,), (5,), CLIPS, LENGTHS))
    longer = [(*shape, clip, length) for shape in known.longer for clip in CLIPS for length in _LONGEST]
    return [*itertools.product(known.passes, known.batches, CLIPS, LENGTHS), *longer]


def whitened(problem: Problem, channels: int | None, epsilon: float, seed: int) -> tuple[Problem, float]:
    """Rows whitened by private moments, and the epsilon that is left, at delta, for a model.

    Of a Gaussian model both together cost epsilon; of Poisson batches a little more, in their favour.

    Args:
        problem: rows of norm at most 1.
        channels: of an image's features, whose mean and covariance are released; None: of a table, whitened as `auto` whitens it, with a
            constant column, since fits here have no intercept.
        epsilon: of the whole.
        seed: of the moments' noise.
    """
    return _whitened_table(problem, epsilon, seed) if channels is None else _whitened_channels(problem, channels, epsilon, seed)


def _whitened_table(problem: Problem, epsilon: float, seed: int) -> tuple[Problem, float]:
    budget = PrivacyBudget(epsilon=epsilon, delta=DELTA)
    records, columns = problem.train.shape
    planned = planned_whitening(records, columns, budget)
    if planned is None:
        raise NotPossible("nothing could be told from its noise")
    generator = np.random.default_rng([7, seed])
    rows, made, cost = whitened_rows(problem.train, planned, feature_norm=1.0, budget=budget, generator=generator)
    test = unit_rows(problem.test, 1.0)
    made.whiten(test)
    train, test = (_with_constant(unit_rows(part, made.norm)) for part in (rows, test))
    found = Problem(train=train, test=test, train_targets=problem.train_targets, test_targets=problem.test_targets, column_bound=1.0)
    return found, float(GDP(budget.with_spent(cost).mu).epsilon(DELTA))


def _with_constant(rows: Array) -> Array:
    """A constant feature as the estimators have it, and rows of norm at most 1 again."""
    constant = np.full((len(rows), 1), CONSTANT, rows.dtype)
    return np.hstack([rows, constant]) / np.sqrt(1.0 + CONSTANT**2).astype(rows.dtype)


def _whitened_channels(problem: Problem, channels: int, epsilon: float, seed: int) -> tuple[Problem, float]:
    steps = [
        PrivateWhitening(channels, feature_norm=1.0, neighbours="zero_out", random_state=seed, seed_noise=True),
        model_of(problem, "pass_ends", seed),
    ]
    whitening, model = split_budget(steps, epsilon, DELTA, shares=[WHITENING_SHARE, 1.0 - WHITENING_SHARE])
    fitted, scaled = whitening.fit(problem.train), RecordNormalizer()
    train, test = (scaled.fit_transform(fitted.transform(rows)) for rows in (problem.train, problem.test))
    found = Problem(train=train, test=test, train_targets=problem.train_targets, test_targets=problem.test_targets, column_bound=1.0)
    return found, model.epsilon


def train(
    method: str, problem: Problem, epsilon: float, seed: int, settings: Settings | None, mechanism: str = "auto"
) -> tuple[Predict, dict[str, Any]]:
    """A way to predict, and what it took: settings, passes.

    Raises:
        NotPossible: the method cannot train this problem, or is not installed.
    """
    match method:
        case "auto":
            return _auto(problem, epsilon, seed, mechanism)
        case "private search":
            return _search(problem, epsilon, seed)
        case "diffprivlib":
            return _diffprivlib(problem, epsilon, seed), {}
        case "not private":
            return _plain(problem), {}
    assert settings is not None
    told = {"passes": settings[0], "chosen": "{} passes of {} batches, clip {:g}, step x clip {:g}".format(*settings)}
    if method == OPACUS:
        return _opacus(problem, epsilon, seed, settings), told
    return _clipped(problem, epsilon, seed, settings, correlated=method == CORRELATED), told


def model_of(problem: Problem, mechanism: str, seed: int) -> LogisticRegression:
    """Ours, whose epsilon is still to be set; no penalty of its own."""
    return LogisticRegression(
        C=np.inf, options=EstimatorOptions(mechanism=mechanism), delta=DELTA, feature_norm=1.0, classes=list(range(problem.classes)),
        neighbours="zero_out", random_state=seed, seed_noise=True,
    )  # fmt: skip


def _auto(problem: Problem, epsilon: float, seed: int, mechanism: str) -> tuple[Predict, dict[str, Any]]:
    model = model_of(problem, mechanism, seed).set_params(epsilon=epsilon).fit(problem.train, problem.train_targets)
    assert model.statement_.planned.epsilon(DELTA) <= epsilon  # of the same fit with fresh noise
    return model.predict, {"chosen": model.statement_.name, "passes": model.n_iter_}


def _search(problem: Problem, epsilon: float, seed: int) -> tuple[Predict, dict[str, Any]]:
    """Over what the rule decides: how many passes, and whether noise is at pass ends."""
    model = model_of(problem, "pass_ends", seed).set_params(random_state=None, seed_noise=False)
    candidates = {"passes": [10, 30, 100], "mechanism": ["pass_ends", "cyclic"]}
    search = PrivateSearch(
        model, candidates, tries=4.0, epsilon=epsilon,
        delta=DELTA, neighbours="zero_out", random_state=seed, seed_noise=True,
    )  # fmt: skip
    search.fit(problem.train, problem.train_targets)
    return search.predict, {"chosen": str(search.best_params_), "passes": search.best_params_["passes"]}


def _loss(problem: Problem) -> LinearLoss:
    kind: Any = lethe.losses.Logistic if problem.classes == 2 else lethe.losses.Softmax
    return kind(feature_norm=1.0, evidence="enforced")


@lru_cache(maxsize=256)
def _run(records: int, loss: LinearLoss, epsilon: float, settings: Settings, correlated: bool) -> lethe.Run:
    """Planned for a step of one clip norm; the noise, relative to the clip norm, is the same for steps of any size."""
    passes, batches, clip, length = settings
    common: dict[str, Any] = {
        "records": records, "passes": passes, "step_size": length / clip, "clip_norm": clip, "loss": loss, "release": "all",
        "neighbours": "zero_out",
    }  # fmt: skip
    if not correlated:
        return lethe.plan(lethe.Run(batches=lethe.batches.Poisson(records // batches), **common), epsilon=epsilon, delta=DELTA)
    run = lethe.Run(batches=lethe.batches.Cyclic(records // batches), **common)
    return lethe.plan(run.replace(noise=_strategy(run.replace(step_size=1.0, clip_norm=1.0))), epsilon=epsilon, delta=DELTA)


@lru_cache(maxsize=16)
def _strategy(run: lethe.Run) -> Any:
    return lethe.correlate(run, "banded_toeplitz").noise


def poisson_run(problem: Problem, epsilon: float, settings: Settings) -> lethe.Run:
    """Planned DP-SGD on Poisson batches, every iterate released."""
    return _run(len(problem.train), cast("Any", _loss(problem)), epsilon, settings, False)


def _clipped(problem: Problem, epsilon: float, seed: int, settings: Settings, *, correlated: bool) -> Predict:
    base, loss = (*settings[:2], 1.0, 1.0), cast("Any", _loss(problem))
    planned = _run(len(problem.train), loss, epsilon, base, correlated)
    run = planned.replace(clip_norm=settings[2], step_size=settings[3] / settings[2])
    try:
        model, data = (
            Linear(classes=problem.classes, dtype=str(problem.train.dtype)),
            (problem.train, problem.train_targets.astype(np.int64)),
        )
        fitted = fit(model, None, data, run, options=TrainOptions(seed=seed))
    except LetheError as error:
        raise NotPossible(str(error)) from None
    return fitted.model.predict


def _opacus(problem: Problem, epsilon: float, seed: int, settings: Settings) -> Predict:
    if importlib.util.find_spec("opacus") is None:
        raise NotPossible("not installed")
    from opacus import PrivacyEngine  # pyright: ignore[reportMissingImports]

    torch.manual_seed(seed)
    passes, batches, clip, length = settings
    rows, targets = torch.tensor(problem.train, dtype=torch.float32), torch.tensor(problem.train_targets).long()
    model = torch.nn.Linear(rows.shape[1], problem.classes, bias=False)  # as `Linear` without an intercept
    torch.nn.init.zeros_(model.weight)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on the generator, which is secure only on request
        private, optimiser, loader = PrivacyEngine().make_private_with_epsilon(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=length / clip),
            data_loader=torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows, targets), batch_size=len(rows) // batches),
            target_epsilon=epsilon,
            target_delta=DELTA,
            epochs=passes,
            max_grad_norm=clip,
        )
        for _ in range(passes):
            for batch, wanted in loader:
                optimiser.zero_grad()
                torch.nn.functional.cross_entropy(private(batch), wanted).backward()
                optimiser.step()
    weights = model.weight.detach().double().numpy()
    return lambda features: (features @ weights.T).argmax(axis=1).astype(np.float64)


def _diffprivlib(problem: Problem, epsilon: float, seed: int) -> Predict:
    if importlib.util.find_spec("diffprivlib") is None:
        raise NotPossible("not installed")
    try:
        from diffprivlib import models  # pyright: ignore[reportMissingImports]
    except ImportError as error:  # 0.6.6 asks for parts of scikit-learn that 1.9 no longer has
        raise NotPossible(f"cannot be imported beside scikit-learn {sklearn.__version__}: {error.msg.partition(' (')[0]}") from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on deprecated parameters of scikit-learn, and on steps of its solver
        model = models.LogisticRegression(epsilon=epsilon, data_norm=1.0, random_state=seed)
        return model.fit(problem.train, problem.train_targets).predict


def _plain(problem: Problem) -> Predict:
    from sklearn.linear_model import LogisticRegression as Plain

    def predict(features: Array) -> Array:
        return model.predict(features)

    model = Plain(C=100.0, max_iter=300).fit(problem.train, problem.train_targets)
    return predict
