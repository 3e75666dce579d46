r"""Altschuler, Talwar 2022: the last iterate of noisy SGD on a bounded domain, amplified by sampling and by iteration in the same noise.

A window is the last R steps: part of their noise hides whether the record was drawn, the rest how far apart two runs on neighbouring data
were when the window began. In formulas D is the diameter of the domain, $\tau$ the noise of a step, $\beta$ the share of its variance that
hides the draw. Kept to compare: `lethe.compare` shows it beside Lethe's own bounds, and `certify` tries it only if asked by name.
"""

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from lethe.calculus.guarantees import RDPCurve
from lethe.calculus.rounding import square_above
from lethe.calculus.sampled.renyi import ORDERS, renyi_values
from lethe.certificates.findings import Finding
from lethe.certificates.parts import Citation
from lethe.run.run import Run
from lethe.run.schedules.shapes import Array
from lethe.theorems import requirements as require
from lethe.theorems.base import SOUND, Bound, Standing, Theorem
from lethe.theorems.citations import cite
from lethe.theorems.lipschitz import plain_step

# Shares of the noise variance that hide the draw; the best lies near 1 for long windows.
SHARES: Array = 1.0 / (1.0 + np.exp(-np.linspace(-4.0, 7.0, 40)))


def shift_factor(contraction: float, window: Array) -> Array:
    r"""The cost of hiding a shift over R contracting steps, relative to a single step that does not contract.

    $$k_c(R) = \frac{c^{2R}(1-c^2)}{1-c^{2R}},\qquad k_1(R) = \frac1R$$

    $c \in [0, 1]$ is the Lipschitz constant of a step; $R \ge 1$ has any shape. Nonincreasing and convex in R; not rounded outward.
    Reference: as for `AltschulerTalwar2022`.
    """
    if contraction == 0.0:
        return np.zeros_like(window)
    rate = -2.0 * math.log(contraction)
    if rate == 0.0:
        return 1.0 / window
    with np.errstate(under="ignore"):
        return np.exp(-rate * window) * (math.expm1(-rate) / np.expm1(-rate * window))


def _best_windows(one_step: Array, shares: Array, squared_shift: float, contraction: float, longest: int) -> Array:
    r"""$\min_{R \le T,\,\beta} R\,S_\alpha(\beta) + \frac{\alpha}{2(1-\beta)}\frac{D^2}{\tau^2} k_c(R)$ at every order, rounded up.

    $S_\alpha(\beta)$, of one step that hides the draw in a share of its noise, has shape (shares, len(ORDERS)). The window is exact: the
    expression is convex in R, so that bisection finds its minimum.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        start = np.multiply.outer(squared_shift / (1.0 - shares), 0.5 * np.array(ORDERS))
        low, high = np.ones_like(one_step), np.full_like(one_step, float(longest))
        while bool(np.any(low < high)):
            middle = np.floor(0.5 * (low + high))
            saved = start * (shift_factor(contraction, middle) - shift_factor(contraction, middle + 1.0))
            longer = saved > one_step
            low, high = np.where(longer, middle + 1.0, low), np.where(longer, high, middle)
        values = low * one_step + start * shift_factor(contraction, low)
    # Infinity times 0: no bound from that window.
    return np.where(np.isnan(values), np.inf, values).min(axis=0) * (1.0 + 1e-12)


class _Windowed(Theorem, ABC):
    """What the theorem as printed and its corrected form share: everything but the divergence of one step."""

    needs: ClassVar[str] = (
        "batches without replacement or Poisson, secret; convex smooth losses, no clipping, a bounded domain, step size at most 2/M "
        "for every batch that may be drawn, constant noise"
    )
    citations: ClassVar[tuple[Citation, ...]] = (
        cite("altschuler-talwar-2022", " (statement reconstructed, constants by numerical minimisation)"),
        cite("mironov-2019"),
    )

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        return (
            require.last_iterate(run),
            require.design(run, ("without_replacement", "poisson"), f"{run.batch_size} of {run.records} records drawn afresh at each step"),
            self._gradients(run),
            require.convex(run),
            require.unclipped(run),
            _nonexpansive(run),
            require.bounded_domain(run),
            require.constant_noise_and_step(run),
            require.secrecy(run),
        )

    def _gradients(self, run: Run) -> Finding:
        return require.each_gradient_bounded(run)

    @abstractmethod
    def _one_step(self, run: Run, shares: Array) -> Array:
        """$S_\\alpha$ of one step at each share of its noise, shape (shares, len(ORDERS))."""

    def _bound(self, run: Run) -> Bound:
        squared_shift = float(square_above(run.diameter / float(run.noise_stds[0])))
        curve = _best_windows(self._one_step(run, SHARES), SHARES, squared_shift, _contraction(run), run.total_steps)
        # A window over the whole run has no shift to hide, and all the noise for the draws.
        composed = run.total_steps * self._one_step(run, np.ones(1))[0] * (1.0 + 1e-15)
        return Bound(guarantee=RDPCurve(ORDERS, tuple(np.minimum(curve, composed).tolist())))


class AltschulerTalwar2022(_Windowed):
    r"""Sampling over the last R steps, and a shift of the domain's diameter hidden in the same noise.

    $$\epsilon(\alpha) = \min\Big\{T S_\alpha\big(\tfrac bn, \tfrac\tau s\big),\ \min_{R\le T,\,\beta} R\,S_\alpha\big(\tfrac bn,
      \tfrac{\sqrt\beta\tau}{s}\big) + \frac{\alpha D^2}{2(1-\beta)\tau^2} k_c(R)\Big\}$$

    with $S_\alpha(q, z)$ the divergence of $(1-q)N(0,z^2) + qN(1,z^2)$ and $N(0,z^2)$ and $k_c(R) = c^{2R}(1-c^2)/(1-c^{2R})$, 1/R for
    convex losses: the paper's proof with its constants minimised numerically. The rate it displays is
    $\frac{\alpha L^2}{n^2\sigma^2}\min\{T, \lceil Dn/(L\lambda)\rceil\}$ up to a constant.

    Poisson batches and a record taken away: sound. At each step what the other records do is one nonexpansive map, the same with and
    without the record, and what the record adds to the noise has exactly this divergence. A batch may hold all n records and is divided
    by b, hence the step size is limited to (2/M)(b/n), and no contraction is counted, since a batch may be empty.

    Batches without replacement: the proof does not cover them. Three contents meet in a batch's place: the record, its neighbour, and
    some other record; $(1-q)N(a) + qN(u)$ against $(1-q)N(a) + qN(v)$ with a, u, v up to 2L apart can exceed $S_\alpha$ (see the tests).
    No such a, u, v of norm at most L are known. Here s is 2 L / b times the step for any relation: where a record's
    gradient is zeroed, another record may still stand in its place. The same gap opens for Poisson batches and replace_one.
    """

    name: ClassVar[str] = "altschuler-talwar-2022"
    statement: ClassVar[str] = "Random batches and convex losses on a bounded domain: after a burn-in, more steps leak no more."
    formula: ClassVar[str] = (
        r"\epsilon(\alpha) = \min_{R,\beta} R\,S_\alpha(b/n, \sqrt\beta\tau/s) + \frac{\alpha D^2}{2(1-\beta)\tau^2} k_c(R)"
    )
    standing: ClassVar[Standing] = Standing(
        soundness="proof-gap", why="its one-step term is that of a record drawn or not, and here another record takes its place"
    )

    def standing_on(self, run: Run) -> Standing:
        """Sound for Poisson batches and a record taken away."""
        return SOUND if require.drawn_by(run) == "poisson" and run.neighbours != "replace_one" else self.standing

    def _one_step(self, run: Run, shares: Array) -> Array:
        apart = run.touch_factor if require.drawn_by(run) == "poisson" else 2.0
        noise = float(run.record_noise[0]) / apart
        return renyi_values(run.batch_size / run.records, np.sqrt(shares) * noise, "add_or_remove", "poisson")


class AltschulerTalwar2022Corrected(_Windowed):
    """`AltschulerTalwar2022` with a one-step divergence that holds for the run's batch design and neighbouring relation.

    Without replacement: the profiles that dominate such a step (docs/theory.md, Lemma 6), the batch contents 2L apart. Poisson batches and
    replace_one: the pair of the record and one opposite to it. Poisson batches and a record taken away: as printed.
    """

    name: ClassVar[str] = "altschuler-talwar-2022-corrected"
    statement: ClassVar[str] = "As altschuler-talwar-2022, with a one-step divergence proved for the batch design."
    formula: ClassVar[str] = (
        r"\epsilon(\alpha) = \min_{R,\beta} R\,S'_\alpha(b/n, \sqrt\beta z) + \frac{\alpha D^2}{2(1-\beta)\tau^2} k_c(R)"
    )
    citations: ClassVar[tuple[Citation, ...]] = (
        *_Windowed.citations,
        cite("lethe", ", docs/theory.md: Rényi divergences of one step, batches of fixed size"),
    )

    def _gradients(self, run: Run) -> Finding:
        return require.gradient_bound_when_drawn(run)

    def _one_step(self, run: Run, shares: Array) -> Array:
        noise = float(run.record_noise[0])
        return renyi_values(run.batch_size / run.records, np.sqrt(shares) * noise, run.neighbours, require.drawn_by(run))


def _nonexpansive(run: Run) -> Finding:
    """Steps must not expand: a step size of at most 2/M."""
    limit = require.two_over_smoothness(run)
    if require.drawn_by(run) != "poisson":
        return require.step_at_most(run, limit, "2/smoothness")
    largest_batch = run.records + (1 if run.neighbours == "add_or_remove" else 0)
    return require.step_at_most(
        run, limit * run.batch_size / largest_batch, f"2/smoothness times {run.batch_size}/{largest_batch}, as a batch may hold all records"
    )


def _contraction(run: Run) -> float:
    """The Lipschitz constant of a step, at most 1."""
    assert run.loss.curvature is not None  # examine has refused the rest
    if require.drawn_by(run) == "poisson":
        return 1.0
    return min(plain_step(float(run.step_sizes[0]), *run.loss.curvature), 1.0)
