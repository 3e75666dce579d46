"""Simulated noisy gradient descent with a canary gradient, the worst that one record could contribute; many trainings at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lethe.audit.statistics.inputs import Booleans, require_array
from lethe.calculus.domains import FloatArray, outside, require_count, require_nonnegative, require_positive
from lethe.errors import InputError

_NUMBERS = 4_000_000  # drawn at once, 32 MB

Others = Callable[[FloatArray, int], FloatArray]
"""(parameters of all trainings, shape (R, D); the step, from 1) -> the sums of the other records' clipped gradients, shape (R, D)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GradientGame:
    r"""$\theta_t = \Pi\big(\theta_{t-1} - \frac{\eta}{b}(\sum_i g_i - C e\,[\mathrm{IN},\ k \mid t] + zC Z_t)\big)$, $t = 1..T$.

    Sees the final model ("hidden state"): the score is $\langle\theta_T - \theta_0, e\rangle$. Sees every step: the sum of
    $-\langle\tilde g_t - \sum_i g_i, e\rangle$ over the canary's steps, since whoever sees the iterates can compute the others' gradients.

    With k = 1, no others and no domain hiding the iterates hides nothing. With k > 1 there is a gap, `periodic_canary_mus`, unless
    `others` is a landscape that holds on to what the canary did, or the start is chosen so.

    It is the mechanism itself that is drawn here, not anybody's code.

    Args:
        steps: T.
        direction: e, a unit vector, shape (D,); `random_directions`, or `least_moved_direction` of simulations.
        noise_multiplier: $z \ge 0$, relative to C, on the sum.
        every: k, the canary's period.
        clip_norm: C > 0.
        step_size: $\eta > 0$.
        divisor: b > 0, a constant.
        start: $\theta_0$, shape (D,); None: 0. The adversary may choose it.
        radius: of the ball around 0 that iterates are projected on; None: none.
        others: None: no other record has a gradient.
        sees: "final_model" or "white_box".
    Raises:
        InputError: an argument is outside its range, or the direction is no unit vector.
    """

    steps: int
    direction: FloatArray
    noise_multiplier: float
    every: int = 1
    clip_norm: float = 1.0
    step_size: float = 1.0
    divisor: float = 1.0
    start: FloatArray | None = None
    radius: float | None = None
    others: Others | None = None
    sees: Literal["final_model", "white_box"] = "final_model"

    def __post_init__(self) -> None:
        require_count("every", self.every, low=1, high=require_count("steps", self.steps, low=1, high=10**7))
        require_nonnegative("noise_multiplier", self.noise_multiplier, allow_infinity=False)
        for name in ("clip_norm", "step_size", "divisor"):
            require_positive(name, getattr(self, name))
        along = require_array("direction", self.direction, dimensions=1)
        if not math.isclose(float(np.linalg.norm(along)), 1.0, rel_tol=1e-9):
            raise outside("direction", float(np.linalg.norm(along)), "a vector of norm 1")
        if self.start is not None and require_array("start", self.start, dimensions=1).shape != along.shape:
            raise outside("start", np.shape(self.start), f"a vector of shape {along.shape}")
        if self.radius is not None:
            require_positive("radius", self.radius)
        if self.sees not in ("final_model", "white_box"):
            raise outside("sees", self.sees, "final_model or white_box")

    def __call__(self, inside: Booleans, seeds: Sequence[int]) -> FloatArray:
        """See `Trials`: the scores of many trainings at once."""
        start, end, along = self._descended(np.asarray(inside), seeds)
        return (end - start) @ self.direction if self.sees == "final_model" else along

    def displacements(self, count: int, *, seed: int) -> FloatArray:
        r"""$\theta_T - \theta_0$ of trainings without the canary, shape (count, D), for `least_moved_direction`."""
        seeds = [int(number) for number in np.random.SeedSequence([seed, 2]).generate_state(count, np.uint64)]
        start, end, _ = self._descended(np.zeros(count, dtype=bool), seeds)
        return end - start

    def _descended(self, inside: Booleans, seeds: Sequence[int]) -> tuple[FloatArray, FloatArray, FloatArray]:
        runs, dimension = len(seeds), self.direction.size
        start = np.zeros((runs, dimension)) if self.start is None else np.tile(self.start, (runs, 1))
        parameters, along = self._projected(start), np.zeros(runs)
        canary = -self.clip_norm * np.outer(inside, self.direction)
        for step, noise in enumerate(_normals(seeds, self.steps, dimension), start=1):
            fresh = self.noise_multiplier * self.clip_norm * noise
            if step % self.every == 0:
                fresh += canary
                along -= fresh @ self.direction
            gradients = fresh if self.others is None else fresh + self._gradients(parameters, step)
            parameters = self._projected(parameters - (self.step_size / self.divisor) * gradients)
        return start, parameters, along

    def _gradients(self, parameters: FloatArray, step: int) -> FloatArray:
        assert self.others is not None
        sums = np.asarray(self.others(parameters, step), dtype=np.float64)
        if sums.shape != parameters.shape:
            raise InputError(f"others: returned shape {sums.shape}; it needs {parameters.shape}, a sum for each training.")
        return sums

    def _projected(self, parameters: FloatArray) -> FloatArray:
        if self.radius is None:
            return parameters
        norms = np.linalg.norm(parameters, axis=1, keepdims=True)
        return parameters * np.minimum(1.0, self.radius / np.maximum(norms, 1e-300))


def _normals(seeds: Sequence[int], steps: int, dimension: int) -> Iterator[FloatArray]:
    """For each step a row for each seed, shape (R, D), from a generator of its own; drawn in blocks of many steps."""
    generators = [np.random.default_rng(seed) for seed in seeds]
    block = max(1, min(steps, _NUMBERS // (len(generators) * dimension)))
    for first in range(0, steps, block):
        count = min(block, steps - first)
        yield from np.stack([generator.standard_normal((count, dimension)) for generator in generators], axis=1)
