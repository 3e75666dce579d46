"""Only the last iterate released, batches drawn afresh at each step: sampling and iteration together.

`certify` tries it for random batches where the last iterate alone is released. A window is the last R steps: part of their noise hides
whether the record was drawn, the rest how far apart two runs on neighbouring data were before. It computes that shift's cost, and
`calculus.sampled.windowed_gaussian` the guarantee.
"""

from typing import ClassVar

import numpy as np

from lethe.calculus.guarantees import Guarantee, WithSlack
from lethe.calculus.rounding import above, exp_above, raised
from lethe.calculus.sampled.windowed_gaussian import WindowedGaussian
from lethe.certificates.findings import Finding, fails, holds
from lethe.certificates.parts import Citation
from lethe.run.participation import Participation
from lethe.run.run import Run
from lethe.run.schedules.shapes import Array
from lethe.theorems import requirements as require
from lethe.theorems.base import Bound, Clipping, Theorem, arithmetic
from lethe.theorems.citations import cite
from lethe.theorems.shift.engine import checked_diameter, checked_path, tracked_distances
from lethe.theorems.steps import Steps, errors_mu, step_constants

Lengths = np.ndarray[tuple[int], np.dtype[np.int64]]

# Windows grow by this factor; the bound as a function of the window is flat around its minimum, so this costs a thousandth at most.
_GROWTH = 1.08
# Distinct noise levels kept; more are rounded down, evenly in the logarithm.
_MOST_LEVELS = 256


class Windowed(Theorem):
    r"""Privacy of the last iterate under random batches, over a window of the last R steps.

    $$\epsilon(\alpha) \le \sum_{t>T-R} S_\alpha(q, \sqrt\beta\,\tau_t/s_t) + \frac\alpha2\,\frac{\mu_R^2}{1-\beta},\qquad
      \mu_R^2 = \frac{\big(z_{T-R}\prod_{t>T-R} L_t\big)^2}{\sum_{t>T-R} \big(\prod_{i>t} L_i\big)^2\tau_t^2}$$

    Whatever happened before the window, the two runs are at most $z_{T-R}$ apart: the diameter of the domain, or the distance tracked
    forward, $f_t = \min(D_t, L_t f_{t-1} + s_t)$. Inside the window each noise is split: a share $\beta$ hides whether the record was
    drawn, the rest hides the shift at the cheapest rate. R and $\beta$ are minimised numerically, as Rényi curves and, where it is
    tighter, as privacy loss distributions in both directions. R = T needs no shift and is composition.
    """

    name: ClassVar[str] = "windowed"
    statement: ClassVar[str] = "Sampling over the last steps, and the shift from before them hidden in the same noise; last iterate only."
    formula: ClassVar[str] = (
        r"\epsilon(\alpha) = \min_{R,\beta} \sum_{t>T-R} S_\alpha(q, \sqrt\beta\tau_t/s_t) + \frac{\alpha\mu_R^2}{2(1-\beta)}"
    )
    needs: ClassVar[str] = "Poisson batches or batches without replacement, secret; smooth losses; a bounded domain or a contraction"
    given_the_others: ClassVar[bool] = True
    counts_rounding: ClassVar[bool] = True
    clipping: ClassVar[Clipping] = "projections and envelopes"
    citations: ClassVar[tuple[Citation, ...]] = (
        cite("lethe", ", docs/theory.md: random batches, window and split"),
        cite("altschuler-talwar-2022", " (convex losses, one split)"),
        cite("mironov-2019"),
        cite("dong-2022", ", Theorem 4.2 (fixed-size batches)"),
    )

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        findings = [
            require.last_iterate(run),
            *require.solvable_length(run),
            require.drawn_afresh(run),
            require.gradient_bound_when_drawn(run),
            require.smooth(run),
            arithmetic(run),
        ]
        if run.batches.participation is Participation.INDEPENDENT_DRAW:
            findings += [require.secrecy(run), _together(run), require.noise_at_the_end(run)]
        return tuple(findings)

    def _bound(self, run: Run) -> Bound:
        steps = step_constants(run)
        assert steps is not None  # examine has refused the rest
        guarantee = _guarantee(run, steps)
        if steps.slack > 0:
            guarantee = WithSlack(guarantee, steps.slack)
        return Bound(guarantee=guarantee, lipschitz=steps.constant)


def _guarantee(run: Run, steps: Steps) -> Guarantee:
    """The windows of the run, as the guarantee that takes the best of them."""
    lengths = _lengths(run)
    moved = run.sensitivities if steps.errors is None else above(run.sensitivities + steps.errors)
    path = checked_path(steps.lipschitz, moved, run.noise_stds)
    distances = np.array(tracked_distances(path, checked_diameter(steps.diameter, path.steps)))[path.steps - lengths]
    distances = raised(distances, 4.0 * 2.0**-52 * (path.steps + 8))  # tracking rounds twice a step
    levels, which = _levels(run.record_noise[path.steps - int(lengths[-1]) :])
    counts = np.zeros((lengths.size, levels.size), dtype=np.int64)
    for row, length in enumerate(lengths.tolist()):
        counts[row] = np.bincount(which[which.size - length :], minlength=levels.size)
    shifts = shift_mus(steps.lipschitz, run.noise_stds, distances, lengths)
    if (extra := errors_mu(run, steps)) > 0.0:  # the window of all steps is composition, and needs no Lipschitz constant
        shifts = np.where(lengths == path.steps, shifts, above(shifts + extra))
    return WindowedGaussian(
        sampling_probability=run.batch_size / run.records,
        noise=tuple(levels.tolist()),
        counts=tuple(tuple(row) for row in counts.tolist()),
        shift_mus=tuple(shifts.tolist()),
        relation=run.neighbours,
        design=require.drawn_by(run),
    )


def shift_mus(lipschitz: Array, noise_std: Array, distances: Array, lengths: Lengths) -> Array:
    r"""$\mu_R$ for several windows R: the cost of hiding a shift if the noise of the last R steps is used for nothing else.

    $$\mu_R = \frac{z_R \prod_{t>T-R} L_t}{\sqrt{\sum_{t>T-R} (\prod_{i>t} L_i)^2\tau_t^2}}$$

    $L_t \ge 0$ and $\tau_t \ge 0$, > 0 in every window, have shape (T,); the distances $z_R \ge 0$ at the start of each window and the
    lengths, ascending from 1 to T at most, shape (W,). Rounded up.
    """
    longest = int(lengths[-1])
    with np.errstate(divide="ignore"):
        factors, noise = np.log(lipschitz[-longest:])[::-1], np.log(noise_std[-longest:])[::-1]
        starts = np.log(distances)
    # Backwards from the end: log of the product of the last k constants, k = 1..R; the k-th noise has k - 1 constants after it.
    products = np.cumsum(factors)
    weights = np.concatenate(([0.0], products[:-1]))
    forgotten = np.isneginf(weights)
    runs = np.logaddexp.accumulate(np.where(forgotten, -np.inf, 2.0 * (weights + noise)))
    # Each of R additions may lose an eps of the largest partial sum.
    size = np.maximum.accumulate(np.where(np.isfinite(products), np.abs(products), 0.0)) + np.maximum.accumulate(np.abs(noise)) + 8.0
    rounding = 4.0 * 2.0**-52 * np.arange(8, longest + 8) * size
    chosen = lengths - 1
    return exp_above(np.where(np.isneginf(products[chosen]), -np.inf, starts + products[chosen] - 0.5 * runs[chosen] + rounding[chosen]))


def _lengths(run: Run) -> Lengths:
    """Window lengths to try: every short one, then growing; no window reaches over a step without noise."""
    silent = np.flatnonzero(run.noise_multipliers == 0)
    longest = run.total_steps - (int(silent[-1]) + 1 if silent.size else 0)
    lengths, length = list[int](), 1
    while length < longest:
        lengths.append(length)
        length = max(length + 1, int(length * _GROWTH))
    return np.array([*lengths, longest], dtype=np.int64)


def _levels(noise: Array) -> tuple[Array, np.ndarray[tuple[int], np.dtype[np.intp]]]:
    """The distinct noise levels, lowered to at most a few hundred, and which of them each step has."""
    levels, which = np.unique(noise, return_inverse=True)
    if levels.size <= _MOST_LEVELS:
        return levels, which
    logs = np.log(levels)
    bins = np.minimum(np.floor(_MOST_LEVELS * (logs - logs[0]) / (logs[-1] - logs[0])), _MOST_LEVELS - 1)
    # Levels ascend, so the first of each bin is its smallest.
    _, firsts, where = np.unique(bins, return_index=True, return_inverse=True)
    return levels[firsts], where[which]


def _together(run: Run) -> Finding:
    """A bounded domain or a contraction: else the two runs drift apart for ever and no window helps."""
    if not np.isinf(run.diameter):
        return require.bounded_domain(run)
    if run.total_steps == 1:
        return holds("contraction", "a single step, from one start: there is nothing that could drift apart")
    steps = step_constants(run)
    if steps is not None and float(steps.lipschitz[1:].max()) < 1:
        return holds("contraction", f"every step contracts: constant {steps.constant.constant:.6g} ({steps.constant.certificate})")
    return fails(
        "domain or contraction",
        "it needs a bounded domain, or steps that contract; the domain is unbounded and the steps do not contract",
        source="regulariser",
        remedy="add regulariser: {kind: ball, radius: ...} or {kind: ridge, strength: ...}.",
    )
