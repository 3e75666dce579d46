r"""Noise at pass ends that wanes: of u passes from the end its variance goes like $u^{1/3}$.

Under composition, noise whose harm is $\sum_p a_p\tau_p^2$ is best with $\tau_p^2 \propto a_p^{-1/2}$, by Cauchy and Schwarz. What a
direction of curvature h has left of the noise of a time t ago is $e^{-2ht}$; over a spectrum that falls like $j^{-2}$ that makes
$a \propto t^{-1/2}$, over one that falls faster almost $t^{-1}$: exponents of a quarter and of a half. A third lies between; on generated
data both were as good.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from lethe.mechanisms.base import Array

_EXPONENT = 1.0 / 3.0
_RATES = np.geomspace(1e-9, 100.0, 160)  # -2 log of what a pass keeps of a distance: where sums are looked at


@lru_cache(maxsize=32)
def variances(passes: int) -> Array:
    r"""$v_p$ in the order of the passes, with $\sum_p 1/v_p = 1$: the sensitivity of a pass times $\sqrt{v_p}/\mu$ is $\mu$-GDP in all.

    Args:
        passes: P; equal noise would have $v_p = P$.
    """
    left = np.arange(passes, 0, -1) - 0.5
    shape = left**_EXPONENT
    found: Array = shape * np.sum(1.0 / shape)
    found.flags.writeable = False
    return found


def kept(decay: Array, passes: int) -> Array:
    r"""$\sum_p v_p f^{2(P-p)}$: the variance that the last iterate has, for passes of sensitivity over $\mu$ of 1.

    Args:
        decay: $f \in [0, 1]$, what a pass keeps of a distance, of any shape.
        passes: P.
    """
    rates = -2.0 * np.log(np.maximum(decay, 1e-20))
    logarithms, sums = _sums(passes)
    return np.exp(np.interp(np.log(np.maximum(rates, _RATES[0])), logarithms, sums))


@lru_cache(maxsize=32)
def _sums(passes: int) -> tuple[Array, Array]:
    """Logarithms of the rates, and of the sums there; between them a line is within 1 %."""
    later = np.arange(passes - 1, -1, -1)
    return np.log(_RATES), np.log(np.exp(-_RATES[:, None] * later) @ variances(passes))
