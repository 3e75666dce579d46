r"""Disjoint batches in a fixed order whose steps neither expand nor contract: the joint optimum in closed form, noise at pass ends only."""

from __future__ import annotations

from typing import SupportsIndex

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.domains import require_vector
from lethe.errors import InputError
from lethe.run.schedules.allocation import checked_steps, optimal_schedule
from lethe.run.schedules.base import Array


def joint_passes(
    weights: ArrayLike, lipschitz: ArrayLike, sensitivity: ArrayLike, batches_per_pass: SupportsIndex, budget: float = 1.0
) -> Array | None:
    r"""The optimum of `joint_cyclic` in closed form, for $L_t = 1$, nondecreasing $q_t$ and no touch above that of its pass's end.

    With ends $t_e \equiv T \bmod \ell$ the noise is zero but there, and there as in Lemma 4.4,

    $$\tau_{t_e}^2 = \frac1R \frac{s_{t_e}}{\sqrt{q_{t_e}}}\sum_i s_{t_i}\sqrt{q_{t_i}}.$$

    Noise between two ends serves the record of the last batch no better than the same noise at the first of the two, where it does no
    more harm; and with noise at ends only, every record pays for each touch at the next end, none more than that of the last batch.

    Args:
        weights: $q_t > 0$, shape (T,).
        lipschitz: $L_t$, shape (T,).
        sensitivity: $s_t \ge 0$, shape (T,), parameter units.
        batches_per_pass: $\ell \ge 1$.
        budget: $R = \mu^2 > 0$.
    Returns:
        $\tau_t^2$, shape (T,), or None where the hypotheses fail.
    Raises:
        InputError: an argument is outside its range, or lengths differ.
    Reference: docs/theory.md, "Joint schedules".
    """
    influence = require_vector("weights", weights, low=0.0, strict=True)
    factors, touches = require_vector("lipschitz", lipschitz, low=0.0), require_vector("sensitivity", sensitivity, low=0.0)
    slots, steps = checked_steps(batches_per_pass, "batches_per_pass"), influence.size
    if not factors.size == touches.size == steps:
        raise InputError(
            f"weights, lipschitz and sensitivity have lengths {steps}, {factors.size}, {touches.size}; they need one length.",
            source="the arguments of joint_passes",
            remedy="give one entry a step.",
        )
    ends = np.arange((steps - 1) % slots, steps, slots)
    following = np.minimum(ends[np.searchsorted(ends, np.arange(steps))], steps - 1)
    if not (np.all(factors == 1.0) and np.all(np.diff(influence) >= 0.0) and np.all(touches <= touches[following])):
        return None
    variances = np.zeros(steps)
    variances[ends] = optimal_schedule(influence[ends], budget, touches[ends]).variances
    return variances
