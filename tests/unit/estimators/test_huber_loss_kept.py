"""HuberRegressor trains on the loss that was asked for, by every mechanism, at every epsilon and size."""

from typing import Any

import numpy as np
import pytest
from private_cases import build

import lethe.estimators.choice.perturbed as perturbed
from lethe.errors import InputError
from lethe.estimators import HuberRegressor
from lethe.estimators.choice.cuts import cut_losses
from lethe.estimators.inputs.facts import PublicFacts
from lethe.estimators.options import EstimatorOptions
from lethe.run.losses import LeastSquares, Logistic

# Parameters, and the residual bound that they ask for: "auto" is half of the half width of the targets.
ASKED = (
    ({"residual_bound": 2.0, "target_bound": None}, 2.0),
    ({"residual_bound": 2.0, "target_bound": 2.0}, 2.0),
    ({"residual_bound": 4.0, "target_bound": 2.0}, 4.0),
    ({"residual_bound": "auto", "target_bound": 4.0}, 2.0),
)


def line(records: int) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).uniform(-1.0, 1.0, (records, 3))
    return X, X @ np.array([1.0, -1.0, 0.5]) / 3.0


@pytest.fixture
def bounds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Residual bounds of the losses that perturbed minimisers are asked to minimise."""
    seen: list[float] = []
    for name in ("objective_perturbation", "output_perturbation"):
        inner = getattr(perturbed, name)

        def spy(*given: Any, _inner: Any = inner, **rest: Any) -> Any:
            seen.append(rest["loss"].residual_bound)
            return _inner(*given, **rest)

        monkeypatch.setattr(perturbed, name, spy)
    return seen


SLOW = ("auto", "objective_perturbation", "cyclic")  # to plan


@pytest.mark.sampled(24)
@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["pass_ends", "output_perturbation", *(pytest.param(one, marks=pytest.mark.slow) for one in SLOW)])
@pytest.mark.parametrize(("parameters", "asked"), ASKED, ids=[str(one) for one, _ in ASKED])
def test_the_loss_trained_on_is_the_one_asked_for(parameters: dict[str, Any], asked: float, mechanism: str, bounds: list[float]) -> None:
    for epsilon, records in ((0.05, 300), (0.05, 4000), (0.5, 300), (0.5, 4000), (8.0, 1000)):
        public: dict[str, Any] = {"epsilon": epsilon, "feature_norm": 1.8, **parameters}
        model = build(HuberRegressor, mechanism=mechanism, **public).fit(*line(records))
        if model.run_ is not None:
            assert isinstance(model.run_.loss, LeastSquares)
            bounds.append(model.run_.loss.residual_bound)
        elif model.mechanism_ == "zeros":
            bounds.append(asked)
    assert bounds == [asked] * 5


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize(("parameters", "asked"), ASKED, ids=[str(one) for one, _ in ASKED])
def test_squares_are_refused_with_the_reason(parameters: dict[str, Any], asked: float) -> None:
    with pytest.raises(InputError, match=r"adassp cannot train this: .*it fits squares, and a loss that is linear far out was asked for"):
        build(HuberRegressor, feature_norm=1.8, options=EstimatorOptions(mechanism="adassp"), **parameters).fit(*line(300))
    model = build(HuberRegressor, feature_norm=1.8, **parameters).fit(*line(300))
    assert "it fits squares, and a loss" in model.privacy_report_


@pytest.mark.parametrize("loss", [LeastSquares(feature_norm=1.0, residual_bound=2.0), Logistic(feature_norm=1.0)])
def test_no_loss_asked_for_is_cut(loss: Any) -> None:
    facts = PublicFacts(records=100, columns=4, loss=loss, target_bound=2.0 if isinstance(loss, LeastSquares) else None, keeps_loss=True)
    assert cut_losses(facts) == [(facts, 0.0)]
