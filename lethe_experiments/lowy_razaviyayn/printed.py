r"""Lowy & Razaviyayn 2023, arXiv:2209.07403: bounds that Lethe has sharper, as printed, and the error of the median of means.

What replaces them is in `lethe.heavy_tailed`: `accelerated_bound`, `CoordinateMedian`, `convex_lower_bound`.
"""

from __future__ import annotations

import math

import numpy as np

from lethe.calculus.domains import outside, require_count, require_positive
from lethe.heavy_tailed.oracles import group_size, noise_scale, require_clip, require_groups
from lethe.heavy_tailed.problem import Problem, clipping_bias, require_distance, require_problem


def printed_bounds(steps: int, step: float, smoothness: float, distance: float, bias: float, variance: float) -> tuple[float, float]:
    r"""As printed, true and larger: Proposition 30 as a sum over steps, and its closed form for these steps.

    $$\gamma_T\frac{\eta_1D^2}2 + \gamma_T\sum_t\frac{2a_t^2(\Sigma^2 + B^2)}{\gamma_t(\eta_t - \beta a_t^2)} + BD,\qquad
      \frac{4\eta D^2}{T(T+1)} + \frac{4(\Sigma^2 + B^2)(T+2)}{3\eta} + BD$$

    with $a_t = \frac2{t+1}$, $\gamma_t = \frac2{t(t+1)}$, $\eta_t = \frac{4\eta}{t(t+1)}$. Arguments as `accelerated_bound`.
    """
    count, eta, reach, off = require_count("steps", steps), require_positive("step", step), require_distance(distance), bias
    squared = variance + bias * bias
    t = np.arange(1, count + 1, dtype=np.float64)
    a, gamma, lengths = 2.0 / (t + 1.0), 2.0 / (t * (t + 1.0)), 4.0 * eta / (t * (t + 1.0))
    last = float(gamma[-1])
    with np.errstate(over="ignore"):
        total = last * float((2.0 * a**2 * squared / (gamma * (lengths - smoothness * a**2))).sum())
    closed = 4.0 * eta * reach**2 / (count * (count + 1)) + 4.0 * squared * (count + 2) / (3.0 * eta)
    return last * 2.0 * eta * reach**2 / 2.0 + total + off * reach, closed + off * reach


def explicit_bound(problem: Problem, records: int, rho: float, steps: int) -> float:
    r"""A closed form for the theorem's clip norm and step, with $\epsilon = \sqrt{2\rho}$ and any $T \le n$:

    $$\frac{8\beta D^2}{T(T+1)} + \frac{8\sqrt2\,r_2D}{\sqrt n} + \Big(32 + \frac9{k-1}\Big)r_kD\Big(\frac{\sqrt{dT}}{\epsilon
    n}\Big)^{(k-1)/k}$$

    Args:
        problem: with smoothness, moments and a bounded domain, whose diameter is D.
        records: n.
        rho: $\rho$.
        steps: T.
    """
    require_problem(problem)
    moments, d, reach = problem.known_moments(), problem.dimension, problem.distance()
    count, n = require_count("steps", steps), require_count("records", records)
    k = moments.order
    privacy = (math.sqrt(d * count) / (noise_scale(rho) * n)) ** ((k - 1.0) / k)
    first = 8.0 * problem.known("smoothness") * reach**2 / (count * (count + 1))
    sampling = 8.0 * math.sqrt(2.0) * moments.raw_second(d) * reach / math.sqrt(n)
    return first + sampling + (32.0 + 9.0 / (k - 1.0)) * moments.raw(d) * reach * privacy


def groups_for(dimension: int, failure: float) -> int:
    r"""The smallest odd $m \ge \ln(d/\zeta)/1.6144$, with which `median_error` fails with probability at most $\zeta$.

    A group mean strays by more than ten times its standard deviation with probability at most 0.01 (Chebyshev), a median only if half of
    the groups do: at most $e^{-m\,\mathrm{KL}(1/2\,\|\,0.01)}$ (Chernoff), and $\mathrm{KL} = 1.6144$. The paper's
    $\lceil20\ln(4d/\zeta)\rceil$
    is about 30 times as many.

    Args:
        dimension: d.
        failure: $\zeta \in (0, 1)$.
    Raises:
        InputError: an argument is outside its range.
    """
    chance = require_positive("failure", failure)
    if chance >= 1.0:
        raise outside("failure", failure, "a number above 0 and below 1")
    divergence = -math.log(2.0 * math.sqrt(0.01 * 0.99))
    needed = math.ceil((math.log(require_count("dimension", dimension)) - math.log(chance)) / divergence)
    return needed + 1 - needed % 2


def median_error(order: float, gamma: float, threshold: float, size: int, dimension: int, groups: int) -> float:
    r"""How far the noiseless medians are from the mean, with probability $1 - \zeta$ for $m$ = `groups_for`$(d, \zeta)$.

    $$\sqrt d\,\Big(\frac{10\,\gamma^{1/k}}{\sqrt q} + c_k\,\gamma\Big(\frac2\tau\Big)^{k-1}\Big)$$

    for coordinates with $E|z_j - \nu_j|^k \le \gamma$ and $\tau \ge 2\|\nu\|$: clipping moves the mean of $z_j$ by at most
    $E(|z_j - \nu_j| - \tau/2)_+$, and does not raise its variance above $\gamma^{2/k}$. The paper has 10 in place of $c_k$.

    Args:
        order: $k \ge 2$.
        gamma: $\gamma$, in units to the power k.
        threshold: $\tau$.
        size: s.
        dimension: d.
        groups: m.
    Raises:
        InputError: an argument is outside its range.
    Reference: Lowy & Razaviyayn 2023, arXiv:2209.07403, Lemmas 57 to 59.
    """
    root = require_positive("gamma", gamma) ** (1.0 / require_positive("order", order))
    bias = clipping_bias(order, root, require_clip("threshold", threshold) / 2.0)
    deviation = 10.0 * root / math.sqrt(group_size(size, require_groups(groups)))
    return math.sqrt(require_count("dimension", dimension)) * (deviation + bias)


def printed_fano_factor(records: int, dimension: int) -> float:
    r"""$1 - 60/\sqrt n - 20\ln2/d$: Theorem 26's own factor, sign mended: negative at its smallest n = 7202, d = 40."""
    return 1.0 - 60.0 / math.sqrt(require_count("records", records)) - 20.0 * math.log(2.0) / require_count("dimension", dimension)
