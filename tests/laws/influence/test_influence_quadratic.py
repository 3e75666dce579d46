import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from influence_problems import make_data, make_run, second_moment_influence

from lethe.errors import InputError
from lethe.influence import fit_exponential, quadratic_influence
from lethe.influence.quadratic import PublicCurvatures
from lethe.run.run import Run


def quadratic_run(**changes: object) -> Run:
    """Item 9 of the specification: unit steps, 100 records, clip norm 1, so that noise in the parameters is z / 100."""
    fields = {
        "records": 100,
        "batches": {"design": "full"},
        "steps": 30,
        "step_size": 1.0,
        "clip_norm": 1.0,
        "noise_multiplier": 1.0,
        "release": "last",
        "neighbours": "replace_one",
    }
    return Run(**{**fields, **changes})


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
