r"""Harm: how much the noise of a run is predicted to raise the final loss."""

from __future__ import annotations

import numpy as np

from lethe.calculus.correlated.sensitivity import output_square
from lethe.run.run import Run
from lethe.run.schedules import Influence


def harm_of(run: Run, influence: Influence) -> float:
    r"""$\sum_t q_t\tau_t^2$; of correlated noise $\|C^{-\top}a\|^2$ with $a_t = \sqrt{q_t}\,\tau_t$, $\tau_t$ that of the draws.

    With flat $q$ it is the variance that the noise gives to each coordinate of the sum of all steps, for both kinds of noise. Else an
    influence says how much the noise of each step matters by itself. That of two steps together is taken to be $\sqrt{q_sq_t}$, which is
    exact where all directions forget noise at one rate, and is the largest that it can be.

    Args:
        run: with its noise.
        influence: $q_t$ of its steps.
    Returns:
        In squared parameter units, since the largest $q_t$ is 1; infinity where it overflows.
    """
    weights, stds = influence.values(run.total_steps), run.uncorrelated.noise_stds
    if run.noise is None:
        return float(np.sum(weights * np.square(stds)))
    return output_square(run.noise.strategy(run.total_steps), np.sqrt(weights) * stds)
