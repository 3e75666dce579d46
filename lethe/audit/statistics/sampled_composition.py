r"""$\epsilon$ of T sampled Gaussian steps, from below: the accountant bounds it from above, and a referee needs the other side."""

from __future__ import annotations

import math

import numpy as np
from scipy import fft, special

from lethe.calculus.domains import FloatArray

_POINTS = 1 << 22
# Cells of one step's outcome, over 9 standard deviations to either side of both means.
_CELLS = 400_000
_REACH = 9.0
# A transform's rounding, raised to the power T, is T * 3e-16 of the norm of the masses (at most 1); a sum of them has sqrt(points) more.
_ROUNDING = 1e-12


def sampled_epsilon(mu: float, probability: float, steps: int, delta: float) -> float:
    r"""A lower bound on $\epsilon(\delta)$ of T steps of $(1-q)N(0,1) + qN(\mu,1)$ against $N(0,1)$.

    $$\delta(\epsilon) = \mathbb{E}_{L}\left[(1 - e^{\epsilon - L})_+\right], \qquad
        L = \sum_{t \le T} \log(1 - q + q e^{\mu z_t - \mu^2/2}),$$

    z from the mixture, grows with every $L$. So each step's loss is rounded DOWN to a grid, outcomes far out are dropped, and T of them are
    summed by a circular convolution that starts at the least loss possible: what is beyond its end wraps to smaller losses. All three only
    lower $\delta(\epsilon)$, and an $\epsilon$ with $\delta(\epsilon) > \delta$ is one that the mechanism does not meet.

    Args:
        mu: $\mu \ge 0$ of one step that holds the record.
        probability: $q \in (0, 1)$.
        steps: $T \ge 1$.
        delta: $\delta \in (0, 1)$.
    Returns:
        A value below $\epsilon(\delta)$ by about T/2 grid steps: T / 2^23 of the range of losses that matters.
    """
    if mu == 0.0:
        return 0.0
    losses, masses = _one_step(mu, probability)
    lowest = math.log1p(-probability)
    mean = float(masses @ losses)
    spread = math.sqrt(float(masses @ np.square(losses - mean)) * steps)
    # Chernoff's bound on the far end; further out is less than delta / 10^4.
    orders = np.geomspace(0.01, 100.0, 60)
    cumulants = np.array([special.logsumexp(order * losses, b=masses) for order in orders])
    highest = min(float(np.min((steps * cumulants - math.log(1e-4 * delta)) / orders)), steps * float(losses[-1])) + spread
    grid = (highest - steps * lowest) / _POINTS
    places = np.maximum(np.floor((losses - lowest) / grid * (1.0 - 1e-12)).astype(np.int64), 0)
    step = np.bincount(places % _POINTS, weights=masses, minlength=_POINTS)
    summed = fft.irfft(fft.rfft(step) ** steps, _POINTS)
    totals: FloatArray = np.asarray(steps * lowest + grid * np.arange(_POINTS), dtype=np.float64)
    return _last_level_above(totals, np.maximum(np.asarray(summed, dtype=np.float64), 0.0), delta * (1.0 + 1e-7) + _ROUNDING * steps)


def _one_step(mu: float, probability: float) -> tuple[FloatArray, FloatArray]:
    """Losses at the lower edges of the cells of z, increasing, and the mixture's masses there, each lowered by its rounding error."""
    edges = np.linspace(-_REACH, _REACH + mu, _CELLS + 1)
    exponents = mu * edges[:-1] - 0.5 * mu * mu
    losses = np.logaddexp(math.log1p(-probability), math.log(probability) + exponents)
    masses = (1.0 - probability) * np.diff(special.ndtr(edges)) + probability * np.diff(special.ndtr(edges - mu))
    return losses, np.maximum(masses - 4e-16, 0.0)


def _last_level_above(losses: FloatArray, masses: FloatArray, delta: float) -> float:
    r"""The largest grid point $\epsilon \ge 0$ with $\delta(\epsilon)$ above `delta`, or 0."""
    above = np.cumsum(masses[::-1])[::-1]
    positive = losses >= 0.0
    levels, tail = losses[positive], above[positive]
    tilted = np.cumsum((masses[positive] * np.exp(-levels))[::-1])[::-1]
    deltas = tail - np.exp(np.minimum(levels, 700.0)) * tilted
    held = np.flatnonzero((deltas > delta) & (levels < 700.0))
    return float(levels[held[-1]]) if held.size else 0.0
