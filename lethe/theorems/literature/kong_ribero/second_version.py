r"""Kong & Ribero 2025, the revised version: Theorems 2.2 and 2.3.

Theorem 2.3 counts one touch in full and E with a whole pass behind them, at twice what its proof pays for each.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal, Unpack

import numpy as np

from lethe.certificates.findings import Finding
from lethe.certificates.parts import Citation
from lethe.run.run import Run
from lethe.theorems.base import Bound, Standing, Theorem
from lethe.theorems.literature.kong_ribero.constants import (
    FloatArray,
    PassNumbers,
    checked,
    lipschitz_constant,
    log_square,
    one_touch,
    require_numbers,
    theta,
    where_allowed,
)
from lethe.theorems.literature.kong_ribero.first_version import KongRibero2024BoundedDomain, bounded_domain_rho
from lethe.theorems.literature.kong_ribero.reading import (
    SECOND,
    cited,
    last_step_numbers,
    pass_numbers,
    passes,
    revised_constant,
    several_passes,
    small_steps,
    step_constant,
    zcdp,
)
from lethe.theorems.requirements import unclipped


def clipped_rho(**numbers: Unpack[PassNumbers]) -> FloatArray:
    r"""Theorem 2.3 with clipping: $\rho = 4(\lambda C/(b\sigma))^2[1 + E\,\theta_{\sqrt2 L_\lambda}(\ell)]$, $E = \lfloor T/\ell\rfloor$.

    Args:
        numbers: of a run whose steps are alike.

    Returns:
        $\rho$, of the shape to which the arguments broadcast; infinity where $\lambda > 1/(2(m+M))$.

    Reference: Kong & Ribero, arXiv:2407.05237, revised version, equation (17).
    """
    require_numbers(numbers, PassNumbers)
    return where_allowed(numbers, _passes_rho(numbers, log_factor=math.log(2.0)))


def unclipped_rho(**numbers: Unpack[PassNumbers]) -> FloatArray:
    r"""Theorem 2.3 without clipping: $\rho = 4(\lambda C/(b\sigma))^2[1 + E\,\theta_{L_\lambda}(\ell)]$, $E = \lfloor T/\ell\rfloor$.

    Args, Raises: those of `clipped_rho`.

    Returns:
        $\rho$, of the shape to which the arguments broadcast; infinity where $\lambda > 1/(m+M)$.

    Reference: Kong & Ribero, arXiv:2407.05237, revised version, equation (19).
    """
    require_numbers(numbers, PassNumbers)
    return where_allowed(numbers, _passes_rho(numbers), times=2.0)


class KongRibero2025BoundedDomain(KongRibero2024BoundedDomain):
    r"""Theorem 2.2: $\epsilon(\alpha) = \frac{\alpha}{2\sigma^2}(L_\lambda d_h + s)^2$ on a domain of diameter $d_h$, one step alone.

    $s = 2\lambda C/b$, $L_\lambda$ of `lipschitz_constant`. Only the last step enters, so that the earlier ones may have any step size,
    noise and order. Its proof uses $L_\lambda$ with clipping too, against Proposition 2.1(b) of the same paper, which has
    $\sqrt2 L_\lambda$: sound where clipping never acts. `KongRibero2024Corrected` has the constant of a clipped step.
    """

    name: ClassVar[str] = "kong-ribero-2025-2.2"
    citations: ClassVar[tuple[Citation, ...]] = (cited(SECOND, "Theorem 2.2"),)

    def _bound(self, run: Run) -> Bound:
        rho = bounded_domain_rho(lipschitz_constant, **last_step_numbers(run), diameter=run.diameter)
        return Bound(guarantee=zcdp(rho), lipschitz=revised_constant(run))


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
        return Bound(guarantee=zcdp(unclipped_rho(**pass_numbers(run))), lipschitz=revised_constant(run))


def _passes_rho(numbers: PassNumbers, *, log_factor: float = 0.0) -> FloatArray:
    """One touch in full and E with a whole pass behind them; `log_factor` is that of the squared step constant."""
    squared = log_factor + log_square(numbers["step_size"], numbers["weak_convexity"], numbers["smoothness"])
    moved, slots = one_touch(numbers), checked("steps_per_pass", numbers["steps_per_pass"], low=1.0)
    with np.errstate(over="ignore"):
        return np.square(moved) * (1.0 + passes(checked("steps", numbers["steps"], low=1.0), slots) * theta(squared, slots))
