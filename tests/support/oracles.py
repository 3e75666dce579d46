"""Slow truths: what the fast code is compared with. Nothing here is imported from the code under test."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
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


@dataclass(frozen=True)
class ProjectedChain:
    r"""The exact law of $x_t = \mathrm{clip}(\phi(x_{t-1}) + \text{drift}_t + \nu_t)$ on $[0, D]$ after some steps, in one dimension.

    The drift of a step is drawn from a few values, so that random batches are chains too. The law is a density on the inside, kept at
    Gauss-Legendre nodes (the noise makes it analytic, so the quadrature converges geometrically), and an atom at either end.
    """

    diameter: float
    start: float
    nodes: int = 400

    def law(
        self, noise_stds: ArrayLike, drifts: Sequence[Sequence[tuple[float, float]]], step: Callable[[Floats], Floats] = np.positive
    ) -> Floats:
        """Masses: the atom at 0, density times weight at the nodes, the atom at D. `drifts`: (probability, drift) pairs, each step;
        `step` is phi."""
        mass: Floats | None = None
        made_for: tuple[float, list[tuple[float, float]]] | None = None
        kernel = np.empty(0)
        for noise, draws in zip(np.asarray(noise_stds, float).tolist(), drifts, strict=True):
            if mass is None:
                mass = self.after(None, noise, draws, step)
                continue
            if made_for != (noise, list(draws)):  # most chains take the same step many times
                made_for, kernel = (noise, list(draws)), self._kernel(self._places(), noise, draws, step)
            mass = mass @ kernel
        assert mass is not None
        return mass

    def after(
        self, mass: Floats | None, noise: float, draws: Sequence[tuple[float, float]], step: Callable[[Floats], Floats] = np.positive
    ) -> Floats:
        """The masses after one more step; None is the start."""
        origins, masses = (np.array([self.start]), np.array([1.0])) if mass is None else (self._places(), mass)
        return masses @ self._kernel(origins, noise, draws, step)

    def _kernel(
        self, origins: Floats, noise: float, draws: Sequence[tuple[float, float]], step: Callable[[Floats], Floats] = np.positive
    ) -> Floats:
        """From each origin to each place, the mean over the draws."""
        inside, weights = self._grid()
        result = np.zeros((origins.size, inside.size + 2))
        for probability, drift in draws:
            centres = (step(origins) + drift)[:, None]
            density = np.exp(-0.5 * ((inside[None, :] - centres) / noise) ** 2) / (noise * sqrt(2 * np.pi)) * weights[None, :]
            result += probability * np.hstack((ndtr(-centres / noise), density, ndtr((centres - self.diameter) / noise)))
        return result

    def _places(self) -> Floats:
        return np.concatenate(([0.0], self._grid()[0], [self.diameter]))

    def _grid(self) -> tuple[Floats, Floats]:
        nodes, weights = _gauss_legendre(self.nodes)
        return self.diameter * (nodes + 1.0) / 2.0, self.diameter * weights / 2.0


@lru_cache(maxsize=16)
def _gauss_legendre(count: int) -> tuple[Floats, Floats]:
    return np.polynomial.legendre.leggauss(count)


def law_delta(one: Floats, other: Floats, epsilon: float) -> float:
    """The hockey-stick divergence of two laws on the same points, the larger direction.

    Where the densities cross inside a cell of the quadrature, the sum is off by less than the weight of that cell.
    """
    factor = np.exp(epsilon)
    return max(float(np.maximum(one - factor * other, 0.0).sum()), float(np.maximum(other - factor * one, 0.0).sum()))


def law_epsilon(one: Floats, other: Floats, delta: float) -> float:
    """The epsilon at which `law_delta` falls to delta, to 1e-9, by bisection."""
    low, high = 0.0, 200.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if law_delta(one, other, middle) > delta else (low, middle)
    return high


def projected_chain_delta(diameter: float, noise_std: ArrayLike, shifts: ArrayLike, other_shifts: ArrayLike, epsilon: float) -> float:
    """delta, the larger direction, of the last iterate of a projected chain from the middle of its domain; each world its own drifts."""
    return law_delta(*projected_chain_laws(diameter, noise_std, shifts, other_shifts), epsilon)


def projected_chain_laws(diameter: float, noise_std: ArrayLike, shifts: ArrayLike, other_shifts: ArrayLike) -> tuple[Floats, Floats]:
    """The laws of both worlds of `projected_chain_delta`."""
    # Enough nodes that their spacing hides where the two densities cross.
    chain = ProjectedChain(diameter, diameter / 2, nodes=max(400, int(60 * diameter / np.min(noise_std))))
    one, other = (
        chain.law(np.broadcast_to(noise_std, np.shape(world)), [[(1.0, float(drift))] for drift in np.asarray(world, float)])
        for world in (shifts, other_shifts)
    )
    return one, other


def advanced_composition(epsilons: ArrayLike, slack: float) -> float:
    r"""$\sum_j\epsilon_j(e^{\epsilon_j} - 1) + \sqrt{2\ln(1/\text{slack})\sum_j\epsilon_j^2}$ of mechanisms that are
    $(\epsilon_j, \delta_j)$-DP, at $\delta = \text{slack} + \sum_j\delta_j$; Dwork, Rothblum, Vadhan 2010."""
    values = np.asarray(epsilons, float)
    return float((values * np.expm1(values)).sum()) + sqrt(-2.0 * np.log(slack) * float((values * values).sum()))


def mironov_epsilon(orders: ArrayLike, values: ArrayLike, delta: float) -> float:
    r"""$\min_\alpha \epsilon(\alpha) + \log(1/\delta)/(\alpha-1)$: Mironov 2017, arXiv:1702.07476, Proposition 3."""
    return float(np.min(np.asarray(values, float) - np.log(delta) / (np.asarray(orders, float) - 1.0)))
