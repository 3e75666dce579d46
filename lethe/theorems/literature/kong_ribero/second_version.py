r"""Kong & Ribero 2025, the revised version: Theorems 2.2 and 2.3.

Theorem 2.3 counts one touch in full and E with a whole pass behind them, at twice what its proof pays for each.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from lethe.certificates.certificate import Citation
from lethe.certificates.findings import Finding
from lethe.run.run import Run
from lethe.theorems.base import Bound, Standing, Theorem
from lethe.theorems.literature.kong_ribero.constants import (
    FloatArray,
    checked,
    lipschitz_constant,
    log_square,
    one_step_rho,
    step_limit,
    theta,
    touch,
    where_allowed,
)
from lethe.theorems.literature.kong_ribero.reading import (
    GAP,
    SECOND,
    cited,
    last_step_numbers,
    one_step,
    pass_numbers,
    passes,
    several_passes,
    small_last_step,
    small_steps,
    step_constant,
    unless_clipped,
    zcdp,
)
from lethe.theorems.requirements import bounded_domain, unclipped


def bounded_domain_rho(
    *,
    step_size: ArrayLike,
    clip_norm: ArrayLike,
    batch_size: ArrayLike,
    noise_std: ArrayLike,
    diameter: ArrayLike,
    weak_convexity: ArrayLike,
    smoothness: ArrayLike,
) -> FloatArray:
    r"""Theorem 2.2: $\rho = \frac{1}{2\sigma^2}(L_\lambda d_h + 2\lambda C/b)^2$.

    Args:
        step_size: $\lambda > 0$.
        clip_norm: $C > 0$.
        batch_size: $b \ge 1$.
        noise_std: $\sigma > 0$, parameter units.
        diameter: $d_h \ge 0$, of the domain, parameter units.
        weak_convexity: m.
        smoothness: $M \ge 0$.

    Returns:
        $\rho$, of the shape to which the arguments broadcast; infinity where $\lambda > 1/(2(m+M))$.

    Raises:
        InputError: an argument is not finite or outside its range.

    Reference: Kong & Ribero, arXiv:2407.05237, revised version, equation (16).
    """
    with np.errstate(over="ignore"):
        apart = lipschitz_constant(step_size, weak_convexity, smoothness) * checked("diameter", diameter, low=0.0)
    rho = one_step_rho(apart, touch(step_size, clip_norm, batch_size, noise_std), noise_std)
    return where_allowed(step_size, step_limit(weak_convexity, smoothness), rho)


def clipped_rho(
    *,
    step_size: ArrayLike,
    clip_norm: ArrayLike,
    batch_size: ArrayLike,
    noise_std: ArrayLike,
    steps: ArrayLike,
    steps_per_pass: ArrayLike,
    weak_convexity: ArrayLike,
    smoothness: ArrayLike,
) -> FloatArray:
    r"""Theorem 2.3 with clipping: $\rho = 4(\lambda C/(b\sigma))^2[1 + E\,\theta_{\sqrt2 L_\lambda}(\ell)]$, $E = \lfloor T/\ell\rfloor$.

    Args:
        step_size: $\lambda > 0$.
        clip_norm: $C > 0$.
        batch_size: $b \ge 1$.
        noise_std: $\sigma > 0$, parameter units.
        steps: $T \ge 1$.
        steps_per_pass: $\ell \ge 1$.
        weak_convexity: m.
        smoothness: $M \ge 0$.

    Returns:
        $\rho$, of the shape to which the arguments broadcast; infinity where $\lambda > 1/(2(m+M))$.

    Raises:
        InputError: an argument is not finite or outside its range.

    Reference: Kong & Ribero, arXiv:2407.05237, revised version, equation (17).
    """
    squared = math.log(2.0) + log_square(step_size, weak_convexity, smoothness)
    rho = _passes_rho(touch(step_size, clip_norm, batch_size, noise_std), squared, steps, steps_per_pass)
    return where_allowed(step_size, step_limit(weak_convexity, smoothness), rho)


def unclipped_rho(
    *,
    step_size: ArrayLike,
    clip_norm: ArrayLike,
    batch_size: ArrayLike,
    noise_std: ArrayLike,
    steps: ArrayLike,
    steps_per_pass: ArrayLike,
    weak_convexity: ArrayLike,
    smoothness: ArrayLike,
) -> FloatArray:
    r"""Theorem 2.3 without clipping: $\rho = 4(\lambda C/(b\sigma))^2[1 + E\,\theta_{L_\lambda}(\ell)]$, $E = \lfloor T/\ell\rfloor$.

    Args, Raises: those of `clipped_rho`; `clip_norm` is then the bound on every gradient.

    Returns:
        $\rho$, of the shape to which the arguments broadcast; infinity where $\lambda > 1/(m+M)$.

    Reference: Kong & Ribero, arXiv:2407.05237, revised version, equation (19).
    """
    squared = log_square(step_size, weak_convexity, smoothness)
    rho = _passes_rho(touch(step_size, clip_norm, batch_size, noise_std), squared, steps, steps_per_pass)
    return where_allowed(step_size, 2.0 * step_limit(weak_convexity, smoothness), rho)


class KongRibero2025BoundedDomain(Theorem):
    r"""Theorem 2.2: $\epsilon(\alpha) = \frac{\alpha}{2\sigma^2}(L_\lambda d_h + s)^2$ on a domain of diameter $d_h$, one step alone.

    $s = 2\lambda C/b$, $L_\lambda$ of `lipschitz_constant`. Only the last step enters, so that the earlier ones may have any step size,
    noise and order. Its proof uses $L_\lambda$ with clipping too, against Proposition 2.1(b) of the same paper, which has
    $\sqrt2 L_\lambda$: sound where clipping never acts. `KongRibero2024Corrected` has the constant of a clipped step.
    """

    name: ClassVar[str] = "kong-ribero-2025-2.2"
    statement: ClassVar[str] = "One noisy step hides all that a bounded domain lets two runs differ by."
    formula: ClassVar[str] = r"\epsilon(\alpha) = \frac{\alpha}{2\sigma^2}\left(L_\lambda d_h + \frac{2\lambda C}{b}\right)^2"
    needs: ClassVar[str] = "a bounded domain, smooth losses, a last step size at most 1/(2(m + M)), batches of exact size"
    covers: ClassVar[Literal["last", "all"]] = "last"
    citations: ClassVar[tuple[Citation, ...]] = (cited(SECOND, "Theorem 2.2"),)
    standing: ClassVar[Standing] = GAP

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        """A bounded domain, and a small last step with noise."""
        return (*one_step(run), small_last_step(run), bounded_domain(run))

    def standing_on(self, run: Run) -> Standing:
        """Sound unless clipping acts."""
        return unless_clipped(run)

    def _bound(self, run: Run) -> Bound:
        rho = bounded_domain_rho(**last_step_numbers(run), diameter=run.diameter)
        return Bound(guarantee=zcdp(rho), lipschitz=step_constant(run, lipschitz_constant, "L_lambda of equation (13)"))


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
    covers: ClassVar[Literal["last", "all"]] = "last"
    citations: ClassVar[tuple[Citation, ...]] = (cited(SECOND, "Theorem 2.3, equation (17)"),)
    standing: ClassVar[Standing] = Standing(
        soundness="dominated", why="never better than composition: a step constant of sqrt(2) or more amplifies at most twofold"
    )

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        """Fixed batches, small steps, constant noise."""
        return (*several_passes(run), small_steps(run))

    def _bound(self, run: Run) -> Bound:
        constant = step_constant(run, lipschitz_constant, "sqrt(2) L_lambda of Proposition 2.1(b)", math.sqrt(2.0))
        return Bound(guarantee=zcdp(clipped_rho(**pass_numbers(run))), lipschitz=constant)


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
    covers: ClassVar[Literal["last", "all"]] = "last"
    citations: ClassVar[tuple[Citation, ...]] = (cited(SECOND, "Theorem 2.3, equation (19)"),)

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        """Fixed batches, no clipping, small steps, constant noise."""
        return (*several_passes(run), unclipped(run), small_steps(run, 2.0))

    def _bound(self, run: Run) -> Bound:
        constant = step_constant(run, lipschitz_constant, "L_lambda of equation (13)")
        return Bound(guarantee=zcdp(unclipped_rho(**pass_numbers(run))), lipschitz=constant)


def _passes_rho(moved: FloatArray, squared: FloatArray, steps: ArrayLike, steps_per_pass: ArrayLike) -> FloatArray:
    slots = checked("steps_per_pass", steps_per_pass, low=1.0)
    with np.errstate(over="ignore"):
        return np.square(moved) * (1.0 + passes(checked("steps", steps, low=1.0), slots) * theta(squared, slots))
