"""Only the last iterate released, losses with a Hölder gradient: the optimal shift under a concave growth of distances."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from lethe.calculus.guarantees import GDP
from lethe.certificate import Citation
from lethe.hypotheses import Finding, fails, holds
from lethe.losses import HolderLoss
from lethe.run import Run
from lethe.schedules import Array
from lethe.theorems import shift
from lethe.theorems.base import Bound, Theorem
from lethe.theorems.clip_methods import Clipping
from lethe.theorems.lipschitz import ridge_contraction
from lethe.theorems.requirements import bounded_domain, gradient_bound, holder_gradient, last_iterate, secrecy

# A window of at most this many last steps is looked at; on a bounded domain any start is sound, and longer ones seldom pay.
_LONGEST = 20_000
# Distances at which tangents are laid first, and how often they are laid anew along the best path found.
_FIRST_TANGENTS, _DESCENTS, _ROUNDS = 14, 4, 12
_STILL = 1e-6
# A tangent so near 0 that its height there is this share of a touch: for paths that pay for each touch at once, as composition does.
_AT_ONCE = 1e-6
_UP = 1.0 + 2.0**-48


class HolderShift(Theorem):
    r"""The optimal shift for $\|\nabla f(x) - \nabla f(y)\| \le H\|x-y\|^p$, clipped or not.

    One step brings two runs z apart to at most $h_t(z) = \min(z + \lambda_tHz^p,\ z + 2\lambda_tG)$, so any $a_t \ge 0$ with

    $$z_t = h_t(c_{t-1}z_{t-1}) + s_t - a_t \ge 0, \qquad z_T = 0$$

    proves $\mu^2 = \sum a_t^2/\tau_t^2$, where $c_{t-1}$ is the contraction of a proximal ridge. $h_t$ is concave: it lies below its
    tangents, $z + 2\lambda_tG$ among them, and with a tangent in its place the step is $L_t$-Lipschitz with a touch larger by the
    tangent's height at 0. For given tangents the shift engine finds the optimum. Tangents are then laid along that optimum, which can
    only improve it, and so on; whatever tangents are used, the result is a bound. Records of all designs count as touched at every step.
    """

    name: ClassVar[str] = "holder-shift"
    statement: ClassVar[str] = "The cheapest shift where gradients are Hölder continuous only; last iterate, bounded domain."
    formula: ClassVar[str] = (
        r"\mu^2 = \min_a \sum_t a_t^2/\tau_t^2,\ z_t = h_t(c_{t-1}z_{t-1}) + s_t - a_t \ge 0,\ "
        r"h_t(z) = \min(z + \lambda_t H z^p, z + 2\lambda_t G)"
    )
    needs: ClassVar[str] = "losses with a Hölder gradient, a bounded domain, batches of exact size"
    covers: ClassVar[Literal["last", "all"]] = "last"
    clipping: ClassVar[Clipping] = "projections"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(key="lethe", text="Lethe, docs/theory.md: the shift engine with a concave growth of distances."),
        Citation(
            key="chien-li-2024",
            text="Chien, Li 2024, Convergent privacy loss of noisy-SGD without convexity and smoothness, arXiv:2410.01068 "
            "(Hölder gradients, full batches).",
        ),
    )

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        """Hölder gradients, a bounded domain, batches of exact size."""
        findings = [last_iterate(run), gradient_bound(run), holder_gradient(run), bounded_domain(run), _exact_size(run)]
        if run.batches.secret:
            findings.append(secrecy(run))
        return tuple(findings)

    def _bound(self, run: Run) -> Bound:
        return Bound(guarantee=GDP(_Path(run).best_mu()))


class _Path:
    """The last steps of a run, from a start at the diameter unless all of it fits."""

    def __init__(self, run: Run) -> None:
        assert isinstance(run.loss, HolderLoss)
        steps = min(run.total_steps, _LONGEST)
        last = slice(run.total_steps - steps, None)
        self._whole = steps == run.total_steps
        self._exponent = run.loss.exponent
        with np.errstate(over="ignore"):
            self._growth = run.step_sizes[last] * run.loss.constant
            self._flat = 2.0 * run.step_sizes[last] * run.record_bound
        contraction = np.asarray(ridge_contraction(run.step_sizes, run.strong_convexity))
        self._before = np.concatenate(([1.0], contraction))[:-1][last]
        with np.errstate(over="ignore"):
            self._diameter = (run.diameter / contraction)[last]
        # How far apart the runs can be when the window begins, before the proximal step of the step before it.
        self._start = run.diameter / float(self._before[0])
        self._touch, self._noise = run.sensitivities[last], run.noise_stds[last]

    def best_mu(self) -> float:
        """The smallest mu of all tangents tried."""
        widest = float(self._diameter.max())
        if not np.isfinite(widest):  # contracted by so much that what it was before is beyond the range of numbers
            return np.inf
        first = np.geomspace(self._nearest, 1.0, _FIRST_TANGENTS) * widest if self._nearest < 1.0 else np.array([widest])
        first = np.concatenate((np.geomspace(1e-6, 1.0, _FIRST_TANGENTS) * widest, first, [np.inf]))
        tried = sorted((self._solve(np.full(self._touch.shape, at)) for at in first.tolist()), key=lambda solved: solved.mu)
        # From several starts, because each descends to a stationary point of its own.
        return min(self._descended(start) for start in tried[:_DESCENTS])

    def _descended(self, best: shift.Shift) -> float:
        for _ in range(_ROUNDS):
            if best.mu == np.inf:
                break
            better = self._solve(self._along(best))
            if not better.mu < best.mu * (1 - _STILL):
                break
            best = better
        return best.mu

    @property
    def _nearest(self) -> float:
        """The nearest tangent to 0, in diameters."""
        if self._exponent == 1.0 or not self._growth.max() > 0.0:
            return 1.0
        height = _AT_ONCE * float(self._touch.min()) / ((1.0 - self._exponent) * float(self._growth.max()))
        # It only says which tangents are tried.
        with np.errstate(over="ignore", under="ignore"):
            return min(1.0, max(float(np.float64(height) ** (1.0 / self._exponent)) / float(self._diameter.max()), 1e-290))

    def _along(self, solved: shift.Shift) -> Array:
        """The distances at which each step begins, on a path."""
        shifts = solved.shifts[-self._touch.size :]
        begun = self._before * np.concatenate(([self._start], shifts[:-1]))
        return np.maximum(begun, self._nearest * self._diameter.max())

    def _solve(self, at: Array) -> shift.Shift:
        """The engine with the tangents at these distances; at infinity the line z + 2 lambda G."""
        with np.errstate(over="ignore", divide="ignore", invalid="ignore", under="ignore"):
            slope = 1.0 + self._growth * self._exponent * at ** (self._exponent - 1.0)
            height = (1.0 - self._exponent) * self._growth * at**self._exponent
            # The flat line where it is the lower one, and where the tangent is too steep for numbers.
            flat = ~(slope < 1e300) | ~(slope * at + height <= at + self._flat) | np.isinf(at)
        slope, height = np.where(flat, 1.0, slope * _UP), np.where(flat, self._flat, height * _UP)
        lipschitz, touch = slope * self._before, self._touch + height
        noise, diameter = self._noise, self._diameter
        if not self._whole:  # a start at the diameter, as a touch before the first step
            lipschitz, noise = np.concatenate(([1.0], lipschitz)), np.concatenate(([0.0], noise))
            touch, diameter = np.concatenate(([self._start], touch)), np.concatenate(([self._start], diameter))
        return shift.solve(lipschitz, touch, noise, diameter)


def _exact_size(run: Run) -> Finding:
    if run.batches.exact_size:
        return holds("batches", f"{run.batches.design}: batches of exact size, as if touched at every step")
    return fails(
        "batches",
        f"it needs batches of exact size; {run.batches.design} batches vary",
        source=f"batches.design = {run.batches.design}",
        remedy="use a design with batches of exact size, in the training too.",
    )
