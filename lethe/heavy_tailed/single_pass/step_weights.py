r"""Step sizes and averaging weights for a strongly convex recursion.

For $r_{t+1} \le (1 - a\eta_t)r_t - b\eta_ts_t + c\eta_t^2$ with $\eta_t \le 1/g$. The paper says that such steps exist (its Lemma 33, after
Stich 2019) and does not give them; these are reconstructed, with their own proof.
"""

from __future__ import annotations

import math

import numpy as np

from lethe.calculus.domains import outside, require_count, require_positive
from lethe.heavy_tailed.inputs import Array


def step_weights(last: int, a: float, g: float) -> tuple[Array, Array]:
    r"""The T + 1 steps $\eta_0, \dots, \eta_T$ and weights $\zeta_t$, scaled so that the largest weight is 1.

    $T \le g/a$: $\eta_t = 1/g$, $\zeta_t = (1 - a/g)^{-(t+1)}$. Otherwise with $t_0 = \lceil T/2\rceil$, $K = 2g/a$: $\eta_t = 1/g$ and
    $\zeta_t = 0$ before $t_0$, then $\eta_t = 2/(a(K + t - t_0))$ and $\zeta_t = K + t - t_0$.

    Proof that these weights telescope: with $x = K + t - t_0$, $\zeta_t(1 - a\eta_t)/\eta_t = \frac a2x(x - 2) \le \frac a2(x-1)^2 =
    \zeta_{t-1}/\eta_{t-1}$. The squared weights usually quoted with these steps do not: $x^2(x - 2) \le (x - 1)^3$ fails from $x = 3$ on.

    Args:
        last: T >= 0.
        a: $a > 0$.
        g: $g \ge a$.
    Returns:
        steps and weights, shape (T + 1,).
    Raises:
        InputError: an argument is outside its range.
    """
    final, decay, cap = require_count("last", last, low=0), require_positive("a", a), require_positive("g", g)
    if cap < decay:
        raise outside("g", g, f"a number at least a = {decay:g}")
    rounds = np.arange(final + 1, dtype=np.float64)
    if final <= cap / decay:
        logarithm = math.log1p(-decay / cap) if cap > decay else -math.inf
        with np.errstate(invalid="ignore"):
            weights = np.exp(np.where(rounds == final, 0.0, (final - rounds) * logarithm))
        return np.full(final + 1, 1.0 / cap), weights
    middle = -(-final // 2)
    shifted = 2.0 * cap / decay + rounds - middle
    late = rounds >= middle
    steps = np.where(late, 2.0 / (decay * np.where(late, shifted, 1.0)), 1.0 / cap)
    weights = np.where(late, shifted, 0.0)
    return steps, weights / weights[-1]
