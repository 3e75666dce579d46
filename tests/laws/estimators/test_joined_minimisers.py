r"""A perturbed minimiser beside Gaussian releases, against integrals over the losses that do not know how the two were joined."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import integrate
from scipy.special import log_ndtr

from lethe.calculus.any_guarantee import joined as joined_guarantees
from lethe.calculus.guarantees import GDP, Guarantee
from lethe.certificates.findings import holds
from lethe.certificates.statement import Statement
from lethe.mechanisms.base import joint
from lethe.mechanisms.minimisers.objective_perturbation import PerturbedMinimiser, minimiser_profile
from lethe.run.losses import LeastSquares, Logistic, Softmax

# c, and pairs of mu and how many.
CASES = {
    "one": ((0.05, ((0.4, 1),)),),
    "small beside the other release": ((0.01, ((0.05, 1),)),),
    "several": ((0.3, ((0.5, 2), (0.2, 3))),),
    "two cases": ((0.2, ((0.3, 1),)), (0.0, ((0.3, 2),))),
}
EPSILONS = (0.0, 0.1, 0.6, 1.5)


def joint_of(*guarantees: Guarantee) -> Guarantee:
    return joined_guarantees([(one, 1) for one in guarantees])


def missed(mu: float, level: float) -> float:
    r"""$E(1 - e^{s-x})_+$ of $x \sim N(\mu^2/2, \mu^2)$, at any real s."""
    far, near = log_ndtr(mu / 2.0 - level / mu), log_ndtr(-mu / 2.0 - level / mu)
    return math.exp(far) - math.exp(level + near)


def over_the_other(nu: float, function: Callable[[float], float]) -> float:
    r"""The mean of a function of $y \sim N(\nu^2/2, \nu^2)$, by Gauss-Legendre on forty pieces of ten standard deviations to each side."""
    points, weights = np.polynomial.legendre.leggauss(20)
    edges = np.linspace(-10.0, 10.0, 41)
    middle, half = (edges[1:] + edges[:-1])[:, None] / 2.0, (edges[1] - edges[0]) / 2.0
    at = (middle + half * points).ravel()
    mass = np.tile(half * weights, 40) * np.exp(-(at**2) / 2.0) / math.sqrt(2.0 * math.pi)
    return float(mass @ np.array([function(nu * nu / 2.0 + nu * z) for z in at.tolist()]))


def stated(cases: tuple[tuple[float, tuple[tuple[float, int], ...]], ...], nu: float, epsilon: float) -> float:
    """What the derivation bounds the joint loss by, every mean an integral."""

    def total(vertices: tuple[tuple[float, int], ...], level: float) -> float:
        moved = sum(count * over_the_other(nu, lambda y, mu=mu: missed(mu, level - y)) for mu, count in vertices)
        return min(moved + missed(nu, level), 1.0)  # the last is the vertex 0: the other release alone

    def one(determinant: float, vertices: tuple[tuple[float, int], ...]) -> float:
        level = epsilon - determinant
        return total(vertices, level) if level >= 0.0 else 1.0 - math.exp(level) * (1.0 - total(vertices, 0.0))

    return max(one(*case) for case in cases)


@pytest.mark.parametrize("name", list(CASES))
@pytest.mark.parametrize("nu", [0.05, 0.5, 2.0])
def test_the_joint_profile_is_the_stated_sum(nu: float, name: str) -> None:
    minimiser = PerturbedMinimiser(CASES[name])
    one, two = GDP(0.6 * nu), GDP(0.8 * nu)
    for joined in (joint_of(minimiser, GDP(nu)), joint_of(one, minimiser, two)):
        for epsilon in EPSILONS:
            assert joined.delta(epsilon) == pytest.approx(stated(CASES[name], nu, epsilon), rel=1e-6, abs=1e-14)


@pytest.mark.parametrize(("mu", "nu"), [(0.05, 0.5), (0.5, 0.5), (1.0, 0.3)])
def test_the_loss_that_is_never_negative_needs_the_vertex_of_the_other_release(mu: float, nu: float) -> None:
    r"""Of $\max(0, x) + y$ itself, by an integral over x and y: above what the moved vertices explain, and below what is stated."""
    joined = joint_of(PerturbedMinimiser(((0.0, ((mu, 1),)),)), GDP(nu))
    for epsilon in (0.0, 0.3, 1.0):

        def inner(z: float, level: float = epsilon) -> float:
            x = max(0.0, mu * mu / 2.0 + mu * z)
            return missed(nu, level - x) * math.exp(-z * z / 2.0) / math.sqrt(2.0 * math.pi)

        exact = integrate.quad(inner, -10.0, 10.0, points=[-mu / 2.0], epsabs=1e-13, limit=200)[0]
        assert missed(math.hypot(mu, nu), epsilon) < (1.0 - 1e-5) * exact
        assert exact <= joined.delta(epsilon) * (1.0 + 1e-9)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "loss", [Logistic(feature_norm=1.0), Softmax(feature_norm=1.0, classes=3), LeastSquares(feature_norm=1.0, residual_bound=1.0)]
)
def test_a_real_minimiser_beside_another_release(loss: Logistic | Softmax | LeastSquares) -> None:
    minimiser = minimiser_profile(loss, ridge=4.0, noise_std=3.0, solver_mu=0.01)
    parts = [
        Statement(name="one", guarantee=guarantee, neighbours="replace_one", findings=(holds("a", "b", evidence="enforced"),), citations=())
        for guarantee in (minimiser, GDP(0.3))
    ]
    joined = joint(parts).guarantee
    for epsilon in (0.0, 0.4, 2.0):
        assert joined.delta(epsilon) == pytest.approx(stated(minimiser.cases, 0.3, epsilon), rel=1e-6, abs=1e-14)
