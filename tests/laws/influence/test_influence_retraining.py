import numpy as np
import pytest
from doors import fit_linear
from how_many import by_night
from influence_problems import make_data, make_run

import lethe
from lethe.influence import PublicTrainer, quadratic_influence, retraining_influence
from lethe.influence.retraining import linear_problem


def deviations(weights: np.ndarray, errors: np.ndarray, expected: np.ndarray) -> np.ndarray:
    return np.abs(weights - expected) / errors


def test_least_squares_is_met_within_its_standard_errors() -> None:
    """3 standard errors; and exact weights moved by one step are told apart. With the planned noise elsewhere: see the next test."""
    looked_at = slice(None) if by_night() else slice(2, 4)  # two steps in the midst are furthest apart
    probes = None if by_night() else [3, 4]
    estimate = retraining_influence(make_run(), make_data(), repeats=250, seed=1, probes=probes)
    exact = quadratic_influence(make_run(), make_data()).weights[looked_at]
    assert deviations(estimate.weights, estimate.errors, exact).max() < 3
    assert deviations(estimate.weights[1:], estimate.errors[1:], exact[:-1]).max() > 3
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


class Quadratic:
    """x' diag(.2, 1) x / 2 in numpy, unit step sizes of 0.5, ten copies of each coordinate."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, noise_stds: np.ndarray, seed: int) -> float:
        self.calls += 1
        random = np.random.default_rng(seed)
        curvatures = np.repeat([0.2, 1.0], 10)
        x = np.ones(20)
        for noise_std in noise_stds:
            x = x - 0.5 * curvatures * x + noise_std * random.normal(size=20)
        return 0.5 * float(curvatures @ x**2)


def test_any_training_can_be_given() -> None:
    run = make_run(steps=4, step_size=0.5)
    train = Quadratic()
    estimate = retraining_influence(run, PublicTrainer(train=train, statement="a formula"), repeats=60, seed=0)
    left = 3.0 - np.arange(4)
    exact = 0.5 * (10 * 0.2 * 0.9 ** (2 * left) + 10 * 0.5 ** (2 * left))
    assert deviations(estimate.weights, estimate.errors, exact).max() < 3
    assert train.calls == 60 * 13 + 2  # 1 and 3 for each of 4 probes; and twice the same
    assert "a formula" in estimate.detail
