"""Linear models against the recursion in NumPy, what one record moves, and every loss that they train: gradients within their bounds."""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from doors import fit_linear
from helpers import DESIGNS
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import CLASSES, COLUMNS, LOSSES, RECORDS, make_loss, make_problem, make_run
from scipy import stats

import lethe
from lethe.errors import InputError
from lethe.run.losses import Softmax, parse_loss
from lethe.run.losses.linear import LinearLoss
from lethe.run.run import Run
from lethe.train import Fitted
from lethe.train.core.samplers import draw_batches
from lethe.train.linear.gradients import LinearModel, losses_of, residuals_of
from lethe.train.linear.models import LinearPredictor, prepare_features, prepare_targets

KINDS = ("softmax_regression", "logistic_regression", "least_squares")
WEIGHTS: tuple[Any, ...] = (None, 1.0, [0.1, 0.2, 0.0, 0.7], {"schedule": "exponential", "first": 1.0, "ratio": 2.0})


def fit(run: Run, **options: Any) -> Fitted[LinearPredictor]:
    problem = make_problem(run.loss.kind)
    return fit_linear(run, problem.features, problem.targets, **{"classes": problem.classes, "seed": 0, **options})


def plain_descent(run: Run, batches: Sequence[Any]) -> np.ndarray:
    """The noiseless recursion in NumPy, record by record, with ridge, ball and the averages of passes: slow, and nothing of lethe.train.

    x_e = prox(sum_k omega_k y_k), u_k = prox(y_k), y_k = u_{k-1} - lambda_k g_k; of a run without averages every step is a pass of one.
    """
    problem, averages = make_problem(run.loss.kind), run.pass_averages
    rows = problem.features * np.minimum(1.0, 1.5 / np.linalg.norm(problem.features, axis=1, keepdims=True))
    rows = np.hstack([rows, np.ones((len(rows), 1))])
    outputs = 3 if run.loss.kind == "softmax_regression" else 1
    u: Any = np.zeros((rows.shape[1], outputs))
    ys: list[Any] = []
    for step, batch in enumerate(batches):
        total, size = np.zeros_like(u), float(run.step_sizes[step])
        for record in np.arange(RECORDS)[batch]:
            scores, target = rows[record] @ u, problem.targets[record]
            if run.loss.kind == "softmax_regression":
                residual = np.exp(scores) / np.exp(scores).sum() - np.eye(outputs)[target]
            elif run.loss.kind == "logistic_regression":
                residual = 1 / (1 + np.exp(-scores)) - target
            else:
                residual = np.clip(scores - target, -0.8, 0.8)
            gradient = np.outer(rows[record], residual)
            total += gradient * min(1.0, 0.6 / np.linalg.norm(gradient))
        ys.append(u - size * total / 5)
        ended = averages is None or len(ys) == len(averages)
        if averages is not None and ended:
            ys = [sum(weight * y for weight, y in zip(averages.tolist(), ys, strict=True))]
        u = ys[-1] / (1 + size * 0.3)
        u = u * min(1.0, 0.02 / np.linalg.norm(u)) if np.linalg.norm(u) > 0 else u
        ys = [] if ended else ys
    return u


@pytest.mark.sampled(2)
@pytest.mark.parametrize("design", ["cyclic", "shuffled"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_without_noise_it_is_the_plain_recursion(kind: str, weights: Any, design: str) -> None:
    averaged = {} if weights is None else {"noise_at": "pass_ends", "pass_weights": weights}
    regulariser = [{"kind": "ridge", "strength": 0.3}, {"kind": "ball", "radius": 0.02}]
    sizes = {"schedule": "time_decay", "first": 0.4, "rate": 0.1}
    run = make_run(
        kind, design, noise_multiplier=0.0, step_size=sizes, regulariser=regulariser, loss=make_loss(kind, intercept=True), **averaged
    )
    in_order = [range(5 * (step % 4), 5 * (step % 4) + 5) for step in range(12)]
    expected = plain_descent(run, in_order if design == "cyclic" else list(draw_batches(run, torch.Generator().manual_seed(7))))
    trained = fit(run, seed=None, noise_generator=np.random.default_rng(0), batch_generator=torch.Generator().manual_seed(7))
    got = np.vstack([trained.model.weights, trained.model.intercept])
    assert got == pytest.approx(expected, rel=1e-11, abs=1e-13)  # twelve contracting steps of rounding
    assert np.linalg.norm(got) == pytest.approx(0.02, rel=1e-12)  # the ball acts, so the test sees it


@pytest.mark.parametrize("noise_at", ["every_step", "pass_ends", "averages"])
def test_the_noise_of_a_whole_run_is_the_certified_noise(noise_at: str) -> None:
    """Features 0: gradients vanish and the last iterate is the sum of the noises, with variance sum tau_t^2; 200 000 coordinates."""
    columns, records, classes = 1000, 8, 200
    averaged = {"pass_weights": [0.1, 0.2, 0.0, 0.7], "step_size": 0.5} if noise_at == "averages" else {}
    fields: dict[str, Any] = {"step_size": {"schedule": "exponential", "first": 0.5, "ratio": 0.8}, **averaged}
    run = Run(
        records=records, batches={"design": "cyclic", "size": 2}, passes=3, release="last", neighbours="replace_one",
        noise_multiplier={"schedule": "exponential", "first": 3.0, "ratio": 0.9},
        noise_at="every_step" if noise_at == "every_step" else "pass_ends",
        loss={"kind": "softmax_regression", "feature_norm": 1.0}, **fields,
    )  # fmt: skip
    trained = fit_linear(run, np.zeros((records, columns)), np.zeros(records), classes=classes, seed=4)
    tau = [
        0.5 * (1.0 if averaged else 0.8**step) * 3.0 * 0.9 ** (step if noise_at == "every_step" else step // 4) * np.sqrt(2) / 2
        for step in range(12)
        if noise_at == "every_step" or step % 4 == 3
    ]
    low, high = stats.chi2.interval(1 - 1e-9, columns * classes)
    statistic = float((trained.model.weights**2).sum()) / sum(t**2 for t in tau)
    assert low < statistic < high
    assert low / (columns * classes) > 0.98  # so a standard deviation 1 % off is caught
    assert high / (columns * classes) < 1.02


@pytest.mark.sampled(2)
@pytest.mark.parametrize("design", DESIGNS)
def test_the_same_seed_gives_the_same_weights_and_none_does_not(design: str) -> None:
    run, before = make_run(design=design), torch.get_rng_state()
    first, again, other = (fit(run, seed=seed).model.weights for seed in (7, 7, 8))
    assert (first == again).all()
    assert not np.array_equal(first, other)
    assert not np.array_equal(fit(run, seed=None).model.weights, fit(run, seed=None).model.weights)
    assert torch.equal(before, torch.get_rng_state())  # the global generator is neither used nor moved


def test_prediction_projects_as_training_did() -> None:
    trained = fit(make_run("least_squares", loss=make_loss("least_squares", intercept=True)))
    row = np.array([[3.0, 0.0, 0.0, 4.0]])  # norm 5, projected to 1.5
    assert trained.model.predict(row) == pytest.approx(
        row[0] * 0.3 @ trained.model.weights + trained.model.intercept, rel=1e-12
    )  # rounding
    for wrong, said in ((np.zeros((2, 3)), "got 3 columns"), (np.full((1, 4), np.nan), r"features\[0, 0\]")):
        with pytest.raises(InputError, match=said):
            trained.model.predict(wrong)


EVERY = tuple(LOSSES)


def the_loss(kind: str, **changes: object) -> LinearLoss:
    loss = parse_loss(make_loss(kind, **changes))
    assert isinstance(loss, LinearLoss)
    return loss.for_classes(None if loss.numeric_targets or loss.scalar else CLASSES)


def drawn(loss: LinearLoss, count: int, seed: int, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Scores, of which some are level and some far off, and targets."""
    rng = np.random.default_rng(seed)
    scores = scale * rng.choice([0.0, 0.1, 1.0, 10.0], size=(count, 1)) * rng.standard_normal((count, loss.outputs))
    targets = rng.standard_normal(count) if loss.target_classes is None else rng.integers(loss.target_classes, size=count)
    return scores, targets.astype(np.float64)


def as_column(targets: np.ndarray, loss: LinearLoss) -> torch.Tensor:
    return torch.tensor(targets[:, None]).to(torch.float64 if loss.numeric_targets else torch.int64)


@pytest.mark.sampled(2)
@settings(max_examples=examples(40))
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.sampled_from([1e-3, 1.0, 1e3, 1e8]),
    far=st.sampled_from([1e-3, 1.0, 1e6]),
    intercept=st.booleans(),
    dtype=st.sampled_from([torch.float64, torch.float32]),
)
@pytest.mark.parametrize("kind", EVERY)
def test_no_record_has_a_longer_gradient_than_the_bound(
    kind: str, seed: int, size: float, far: float, intercept: bool, dtype: torch.dtype
) -> None:
    """Unclipped, as fit_linear computes them, squared in whole fractions."""
    loss = the_loss(kind, intercept=intercept)
    rng = np.random.default_rng(seed)
    problem = make_problem(kind, records=6, seed=seed % 1000)
    targets = far * problem.targets if loss.numeric_targets else problem.targets
    rows = prepare_features(size * problem.features, feature_norm=1.5, intercept=intercept, dtype=dtype, device=torch.device("cpu")).rows
    held = prepare_targets(targets, classes=loss.target_classes, records=6, device=torch.device("cpu"))
    model = LinearModel(loss, rows, held, clip_norm=None)
    parameters = torch.tensor(rng.choice([0.1, 100.0]) * rng.standard_normal((rows.shape[1], loss.outputs)))
    for record in range(6):
        share = model.clipped_gradient_sum(parameters, slice(record, record + 1)).flatten().tolist()
        assert sum(Fraction(entry) ** 2 for entry in share) <= Fraction(loss.derived_gradient_bound) ** 2


@pytest.mark.parametrize("kind", EVERY)
def test_some_record_reaches_the_bound(kind: str) -> None:
    """A bound, or a model, that were 1 % off would show; softmax cut at 0.7 included."""
    loss = the_loss(kind)
    rows = prepare_features(
        np.full((1, COLUMNS), 1e3), feature_norm=1.5, intercept=False, dtype=torch.float64, device=torch.device("cpu")
    ).rows
    longest = 0.0
    # Certain of a wrong class, or far off; for one against the rest wrong in every score.
    for pattern in ([1.0], [-1.0]) if loss.outputs == 1 else ([-1.0, 1.0, -1.0], [-1.0, 1.0, 1.0]):
        model = LinearModel(loss, rows, as_column(np.zeros(1), loss), clip_norm=None)
        parameters = 50.0 * torch.tensor(pattern, dtype=torch.float64).repeat(COLUMNS, 1)
        longest = max(longest, float(torch.linalg.vector_norm(model.clipped_gradient_sum(parameters, slice(0, 1)))))
    assert 0.999 * loss.derived_gradient_bound <= longest <= loss.derived_gradient_bound


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", EVERY)
def test_tensors_and_arrays_agree(kind: str) -> None:
    loss = the_loss(kind)
    scores, targets = drawn(loss, 500, 3)
    exact, held = torch.tensor(scores), as_column(targets, loss)
    residuals, losses = residuals_of(loss, exact, held), losses_of(loss, exact, held)
    assert residuals.dtype == losses.dtype == torch.float64
    assert residuals.numpy() == pytest.approx(loss.slopes(scores, targets), abs=1e-12)
    assert losses.numpy() == pytest.approx(loss.values(scores, targets), rel=1e-11, abs=1e-12)
    assert (torch.linalg.vector_norm(residuals, dim=1) <= loss.slope_bound * (1 + 10 * np.finfo(np.float64).eps)).all()


def model_of(rows: np.ndarray, classes: np.ndarray, loss: LinearLoss, clip_norm: float, dtype: torch.dtype = torch.float64) -> LinearModel:
    targets = prepare_targets(classes, classes=loss.target_classes, records=len(rows), device=torch.device("cpu"))
    return LinearModel(loss, torch.tensor(rows, dtype=dtype), targets, clip_norm=clip_norm, method="envelope")


@settings(max_examples=examples(20))
@given(
    seed=st.integers(0, 10**6),
    classes=st.integers(2, 6),
    clip_norm=st.floats(1e-4, 2.0),
    dtype=st.sampled_from([torch.float64, torch.float32]),
)
def test_no_record_has_more_than_the_clip_norm_by_a_single_bit(seed: int, classes: int, clip_norm: float, dtype: torch.dtype) -> None:
    """The squares of a record's gradient, added up as fractions."""
    rng = np.random.default_rng(seed)
    rows, labels = rng.standard_normal((5, 3)) * rng.choice([1e-3, 0.5, 1.0], size=(5, 1)), rng.integers(classes, size=5)
    model = model_of(rows, labels, Softmax(feature_norm=5.0, classes=classes), clip_norm, dtype=dtype)
    parameters = torch.tensor(rng.choice([0.1, 3.0, 30.0]) * rng.standard_normal((3, classes)))
    for record in range(5):
        gradient = model.clipped_gradient_sum(parameters, slice(record, record + 1)).numpy().ravel()
        assert sum(Fraction(float(entry)) ** 2 for entry in gradient) <= Fraction(clip_norm) ** 2
    long = model_of(rows, labels, Softmax(feature_norm=5.0, classes=classes), math.inf, dtype=dtype)
    for record in range(5):
        whole, norm = long.clipped_gradient_sum(parameters, slice(record, record + 1)), np.linalg.norm(rows[record])
        if float(whole.norm()) > clip_norm * 1.001 and clip_norm / norm < 1.0:  # between 1 and sqrt 2 it counts as 1
            assert float(model.clipped_gradient_sum(parameters, slice(record, record + 1)).norm()) >= clip_norm * (1 - 3e-5)


def test_a_record_moves_the_model_by_its_bound_and_no_more() -> None:
    """From a start where the envelope is linear, one record zeroed out: C lambda / b a pass, to nine digits (1 % of C would show), and no
    more than that and the rounding that is counted."""
    rows = np.tile([0.6, 0.8], (8, 1))
    labels, start = np.zeros(8, dtype=int), np.outer([0.6, 0.8], [-40.0, 40.0])
    run = lethe.Run(
        records=8, batches={"design": "cyclic", "size": 4}, passes=3, step_size=2.0, clip_norm=0.2, clip_method="envelope",
        noise_multiplier=1e-9, loss=Softmax(feature_norm=1.0), release="last", neighbours="zero_out",
    )  # fmt: skip
    other = np.where(np.arange(8)[:, None] == 7, 0.0, rows)
    one, two = (fit_linear(run, table, labels, classes=2, initial=start, seed=0) for table in (rows, other))
    moved = np.linalg.norm(one.model.weights - two.model.weights)
    assert moved == pytest.approx(3 * run.sensitivities[0], rel=1e-9)
    assert one.run.rounding_errors is not None
    assert moved <= 3 * run.sensitivities[0] + one.run.rounding_errors.sum()
    assert run.sensitivities[0] == 2.0 * 0.2 / 4
