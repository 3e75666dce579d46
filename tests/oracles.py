"""Slow truths: what the fast code is compared with. Nothing here is imported from the code under test."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from math import sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls
from scipy.special import log_ndtr, ndtr

Floats = NDArray[np.float64]


def brute_force_shift(lipschitz: ArrayLike, sensitivity: ArrayLike, noise_std: ArrayLike, start: float = 0.0) -> float:
    r"""The smallest mu for a few steps with noise, as a least-distance problem solved by non-negative least squares.

    Unknown: x_t = a_t / tau_t. Minimise ||x|| subject to x >= 0, z_t >= 0 and z_T <= 0 (Lawson & Hanson 1974, chapter 23: with
    u minimising ||E u - f||, u >= 0, E = [G h]^T, f = e_{n+1}, the solution is x = -r[:n] / r[n] for the residual r = E u - f).
    """
    factors, touches, noise = np.asarray(lipschitz, float), np.asarray(sensitivity, float), np.asarray(noise_std, float)
    if start == 0.0 and touches[0] == 0.0:
        # Nothing has arrived, so x_1 = 0. Left in, its two opposite constraints make the least squares singular.
        return brute_force_shift(factors[1:], touches[1:], noise[1:]) if touches.any() else 0.0
    steps = factors.size
    # z_t = arrived_t - sum_i paid[t, i] x_i
    arrived, paid = np.zeros(steps), np.zeros((steps, steps))
    for t in range(steps):
        arrived[t] = factors[t] * (arrived[t - 1] if t else start) + touches[t]
        paid[t] = factors[t] * paid[t - 1] if t else 0.0
        paid[t, t] = noise[t]
    if arrived[-1] == 0.0:
        return 0.0
    rows = np.vstack((np.eye(steps), -paid, paid[-1:]))
    bounds = np.concatenate((np.zeros(steps), -arrived, arrived[-1:]))
    # Rows of one size: the constraint is the same, the arithmetic better.
    sizes = np.linalg.norm(rows, axis=1)
    rows, bounds = rows / sizes[:, None], bounds / sizes
    unit = arrived[-1] / sizes[-1]
    system = np.vstack((rows.T, bounds / unit))
    goal = np.append(np.zeros(steps), 1.0)
    multipliers, _ = nnls(system, goal, maxiter=100 * rows.shape[0])
    residual = system @ multipliers - goal
    return float(np.linalg.norm(residual[:steps] / residual[steps])) * float(unit)


def exact_shift(lipschitz: ArrayLike, sensitivity: ArrayLike, noise_std: ArrayLike) -> Fraction:
    """The exact squared mu in rational arithmetic, for runs whose last step has noise: the convex minorant by a monotone chain."""
    factors, touches, noise = ([Fraction(float(x)) for x in np.asarray(values, float)] for values in (lipschitz, sensitivity, noise_std))
    points, weight = [(Fraction(0), Fraction(0))], Fraction(1)
    for t in range(len(factors) - 1, -1, -1):  # from the end of the run, where the weight is 1, backward
        x, y = points[-1]
        points.append((x - (weight * noise[t]) ** 2, y - weight * touches[t]))
        weight *= factors[t]
    points.reverse()
    hull: list[tuple[Fraction, Fraction]] = []
    for x, y in points:
        while len(hull) > 1 and (hull[-1][1] - hull[-2][1]) * (x - hull[-1][0]) >= (y - hull[-1][1]) * (hull[-1][0] - hull[-2][0]):
            hull.pop()
        hull.append((x, y))
    return sum(((q[1] - p[1]) ** 2 / (q[0] - p[0]) for p, q in pairwise(hull) if q[1] > p[1]), Fraction(0))


def brute_force_windows(lipschitz: ArrayLike, sensitivity: ArrayLike, noise_std: ArrayLike, diameter: ArrayLike) -> float:
    """The smallest mu over all starts, each by `brute_force_shift`."""
    factors, touches, noise = np.asarray(lipschitz, float), np.asarray(sensitivity, float), np.asarray(noise_std, float)
    caps = np.broadcast_to(np.asarray(diameter, float), factors.shape)
    tracked, best = 0.0, np.inf
    for start in range(factors.size):
        if start:
            tracked = min(caps[start - 1], factors[start - 1] * tracked + touches[start - 1])
        best = min(best, brute_force_shift(factors[start:], touches[start:], noise[start:], tracked))
    return best


def weights(lipschitz: ArrayLike) -> Floats:
    """w_t, the product of the Lipschitz constants after step t."""
    factors = np.asarray(lipschitz, float)
    return np.append(np.cumprod(factors[:0:-1])[::-1], 1.0)


def linear_gaussian_mu_same_direction(lipschitz: ArrayLike, sensitivity: ArrayLike, noise_std: ArrayLike) -> float:
    """Exact: x -> L_t x with every difference s_t in one direction ends Gaussian, mean apart by sum w s, variance sum w^2 tau^2."""
    w = weights(lipschitz)
    return float(np.sum(w * np.asarray(sensitivity)) / np.sqrt(np.sum((w * np.asarray(noise_std)) ** 2)))


def linear_gaussian_mu_orthogonal(lipschitz: ArrayLike, sensitivity: ArrayLike, noise_std: ArrayLike) -> float:
    """Exact: the same with every difference in a direction of its own, whose noise matters only from its touch on.

    The map forgets a direction until it is touched (multiplying it by 0 before), so that less noise hides each difference.
    """
    w, touches, noise = weights(lipschitz), np.asarray(sensitivity, float), np.asarray(noise_std, float)
    behind = np.cumsum(((w * noise) ** 2)[::-1])[::-1]
    touched = touches > 0.0
    return sqrt(float(np.sum((w * touches)[touched] ** 2 / behind[touched])))


def gaussian_delta(mu: ArrayLike, epsilon: float) -> Floats:
    """delta of N(0, 1) against N(mu, 1) (Balle & Wang 2018, arXiv:1805.06530, Theorem 8); 0 at mu = 0, 1 at inf."""
    mus = np.atleast_1d(np.asarray(mu, float))
    inside = np.clip(mus, 1e-150, 1e150)
    deltas = ndtr(inside / 2 - epsilon / inside) - np.exp(epsilon + log_ndtr(-inside / 2 - epsilon / inside))
    return np.where(mus == 0.0, 0.0, np.where(np.isinf(mus), 1.0, np.maximum(deltas, 0.0)))


def mixture_delta(mus: ArrayLike, probabilities: ArrayLike, epsilon: float) -> float:
    """The mean of delta over a mixture."""
    return float(np.sum(np.asarray(probabilities, float) * gaussian_delta(mus, epsilon)))


def mixture_epsilon(mus: ArrayLike, probabilities: ArrayLike, delta: float) -> float:
    """The epsilon at which the mixture has that delta, to 1e-9, by bisection."""
    low, high = 0.0, 200.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if mixture_delta(mus, probabilities, middle) > delta else (low, middle)
    return high


def projected_chain_delta(
    diameter: float, noise_std: ArrayLike, shifts: ArrayLike, other_shifts: ArrayLike, epsilon: float, cells: int = 1501
) -> tuple[float, float]:
    r"""A lower bound on delta, in both directions, of the last iterate of $x \mapsto \mathrm{clip}(x + \text{shift}_t + \nu_t)$.

    One dimension, clipped to $[-D/2, D/2]$, start at 0. The law is mass on the midpoints of an odd number of cells and on the two end
    points, which are atoms; each step moves it exactly but for the place inside a cell. That error falls with the cell width; 1e-4 is
    subtracted for it, more than the change from 501 to 1501 cells (a test).
    """
    worlds: list[Floats] = []
    width = diameter / cells
    points = np.concatenate(([-diameter / 2], -diameter / 2 + width * (np.arange(cells) + 0.5), [diameter / 2]))
    edges = np.concatenate(([-np.inf], -diameter / 2 + width * np.arange(cells + 1), [np.inf]))
    for world in (shifts, other_shifts):
        mass = np.zeros(points.size)
        mass[points.size // 2] = 1.0
        for shift, noise in np.broadcast(np.asarray(world, float), np.asarray(noise_std, float)):
            mass = np.diff(ndtr((edges[None, :] - points[:, None] - shift) / noise), axis=1).T @ mass
        worlds.append(mass)
    one, other = worlds
    factor = np.exp(epsilon)
    error = 1e-4
    return (
        float(np.maximum(one - factor * other, 0.0).sum()) - error,
        float(np.maximum(other - factor * one, 0.0).sum()) - error,
    )
