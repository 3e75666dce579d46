"""Noisy gradient descent: every record at every step."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import numpy as np

from lethe.certificates.findings import Finding
from lethe.certificates.parts import Citation
from lethe.run.run import Run
from lethe.theorems.base import Bound, Theorem
from lethe.theorems.literature.bok_2024.setting import citation, contraction, gdp, shared_hypotheses, step_constant, touch
from lethe.theorems.requirements import bounded_domain, design


def gd_mu(contraction: float, steps: int, touch: float) -> float:
    r"""$\mu$ of noisy gradient descent whose steps contract by c; exact for quadratic losses.

    $$\mu = \frac s\tau\sqrt{\frac{1-c^T}{1+c^T}\cdot\frac{1+c}{1-c}}$$

    It tends to $\sqrt T s/\tau$, composition, as c tends to 1.

    Args:
        contraction: $0 \le c \le 1$, Lipschitz constant of a step.
        steps: $T \ge 1$.
        touch: $s/\tau > 0$; $L/(n\sigma)$ in the paper.
    Returns:
        $\mu$, not rounded outward.
    Reference: Bok, Su, Altschuler 2024, arXiv:2403.00278, closed form as in the authors' code.
    """
    if contraction >= 1.0:
        return touch * math.sqrt(steps)
    # (1 - c^T) / (1 + c^T) = tanh(T u) with c = exp(-2u).
    half_rate = _half_rate(contraction)
    return touch * math.sqrt(math.tanh(steps * half_rate) / math.tanh(half_rate))


def gd_domain_mu(diameter: float, steps: int, touch: float) -> float:
    r"""$\mu$ of noisy gradient descent on a domain of finite diameter: the best window, or composition.

    $$\mu = \min\Big(\frac s\tau\sqrt T,\ \min_{R \le T}\frac{D + sR}{\tau\sqrt R}\Big)$$

    It equals the closed form of the paper, $\frac s\tau\sqrt{3D/s + \lceil D/s\rceil}$, where $D/s$ is a whole number at most T, and is
    never larger.

    Args:
        diameter: $D/s$, in units of one touch.
        steps: $T \ge 1$.
        touch: $s/\tau > 0$; $L/(n\sigma)$ in the paper.
    Returns:
        $\mu$, not rounded outward.
    Reference: Bok, Su, Altschuler 2024, arXiv:2403.00278, Lemma C.3, with equal payments.
    """
    # D / sqrt(R) + sqrt(R) falls up to R = D and rises from there.
    middle = int(np.floor(min(diameter, float(steps))))
    windows = {max(1, middle), min(steps, middle + 1)}
    return touch * min(math.sqrt(steps), *((diameter + window) / math.sqrt(window) for window in windows))


def _half_rate(contraction: float) -> float:
    r"""$u = -\log(c)/2$; inf at c = 0."""
    return -0.5 * math.log(contraction) if contraction > 0.0 else math.inf


class Bok2024GD(Theorem):
    r"""Noisy gradient descent for strongly convex losses; for convex ones its limit, which is composition.

    $$\mu = \frac s\tau\sqrt{\frac{1-c^T}{1+c^T}\cdot\frac{1+c}{1-c}}, \qquad c = \max(|1-\lambda m|, |1-\lambda M|)$$

    Stated for one record replaced, where $s/\tau = L/(n\sigma)$; its proof needs only how far a step moves, so under zero_out s is half
    as large. Exact where losses are quadratic and all differences point the same way.
    """

    name: ClassVar[str] = "bok-2024-gd"
    statement: ClassVar[str] = "Shifted interpolation for full batches and strongly convex losses, exact; convex losses as its limit."
    formula: ClassVar[str] = r"\mu = \frac{s}{\tau}\sqrt{\frac{1-c^T}{1+c^T}\cdot\frac{1+c}{1-c}}"
    needs: ClassVar[str] = "full batches, convex smooth losses, no clipping, step size at most 2/M, constant noise"
    covers: ClassVar[Literal["last", "all"]] = "last"
    citations: ClassVar[tuple[Citation, ...]] = citation("strongly convex NoisyGD, closed form of the authors' code; Lemma C.3")

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        """Every record at every step, steps that do not expand."""
        return shared_hypotheses(run, (design(run, ("full",), "every record at every step"),))

    def _bound(self, run: Run) -> Bound:
        mu = gd_mu(contraction(run), run.total_steps, touch(run))
        return Bound(guarantee=gdp(mu), lipschitz=step_constant(run))


class Bok2024GDDomain(Theorem):
    r"""Noisy gradient descent for convex losses on a domain of diameter D: privacy loss stops growing after about $D/s$ steps.

    $$\mu = \min\Big(\frac s\tau\sqrt T,\ \min_{R \le T}\frac{D + sR}{\tau\sqrt R}\Big)$$

    The paper prints the value at $R = \lceil D/s\rceil$, rounded up, for $T \ge D/s$; its lemma gives every R, and
    the best of them is taken here, which is never more than what is printed.
    """

    name: ClassVar[str] = "bok-2024-gd-domain"
    statement: ClassVar[str] = "Shifted interpolation for full batches and convex losses on a bounded domain."
    formula: ClassVar[str] = (
        r"\mu = \min\left(\frac{s}{\tau}\sqrt T,\ \min_{R \le T}\frac{D + sR}{\tau\sqrt R}\right)"
        r" \le \frac1\tau\sqrt{3sD + s^2\lceil D/s\rceil}"
    )
    needs: ClassVar[str] = "full batches, convex smooth losses, a bounded domain, no clipping, step size at most 2/M, constant noise"
    covers: ClassVar[Literal["last", "all"]] = "last"
    citations: ClassVar[tuple[Citation, ...]] = citation(
        "convex NoisyGD on a bounded domain, closed form of the authors' code; any window by Lemma C.3 (statement reconstructed)"
    )

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        """Every record at every step, steps that do not expand, a bounded domain."""
        return (*shared_hypotheses(run, (design(run, ("full",), "every record at every step"),)), bounded_domain(run))

    def _bound(self, run: Run) -> Bound:
        mu = gd_domain_mu(run.diameter / float(run.sensitivities[0]), run.total_steps, touch(run))
        return Bound(guarantee=gdp(mu), lipschitz=step_constant(run))
