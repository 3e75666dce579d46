r"""Settings of a one-pass solver, and the errors of its noisy gradients that they lead to.

A plan comes in three kinds. "theory": what the paper's theorem sets, corrected. "optimised": the settings with the smallest proved bound.
"practical": what works, a clip norm at the size of the gradients and few steps, without a bound that means much. All of them are
functions of public constants only, so choosing among them costs no privacy; tuning them on the data does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lethe.calculus.domains import require_count, require_positive
from lethe.heavy_tailed.moments import clipping_bias, printed_clipping_bias
from lethe.heavy_tailed.oracles.clipped import ClippedMean, noise_for, require_rho
from lethe.heavy_tailed.problem import Problem, require_problem

Basis = Literal["theory", "optimised", "practical"]
MOST_CLIP = 1e150


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientErrors:
    r"""How wrong one noisy clipped mean is.

    Args:
        batch_size: s.
        noise_variance: $\sigma^2$ in each coordinate.
        bias: B, a bound of the norm of the bias.
        variance: $\Sigma^2 = d\sigma^2 + r_2^2/s$, a bound of the variance summed over coordinates.
    """

    batch_size: int
    noise_variance: float
    bias: float
    variance: float

    @property
    def squared(self) -> float:
        r"""$\Sigma^2 + B^2$."""
        return self.variance + self.bias * self.bias


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    r"""Settings for a solver.

    Args:
        basis: "theory", "optimised" or "practical".
        steps: how many noisy means are taken.
        clip_norm: C, in loss per parameter unit.
        rho: what one record's part costs in all.
        step: the solver's step constant, $\eta$ of its docstring; None: its own choice.
        errors: of each mean.
        bound: of the expected excess risk, loss units; infinity: none that is finite.
        notes: what was changed to fit the number of records.
    """

    basis: Basis
    steps: int
    clip_norm: float
    rho: float
    step: float | None
    errors: GradientErrors
    bound: float
    notes: tuple[str, ...] = ()

    @property
    def oracle(self) -> ClippedMean:
        """The mean oracle it is for."""
        return ClippedMean(clip_norm=self.clip_norm, rho=self.rho)


def gradient_errors(
    problem: Problem, *, batch_size: int, clip_norm: float, rho: float, printed: bool = False, touches: int = 1
) -> GradientErrors:
    r"""The errors of `ClippedMean` on batches of that size, from the problem's moments.

    Args:
        problem: with moments.
        batch_size: s, the real one.
        clip_norm: C.
        rho: $\rho$ of all touches.
        printed: the paper's constant $1/(k-1)$ of the bias in place of the sharp one.
        touches: how often each record is used.
    Raises:
        InputError: an argument is outside its range, or there are no moments.
    """
    require_problem(problem)
    moments, size = problem.known_moments(), require_count("batch_size", batch_size)
    clip = require_positive("clip_norm", clip_norm)
    raw = moments.raw(problem.dimension)
    noise = noise_for(2.0 * clip / size, require_rho(rho) / require_count("touches", touches))
    bias = (printed_clipping_bias if printed else clipping_bias)(moments.order, raw, clip)
    sampling = moments.raw_second(problem.dimension) ** 2 / size
    return GradientErrors(batch_size=size, noise_variance=noise * noise, bias=bias, variance=problem.dimension * noise * noise + sampling)


def noise_scale(rho: float) -> float:
    r"""$\epsilon = \sqrt{2\rho}$: what the paper calls epsilon, a scale of noise and not the epsilon of differential privacy."""
    return math.sqrt(2.0 * require_rho(rho))


def clip_grid(base: float, records: int, dimension: int, rho: float) -> list[float]:
    r"""Clip norms from a quarter of `base` to $\epsilon n/\sqrt d$ times it, 8 to a factor of 2.

    Noise and bias balance at $r_k$ times a power at most 1 of $\epsilon n/\sqrt d$ (within a constant).

    Args:
        base: the moment bound $r_k > 0$, in loss per parameter unit.
        records, dimension: n and d.
        rho: the zCDP budget, > 0.
    """
    reach = max(math.log2(noise_scale(require_positive("rho", rho)) * records / math.sqrt(dimension)), 1.0)
    clips = base * np.exp2(np.arange(-16, 8 * min(reach, 400.0) + 1) / 8.0)
    return clips[clips < MOST_CLIP].tolist()


def step_grid(low: int, high: int) -> list[int]:
    """About 96 numbers of steps from `low` to `high`, evenly on a logarithmic scale."""
    return np.unique(np.round(np.geomspace(low, high, 96)).astype(int)).tolist()


def clamped(name: str, value: float, low: int, high: int) -> tuple[int, tuple[str, ...]]:
    """The smallest whole number >= `value` within a range, and a note if the upper end decided it.

    Args:
        name: of the setting, for the note.
        value: what the formula gives.
        low, high: the ends of the range.
    """
    if value > high:
        return high, (f"{name} = {value:.6g} would be needed; {high} is the most that the records allow, so the theorem does not apply",)
    return max(math.ceil(value), low), ()
