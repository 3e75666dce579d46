"""Noisy descent on quadratics, exactly: the mean and the second moments of every mode, step by step. No simulation."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def exact_risk(eigenvalues: ArrayLike, start: ArrayLike, step_sizes: ArrayLike, noise_stds: ArrayLike, ridge: float = 0.0) -> float:
    """E f(x_T) - f* for f(x) = sum lam_i x_i^2 / 2 + ridge |x|^2 / 2; steps x <- (x - step lam x + N(0, std^2)) / (1 + step ridge)."""
    lam, mean = np.asarray(eigenvalues, dtype=float), np.asarray(start, dtype=float)
    variance = np.zeros_like(lam)
    for step, std in zip(np.asarray(step_sizes), np.asarray(noise_stds), strict=True):
        factor, shrink = 1.0 - step * lam, 1.0 + step * ridge
        mean, variance = factor * mean / shrink, (factor**2 * variance + std**2) / shrink**2
    return float(np.sum((lam + ridge) * (mean**2 + variance))) / 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentumPath:
    """E f(theta_{t+1}) - f* and E|v_{t+1}|^2, t = 1..T."""

    risks: Floats
    velocities: Floats


def exact_momentum(eigenvalues: ArrayLike, start: ArrayLike, *, step: float, beta: float, gradient_stds: ArrayLike) -> MomentumPath:
    """Debiased momentum: v <- beta v + (1 - beta)(lam theta + N(0, std^2)), theta <- theta - step v / (1 - beta^t)."""
    lam, theta = np.asarray(eigenvalues, dtype=float), np.asarray(start, dtype=float)
    mean = np.stack([theta, np.zeros_like(theta)])
    moments = np.zeros((2, 2, lam.size))
    risks, velocities = [], []
    for t, std in enumerate(np.asarray(gradient_stds, dtype=float), start=1):
        along = step / (1.0 - beta**t)
        ones = np.ones_like(lam)
        move = np.array([[1.0 - along * (1.0 - beta) * lam, -along * beta * ones], [(1.0 - beta) * lam, beta * ones]])
        push = np.array([-along * (1.0 - beta), 1.0 - beta])
        mean = np.einsum("ijk,jk->ik", move, mean)
        moments = np.einsum("ijk,jlk,mlk->imk", move, moments, move) + np.multiply.outer(np.outer(push, push), ones * std**2)
        risks.append(float(np.sum(lam * (mean[0] ** 2 + moments[0, 0]))) / 2.0)
        velocities.append(float(np.sum(mean[1] ** 2 + moments[1, 1])))
    return MomentumPath(risks=np.array(risks), velocities=np.array(velocities))
