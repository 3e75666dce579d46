"""Noisy cyclic gradient descent: fixed disjoint batches in one order, every pass the same."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import numpy as np

from lethe.certificates.findings import Finding
from lethe.certificates.parts import Citation
from lethe.run.run import Run
from lethe.theorems.base import Bound, Theorem
from lethe.theorems.literature.bok_2024.setting import citation, contraction, gdp, shared_hypotheses, step_constant, touch
from lethe.theorems.requirements import bounded_domain, design, whole_passes


def cgd_mu(contraction: float, batches_per_pass: int, passes: int, touch: float) -> float:
    r"""$\mu$ of noisy cyclic gradient descent whose steps contract by c, for a record in the last batch, the worst place.

    $$\mu = \frac s\tau\sqrt{1 + c^{2\ell-2}\frac{1-c^2}{(1-c^\ell)^2}\cdot\frac{1-c^{\ell(E-1)}}{1+c^{\ell(E-1)}}}$$

    It tends to $\frac s\tau\sqrt{1 + (E-1)/\ell}$ as c tends to 1.

    Args:
        contraction: $0 \le c \le 1$, Lipschitz constant of a step.
        batches_per_pass: $\ell \ge 1$.
        passes: $E \ge 1$.
        touch: $s/\tau > 0$; $L/(b\sigma)$ in the paper.
    Returns:
        $\mu$, not rounded outward.
    Reference: Bok, Su, Altschuler 2024, arXiv:2403.00278, closed form as in the authors' code.
    """
    slots, before = batches_per_pass, passes - 1
    if before == 0:
        return touch
    if contraction >= 1.0:
        return touch * math.sqrt(1.0 + before / slots)
    rate = -math.log(contraction) if contraction > 0.0 else math.inf
    # (1 - c^N) / (1 + c^N) = tanh(N rate / 2), and expm1 keeps 1 - c^N where c is near 1.
    carried = contraction ** (2 * slots - 2) * -math.expm1(-2.0 * rate) / math.expm1(-slots * rate) ** 2
    return touch * math.sqrt(1.0 + carried * math.tanh(0.5 * slots * before * rate))


def cgd_domain_printed_mu(diameter: float, batches_per_pass: int, touch: float) -> float:
    r"""$\mu^*$ of noisy cyclic gradient descent on a domain of finite diameter, however many passes.

    $$\mu^* = \frac1\tau\sqrt{s^2 + \frac{3sD}\ell + \frac{s^2}\ell\lceil D/s\rceil}
      = \frac1\sigma\sqrt{\frac{L^2}{b^2} + \frac{3LD}{b\eta\ell} + \frac{L^2}{b^2\ell}\Big\lceil\frac{bD}{\eta L}\Big\rceil}$$

    The paper applies it from $\lceil(\mu^* b\sigma/L)^2\rceil$ passes on; with fewer it holds as well, and composition is smaller.

    Args:
        diameter: $D/s$, in units of one touch; finite.
        batches_per_pass: $\ell \ge 1$.
        touch: $s/\tau > 0$; $L/(b\sigma)$ in the paper.
    Returns:
        $\mu^*$, not rounded outward.
    Reference: Bok, Su, Altschuler 2024, arXiv:2403.00278, closed form as in the authors' code.
    """
    return touch * math.sqrt(1.0 + (3.0 * diameter + float(np.ceil(diameter))) / batches_per_pass)


class Bok2024CGD(Theorem):
    r"""Noisy cyclic gradient descent for strongly convex losses, worst batch; for convex ones its limit.

    $$\mu = \frac s\tau\sqrt{1 + c^{2\ell-2}\frac{1-c^2}{(1-c^\ell)^2}\cdot\frac{1-c^{\ell(E-1)}}{1+c^{\ell(E-1)}}},
      \qquad c = \max(|1-\lambda m|, |1-\lambda M|)$$

    Stated for one record replaced, where $s/\tau = L/(b\sigma)$; its proof needs only how far a step moves, so under zero_out s is half
    as large. The limit for convex losses is $\frac s\tau\sqrt{1 + (E-1)/\ell}$.
    """

    name: ClassVar[str] = "bok-2024-cgd"
    statement: ClassVar[str] = "Shifted interpolation for cyclic batches and strongly convex losses, worst batch; convex ones as its limit."
    formula: ClassVar[str] = (
        r"\mu = \frac{s}{\tau}\sqrt{1 + c^{2\ell-2}\frac{1-c^2}{(1-c^\ell)^2}\cdot\frac{1-c^{\ell(E-1)}}{1+c^{\ell(E-1)}}}"
    )
    needs: ClassVar[str] = "cyclic batches in whole passes, convex smooth losses, no clipping, step size at most 2/M, constant noise"
    covers: ClassVar[Literal["last", "all"]] = "last"
    citations: ClassVar[tuple[Citation, ...]] = citation(
        "strongly convex NoisyCGD, closed form of the authors' code; its convex limit by Lemma C.3 (statement reconstructed)"
    )

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        """A fixed order of disjoint batches, steps that do not expand."""
        return shared_hypotheses(run, _cyclic_passes(run))

    def _bound(self, run: Run) -> Bound:
        slots = run.steps_per_pass
        mu = cgd_mu(contraction(run), slots, run.total_steps // slots, touch(run))
        return Bound(guarantee=gdp(mu), lipschitz=step_constant(run))


class Bok2024CGDDomain(Theorem):
    r"""Noisy cyclic gradient descent for convex losses on a domain of diameter D.

    $$\mu = \min\Big(\frac s\tau\sqrt E,\ \frac1\tau\sqrt{s^2 + \frac{3sD}\ell + \frac{s^2}\ell\lceil D/s\rceil}\Big)$$

    The second term is the smaller one from $E^* = \lceil(\mu^* b\sigma/L)^2\rceil$ passes on, where the paper states it; before,
    composition is.
    """

    name: ClassVar[str] = "bok-2024-cgd-domain"
    statement: ClassVar[str] = "Shifted interpolation for cyclic batches and convex losses on a bounded domain."
    formula: ClassVar[str] = (
        r"\mu = \min\left(\frac{s}{\tau}\sqrt E,\ \frac1\tau\sqrt{s^2 + \frac{3sD}\ell + \frac{s^2}\ell\lceil D/s\rceil}\right)"
    )
    needs: ClassVar[str] = (
        "cyclic batches in whole passes, convex smooth losses, a bounded domain, no clipping, step size at most 2/M, constant noise"
    )
    covers: ClassVar[Literal["last", "all"]] = "last"
    citations: ClassVar[tuple[Citation, ...]] = citation("convex NoisyCGD on a bounded domain, closed form of the authors' code")

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        """A fixed order of disjoint batches, steps that do not expand, a bounded domain."""
        return (*shared_hypotheses(run, _cyclic_passes(run)), bounded_domain(run))

    def _bound(self, run: Run) -> Bound:
        slots, ratio = run.steps_per_pass, touch(run)
        # Where D/s rounds down to a whole number the formula steps down too, and stays within rounding of what the lemma gives there.
        diameter = run.diameter / float(run.sensitivities[0])
        mu = min(ratio * math.sqrt(run.total_steps // slots), cgd_domain_printed_mu(diameter, slots, ratio))
        return Bound(guarantee=gdp(mu), lipschitz=step_constant(run))


def _cyclic_passes(run: Run) -> tuple[Finding, ...]:
    return design(run, ("cyclic",), "fixed, disjoint, every record once a pass; worst batch"), whole_passes(run)
