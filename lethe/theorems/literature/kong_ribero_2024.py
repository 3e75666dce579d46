r"""Kong & Ribero 2024, the first version: Theorems 4.3 to 4.5 on the last iterate of DP-SGD, and Theorem 4.4 corrected.

Kept to compare: `lethe.compare` shows it beside Lethe's own bounds, and `certify` tries it only if asked by name. Theorems that are false
as printed are marked so and never chosen; a corrected form stands beside them. Symbols ($\lambda$, C, b, $\sigma$, T, E, $\ell$,
$L_\lambda$, $\theta$) are defined in `kong_ribero_setting`.
"""

from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from lethe.certificates.findings import Finding
from lethe.certificates.parts import Citation, StepConstant
from lethe.run.effective_loss import clipped_along_a_line
from lethe.run.run import Run
from lethe.theorems import requirements as require
from lethe.theorems.base import Bound, Standing, Theorem
from lethe.theorems.citations import cite
from lethe.theorems.lipschitz import clipped_step, generalised_linear_step, plain_step
from lethe.theorems.literature.kong_ribero_setting import (
    EXACT_SIZE,
    FIRST,
    GAP,
    FloatArray,
    Letters,
    Version,
    checked,
    cited,
    one_full_pass,
    one_step,
    several_passes,
    small_last_step,
    small_steps,
    step_constant,
    theta,
    unless_clipped,
    zcdp,
)


def any_loss_rho(letters: Letters) -> FloatArray:
    r"""Theorem 4.3: $\rho = 8T(\lambda C/\sigma)^2$; the batch size does not enter.

    Reference: Kong & Ribero 2024, arXiv:2407.05237, first version, equation (18).
    """
    with np.errstate(over="ignore"):
        return 2.0 * letters.steps * np.square(letters.touch * letters.batch_size)


def bounded_domain_rho(letters: Letters, diameter: ArrayLike, version: Version) -> FloatArray:
    r"""Theorem 4.4, Theorem 2.2 of the revised version: $\rho = \frac{1}{2\sigma^2}(L_\lambda d_h + 2\lambda C/b)^2$.

    The letters are of the last step; $d_h \ge 0$, in parameter units, is a number or an array. Infinity where $\lambda > 1/(2(m+M))$.
    Reference: Kong & Ribero, arXiv:2407.05237, equation (20) of the first version, (16) of the revised one.
    """
    with np.errstate(over="ignore"):
        apart = letters.lipschitz(version) * checked("diameter", diameter, low=0.0)
    return letters.where_allowed(letters.one_step_rho(apart))


def first_batch_rho(letters: Letters) -> FloatArray:
    r"""Theorem 4.5: $\rho = 4(\lambda C/(b\sigma))^2[\theta_{L_\lambda}(T-E\ell) + E\,\theta_{L_\lambda}(\ell)]$.

    $E = \lfloor T/\ell\rfloor$. At $m = 0$ it is the convex form (22), $4(\lambda C/(b\sigma))^2[1/(T-E\ell) + E/\ell]$, its first term 0
    for whole passes. False for a record that is not in the first batch. Infinity where $\lambda > 1/(2(m+M))$. Reference: Kong & Ribero
    2024, arXiv:2407.05237, first version, equations (21) and (22).
    """
    squared, slots, full = letters.log_square("first"), letters.steps_per_pass, letters.passes
    weight = theta(squared, letters.steps - full * slots) + full * theta(squared, slots)
    with np.errstate(over="ignore"):
        return letters.where_allowed(np.square(letters.touch) * weight)


class KongRibero2024AnyLoss(Theorem):
    r"""Theorem 4.3: $\epsilon(\alpha) = 8\alpha T(\lambda C/\sigma)^2$, for any loss whose gradients are clipped or bounded.

    Its proof pays $2\lambda C$ twice at every step, touched or not, whatever the batch size: at least $4b^2$ times what composition pays.
    That it holds for batches in any order, of exact size, is what the proof gives; C counts in full under zero_out too.
    """

    name: ClassVar[str] = "kong-ribero-2024-4.3"
    statement: ClassVar[str] = "A bound for any clipped loss that pays twice the clip norm at every step, whatever the batch size."
    formula: ClassVar[str] = r"\epsilon(\alpha) = 8\alpha T\left(\frac{\lambda C}{\sigma}\right)^2"
    needs: ClassVar[str] = "batches of exact size, at least one pass, one step size and one noise level"
    citations: ClassVar[tuple[Citation, ...]] = (cited(FIRST, "Theorem 4.3"),)
    standing: ClassVar[Standing] = Standing(
        soundness="dominated", why="never better than composition: it pays at every step, and for b = 1"
    )

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        return (
            require.last_iterate(run),
            require.relation(run, ("replace_one", "zero_out")),
            require.design(run, EXACT_SIZE, "every batch holds exactly the nominal number of records"),
            one_full_pass(run),
            require.each_gradient_bounded(run),
            require.constant_noise_and_step(run),
        )

    def _bound(self, run: Run) -> Bound:
        size, noise = float(run.step_sizes[-1]), float(run.noise_stds[-1])
        letters = Letters(step_size=size, clip_norm=run.record_bound, noise_std=noise, steps=run.total_steps)
        return Bound(guarantee=zcdp(any_loss_rho(letters)))


class KongRibero2024BoundedDomain(Theorem):
    r"""Theorem 4.4: $\epsilon(\alpha) = \frac{\alpha}{2\sigma^2}(L_\lambda d_h + s)^2$ on a domain of diameter $d_h$, one step alone.

    $s = 2\lambda C/b$, $L_\lambda$ of the first version. Only the last step enters, so that the earlier ones may have any step
    size, noise and order. Sound where clipping never acts; where it does, `KongRibero2024Corrected` has the constant.
    """

    name: ClassVar[str] = "kong-ribero-2024-4.4"
    statement: ClassVar[str] = "One noisy step hides all that a bounded domain lets two runs differ by."
    formula: ClassVar[str] = r"\epsilon(\alpha) = \frac{\alpha}{2\sigma^2}\left(L_\lambda d_h + \frac{2\lambda C}{b}\right)^2"
    needs: ClassVar[str] = "a bounded domain, smooth losses, a last step size at most 1/(2(m + M)), batches of exact size"
    citations: ClassVar[tuple[Citation, ...]] = (cited(FIRST, "Theorem 4.4"),)
    standing: ClassVar[Standing] = GAP
    version: ClassVar[Version] = "first"

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        return (*one_step(run), small_last_step(run), require.bounded_domain(run))

    def standing_on(self, run: Run) -> Standing:
        """Sound unless clipping acts."""
        return unless_clipped(run)

    def _bound(self, run: Run) -> Bound:
        rho = bounded_domain_rho(Letters.of(run), run.diameter, self.version)
        return Bound(guarantee=zcdp(rho), lipschitz=step_constant(run, self.version))


class KongRibero2024Corrected(Theorem):
    r"""Theorem 4.4 with the constant a step has: $\epsilon(\alpha) = \frac{\alpha}{2\sigma^2}(L d_h + s)^2$, at any step size.

    L is the exact constant of the last step: `plain_step` where clipping never acts, `generalised_linear_step` for losses
    $\ell(\langle u, x\rangle)$, else `clipped_step`. What the paper's own argument gives; the statement is this project's.
    """

    name: ClassVar[str] = "kong-ribero-2024-4.4-corrected"
    statement: ClassVar[str] = "Theorem 4.4 of Kong & Ribero 2024 with the exact Lipschitz constant of a clipped step."
    formula: ClassVar[str] = r"\epsilon(\alpha) = \frac{\alpha}{2\sigma^2}\left(L d_h + \frac{2\lambda C}{b}\right)^2"
    needs: ClassVar[str] = "a bounded domain, smooth losses, batches of exact size"
    citations: ClassVar[tuple[Citation, ...]] = (
        cite("lethe", ", docs/theory.md: the Lipschitz constant of a clipped step (statement derived)"),
        cited(FIRST, "its one-step argument, with another constant"),
    )

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        return (*one_step(run), require.bounded_domain(run))

    def _bound(self, run: Run) -> Bound:
        constant = _exact_constant(run)
        rho = Letters.of(run).one_step_rho(constant.constant * run.diameter)
        return Bound(guarantee=zcdp(rho), lipschitz=constant)


class KongRibero2024FirstBatch(Theorem):
    r"""Theorem 4.5: $\epsilon(\alpha) = \frac{\alpha s^2}{\sigma^2}[\theta_{L_\lambda}(T-E\ell) + E\,\theta_{L_\lambda}(\ell)]$.

    $s = 2\lambda C/b$; at m = 0 it is the convex form (22). It counts the steps after a touch as if the record sat in the first batch: a
    record in the last batch is touched once with no step behind it, and loses $\frac{\alpha s^2}{2\sigma^2}$ by that touch alone if what
    came before is forgotten. With clipping active its step constant is wrong as well.
    """

    name: ClassVar[str] = "kong-ribero-2024-4.5"
    statement: ClassVar[str] = "Amplification by iteration for weakly convex losses; claimed for every record, true for the first batch."
    formula: ClassVar[str] = (
        r"\epsilon(\alpha) = 4\alpha\left(\frac{\lambda C}{b\sigma}\right)^2"
        r"\left[\theta_{L_\lambda}(T - E\ell) + E\,\theta_{L_\lambda}(\ell)\right]"
    )
    needs: ClassVar[str] = "fixed batches, at least one pass, smooth losses, a step size at most 1/(2(m + M)), constant noise"
    citations: ClassVar[tuple[Citation, ...]] = (cited(FIRST, "Theorem 4.5"),)
    standing: ClassVar[Standing] = Standing(
        soundness="refuted", why="it takes the record to be in the first batch; one in the last batch may lose more"
    )

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        return (*several_passes(run), one_full_pass(run), small_steps(run))

    def _bound(self, run: Run) -> Bound:
        return Bound(guarantee=zcdp(first_batch_rho(Letters.of(run))), lipschitz=step_constant(run, "first"))


def _exact_constant(run: Run) -> StepConstant:
    assert run.loss.curvature is not None  # `smooth` has refused the rest
    step, (weak_convexity, smoothness) = float(run.step_sizes[-1]), run.loss.curvature
    if not run.clips:
        constant, why = plain_step(step, weak_convexity, smoothness), "no clipping active"
    elif clipped_along_a_line(run):
        constant, why = generalised_linear_step(step, weak_convexity, smoothness), "clipping keeps its curvature"
    else:
        constant, why = clipped_step(step, weak_convexity, smoothness), "clipped, by projection"
    return StepConstant(constant=constant, certificate=f"{run.loss.summary}, {why}")
