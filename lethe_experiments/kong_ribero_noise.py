r"""Kong & Ribero, revised version, Corollary C.2 as it is printed: how much noise makes a run $(\alpha, \epsilon)$-Rényi-DP at one order.

What $\epsilon$ a run's noise gives by it is `lethe.theorems.literature.kong_ribero_2025`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from lethe.theorems.literature.kong_ribero_2025 import corollary_rho, corollary_steps_per_pass
from lethe.theorems.literature.kong_ribero_setting import FloatArray, Letters, checked, step_limit


def stated_noise_std(
    *,
    clip_norm: ArrayLike,
    batch_size: ArrayLike,
    steps: ArrayLike,
    steps_per_pass: ArrayLike,
    weak_convexity: ArrayLike,
    smoothness: ArrayLike,
    order: ArrayLike,
    epsilon: ArrayLike,
) -> FloatArray:
    r"""$\bar\sigma_\epsilon$ as Corollary C.2 states it; too small by a factor $4\alpha$.

    $$\bar\sigma_\epsilon = \frac{C\bar\lambda}{2b}\sqrt{\frac{1}{\alpha\epsilon}\Big(1 + \frac{4m}{M+m}E\Big)}$$

    Args:
        clip_norm: $C > 0$, the bound on every gradient.
        batch_size: $b \ge 1$.
        steps: $T \ge 1$.
        steps_per_pass: $\ell \ge \bar\ell$.
        weak_convexity: $m > 0$.
        smoothness: $M \ge 0$.
        order: $\alpha > 1$.
        epsilon: $\epsilon > 0$, wanted at that order.

    Returns:
        $\bar\sigma_\epsilon$, parameter units; infinity where $\ell < \bar\ell$.

    Raises:
        InputError: an argument is not finite or outside its range.

    Reference: Kong & Ribero, arXiv:2407.05237, revised version, Corollary C.2.
    """
    alpha = checked("order", order, above=1.0)
    corrected = corrected_noise_std(
        clip_norm=clip_norm,
        batch_size=batch_size,
        steps=steps,
        steps_per_pass=steps_per_pass,
        weak_convexity=weak_convexity,
        smoothness=smoothness,
        order=alpha,
        epsilon=epsilon,
    )
    return corrected / (4.0 * alpha)


def corrected_noise_std(
    *,
    clip_norm: ArrayLike,
    batch_size: ArrayLike,
    steps: ArrayLike,
    steps_per_pass: ArrayLike,
    weak_convexity: ArrayLike,
    smoothness: ArrayLike,
    order: ArrayLike,
    epsilon: ArrayLike,
) -> FloatArray:
    r"""The noise for which Theorem 2.3 (19) gives what Corollary C.2 claims.

    $$\sigma = \frac{2C\bar\lambda}{b}\sqrt{\frac{\alpha}{\epsilon}\Big(1 + \frac{4m}{M+m}E\Big)}$$

    Args, Returns, Raises: those of `stated_noise_std`.

    Reference: derived from equation (19) of Kong & Ribero, arXiv:2407.05237, revised version; see `KongRibero2025CorollaryCorrected`.
    """
    letters = Letters(
        step_size=step_limit(checked("weak_convexity", weak_convexity, above=0.0), smoothness),
        clip_norm=clip_norm,
        batch_size=batch_size,
        noise_std=1.0,
        weak_convexity=weak_convexity,
        smoothness=smoothness,
        steps=steps,
        steps_per_pass=steps_per_pass,
    )
    wanted = checked("order", order, above=1.0) / checked("epsilon", epsilon, above=0.0)
    long = np.asarray(letters.steps_per_pass) >= corollary_steps_per_pass(weak_convexity, smoothness)
    return np.where(long, np.sqrt(wanted * corollary_rho(letters)), np.inf)
