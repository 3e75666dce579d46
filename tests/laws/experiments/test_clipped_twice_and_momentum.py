import itertools

import numpy as np
import pytest
import torch

from lethe.theorems.lipschitz import clipped_step
from lethe_experiments.hong.debiased_momentum import DebiasedMomentum
from lethe_experiments.liang.double_clipping import clip_mean, projected_iterate
from lethe_experiments.risk.momentum_weights import debiased_weights


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


def test_the_projected_iterate_is_the_papers_second_clipping() -> None:
    generator = torch.Generator().manual_seed(0)
    given = {str(size): torch.nn.Parameter(torch.randn(size, generator=generator, dtype=torch.float64)) for size in (12, 3)}
    before = {name: parameter.detach().clone() for name, parameter in given.items()}
    projected_iterate(given, float(torch.cat(list(before.values())).norm()) / 2).step(0.1)
    for name, parameter in given.items():
        np.testing.assert_allclose(parameter.detach().numpy(), before[name].numpy() / 4, rtol=1e-12)


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


def test_a_twice_clipped_step_can_leave_the_constant_of_a_once_clipped_one() -> None:
    """Why clip_mean is certified by composition only: two projections before the Hessians beat the constant of one."""
    worst, smoothness, step_size = 0.0, 1.0, 1.5
    units = [np.array([np.cos(angle), np.sin(angle)]) for angle in np.linspace(0, np.pi, 31)]
    for first, second in itertools.product(units, units):
        step = np.eye(2) - step_size * np.outer(first, first) @ np.outer(second, second) @ np.diag([smoothness, 0.0])
        worst = max(worst, float(np.linalg.norm(step, 2)))
    assert worst > clipped_step(step_size, 0.0, smoothness) * 1.01
