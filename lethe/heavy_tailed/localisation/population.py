r"""Population-level localisation: in each phase several candidates on records of their own, of which one near most of them goes on. Users
call `population_localised` where a failure of a phase must be rare. F is the expected loss, $w_i$ the end of phase i, $\lambda_i$ its
regularisation.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.domains import outside, require_count
from lethe.heavy_tailed.localisation.descent import MOST_GRADIENTS, phase_by_phase
from lethe.heavy_tailed.localisation.plans import LocalPhase
from lethe.heavy_tailed.multi_pass import NoisyBatches
from lethe.heavy_tailed.one_pass import step_weights
from lethe.heavy_tailed.oracles import ClippedMean, PureClippedMean
from lethe.heavy_tailed.problem import Problem, Records, some_records
from lethe.heavy_tailed.progress import Progress
from lethe.heavy_tailed.sets import Array, near_projection
from lethe.heavy_tailed.solution import Phase, Solution


def population_localised(
    problem: Problem,
    records: Records,
    *,
    schedule: tuple[LocalPhase, ...],
    oracle: ClippedMean | PureClippedMean,
    parts: int = 3,
    start: ArrayLike | None = None,
    most_gradients: int = MOST_GRADIENTS,
    generator: np.random.Generator | None = None,
    progress: bool | Progress = True,
) -> Solution:
    r"""Phase i cuts its fresh records into J parts, solves $F + \frac{\lambda_i}2\|w - w_{i-1}\|^2$ on each, and takes `central_candidate`.

    On one part T noisy clipped mean gradients of all its records, from $w_{i-1}$, projected on a ball about it, with the steps and weights
    of `step_weights` for curvature $\lambda_i$; the candidate is the weighted mean of the points. The target is the minimiser of the
    population's regularised risk, which all candidates of a phase share: so it is enough that each comes near it more often than not, as
    moments without tails can promise, and the majority does so almost always.

    Formal guarantee: that of `oracle` for replacing one record, n public, all points included. Proof: a record is in one part of one phase,
    all of whose T means cost together what the oracle states; other parts and phases depend on it through what was released only, and the
    candidate that goes on is a function of candidates. Nothing rests on moments or convexity.

    The reductions are those of the paper's abstract, from which this was built; its steps, its batches drawn in secret and its constants
    are not, and its bound on the risk is not claimed. With `PureClippedMean`: after Lowy 2026, see there.

    Args:
        problem: its gradient may be any subgradient.
        records: at least as many as the schedule uses.
        schedule: of `noise_led_phases` with the same `parts`; its clip norms count.
        oracle: `ClippedMean` or `PureClippedMean`: the cost of the whole run.
        parts: J >= 1.
        start, most_gradients, generator, progress: as `localised`.
    Reference: after Asi, Liu & Tian 2024, arXiv:2406.02789.
    """
    if not isinstance(oracle, ClippedMean | PureClippedMean):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise outside("oracle", oracle, "a ClippedMean or a PureClippedMean")
    count = require_count("parts", parts)

    def solve(block: Records, local: LocalPhase, point: Array, step_done: Callable[[], None]) -> tuple[Array, Phase]:
        size = local.records // count
        if size == 0:
            raise outside("parts", parts, f"at most {local.records}, the records of the smallest phase")
        clipped, candidates = replace(oracle, clip_norm=local.clip_norm), list[Array]()
        for part in range(count):
            mine = some_records(block, slice(part * size, (part + 1) * size))
            noisy = NoisyBatches(problem, mine, clipped, point, generator, batches=1, passes=local.steps)
            # A step is counted when all parts have taken it.
            candidates.append(_averaged_descent(problem, noisy, local, step_done if part == count - 1 else None))
        release = clipped.shared(local.steps).release(size, problem.dimension)
        phase = Phase(
            first=0,
            stop=count * size,
            batch_size=size,
            steps=count * local.steps,
            touches=local.steps,
            release=release,
            clip_norm=local.clip_norm,
        )
        return central_candidate(np.array(candidates)), phase

    point, phases, facts = phase_by_phase(problem, records, schedule, start, most_gradients, lambda local: local.records, solve, progress)
    method = "population-level localisation"
    return Solution(
        parameters=point, phases=tuple(phases), method=method, diagnostics=facts | {"parts": count}, seeded=generator is not None
    )


def _averaged_descent(problem: Problem, noisy: NoisyBatches, local: LocalPhase, step_done: Callable[[], None] | None) -> Array:
    """One candidate of a phase: the weighted average of the iterates of one pass."""
    start = point = noisy.start
    project = near_projection(problem.domain, start, local.radius)
    steps, weights = step_weights(local.steps - 1, local.strength, 1.0 / local.step_size)
    total = np.zeros_like(start)
    for step, (length, weight) in enumerate(zip(steps.tolist(), weights.tolist(), strict=True)):
        point = project(point - length * (noisy.gradient(point, step) + local.strength * (point - start)))
        total += weight * (point - start)
        if step_done is not None:
            step_done()
    return start + total / weights.sum()


def central_candidate(candidates: Array) -> Array:
    r"""The candidate whose ball about it that holds more than half of them is smallest; shape (d,) of (J, d), J >= 1.

    If more than half are within r of a point v, it is within 3 r of v. Proof: any of those has the more than half within 2 r, so the chosen
    ball has radius at most 2 r; two majorities meet, so some candidate is within 2 r of the chosen one and within r of v.
    """
    gaps = np.linalg.norm(candidates[:, None, :] - candidates[None, :, :], axis=2)
    return candidates[int(np.argmin(np.sort(gaps, axis=1)[:, len(candidates) // 2]))]
