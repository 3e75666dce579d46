"""The estimators of influence take the loss's own class: pieces of squares as they are, and what they cannot differentiate by name."""

from typing import Any

import numpy as np
import pytest
from influence_problems import make_data, make_run

from lethe.errors import InputError
from lethe.influence import SyntheticData, adjoint_influence, quadratic_influence, retraining_influence

WIDE: dict[str, Any] = {"kind": "smoothed_hinge", "feature_norm": 1.5, "width": 8.0}


def of_two_classes(loss: dict[str, Any], **changes: Any) -> Any:
    return make_run(loss=loss, step_size=2.0, noise_multiplier=0.02, **changes)


@pytest.mark.slow
def test_a_hinge_that_never_leaves_its_corner_is_a_quadratic() -> None:
    """Curvature 1/(2h) = 1/16 everywhere on the path: the exact influence of the quadratic, found by differentiating the loss."""
    run, data = of_two_classes(WIDE), make_data("logistic_regression")
    exact = quadratic_influence(run, data).weights
    estimate = adjoint_influence(run, data, repeats=20, seed=3, directions=200)
    assert (np.abs(estimate.weights - exact) / estimate.errors).max() < 3
    assert (estimate.errors < 0.02 * exact).all()
    doubled = quadratic_influence(of_two_classes({**WIDE, "width": 4.0}), data).weights
    assert doubled[-1] == pytest.approx(2.0 * exact[-1])


@pytest.mark.slow
def test_each_of_k_hinges_is_one() -> None:
    data = make_data("softmax_regression")
    several = {"kind": "one_versus_rest_hinge", "feature_norm": 1.5, "width": 8.0, "classes": 3}
    two = quadratic_influence(of_two_classes(WIDE), make_data("logistic_regression")).weights
    assert quadratic_influence(of_two_classes(several), data).weights == pytest.approx(3.0 * two)
    estimate = adjoint_influence(of_two_classes(several), data, repeats=20, seed=3, directions=100)
    assert (np.abs(estimate.weights - 3.0 * two) / estimate.errors).max() < 3


@pytest.mark.slow
@pytest.mark.parametrize("loss", [{"kind": "truncated_logistic_regression", "feature_norm": 1.5, "cut": 0.5}, WIDE | {"width": 0.5}])
def test_synthetic_data_and_retraining_serve_every_loss(loss: dict[str, Any]) -> None:
    estimate = retraining_influence(of_two_classes(loss), SyntheticData(columns=2, seed=1), repeats=3, seed=0)
    assert np.isfinite(estimate.weights).all()


def test_what_cannot_be_differentiated_is_refused_by_name() -> None:
    cut = {"kind": "truncated_logistic_regression", "feature_norm": 1.5, "cut": 0.5}
    with pytest.raises(InputError, match=r"truncated_logistic_regression; its third derivative is not known"):
        adjoint_influence(of_two_classes(cut), make_data("logistic_regression"), repeats=2, seed=0)
    with pytest.raises(InputError, match="smoothed_hinge, which has no curvature"):
        quadratic_influence(of_two_classes(WIDE | {"width": 0.5}), make_data("logistic_regression"))
