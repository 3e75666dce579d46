r"""Bounds of Kong & Ribero 2025 on the privacy of the last model of noisy SGD that reads its data in a fixed order, pass after pass.

Here are Theorems 2.2 (bounded domain) and 2.3 (several passes, clipped or not), Corollary C.2 as stated and corrected, and Corollary C.3.
Kept to compare: `lethe.compare` shows it beside Lethe's own bounds, and `certify` tries it only if asked by name. What is refuted, or
beaten by another bound, stands here for that comparison only. Symbols: $\lambda$ the step size, C the
clip norm, b the batch size, $\sigma$ the noise, $\ell$ the steps a pass, E the whole passes, m and M the bounds on curvature, $\theta(t)$
the factor by which t later noisy steps shrink what one step cost. A touch is a step whose batch holds the record: one in each pass.

Theorem 2.3 counts the last touch in full, and each of E earlier ones times $\theta$ of a whole pass, at twice what its proof needs.
Corollary C.2, without
clipping, takes $\lambda = \frac{1}{2(M+m)}$ and $\ell \ge \frac{\log2}{\log(1+m\lambda)}$, so that $\theta_{L_\lambda}(\ell)$ is at most
$\frac{4m}{M+m}$, and says how much noise makes the run $(\alpha, \epsilon)$-Rényi-DP at one order. Solved for
$\epsilon$, as here, it says what a noise gives.
"""

import math
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.guarantees import RDPCurve
from lethe.certificates.findings import Finding, fails, holds
from lethe.certificates.parts import Citation
from lethe.run.run import Run
from lethe.theorems.base import Bound, Standing, Theorem
from lethe.theorems.citations import cite
from lethe.theorems.literature.kong_ribero_2024 import KongRibero2024BoundedDomain
from lethe.theorems.literature.kong_ribero_setting import (
    SECOND,
    FloatArray,
    Letters,
    Version,
    checked,
    cited,
    curvature,
    one_full_pass,
    several_passes,
    small_steps,
    step_constant,
    step_limit,
    theta,
    zcdp,
)
from lethe.theorems.requirements import step_at_most, unclipped


def clipped_rho(letters: Letters) -> FloatArray:
    r"""Theorem 2.3 with clipping: $\rho = 4(\lambda C/(b\sigma))^2[1 + E\,\theta_{\sqrt2 L_\lambda}(\ell)]$, $E = \lfloor T/\ell\rfloor$.

    Infinity where $\lambda > 1/(2(m+M))$. Reference: Kong & Ribero, arXiv:2407.05237, revised version, equation (17).
    """
    return letters.where_allowed(_passes_rho(letters, log_factor=math.log(2.0)))


def unclipped_rho(letters: Letters) -> FloatArray:
    r"""Theorem 2.3 without clipping: $\rho = 4(\lambda C/(b\sigma))^2[1 + E\,\theta_{L_\lambda}(\ell)]$, $E = \lfloor T/\ell\rfloor$.

    Infinity where $\lambda > 1/(m+M)$. Reference: Kong & Ribero, arXiv:2407.05237, revised version, equation (19).
    """
    return letters.where_allowed(_passes_rho(letters), times=2.0)


def independent_of_passes_rho(letters: Letters) -> FloatArray:
    r"""Corollary C.3: $\rho = 4(C/(b\sigma))^2[1 + \theta_{L_\lambda}(\ell)]$ for $\lambda \le \min\{1/\sqrt E,\ 1/(2(m+M))\}$.

    Infinity where $\lambda$ is larger, or $T < \ell$. Reference: Kong & Ribero, arXiv:2407.05237, revised version, Corollary C.3.
    """
    size, full = letters.step_size, letters.passes
    with np.errstate(over="ignore"):
        rho = np.square(letters.touch / size) * (1.0 + theta(letters.log_square("revised"), letters.steps_per_pass))
    small = size <= 1.0 / np.sqrt(np.maximum(full, 1.0))
    return letters.where_allowed(np.where(small & (full >= 1.0), rho, np.inf))


def corollary_steps_per_pass(weak_convexity: ArrayLike, smoothness: ArrayLike) -> FloatArray:
    r"""$\bar\ell = \frac{\log 2}{\log(1 + m\bar\lambda)}$ of Corollary C.2, whose step size is the `step_limit`; infinity for $m \le 0$."""
    weak, smooth = np.maximum(checked("weak_convexity", weak_convexity), 0.0), checked("smoothness", smoothness, low=0.0)
    with np.errstate(divide="ignore", over="ignore"):
        total = np.where(weak > 0.0, weak + smooth, 1.0)
        return np.asarray(math.log(2.0) / np.log1p(0.5 * weak / total), dtype=np.float64)


def corollary_rho(letters: Letters) -> FloatArray:
    r"""$\rho = \frac{s^2}{\sigma^2}(1 + \frac{4m}{M+m}E)$: Corollary C.2 with the constant that (19) gives, solved for $\rho$."""
    with np.errstate(over="ignore"):
        weak = letters.weak_convexity
        return np.square(letters.touch) * (1.0 + letters.passes * (4.0 * weak / (weak + letters.smoothness)))


def _passes_rho(letters: Letters, log_factor: float = 0.0) -> FloatArray:
    """Theorem 2.3, the logarithm of its squared Lipschitz constant raised by `log_factor`."""
    weight = 1.0 + letters.passes * theta(letters.log_square("revised") + log_factor, letters.steps_per_pass)
    with np.errstate(over="ignore"):
        return np.square(letters.touch) * weight


class KongRibero2025BoundedDomain(KongRibero2024BoundedDomain):
    r"""Theorem 2.2: $\epsilon(\alpha) = \frac{\alpha}{2\sigma^2}(L_\lambda d_h + s)^2$ on a domain of diameter $d_h$, one step alone.

    $s = 2\lambda C/b$, $L_\lambda$ of the revised version. Only the last step enters, so that the earlier ones may have any step size,
    noise and order. Its proof uses $L_\lambda$ with clipping too, against Proposition 2.1(b) of the same paper, which has
    $\sqrt2 L_\lambda$: sound where clipping never acts. `KongRibero2024Corrected` has the constant of a clipped step.
    """

    name: ClassVar[str] = "kong-ribero-2025-2.2"
    citations: ClassVar[tuple[Citation, ...]] = (cited(SECOND, "Theorem 2.2"),)
    version: ClassVar[Version] = "revised"


class KongRibero2025Clipped(Theorem):
    r"""Theorem 2.3 (17): $\epsilon(\alpha) = \frac{\alpha s^2}{\sigma^2}[1 + E\,\theta_{\sqrt2 L_\lambda}(\ell)]$, clipped or not.

    $s = 2\lambda C/b$. Since $\theta_L \ge 1 - L^{-2} \ge \frac12$ for $L \ge \sqrt2$, it is never below the
    $\frac{\alpha s^2}{2\sigma^2}(E+1)$ of composition. Its proof gives half of it; a last pass cut short is counted in full.
    """

    name: ClassVar[str] = "kong-ribero-2025-2.3-clipped"
    statement: ClassVar[str] = "Amplification by iteration for weakly convex losses with clipping and fixed batches, worst position."
    formula: ClassVar[str] = (
        r"\epsilon(\alpha) = 4\alpha\left(\frac{\lambda C}{b\sigma}\right)^2\left[1 + E\,\theta_{\sqrt2 L_\lambda}(\ell)\right]"
    )
    needs: ClassVar[str] = "fixed batches, smooth losses, a step size at most 1/(2(m + M)), constant noise"
    citations: ClassVar[tuple[Citation, ...]] = (cited(SECOND, "Theorem 2.3, equation (17)"),)
    standing: ClassVar[Standing] = Standing(
        soundness="dominated", why="never better than composition: a step constant of sqrt(2) or more amplifies at most twofold"
    )

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        return (*several_passes(run), small_steps(run))

    def _bound(self, run: Run) -> Bound:
        constant = step_constant(run, "revised", "sqrt(2) L_lambda of Proposition 2.1(b)", math.sqrt(2.0))
        return Bound(guarantee=zcdp(clipped_rho(Letters.of(run))), lipschitz=constant)


class KongRibero2025Unclipped(Theorem):
    r"""Theorem 2.3 (19): $\epsilon(\alpha) = \frac{\alpha s^2}{\sigma^2}[1 + E\,\theta_{L_\lambda}(\ell)]$, without clipping.

    $s = 2\lambda C/b$. Its proof gives half of it; a last pass cut short is counted in full.
    """

    name: ClassVar[str] = "kong-ribero-2025-2.3-unclipped"
    statement: ClassVar[str] = "Amplification by iteration for weakly convex losses without clipping, fixed batches, worst position."
    formula: ClassVar[str] = (
        r"\epsilon(\alpha) = 4\alpha\left(\frac{\lambda C}{b\sigma}\right)^2\left[1 + E\,\theta_{L_\lambda}(\ell)\right]"
    )
    needs: ClassVar[str] = "fixed batches, smooth losses, no clipping, a step size at most 1/(m + M), constant noise"
    citations: ClassVar[tuple[Citation, ...]] = (cited(SECOND, "Theorem 2.3, equation (19)"),)

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        return (*several_passes(run), unclipped(run), small_steps(run, 2.0))

    def _bound(self, run: Run) -> Bound:
        return Bound(guarantee=zcdp(unclipped_rho(Letters.of(run))), lipschitz=step_constant(run, "revised"))


# The claim falls with the order, so a curve of it needs a largest one; these are those of common accountants.
ORDERS = (1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0)
_SAME_STEP = 1e-9


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
    citations: ClassVar[tuple[Citation, ...]] = (cited(SECOND, "Corollary C.2"),)
    standing: ClassVar[Standing] = Standing(
        soundness="refuted", why="its noise is too small by a factor of 4 alpha: the proof does not give it"
    )

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        return _corollary(run)

    def _bound(self, run: Run) -> Bound:
        rho = corollary_rho(Letters.of(run))
        values = tuple(zcdp(rho / (16.0 * order)).rho for order in ORDERS)
        return Bound(guarantee=RDPCurve(orders=ORDERS, values=values), lipschitz=step_constant(run, "revised"))


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
    citations: ClassVar[tuple[Citation, ...]] = (
        cite("lethe", ": Corollary C.2 of Kong & Ribero with the constant that Theorem 2.3 (19) gives (statement derived)"),
        cited(SECOND, "its Corollary C.2, with another constant"),
    )

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        return _corollary(run)

    def _bound(self, run: Run) -> Bound:
        return Bound(guarantee=zcdp(corollary_rho(Letters.of(run))), lipschitz=step_constant(run, "revised"))


class KongRibero2025IndependentOfPasses(Theorem):
    r"""Corollary C.3: $\epsilon(\alpha) = \frac{\alpha s^2}{\lambda^2\sigma^2}[1 + \theta_{L_\lambda}(\ell)]$ for $\lambda \le 1/\sqrt E$.

    $s = 2\lambda C/b$. The number of passes has only moved: $\lambda^2 E \le 1$ is a condition on numbers that carry units.
    """

    name: ClassVar[str] = "kong-ribero-2025-C.3"
    statement: ClassVar[str] = "A bound that does not grow with the passes, for step sizes that shrink with them; no clipping."
    formula: ClassVar[str] = r"\epsilon(\alpha) = 4\alpha\left(\frac{C}{b\sigma}\right)^2\left[1 + \theta_{L_\lambda}(\ell)\right]"
    needs: ClassVar[str] = "fixed batches, at least one pass, no clipping, a step size at most 1/sqrt(E) and 1/(2(m + M)), constant noise"
    citations: ClassVar[tuple[Citation, ...]] = (cited(SECOND, "Corollary C.3"),)

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        limit = 1.0 / math.sqrt(max(run.total_steps // run.steps_per_pass, 1))
        return (
            *several_passes(run),
            one_full_pass(run),
            unclipped(run),
            small_steps(run),
            step_at_most(run, limit, "1/sqrt(passes)"),
        )

    def _bound(self, run: Run) -> Bound:
        return Bound(guarantee=zcdp(independent_of_passes_rho(Letters.of(run))), lipschitz=step_constant(run, "revised"))


def _corollary(run: Run) -> tuple[Finding, ...]:
    """The hypotheses of Corollary C.2."""
    return (*several_passes(run), unclipped(run), _that_step_size(run), _long_passes(run))


def _that_step_size(run: Run) -> Finding:
    """The step size must be the one of Corollary C.2."""
    needed, size = float(step_limit(*curvature(run))), float(run.step_sizes[0])
    if run.step_sizes.min() == run.step_sizes.max() and abs(size - needed) <= _SAME_STEP * needed < math.inf:
        return holds("step size", f"{size:.6g} = 1/(2(m + M))")
    return fails(
        "step size",
        f"it needs a step size of exactly 1/(2(m + M)) = {needed:.10g}; it is {size:.10g}",
        source="step_size",
        remedy="take that step size, or use optimal-shift, which takes any.",
    )


def _long_passes(run: Run) -> Finding:
    """Passes must be as long as Corollary C.2 asks."""
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
