r"""Settings of a one-pass solver (`Plan`), and the errors of its noisy gradients (bias and variance) that they lead to.

`accelerated`, `one_pass` and `proximal` make their plans here; B, $\Sigma^2$ and $r_2$ are defined at `GradientErrors`.

A plan comes in three kinds. "theory": what the paper's theorem sets, corrected. "optimised": the settings with the smallest proved bound.
"practical": what works, a clip norm at the size of the gradients and few steps, without a bound that means much. All of them are
functions of public constants only, so choosing among them costs no privacy; tuning them on the data does.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from lethe.calculus.domains import require_count, require_positive
from lethe.heavy_tailed.oracles import MOST_CLIP, ClippedMean, noise_for, noise_scale, require_rho
from lethe.heavy_tailed.problem import Problem, clipping_bias, printed_clipping_bias

Basis = Literal["theory", "optimised", "practical"]


class GradientErrors(NamedTuple):
    r"""How wrong one noisy clipped mean of s gradients is: the norm of its bias at most B, its variance at most $d\sigma^2 + r_2^2/s$."""

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


def gradient_errors(problem: Problem, *, batch_size: int, clip_norm: float, rho: float, printed: bool = False) -> GradientErrors:
    """The errors of `ClippedMean` on batches of that size, from the problem's moments.

    `printed`: with the paper's constant $1/(k-1)$ of the bias in place of the sharp one. The batch size is the real one.
    """
    moments, size = problem.known_moments(), require_count("batch_size", batch_size)
    clip = require_positive("clip_norm", clip_norm)
    raw = moments.raw(problem.dimension)
    noise = noise_for(2.0 * clip / size, require_rho(rho))
    bias = (printed_clipping_bias if printed else clipping_bias)(moments.order, raw, clip)
    sampling = moments.raw_second(problem.dimension) ** 2 / size
    return GradientErrors(bias=bias, variance=problem.dimension * noise * noise + sampling)


def clip_grid(base: float, records: int, dimension: int, rho: float) -> list[float]:
    r"""Clip norms from a quarter of `base` to $\epsilon n/\sqrt d$ times it, 8 to a factor of 2.

    Noise and bias balance at $r_k$ times a power at most 1 of $\epsilon n/\sqrt d$ (within a constant).
    """
    reach = max(math.log2(noise_scale(require_positive("rho", rho)) * records / math.sqrt(dimension)), 1.0)
    clips = base * np.exp2(np.arange(-16, 8 * min(reach, 400.0) + 1) / 8.0)
    return clips[clips < MOST_CLIP].tolist()


def best_plan(problem: Problem, records: int, rho: float, fewest: int, settings: Callable[[int, float], Plan]) -> Plan:
    """The plan with the smallest bound on a grid: about 96 numbers of steps, evenly on a logarithmic scale, and clip norms.

    The numbers of steps go from `fewest` to n; `settings` is the plan of a number of steps and a clip norm.
    """
    base = problem.known_moments().raw(problem.dimension)
    counts = np.unique(np.round(np.geomspace(fewest, records, 96)).astype(int)).tolist()
    plans = [settings(count, clip) for count in counts for clip in clip_grid(base, records, problem.dimension, rho)]
    return min(plans, key=lambda plan: plan.bound)


def clamp(value: float, high: int) -> tuple[int, tuple[str, ...]]:
    """The smallest whole number T >= `value` from 1 to a limit, and a note if the limit decided it."""
    if value > high:
        return high, (f"T = {value:.6g} would be needed; {high} is the most that the records allow, so the theorem does not apply",)
    return max(math.ceil(value), 1), ()
