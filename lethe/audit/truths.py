r"""Mechanisms whose $\epsilon$ is known exactly, against which audits and bounds are tested. Values, not bounds: good to about 1e-6."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial

import numpy as np
from scipy import special

from lethe.calculus.conversions import profile_epsilon
from lethe.calculus.domains import (
    FloatArray,
    outside,
    require_count,
    require_delta,
    require_nonnegative,
    require_positive,
    require_probability,
)

_nodes = cache(partial(np.polynomial.legendre.leggauss, 600))


def linear_last_iterate_epsilon(*, steps: int, sampling_probability: float, noise_multiplier: float, delta: float) -> float:
    r"""$\epsilon(\delta)$ of the last iterate of Poisson-sampled DP-SGD on a linear loss, adding or removing one record.

    With gradients that do not depend on the iterate its displacement is $\mathrm{Bin}(T, q) + N(0, z^2T)$ with the record and
    $N(0, z^2T)$ without. Their likelihood ratio grows with the displacement, so each direction has one threshold.

    Args:
        steps: $T \ge 1$.
        sampling_probability: $q \in [0, 1]$.
        noise_multiplier: $z > 0$, noise of one step's sum relative to the record's gradient.
        delta: $\delta \in (0, 1)$.
    Raises:
        InputError: an argument is outside its range.
    Reference: Steinke et al. 2024, arXiv:2410.06186.
    """
    count = require_count("steps", steps, low=1, high=10**7)
    rate, target = require_probability("sampling_probability", sampling_probability), require_delta(delta)
    spread = require_positive("noise_multiplier", noise_multiplier) * math.sqrt(count)
    draws = np.arange(count + 1)
    weights = np.exp(
        special.gammaln(count + 1.0)
        - special.gammaln(draws + 1.0)
        - special.gammaln(count - draws + 1.0)
        + special.xlogy(draws, rate)
        + special.xlog1py(count - draws, -rate)
    )
    # Weights that small cannot be seen in delta, and most of a million terms are.
    kept = weights > 1e-30
    draws, weights = draws[kept], weights[kept]

    def log_ratio(place: float) -> float:
        return float(special.logsumexp((draws * place - 0.5 * np.square(draws)) / spread**2, b=weights))

    def delta_of(epsilon: float) -> float:
        above = _root(log_ratio, epsilon, spread)
        forward = float(weights @ special.ndtr((draws - above) / spread)) - math.exp(epsilon) * float(special.ndtr(-above / spread))
        below = _root(log_ratio, -epsilon, spread)
        backward = float(special.ndtr(below / spread)) - math.exp(epsilon) * float(weights @ special.ndtr((below - draws) / spread))
        return max(forward, backward, 0.0)

    return _epsilon(delta_of, target)


def periodic_canary_mus(*, steps: int, every: int, noise_multiplier: float) -> tuple[float, float]:
    r"""$\mu$ of the last iterate and of all iterates, if a record adds one gradient every k-th of T steps and all others are 0.

    The last iterate sums T/k gradients under noise $z\sqrt T$: $\mu = (T/k)/(z\sqrt T)$; seeing every step gives $\sqrt{T/k}/z$.

    Args:
        steps: $T \ge 1$.
        every: $k$ from 1 to T.
        noise_multiplier: $z > 0$, noise of one step relative to the gradient.
    """
    count = require_count("steps", steps, low=1, high=10**9)
    touches = count // require_count("every", every, low=1, high=count)
    noise = require_positive("noise_multiplier", noise_multiplier)
    return touches / (noise * math.sqrt(count)), math.sqrt(touches) / noise


def projected_walk_epsilon(*, steps: int, diameter: float, shift: float, noise_std: float, start: float, delta: float) -> float:
    r"""$\epsilon(\delta)$ of $x \leftarrow \min\{\max\{x + s\,[\mathrm{IN}] + \tau Z, 0\}, D\}$ after T steps, the last iterate released.

    Noisy gradient descent on [0, D] with a linear loss, full batches, and a record that moves each step by s: a legal instance of every
    theorem about bounded domains, so none of their bounds may be smaller. The law has atoms at both ends and a smooth density between,
    followed by Nyström's method at Gauss-Legendre nodes.

    Args:
        steps: $T \ge 1$.
        diameter: $D > 0$.
        shift: $s \ge 0$, in the units of D.
        noise_std: $\tau > 0$, in the units of D; at least D/50, so that the nodes see it.
        start: $x_0 \in [0, D]$.
        delta: $\delta \in [0, 1)$.
    Raises:
        InputError: an argument is outside its range.
    """
    count, width = require_count("steps", steps, low=1, high=10**6), require_positive("diameter", diameter)
    move, noise = require_nonnegative("shift", shift, allow_infinity=False), require_positive("noise_std", noise_std)
    first, target = require_nonnegative("start", start), require_delta(delta)
    if first > width:
        raise outside("start", start, "a number from 0 to the diameter")
    if noise < width / 50.0:
        raise outside("noise_std", noise_std, "a number of at least a fiftieth of the diameter")
    with_record = _walk(width, move, noise, first, count)
    without = _walk(width, 0.0, noise, first, count)

    def delta_of(epsilon: float) -> float:
        factor = math.exp(min(epsilon, 700.0))
        return max(
            float(np.sum(np.maximum(with_record - factor * without, 0.0))), float(np.sum(np.maximum(without - factor * with_record, 0.0)))
        )

    return _epsilon(delta_of, target)


def _walk(width: float, shift: float, noise: float, start: float, steps: int) -> FloatArray:
    """Masses at 0, at the nodes and at D after that many steps."""
    nodes, weights = _nodes()
    places, weights = 0.5 * width * (nodes + 1.0), 0.5 * width * weights
    sources = np.concatenate([[0.0], places, [width]]) + shift
    distance = (places[:, None] - sources) / noise
    inner = weights[:, None] * np.exp(-0.5 * np.square(distance)) / (noise * math.sqrt(2.0 * math.pi))
    moves = np.vstack([special.ndtr(-sources / noise), inner, special.ndtr((sources - width) / noise)])
    begin = (places - start - shift) / noise
    density = weights * np.exp(-0.5 * np.square(begin)) / (noise * math.sqrt(2.0 * math.pi))
    masses = np.concatenate([[special.ndtr(-(start + shift) / noise)], density, [special.ndtr((start + shift - width) / noise)]])
    for _ in range(steps - 1):
        masses = moves @ masses
    return masses


def _root(increasing: Callable[[float], float], value: float, scale: float) -> float:
    """Where an increasing function takes a value; the end of the line where it never does."""
    low, high = -scale, scale
    while increasing(low) > value and low > -1e12 * scale:
        low *= 4.0
    while increasing(high) < value and high < 1e12 * scale:
        high *= 4.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        low, high = (middle, high) if increasing(middle) < value else (low, middle)
    return high


def _epsilon(delta_of: Callable[[float], float], delta: float) -> float:
    return profile_epsilon(lambda epsilon: 0.0 if epsilon > 700.0 else delta_of(epsilon), delta)
