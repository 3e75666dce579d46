r"""Noise under momentum: each step's weight in the debiased average, and its effect on the risk bound.

$v_{t+1} = \beta v_t + (1-\beta) g_t$ from $v_1 = 0$, and the step is taken along $m_t = v_{t+1}/(1-\beta^t)$.
"""

from __future__ import annotations

import math
from typing import Literal, SupportsIndex

import numpy as np

from lethe.calculus.domains import outside
from lethe.run.schedules.allocation import checked_steps
from lethe.run.schedules.momentum import carried_back, momentum_of, newest_weights, rate_of_risk, representable
from lethe.run.schedules.shapes import Array

Form = Literal["corrected", "printed"]


def debiased_weights(beta: float, step: SupportsIndex) -> Array:
    r"""Weight of each gradient $g_1..g_t$ in the debiased average $m_t$; they add up to 1.

    $$m_t = \sum_{i=1}^t \frac{(1-\beta)\beta^{t-i}}{1-\beta^t}\,g_i$$

    Args:
        beta: $\beta \in [0, 1)$.
        step: $t \ge 1$.
    Returns:
        Shape (t,).
    Raises:
        InputError: an argument is outside its range.
    Reference: Hong, Wang, Zhou 2022 (FAccT), Algorithm 1.
    """
    decay, count = momentum_of(beta), checked_steps(step, "step")
    return newest_weights(decay, count)[-1] * np.power(decay, np.arange(count - 1, -1, -1, dtype=np.float64))


def coherent_weights(beta: float, steps: SupportsIndex) -> Array:
    r"""Weight of each step's noise in the sum of all debiased averages: its share of $\theta_{T+1}$ when nothing contracts.

    $$c_i = \sum_{t=i}^T \frac{(1-\beta)\beta^{t-i}}{1-\beta^t}$$

    The noise of one step enters every later average, each time with the same sign, so these weights add before they are squared.
    For $\beta = .9$ the first noise weighs 3.01 and the second 2.23, a noise in the middle of a long run 1, and the last
    $(1-\beta)/(1-\beta^T)$: debiasing makes early noise matter most when contraction is weak. `momentum_weights` adds squares instead.

    Args:
        beta: $\beta \in [0, 1)$.
        steps: $T \ge 1$.
    Returns:
        $c_i$, shape (T,), relative to one step size.
    Raises:
        InputError: an argument is outside its range.
    """
    decay, count = momentum_of(beta), checked_steps(steps)
    return carried_back(newest_weights(decay, count), decay)


def turning_step(gamma: float, beta: float) -> int:
    r"""$\hat T$, the last step at which the debiased average is less concentrated than the contraction.

    $$\hat T = \max\Big\{t : \gamma^{t-1} \ge \frac{1-\beta}{1-\beta^t}\Big\}$$

    $h(t) = \gamma^{t-1}(1-\beta^t)$ rises and then falls, and $h(1) = 1-\beta$: the steps that qualify are $1..\hat T$. It is 1 if
    $\gamma(1+\beta) < 1$.

    Args:
        gamma: $\gamma \in (0, 1)$.
        beta: $\beta \in [0, 1)$.
    Returns:
        $\hat T \ge 1$.
    Raises:
        InputError: an argument is outside its range.
    Reference: Hong, Wang, Zhou 2022 (FAccT), Theorem 4.7 and Lemma C.8, which calls h concave; it is only unimodal.
    """
    rate, decay = math.log(rate_of_risk(gamma, below_one=True)), momentum_of(beta)
    if decay == 0.0:
        return 1
    log_decay, target = math.log(decay), math.log1p(-decay)

    def qualifies(step: int) -> bool:
        return (step - 1) * rate + math.log(-math.expm1(step * log_decay)) >= target

    high = 2
    while qualifies(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if qualifies(middle) else (low, middle)
    return low


def theorem_4_8_weights(gamma: float, beta: float, steps: SupportsIndex, *, form: Form = "corrected") -> Array:
    r"""The weights of Theorem 4.8, meant to lie above `momentum_weights`; use those instead.

    form="corrected", for $\beta < \gamma$, an upper bound on the exact weights at every step, up to 150 times above them:

    $$\frac{2}{\gamma(\gamma-\beta^2)}\,\gamma^{T+t} \ \text{ for } t \le \hat T, \qquad
    \gamma^{2(\hat T-1)}\,\frac{\gamma^{T+1-t}-\beta^{2(T+1-t)}}{\gamma-\beta^2} \ \text{ for } t > \hat T$$

    form="printed" is REFUTED: it is not an upper bound on the exact weights (.004 of one of them for $\gamma = .99$, $\beta = .9$,
    $T = 400$). It decides by the length of the run where the proof decides by the step, and its $c_2$ is too small:

    $$\frac{2}{\gamma(\gamma-\beta^2)}\,\gamma^{T+t} \ \text{ if } T \le \hat T, \qquad
    \gamma^{\hat T-1} c_2\,\gamma^{T-t},\ c_2 = \frac{\gamma^{2\hat T}}{\gamma-\beta^2} \ \text{ if } T > \hat T$$

    Args:
        gamma: $\gamma \in (0, 1)$.
        beta: $\beta \in [0, \gamma)$.
        steps: $T \ge 1$.
        form: which of the two.
    Returns:
        Shape (T,), > 0.
    Raises:
        InputError: an argument is outside its range, or a weight would fall below what doubles hold.
    Reference: Hong, Wang, Zhou 2022 (FAccT), Theorem 4.8 and its proof in Appendix D.2.
    """
    rate, decay, count = rate_of_risk(gamma, below_one=True), momentum_of(beta), checked_steps(steps)
    if decay >= rate:
        raise outside("beta", beta, f"a number in [0, gamma) = [0, {rate:g})")
    if form not in ("corrected", "printed"):
        raise outside("form", form, "corrected or printed")
    turn, left = turning_step(rate, decay), np.power(rate, np.arange(count - 1, -1, -1, dtype=np.float64))
    early = 2.0 / (rate * (rate - decay * decay)) * np.power(rate, count + np.arange(1.0, count + 1.0))
    if form == "printed":
        late = rate ** (turn - 1) * rate ** (2 * turn) / (rate - decay * decay) * left
        return representable(early if count <= turn else late)
    # The difference quotient is a geometric sum, without cancellation where gamma is near beta^2.
    quotient = np.empty(count)
    total, power = 0.0, 1.0
    for t in range(count - 1, -1, -1):
        total = rate * total + power
        quotient[t] = total
        power *= decay * decay
    late = rate ** (2 * (turn - 1)) * quotient
    return representable(np.where(np.arange(1, count + 1) <= turn, early, late))
