import copy
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lethe.theorems.lipschitz import clipped_step, plain_step
from lethe_experiments.hong.debiased_momentum import DebiasedMomentum
from lethe_experiments.liang.double_clipping import clip_mean, projected_iterate
from lethe_experiments.risk.momentum_weights import debiased_weights


def parameters(seed: int = 0) -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64)) for shape in ((4, 3), (3,))]


@given(
    step_size=st.floats(0.05, 1.0),
    m=st.floats(-0.3, 0.5),
    m_above=st.floats(0.05, 2.0),
    decay=st.floats(0.0, 0.9),
    seed=st.integers(0, 999),
)
def test_what_weight_decay_does_to_the_lipschitz_constant(step_size: float, m: float, m_above: float, decay: float, seed: int) -> None:
    """The two constants of a step with decay, against the steps of random quadratics and random derivatives of a projection."""
    random = np.random.default_rng(seed)
    smoothness = abs(m) + m_above
    basis, _ = np.linalg.qr(random.standard_normal((2, 2)))
    hessian = basis @ np.diag(random.choice([-m, smoothness], 2)) @ basis.T
    unit = random.standard_normal(2)
    projection = random.choice([0.0, 1.0]) * np.outer(unit, unit) / (unit @ unit)
    plain = np.linalg.norm((1 - step_size * decay) * np.eye(2) - step_size * hessian, 2)
    assert plain <= plain_step(step_size, m - decay, smoothness + decay) * (1 + 1e-12)
    clipped = np.linalg.norm((1 - step_size * decay) * np.eye(2) - step_size * projection @ hessian, 2)
    shrink = 1 - step_size * decay
    assert clipped <= shrink * clipped_step(step_size / shrink, m, smoothness) * (1 + 1e-12)


def test_the_clipped_constant_with_decay_is_attained() -> None:
    """Scanning all angles between clipping and curvature: no smaller constant would do."""
    step_size, decay, smoothness = 0.5, 0.6, 1.4
    worst = 0.0
    for angle in np.linspace(0, np.pi, 4001):
        u = np.array([np.cos(angle), np.sin(angle)])
        step = (1 - step_size * decay) * np.eye(2) - step_size * np.outer(u, u) @ np.diag([smoothness, 0.0])
        worst = max(worst, float(np.linalg.norm(step, 2)))
    assert worst == pytest.approx(0.7 * clipped_step(step_size / 0.7, 0.0, smoothness), rel=1e-6)


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.9, 0.999])
def test_debiased_momentum_averages_as_stated(beta: float) -> None:
    gradients = np.random.default_rng(1).standard_normal((30, 5))
    point = torch.nn.Parameter(torch.zeros(5, dtype=torch.float64))
    optimizer = DebiasedMomentum([point], lr=0.3, beta=beta)
    expected = np.zeros(5)
    for step, gradient in enumerate(gradients, start=1):
        point.grad = torch.tensor(gradient)
        optimizer.step()
        expected -= 0.3 * debiased_weights(beta, step) @ gradients[:step]
        np.testing.assert_allclose(point.detach().numpy(), expected, rtol=0, atol=1e-12)
        assert torch.equal(point.grad, torch.tensor(gradient))


def test_debiased_momentum_survives_saving() -> None:
    given, copies = parameters(), parameters()
    first, second = DebiasedMomentum(given, lr=0.1, beta=0.8), DebiasedMomentum(copies, lr=0.1, beta=0.8)

    def take(optimizer: DebiasedMomentum, points: list[torch.nn.Parameter], size: float) -> None:
        for point in points:
            point.grad = torch.full_like(point, size)
        optimizer.step()

    for size in (1.0, 2.0):
        take(first, given, size)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for point, other in zip(given, copies, strict=True):
        other.data.copy_(point.data)
    take(first, given, 3.0)
    take(second, copies, 3.0)
    assert all(torch.equal(point, other) for point, other in zip(given, copies, strict=True))


def test_the_projected_iterate_is_the_papers_second_clipping() -> None:
    given = {str(place): parameter for place, parameter in enumerate(parameters())}
    before = [parameter.detach().clone() for parameter in given.values()]
    norm = float(torch.sqrt(sum((part**2).sum() for part in before)))  # pyright: ignore[reportArgumentType, reportCallIssue]
    step = projected_iterate(given, norm / 2)
    step.step(0.1)
    for old, new in zip(before, given.values(), strict=True):
        np.testing.assert_allclose(new.detach().numpy(), old.numpy() / 4, rtol=1e-12)


def test_a_clipped_mean_moves_no_more_than_stated() -> None:
    random = np.random.default_rng(5)
    for size in (0.1, 1.0, 10.0):
        first, second = size * random.standard_normal((2, 6))
        clipped = [[torch.tensor(vector[:2]), torch.tensor(vector[2:])] for vector in (first, second)]
        for parts in clipped:
            clip_mean(parts, 0.8)
        one, two = (torch.cat(parts).numpy() for parts in clipped)
        assert np.linalg.norm(one) <= 0.8
        assert np.linalg.norm(one - two) <= min(np.linalg.norm(first - second), 1.6) * (1 + 1e-12)


@pytest.mark.nightly(by_day="test_the_clipped_constant_with_decay_is_attained")
def test_a_twice_clipped_step_can_leave_the_constant_of_a_once_clipped_one() -> None:
    """Why clip_mean is certified by composition only: two projections before the Hessians beat the constant of one."""
    worst, smoothness, step_size = 0.0, 1.0, 1.5
    angles = np.linspace(0, np.pi, 61)
    units = [np.array([np.cos(angle), np.sin(angle)]) for angle in angles]
    for first, second in itertools.product(units, units):
        step = np.eye(2) - step_size * np.outer(first, first) @ np.outer(second, second) @ np.diag([smoothness, 0.0])
        worst = max(worst, float(np.linalg.norm(step, 2)))
    assert worst > clipped_step(step_size, 0.0, smoothness) * 1.01
