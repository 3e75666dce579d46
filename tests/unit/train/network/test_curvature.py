from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from lethe.train.network.curvature import estimate_curvature


def quadratic(eigenvalues: list[float], seed: int = 0) -> tuple[Callable[[], Tensor], list[Tensor]]:
    size = len(eigenvalues)
    basis, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((size, size)))
    matrix = torch.tensor(basis @ np.diag(eigenvalues) @ basis.T)
    first = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    rest = torch.ones(size - 2, dtype=torch.float64, requires_grad=True)

    def loss() -> Tensor:
        point = torch.cat([first, rest])
        return point @ matrix @ point / 2 + 3 * point.sum()

    return loss, [first, rest]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "eigenvalues",
    [
        [3.0, 1.0, 0.5, 0.1],
        [2.0, -5.0, 1.0, 0.0],
        # Equal sizes: power iteration with H itself never settles, and with its square takes a second.
        pytest.param([4.0, -4.0, 1.0, 0.3], marks=pytest.mark.nightly),
        [-1.0, -2.0, -7.0, -3.0],
        [2.0, 2.0, 2.0, 2.0],
        [0.0, 0.0, 0.0, 0.0],
        [1e-9, -3e-9, 0.0, 2e-9],
    ],
)
def test_quadratics(eigenvalues: list[float]) -> None:
    loss, points = quadratic(eigenvalues)
    found = estimate_curvature(loss, points, data="synthetic", iterations=2000, tolerance=1e-7)
    size = max(map(abs, eigenvalues))
    assert found.converged
    # A residual of 1e-7 of the scale leaves the quotient off by its square over the gap, and a random start by (1 - gap)^2000.
    assert found.largest == pytest.approx(max(eigenvalues), abs=1e-6 * size)
    assert found.smallest == pytest.approx(min(eigenvalues), abs=1e-6 * size)
    assert found.smoothness == pytest.approx(size, abs=1e-6 * size)
    assert found.dimension == 4
    assert all(point.grad is None for point in points)


def test_a_few_directions_among_many_are_found_and_a_parameter_without_effect_is_flat() -> None:
    """The residual of a random start is small beside the largest eigenvalue here; ending there would report no negative curvature."""
    scales = torch.zeros(20_000, dtype=torch.float64)
    scales[7], scales[9] = 10.0, -4.0
    point, idle = torch.ones(20_000, dtype=torch.float64, requires_grad=True), torch.ones(2, dtype=torch.float64, requires_grad=True)
    found = estimate_curvature(lambda: (scales * point**2).sum() / 2, [point, idle], data="synthetic", iterations=80, tolerance=0.01)
    assert found.largest == pytest.approx(10.0, rel=1e-3)
    assert found.smallest == pytest.approx(-4.0, rel=1e-2)
    assert found.evidence == "declared"
    straight = estimate_curvature(lambda: point.sum(), [point, idle], data="synthetic")
    assert straight.largest == straight.smallest == 0.0
