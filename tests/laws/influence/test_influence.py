"""The three estimators of influence against recursions, autograd through a loop of its own, the trainer's own trainings, and each other."""

import re
from pathlib import Path
from typing import Any

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
import torch
from doors import fit_linear
from how_many import by_night
from hypothesis import given
from hypothesis import strategies as st
from influence_problems import laplacian_influence, least_squares_influence, make_data, make_run, second_moment_influence
from repository import ROOT

import lethe
from lethe.errors import InputError
from lethe.influence import PublicTrainer, adjoint_influence, fit_exponential, quadratic_influence, retraining, retraining_influence
from lethe.influence.quadratic import PublicCurvatures
from lethe.influence.retraining import linear_problem
from lethe.run.run import Run
from lethe.run.schedules.influence import Influence


def quadratic_run(**changes: object) -> Run:
    """Item 9 of the specification: unit steps, 100 records, clip norm 1, so that noise in the parameters is z / 100."""
    return make_run(**{"records": 100, "steps": 30, "step_size": 1.0, "clip_norm": 1.0, "noise_multiplier": 1.0, **changes})


def assumed(*eigenvalues: float) -> PublicCurvatures:
    return PublicCurvatures(np.array(eigenvalues), statement="assumed")


@given(
    eigenvalues=arrays.arrays(np.float64, st.integers(1, 4), elements=st.floats(0.01, 3.0)),
    step_sizes=st.lists(st.floats(0.05, 1.2), min_size=1, max_size=8),
    ridge=st.sampled_from([0.0, 0.3]),
)
def test_the_closed_form_is_the_second_moment_recursion(eigenvalues: np.ndarray, step_sizes: list[float], ridge: float) -> None:
    regulariser = {"kind": "ridge", "strength": ridge} if ridge else None
    run = quadratic_run(steps=len(step_sizes), step_size=step_sizes, regulariser=regulariser)
    weights = quadratic_influence(run, PublicCurvatures(eigenvalues, statement="assumed")).weights
    # 1 - eta lambda cancels near 0: relative to the eigenvalues, not to what is left of them
    expected = second_moment_influence(eigenvalues, np.array(step_sizes), ridge)
    assert weights == pytest.approx(expected, rel=1e-10, abs=1e-14)


def test_the_quadratic_of_the_specification() -> None:
    """Item 9: lambda = (.1, .5, 1), start (1, 1, 1), R = .4, T = 30. The exact excess risk over the initial gap, to its six digits."""
    eigenvalues, budget, run = np.array([0.1, 0.5, 1.0]), 0.4, quadratic_run()
    weights = quadratic_influence(run, assumed(*eigenvalues)).weights
    influence = quadratic_influence(run, assumed(*eigenvalues)).influence.values(30)
    assert influence == pytest.approx(weights / weights.max(), rel=1e-12)
    start = 0.5 * float((eigenvalues * (1 - eigenvalues) ** 60).sum())
    gap = 0.5 * float(eigenvalues.sum())

    def excess(assumed_influence: np.ndarray) -> float:
        roots = np.sqrt(assumed_influence)
        multipliers = np.sqrt(roots.sum() / roots / budget)  # Lemma 4.4
        assert (1 / multipliers**2).sum() == pytest.approx(budget, rel=1e-12)
        return (start + float(weights @ run.replace(noise_multiplier=multipliers).noise_stds ** 2)) / gap

    assert excess(influence) == pytest.approx(2.900257e-03, abs=5e-10)
    assert excess(np.ones(30)) == pytest.approx(1.038748e-02, abs=5e-9)
    assert excess(0.9 ** (30.0 - np.arange(1, 31))) == pytest.approx(5.811348e-03, abs=5e-10)  # gamma = 1 - mu / M


def test_least_squares_from_public_features_is_its_hessian() -> None:
    run = make_run(loss={"kind": "least_squares", "feature_norm": 1.5, "residual_bound": 100.0, "intercept": True})
    rows = np.hstack([make_data().features, np.ones((24, 1))])
    expected = second_moment_influence(np.linalg.eigvalsh(rows.T @ rows / 24), run.step_sizes)
    estimate = quadratic_influence(run, make_data())
    assert estimate.weights == pytest.approx(expected, rel=1e-10)  # an eigenvalue solver and a singular value solver
    assert estimate.basis == "public"
    assert "drawn here" in estimate.influence.detail


@pytest.mark.parametrize("kind", ["softmax_regression", "logistic_regression"])
def test_a_classifier_is_replaced_by_the_quadratic_at_zero(kind: str) -> None:
    data, run = make_data(kind), make_run(kind)
    rows, targets = torch.tensor(data.features), torch.tensor(data.targets, dtype=torch.int64)
    outputs = 3 if kind == "softmax_regression" else 1

    def mean_loss(parameters: torch.Tensor) -> torch.Tensor:
        scores = rows @ parameters.view(3, outputs)
        if outputs == 1:
            return torch.nn.functional.binary_cross_entropy_with_logits(scores.squeeze(1), targets.to(torch.float64))
        return torch.nn.functional.cross_entropy(scores, targets)

    hessian = torch.autograd.functional.hessian(mean_loss, torch.zeros(3 * outputs, dtype=torch.float64))
    expected = second_moment_influence(np.linalg.eigvalsh(hessian), run.step_sizes)
    assert quadratic_influence(run, data).weights == pytest.approx(expected, rel=1e-9)


def test_a_forgotten_mode_has_no_influence_and_a_forgotten_quadratic_is_no_influence() -> None:
    run = quadratic_run(steps=3)
    assert quadratic_influence(run, assumed(1.0, 0.5)).weights == pytest.approx([0.25 / 16, 0.25 / 4, 0.5 + 0.25])
    estimate = quadratic_influence(run, assumed(1.0))
    assert estimate.weights == pytest.approx([0.0, 0.0, 0.5], abs=0)
    with pytest.raises(InputError, match="step 1 has 0"):
        _ = estimate.influence


def test_thousands_of_steps_neither_overflow_nor_warn() -> None:
    estimate = quadratic_influence(quadratic_run(steps=20_000), assumed(0.01, 0.7))
    assert estimate.weights[-1] == pytest.approx(0.355)
    assert estimate.weights[0] == pytest.approx(0.005 * 0.99 ** (2 * 19_999), rel=1e-9)
    assert fit_exponential(quadratic_influence(quadratic_run(steps=500), assumed(0.01))).rate == pytest.approx(0.99**2, rel=1e-9)


def test_least_squares_is_met_within_its_standard_errors() -> None:
    """3 standard errors; and exact weights moved by one step are told apart. With the planned noise elsewhere: see the next test."""
    looked_at = slice(None) if by_night() else slice(2, 4)  # two steps in the midst are furthest apart
    probes = None if by_night() else [3, 4]
    estimate = retraining_influence(make_run(), make_data(), repeats=250, seed=1, probes=probes)
    exact = quadratic_influence(make_run(), make_data()).weights[looked_at]
    assert deviations(estimate, exact).max() < 3
    assert deviations(estimate, np.append(np.nan, exact[:-1]))[1:].max() > 3
    assert (estimate.errors < 0.08 * exact).all()
    if by_night():  # an influence needs the last step too
        assert estimate.influence.values(6) == pytest.approx(estimate.weights / estimate.weights.max(), rel=1e-12)
    assert estimate.basis == "public"
    assert "drawn here" in estimate.detail


def test_on_a_quadratic_mirrored_noise_cancels_all_but_what_is_looked_for() -> None:
    """The estimate of a single seed then depends on that step's own normal numbers alone: the other noise does not matter."""
    run, data = make_run(), make_data()
    planned = retraining_influence(run, data, repeats=3, seed=1)
    larger = retraining_influence(run.with_noise_scaled(3.0), data, repeats=3, seed=1)
    # Differences of losses of about 1, in the 13th digit.
    assert larger.weights == pytest.approx(planned.weights, rel=1e-6)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("design", ["full", "cyclic", "shuffled", "poisson"])
@pytest.mark.parametrize("kind", ["least_squares", "softmax_regression"])
def test_the_trainings_are_those_of_fit_linear(design: str, kind: str) -> None:
    batches = {"design": design} if design == "full" else {"design": design, "size": 5}
    run = make_run(kind, batches=batches, clip_norm=0.5, regulariser={"kind": "elastic_net", "l1_strength": 0.01, "ridge_strength": 0.1})
    data = make_data(kind)
    records = data.records(run)
    trained = fit_linear(run, records.features, records.targets, classes=records.classes, seed=11)
    expected = trained.model.mean_loss(records.features, records.targets)
    assert linear_problem(run, data).train(run.noise_stds, 11) == pytest.approx(expected, rel=1e-14)


def test_a_step_s_numbers_depend_on_the_seed_and_the_step_alone() -> None:
    """Least squares from 0 on targets 0: the last iterate is linear in the noise, so its loss is even and quadratic in one noise."""
    data = make_data()
    problem = linear_problem(make_run(), data)
    path = problem.path(np.array([0.1, 0.0, 0.3, 0.0, 0.0, 0.2]), 5)
    silent = problem.path(np.zeros(6), 5)
    mirrored = problem.path(np.array([0.0, 0.0, 0.0, 0.0, 0.0, -0.4]), 5)
    shift = path.unproximated[5] - problem.path(np.array([0.1, 0.0, 0.3, 0.0, 0.0, 0.0]), 5).unproximated[5]
    assert (mirrored.unproximated[5] - silent.unproximated[5]).numpy() == pytest.approx(-2 * shift.numpy(), rel=1e-12)


def test_averaged_passes_can_be_retrained() -> None:
    """All weight on the last step of a pass is no averaging."""
    plain = make_run(batches=lethe.batches.Cyclic(6), passes=2, noise_at="pass_ends")
    averaged = plain.replace(pass_weights=[0.0, 0.0, 0.0, 1.0])
    expected = retraining_influence(plain, make_data(), repeats=2, seed=0, probes=[4, 8])
    assert retraining_influence(averaged, make_data(), repeats=2, seed=0, probes=[4, 8]).weights == pytest.approx(expected.weights)


def test_any_training_can_be_given() -> None:
    """x' diag(.2, 1) x / 2 in numpy, unit step sizes of 0.5, ten copies of each coordinate."""
    run, seeds = make_run(steps=4, step_size=0.5), list[int]()

    def train(noise_stds: np.ndarray, seed: int) -> float:
        seeds.append(seed)
        random, curvatures, x = np.random.default_rng(seed), np.repeat([0.2, 1.0], 10), np.ones(20)
        for noise_std in noise_stds:
            x = x - 0.5 * curvatures * x + noise_std * random.normal(size=20)
        return 0.5 * float(curvatures @ x**2)

    estimate = retraining_influence(run, PublicTrainer(train=train, statement="a formula"), repeats=60, seed=0)
    left = 3.0 - np.arange(4)
    exact = 0.5 * (10 * 0.2 * 0.9 ** (2 * left) + 10 * 0.5 ** (2 * left))
    assert deviations(estimate, exact).max() < 3
    assert len(seeds) == 60 * 13 + 2  # 1 and 3 for each of 4 probes; and twice the same
    assert "a formula" in estimate.detail


def test_the_page_s_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "influence.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, flags=re.S)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(example, "docs/influence.md", "exec"), names)
    assert Influence.load(tmp_path / "influence.json") == names["adjoint"].influence
    assert "4 paired retrainings at 5 of 40 steps" in capsys.readouterr().out


def deviations(first: Any, expected: np.ndarray, errors: np.ndarray | float = 0.0) -> np.ndarray:
    return np.abs(first.weights - expected) / np.hypot(first.errors, errors)


@pytest.mark.parametrize("ridge", [0.0, 0.4])
def test_on_a_quadratic_it_is_exact_in_expectation(ridge: float) -> None:
    run = make_run(regulariser={"kind": "ridge", "strength": ridge} if ridge else None)
    exact = quadratic_influence(run, make_data()).weights
    estimate = adjoint_influence(run, make_data(), repeats=30, seed=3, directions=200)
    assert deviations(estimate, exact).max() < 3
    assert (estimate.errors < 0.02 * exact).all()
    assert np.abs(estimate.weights[1:] / exact[:-1] - 1).min() > 0.08  # the weights of neighbouring steps are further apart than that
    assert estimate.influence.basis == "public"


def test_small_batches_have_their_own_jacobians() -> None:
    run = make_run(batches=lethe.batches.Cyclic(6), passes=2, noise_at="pass_ends")
    rows = make_data().records(run).features
    exact = least_squares_influence(rows, [slice(first, first + 6) for first in (0, 6, 12, 18)] * 2, run.step_sizes)
    estimate = adjoint_influence(run, make_data(), repeats=20, seed=3, directions=200)
    assert deviations(estimate, exact).max() < 3
    assert (estimate.errors < 0.03 * exact).all()


def test_an_l1_threshold_stops_noise() -> None:
    """Parameters held at 0 pass nothing on: no influence before the last step's own threshold, and none there."""
    run = make_run(regulariser={"kind": "l1", "strength": 100.0}, noise_multiplier=0.0)
    assert adjoint_influence(run, make_data(), repeats=2, seed=0).weights == pytest.approx(np.zeros(6), abs=0)


def softmax_loss(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(scores, targets.long(), reduction="none")


def logistic_loss(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.binary_cross_entropy_with_logits(scores.squeeze(1), targets, reduction="none")


@pytest.mark.parametrize(
    ("kind", "step_size", "clip_norm", "outputs", "record_loss"),
    [
        ("softmax_regression", 2.0, None, 3, softmax_loss),
        pytest.param("logistic_regression", 4.0, None, 1, logistic_loss, marks=pytest.mark.nightly),
        # A clipped gradient of a scalar model has constant length: no curvature is left out there, and some records are clipped.
        ("logistic_regression", 4.0, 0.35, 1, logistic_loss),
    ],
)
def test_it_is_the_second_derivative_by_autograd(
    kind: str, step_size: float, clip_norm: float | None, outputs: int, record_loss: Any
) -> None:
    """Around the noiseless path, gradient term included; 4 standard errors, by night of about one percent."""
    run = make_run(kind, step_size=step_size, clip_norm=clip_norm, noise_multiplier=0.0)
    exact = laplacian_influence(run, make_data(kind), record_loss, outputs)
    repeats, directions, spread = (20, 1000, 0.015) if by_night() else (8, 400, 0.04)
    estimate = adjoint_influence(run, make_data(kind), repeats=repeats, seed=8, directions=directions)
    assert deviations(estimate, exact).max() < 4
    assert (estimate.errors < spread * exact).all()


@pytest.mark.nightly(by_day="test_it_is_the_second_derivative_by_autograd")
def test_it_agrees_with_retraining_under_the_planned_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Softmax regression with noise large enough to matter: the mean over noisy paths is the derivative itself."""
    run, data = make_run("softmax_regression", noise_multiplier=6.0, step_size=0.8), make_data("softmax_regression")
    monkeypatch.setattr(retraining, "_RISE", 0.2)
    retrained = retraining_influence(run, data, repeats=200, seed=1)
    estimate = adjoint_influence(run, data, repeats=120, seed=2, directions=8)
    assert deviations(estimate, retrained.weights, retrained.errors).max() < 3
    assert (np.hypot(estimate.errors, retrained.errors) < 0.06 * estimate.weights).all()
    noiseless = adjoint_influence(run.replace(noise_multiplier=0.0), data, repeats=10, seed=2, directions=200)
    assert deviations(estimate, noiseless.weights, noiseless.errors).max() > 4  # so the noise does matter


@pytest.mark.nightly(by_day="test_it_is_the_second_derivative_by_autograd")
def test_clipped_runs_are_estimated_too() -> None:
    """Softmax with many records clipped: what is left out is small beside what clipping changes."""
    run, data = make_run("softmax_regression", step_size=1.5, clip_norm=0.4, noise_multiplier=0.0), make_data("softmax_regression")
    estimate = adjoint_influence(run, data, repeats=10, seed=2, directions=1000)
    assert estimate.weights == pytest.approx(laplacian_influence(run, data, softmax_loss, 3), rel=0.03)
    unclipped = adjoint_influence(run.replace(clip_norm=None), data, repeats=10, seed=2, directions=1000)
    assert estimate.weights[0] > 2 * unclipped.weights[0]


WIDE: dict[str, Any] = {"kind": "smoothed_hinge", "feature_norm": 1.5, "width": 8.0}


def of_two_classes(loss: dict[str, Any], **changes: Any) -> Any:
    return make_run(loss=loss, step_size=2.0, noise_multiplier=0.02, **changes)


def test_a_hinge_that_never_leaves_its_corner_is_a_quadratic() -> None:
    """Curvature 1/(2h) = 1/16 everywhere on the path: the exact influence of the quadratic, found by differentiating the loss."""
    run, data = of_two_classes(WIDE), make_data("logistic_regression")
    exact = quadratic_influence(run, data).weights
    estimate = adjoint_influence(run, data, repeats=20, seed=3, directions=200)
    assert (np.abs(estimate.weights - exact) / estimate.errors).max() < 3
    assert (estimate.errors < 0.02 * exact).all()
    doubled = quadratic_influence(of_two_classes({**WIDE, "width": 4.0}), data).weights
    assert doubled[-1] == pytest.approx(2.0 * exact[-1])


def test_each_of_k_hinges_is_one() -> None:
    data = make_data("softmax_regression")
    several = {"kind": "one_versus_rest_hinge", "feature_norm": 1.5, "width": 8.0, "classes": 3}
    two = quadratic_influence(of_two_classes(WIDE), make_data("logistic_regression")).weights
    assert quadratic_influence(of_two_classes(several), data).weights == pytest.approx(3.0 * two)
    estimate = adjoint_influence(of_two_classes(several), data, repeats=20, seed=3, directions=100)
    assert (np.abs(estimate.weights - 3.0 * two) / estimate.errors).max() < 3
