"""What a run of an estimator adds, replayed in NumPy, is the noise of its certificate; and the run alone proves what the model claims."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from helpers import with_fresh_noise
from private_cases import build, three_blobs, two_blobs
from scipy.special import expit, softmax

import lethe.estimators as private
from lethe.accounting.certify import certify
from lethe.accounting.recheck import recheck
from lethe.calculus.correlated.matrices import as_matrix
from lethe.estimators.choice.descents import zero_start_precision
from lethe.estimators.choice.runs import RUNS, enforced
from lethe.estimators.options import EstimatorOptions
from lethe.estimators.private_estimator import randomness
from lethe.run.losses.linear import LinearLoss
from lethe.run.regularisers import L2
from lethe.run.run import Run
from lethe.train.core.iterates import radius_of
from lethe.train.linear.gradients import gradient_rounding

# What happens after the last step, or beside the run, no run can know: its own code says so in the certificate.
AFTERWARDS = {"release", "secrecy", "arithmetic"}
NAMES = [run.name for run in RUNS]
BINARY, TERNARY = two_blobs(120), three_blobs(120)
VALUES = BINARY[0], BINARY[0] @ np.array([0.5, -0.2, 0.1])
KINDS: dict[str, tuple[type[Any], Any, dict[str, float]]] = {
    "logistic": (private.LogisticRegression, BINARY, {}),
    "multinomial": (private.LogisticRegression, TERNARY, {}),
    "softmax of two": (private.SoftmaxRegression, BINARY, {}),
    "hinge": (private.LinearSVC, BINARY, {}),
    "hinges": (private.LinearSVC, TERNARY, {}),
    **{
        kind.__name__: (kind, VALUES, {"target_bound": 4.0})
        for kind in (private.LinearRegression, private.Ridge, private.Lasso, private.ElasticNet, private.HuberRegressor)
    },
    **{
        kind.__name__: (kind, VALUES, {"target_bound": 4.0})
        for kind in (private.PoissonRegressor, private.GammaRegressor, private.TweedieRegressor)
    },
}


@pytest.mark.sampled(36)
@pytest.mark.parametrize("neighbours", ["replace_one", "zero_out"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_run_alone_proves_what_the_model_claims(kind: str, name: str, neighbours: Any) -> None:
    model, data, bound = KINDS[kind]
    asked: dict[str, Any] = {"mechanism": name, "passes": 2, "epsilon": 2.0, "delta": 1e-4, "neighbours": neighbours}
    fitted = build(model, feature_norm=4.0, **asked, **bound).fit(*data)
    assert (fitted.mechanism_, fitted.run_.release) == (name, "all" if "correlated" in name else "last")
    assert 1.98 < fitted.epsilon_ <= 2.0
    alone = certify(fitted.run_, 1e-4)
    assert alone.epsilon == fitted.epsilon_ == fitted.certificate_.epsilon
    assert {finding.name for finding in alone.findings if finding.evidence == "declared" and not finding.said} <= AFTERWARDS
    assert {finding.name for finding in alone.findings if finding.said} <= {"gradient bound", "curvature"}  # the run's own word
    assert all(finding.evidence != "declared" for finding in fitted.certificate_.findings)
    recheck(fitted.certificate_)


@pytest.mark.parametrize("mechanism", ["cyclic", "pass_ends"])
def test_hidden_iterates_are_planned_and_recorded_with_their_rounding(mechanism: str) -> None:
    """Scores are added up in one go, so that of 300 columns a score counts with 300 roundings."""
    generator = np.random.default_rng(0)
    features, targets = generator.normal(size=(120, 300)), generator.integers(0, 2, 120)
    asked = {"epsilon": 1.0, "delta": 1e-4, "feature_norm": 20.0, "random_state": 0, "mechanism": mechanism}
    run = build(private.LogisticRegression, **asked).fit(features, targets).run_
    assert isinstance(run.loss, LinearLoss)
    exact = run.replace(precision=None)
    assert run.release == "last"
    assert run.precision == zero_start_precision(exact, run.loss, 301)
    bound = gradient_rounding(exact, run.loss, 301, radius_of(run.precision), in_blocks=False)
    assert run.precision.gradient_error == pytest.approx(bound, rel=1e-5, abs=0.0)
    assert "arithmetic" in enforced(run)
    assert "arithmetic" not in enforced(exact.replace(release="all"))


RECORDS, CONSTANT, NORM, BOUND, SEED = 203, 0.3, 2.0, 3.0, 11
EVERY = ("cyclic", "full_batch")  # which certify every iterate where that is asked for; Poisson does too, and takes long
RNG = np.random.default_rng(4)
ROWS = 1.5 * RNG.standard_normal((RECORDS, 2))  # some longer than the norm, some shorter
TARGETS = {
    "two classes": RNG.integers(2, size=RECORDS),
    "three classes": np.arange(RECORDS) % 3,
    "numbers": 2.0 * RNG.standard_normal(RECORDS),
}
MODELS = {
    "two classes": private.LogisticRegression(),
    "three classes": private.SoftmaxRegression(),
    "numbers": private.LinearRegression(target_bound=BOUND),
}


def batches(run: Run, generator: torch.Generator) -> Iterator[np.ndarray]:
    """Of each step, the places of its records in the public order."""
    size, slots = run.batch_size, run.steps_per_pass
    places = np.arange(RECORDS)
    for step in range(run.total_steps):
        if run.batches.design == "poisson":
            yield np.flatnonzero(torch.rand(RECORDS, generator=generator, dtype=torch.float64).numpy() < size / RECORDS)
        elif run.batches.design == "cyclic_poisson":
            groups = run.batches.groups_of_records
            own = places[step % groups :: groups]
            yield own[torch.rand(len(own), generator=generator, dtype=torch.float64).numpy() < groups * size / RECORDS]
        else:
            yield places[(step % slots) * size : (step % slots + 1) * size]


def slopes(scores: np.ndarray, targets: np.ndarray, loss: Any, bounds: np.ndarray) -> np.ndarray:
    """Of the loss in the scores, or of its envelope of bounds (b,) that are finite, shape (b, k)."""
    if np.isfinite(bounds).all() and "softmax" in loss.kind:
        return loss.envelope_slopes(scores, targets, bounds)
    if np.isfinite(bounds).all():  # of one score the envelope's slope is the slope, cut
        return np.clip(expit(scores) - targets[:, None], -bounds[:, None], bounds[:, None])
    cut = getattr(loss, "cut", 1.0)
    if "least_squares" in loss.kind:
        return np.clip(scores - np.clip(targets, -BOUND, BOUND)[:, None], -loss.residual_bound, loss.residual_bound)
    if "logistic" in loss.kind:
        return np.clip(expit(scores) - targets[:, None], -cut, cut)
    shares = softmax(scores, axis=1) - np.eye(scores.shape[1])[targets]
    missing = -shares[np.arange(len(targets)), targets][:, None]
    return shares * np.minimum(1.0, cut / missing)


def replayed(run: Run, targets: np.ndarray, outputs: int, averaged: int, *, noise: float = 1.0) -> np.ndarray:
    r"""The mean of the last iterates of $x \mapsto \mathrm{prox}(x - \lambda_t g_t + \tau_t z_t)$ on rows of norm 1, shape (3, k)."""
    chance = randomness(SEED, True, RECORDS)
    lengths = np.maximum(np.linalg.norm(ROWS, axis=1, keepdims=True), NORM)
    rows = np.hstack([ROWS / lengths, np.full((RECORDS, 1), CONSTANT)])[chance.order]
    targets = targets[chance.order]
    iterate, drawn, iterates = np.zeros((3, outputs)), list[np.ndarray](), list[np.ndarray]()
    stds, mixed = run.uncorrelated.noise_stds, np.eye(run.total_steps)
    if run.noise is not None:
        mixed = np.linalg.inv(as_matrix(run.noise.strategy(run.total_steps)))
    for step, batch in enumerate(batches(run, chance.batches)):
        bounds = (math.inf if run.clip_norm is None else run.clip_norm) / np.linalg.norm(rows[batch], axis=1)
        gradient = rows[batch].T @ slopes(rows[batch] @ iterate, targets[batch], run.loss, bounds) / run.batch_size
        iterate = iterate - run.step_sizes[step] * gradient
        if stds[step] > 0.0:
            drawn.append(torch.randn(iterate.shape, generator=chance.noise, dtype=torch.float64).numpy())
            own = drawn[-1] if run.noise is None else np.tensordot(mixed[step, : step + 1], np.array(drawn), 1)
            iterate = iterate + noise * stds[step] * own
        for part in run.regularisers:
            assert isinstance(part, L2)
            iterate = iterate / (1.0 + run.step_sizes[step] * part.strength)
        iterates.append(iterate)
    return np.mean(iterates[-averaged:], axis=0)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", list(MODELS))
@pytest.mark.parametrize(("name", "release"), [*((name, "last") for name in NAMES), *((name, "all") for name in EVERY)])
def test_a_run_adds_the_noise_that_its_certificate_is_about(name: str, release: str, kind: str) -> None:
    asked: dict[str, Any] = {"options": EstimatorOptions(mechanism=name, release=release, passes=3), "epsilon": 2.0}
    model: Any = MODELS[kind].set_params(feature_norm=NORM, random_state=SEED, seed_noise=True, **asked)
    model.fit(ROWS, TARGETS[kind])
    run, outputs = model.run_, 3 if kind == "three classes" else 1
    assert run.pass_averages is None
    assert (model.n_averaged_ > 1) <= (run.release == "all")
    assert 1.9 < certify(with_fresh_noise(run), model.delta_).epsilon <= 2.0

    def parts(iterate: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return (iterate[:2] / NORM).T.reshape(np.shape(model.coef_)), CONSTANT * iterate[2].reshape(np.shape(model.intercept_))

    coefficients, intercept = parts(replayed(run, TARGETS[kind], outputs, model.n_averaged_))
    np.testing.assert_allclose(model.coef_, coefficients, rtol=1e-9)
    np.testing.assert_allclose(model.intercept_, intercept, rtol=1e-9)
    less, _ = parts(replayed(run, TARGETS[kind], outputs, model.n_averaged_, noise=0.999))
    assert not np.allclose(model.coef_, less, rtol=1e-6)
