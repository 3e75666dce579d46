r"""Kong & Ribero 2025, Appendix C: Corollary C.2 as stated and with its constant corrected, and Corollary C.3. No clipping in any.

Corollary C.2 takes $\lambda = \frac{1}{2(M+m)}$ and $\ell \ge \frac{\log2}{\log(1+m\lambda)}$, so that $\theta_{L_\lambda}(\ell)$ is at
most $\frac{4m}{M+m}$, and says how much noise makes the run $(\alpha, \epsilon)$-Rényi-DP at one order. Turned round, it says what
$\epsilon$ a noise gives.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal, Unpack

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.guarantees import RDPCurve
from lethe.certificates.findings import Finding, fails, holds
from lethe.certificates.parts import Citation
from lethe.run.run import Run
from lethe.theorems.base import Bound, Standing, Theorem
from lethe.theorems.literature.kong_ribero.constants import (
    FloatArray,
    PassNumbers,
    checked,
    log_square,
    one_touch,
    require_numbers,
    step_limit,
    theta,
    where_allowed,
)
from lethe.theorems.literature.kong_ribero.reading import (
    SECOND,
    cited,
    curvature,
    one_full_pass,
    pass_numbers,
    passes,
    revised_constant,
    several_passes,
    small_steps,
    zcdp,
)
from lethe.theorems.requirements import step_at_most, unclipped

# The claim falls with the order, so a curve of it needs a largest one; these are those of common accountants.
ORDERS = (1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0)
_SAME_STEP = 1e-9


def corollary_step_size(weak_convexity: ArrayLike, smoothness: ArrayLike) -> FloatArray:
    r"""$\bar\lambda = \frac{1}{2(M+m)}$ of Corollary C.2."""
    return step_limit(weak_convexity, smoothness)


def corollary_steps_per_pass(weak_convexity: ArrayLike, smoothness: ArrayLike) -> FloatArray:
    r"""$\bar\ell = \frac{\log 2}{\log(1 + m\bar\lambda)}$ of Corollary C.2, infinity for $m \le 0$."""
    weak, smooth = np.maximum(checked("weak_convexity", weak_convexity), 0.0), checked("smoothness", smoothness, low=0.0)
    with np.errstate(divide="ignore", over="ignore"):
        total = np.where(weak > 0.0, weak + smooth, 1.0)
        return np.asarray(math.log(2.0) / np.log1p(0.5 * weak / total), dtype=np.float64)


def independent_of_passes_rho(**numbers: Unpack[PassNumbers]) -> FloatArray:
    r"""Corollary C.3: $\rho = 4(C/(b\sigma))^2[1 + \theta_{L_\lambda}(\ell)]$ for $\lambda \le \min\{1/\sqrt E,\ 1/(2(m+M))\}$.

    Args:
        numbers: of a run whose steps are alike.

    Returns:
        $\rho$, of the shape to which the arguments broadcast; infinity where $\lambda$ is larger, or $T < \ell$.

    Reference: Kong & Ribero, arXiv:2407.05237, revised version, Corollary C.3.
    """
    require_numbers(numbers, PassNumbers)
    step_size, slots = checked("step_size", numbers["step_size"], above=0.0), checked("steps_per_pass", numbers["steps_per_pass"], low=1.0)
    full = passes(checked("steps", numbers["steps"], low=1.0), slots)
    amplified = theta(log_square(step_size, numbers["weak_convexity"], numbers["smoothness"]), slots)
    with np.errstate(over="ignore"):
        rho = np.square(one_touch(numbers) / step_size) * (1.0 + amplified)
    small = step_size <= 1.0 / np.sqrt(np.maximum(full, 1.0))
    return where_allowed(numbers, np.where(small & (full >= 1.0), rho, np.inf))


class KongRibero2025CorollaryStated(Theorem):
    r"""Corollary C.2 as stated, for the noise of the run: $\epsilon(\alpha) = \frac{s^2}{16\alpha\sigma^2}(1 + \frac{4m}{M+m}E)$.

    $s = 2\lambda C/b$. That noise gives $16\alpha^2$ times as much by Theorem 2.3 (19), and a Rényi divergence cannot fall with the
    order. Given at `ORDERS`.
    """

    name: ClassVar[str] = "kong-ribero-2025-C.2"
    statement: ClassVar[str] = "Noise for a target at one order, weakly convex losses without clipping; its constant is false."
    formula: ClassVar[str] = (
        r"\sigma \ge \frac{C\bar\lambda}{2b}\sqrt{\frac{1}{\alpha\epsilon}\left(1 + \frac{4m}{M+m}E\right)},"
        r"\ \bar\lambda = \frac{1}{2(M+m)}"
    )
    needs: ClassVar[str] = "fixed batches, no clipping, a step size of exactly 1/(2(m + M)), m > 0, long passes, constant noise"
    covers: ClassVar[Literal["last", "all"]] = "last"
    citations: ClassVar[tuple[Citation, ...]] = (cited(SECOND, "Corollary C.2"),)
    standing: ClassVar[Standing] = Standing(
        soundness="refuted", why="its noise is too small by a factor of 4 alpha: the proof does not give it"
    )

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        """One step size, given by the curvature, and passes long enough for it."""
        return _corollary(run)

    def _bound(self, run: Run) -> Bound:
        rho = _corrected_rho(pass_numbers(run))
        values = tuple(zcdp(rho / (16.0 * order)).rho for order in ORDERS)
        return Bound(guarantee=RDPCurve(orders=ORDERS, values=values), lipschitz=revised_constant(run))


class KongRibero2025CorollaryCorrected(Theorem):
    r"""Corollary C.2 with the constant that (19) gives: $\epsilon(\alpha) = \frac{\alpha s^2}{\sigma^2}(1 + \frac{4m}{M+m}E)$.

    $s = 2\lambda C/b$. Never below (19): for $r = \frac{m}{M+m}$ and $L = L_\lambda$, $L^2 = 1 + r(1 + \frac r2) \ge 1 + \frac r2$, and
    $\ell \ge \log2/\log(1 + \frac r2)$ makes $L^{-2\ell} \le \frac12$ and $\theta_L(\ell) \le 2(1 - L^{-2}) \le 2(L^2 - 1) \le 3r$.
    """

    name: ClassVar[str] = "kong-ribero-2025-C.2-corrected"
    statement: ClassVar[str] = "Corollary C.2 of Kong & Ribero 2025 with the constant its proof gives."
    formula: ClassVar[str] = (
        r"\sigma \ge \frac{2C\bar\lambda}{b}\sqrt{\frac{\alpha}{\epsilon}\left(1 + \frac{4m}{M+m}E\right)},\ \bar\lambda = \frac{1}{2(M+m)}"
    )
    needs: ClassVar[str] = "fixed batches, no clipping, a step size of exactly 1/(2(m + M)), m > 0, long passes, constant noise"
    covers: ClassVar[Literal["last", "all"]] = "last"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            key="lethe", text="Lethe: Corollary C.2 of Kong & Ribero with the constant that Theorem 2.3 (19) gives (statement derived)."
        ),
        cited(SECOND, "its Corollary C.2, with another constant"),
    )

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        """One step size, given by the curvature, and passes long enough for it."""
        return _corollary(run)

    def _bound(self, run: Run) -> Bound:
        return Bound(guarantee=zcdp(_corrected_rho(pass_numbers(run))), lipschitz=revised_constant(run))


class KongRibero2025IndependentOfPasses(Theorem):
    r"""Corollary C.3: $\epsilon(\alpha) = \frac{\alpha s^2}{\lambda^2\sigma^2}[1 + \theta_{L_\lambda}(\ell)]$ for $\lambda \le 1/\sqrt E$.

    $s = 2\lambda C/b$. The number of passes has only moved: $\lambda^2 E \le 1$ is a condition on numbers that carry units.
    """

    name: ClassVar[str] = "kong-ribero-2025-C.3"
    statement: ClassVar[str] = "A bound that does not grow with the passes, for step sizes that shrink with them; no clipping."
    formula: ClassVar[str] = r"\epsilon(\alpha) = 4\alpha\left(\frac{C}{b\sigma}\right)^2\left[1 + \theta_{L_\lambda}(\ell)\right]"
    needs: ClassVar[str] = "fixed batches, at least one pass, no clipping, a step size at most 1/sqrt(E) and 1/(2(m + M)), constant noise"
    covers: ClassVar[Literal["last", "all"]] = "last"
    citations: ClassVar[tuple[Citation, ...]] = (cited(SECOND, "Corollary C.3"),)

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        """Fixed batches, no clipping, tiny steps, constant noise."""
        few = 1.0 / math.sqrt(max(run.total_steps // run.steps_per_pass, 1))
        return (
            *several_passes(run),
            one_full_pass(run),
            unclipped(run),
            small_steps(run),
            step_at_most(run, few, "1/sqrt(passes)"),
        )

    def _bound(self, run: Run) -> Bound:
        return Bound(guarantee=zcdp(independent_of_passes_rho(**pass_numbers(run))), lipschitz=revised_constant(run))


def pass_growth(steps: ArrayLike, steps_per_pass: ArrayLike, weak_convexity: ArrayLike, smoothness: ArrayLike) -> FloatArray:
    r"""$1 + \frac{4m}{M+m}E$.

    Args: as `clipped_rho`, with $m > 0$; elementwise.
    """
    weak = checked("weak_convexity", weak_convexity, above=0.0)
    return 1.0 + passes(steps, steps_per_pass) * (4.0 * weak / (weak + checked("smoothness", smoothness, low=0.0)))


def _corrected_rho(numbers: PassNumbers) -> FloatArray:
    with np.errstate(over="ignore"):
        grown = pass_growth(numbers["steps"], numbers["steps_per_pass"], numbers["weak_convexity"], numbers["smoothness"])
        return np.square(one_touch(numbers)) * grown


def _corollary(run: Run) -> tuple[Finding, ...]:
    return (*several_passes(run), unclipped(run), _that_step_size(run), _long_passes(run))


def _that_step_size(run: Run) -> Finding:
    needed, size = float(corollary_step_size(*curvature(run))), float(run.step_sizes[0])
    if run.step_sizes.min() == run.step_sizes.max() and abs(size - needed) <= _SAME_STEP * needed < math.inf:
        return holds("step size", f"{size:.6g} = 1/(2(m + M))")
    return fails(
        "step size",
        f"it needs a step size of exactly 1/(2(m + M)) = {needed:.10g}; it is {size:.10g}",
        source="step_size",
        remedy="take that step size, or use optimal-shift, which takes any.",
    )


def _long_passes(run: Run) -> Finding:
    needed = float(corollary_steps_per_pass(*curvature(run)))
    if run.steps_per_pass >= needed:
        return holds("pass length", f"{run.steps_per_pass} steps a pass >= log 2 / log(1 + m/(2(m + M))) = {needed:.6g}")
    return fails(
        "pass length",
        f"it needs at least log 2 / log(1 + m/(2(m + M))) = {needed:.6g} steps a pass (infinity for convex losses); there are "
        f"{run.steps_per_pass}",
        source="batches.size and loss.weak_convexity",
        remedy="use optimal-shift, which takes passes of any length.",
    )
