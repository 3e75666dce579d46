"""Gradients projected on a unit direction, with noise in all: the constant of a step, its tightness, and which theorems apply."""

import math
from typing import Any

import numpy as np
import pytest
from helpers import batches, make_run
from theorem_bounds import mu_of

import lethe
from lethe.certificates.findings import first_failure
from lethe.theorems.lipschitz import clipped_step
from lethe.theorems.optimal_shift import OptimalShift
from lethe.theorems.registry import ALL
from lethe.theorems.steps import step_constants

CONVEX = {"kind": "convex", "smoothness": 0.8, "gradient_bound": 1.0}


def _run(**changes: Any) -> lethe.Run:
    fields: dict[str, Any] = {"loss": CONVEX, "clip_norm": 1.0, "clip_method": "directional_isotropic", "step_size": 0.5}
    return make_run(**{**fields, **changes})


@pytest.mark.parametrize(("weak", "smooth"), [(0.0, 0.4), (0.0, 1.7), (0.1, 0.5), (-0.2, 0.9)])
def test_no_step_along_a_direction_expands_by_more_and_one_attains_it(weak: float, smooth: float) -> None:
    r"""$x - \lambda u\,\mathrm{clip}_C\langle u, \nabla f(x)\rangle$ of quadratics: a search over angles and shares of clipping."""
    constant = clipped_step(1.0, weak, smooth)
    widest = 0.0
    for angle in np.linspace(0.0, math.pi / 2, 721):
        unit = np.array([math.cos(angle), math.sin(angle)])
        for share in (0.0, 0.5, 1.0):
            for curvature in ((smooth, -weak), (smooth, smooth), (-weak, -weak)):
                widest = max(widest, float(np.linalg.norm(np.eye(2) - share * np.outer(unit, unit) @ np.diag(curvature), 2)))
    assert widest <= constant
    assert constant == pytest.approx(widest, rel=1e-4)  # one per cent less would be false


def test_differences_are_slopes_of_a_loss_of_the_same_curvature() -> None:
    r"""$(f(x + hu) - f(x - hu))/2h$ of $\log(1 + e^{\langle a, x\rangle})$: a mean of its gradients along the way, whatever h is."""
    generator = np.random.default_rng(0)
    for h in (0.01, 1.0, 10.0):
        for _ in range(200):
            a, x, y, unit = generator.normal(size=(4, 3))
            unit /= np.linalg.norm(unit)
            smooth = float(a @ a) / 4

            def slope(point: np.ndarray, a: np.ndarray = a, unit: np.ndarray = unit, h: float = h) -> float:
                return float(np.logaddexp(0, a @ (point + h * unit)) - np.logaddexp(0, a @ (point - h * unit))) / (2 * h)

            step = 1.5 / smooth
            apart = np.linalg.norm(x - y - step * unit * (np.clip(slope(x), -0.3, 0.3) - np.clip(slope(y), -0.3, 0.3)))
            assert apart <= clipped_step(step, 0.0, smooth) * np.linalg.norm(x - y) * (1 + 1e-9)


@pytest.mark.parametrize(
    "loss",
    [CONVEX, {"kind": "logistic_regression", "feature_norm": 1.0}, {"kind": "generalised_linear", "weak_convexity": 0, "smoothness": 0.8}],
)
def test_neither_short_gradients_nor_scalar_losses_spare_the_constant(loss: dict[str, Any]) -> None:
    """Where plain clipping would not act, or would keep a gradient's direction, a step along another direction may still expand."""
    for clip_norm in (0.1, 100.0):
        run = _run(loss=loss, clip_norm=clip_norm)
        steps = step_constants(run)
        assert run.clips
        assert steps is not None
        assert run.loss.curvature is not None
        assert steps.constant.constant == clipped_step(0.5, *run.loss.curvature) > 1.0
        assert "along a direction" in steps.constant.certificate


def test_linear_losses_are_exact() -> None:
    """All directions one: the last iterate is normal, T touches against the noise of T steps; and noise along it alone is as private."""
    linear = {"kind": "convex", "smoothness": 0.0, "gradient_bound": 1.0}
    run = _run(loss=linear, batches=batches("full", 10), steps=9)
    exact = 3.0 / float(run.relative_noise[0])
    assert exact <= mu_of(OptimalShift(), run) <= exact * (1 + 1e-9)
    along = run.replace(clip_method="directional", release="all")
    assert lethe.certify(along, 1e-3).epsilon == pytest.approx(lethe.guarantees.GDP(exact).epsilon(1e-3), rel=1e-9)


def test_published_theorems_and_noise_along_one_direction_refuse() -> None:
    """A theorem about one norm must not see either; one about the last iterate must not see noise along one direction."""
    ball = {"kind": "ball", "radius": 0.05}
    for theorem in ALL:
        for design in ("full", "cyclic", "poisson", "shuffled"):
            shared: dict[str, Any] = {"batches": batches(design, 10), "neighbours": "zero_out", "regulariser": ball}
            isotropic, along = (_run(clip_method=method, **shared) for method in ("directional_isotropic", "directional"))
            if theorem.clipping == "one norm":
                assert first_failure(theorem.examine(isotropic)) is not None
            if theorem.covers == "last" or theorem.clipping != "any":
                assert first_failure(theorem.examine(along)) is not None
