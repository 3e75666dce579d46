r"""Bok, Su and Altschuler 2024: shifted interpolation, for full batches and for fixed disjoint batches in one order, every pass the same.

Shifted interpolation bounds $\mu$ of the last iterate by the cheapest way to close the distance of two runs on neighbouring data. Kept to
compare: `lethe.compare` shows it beside Lethe's own bounds, and `certify` tries it only if asked by name.

Common assumptions: noise in every gradient, nonexpansive steps, a bounded gradient difference. Their L bounds the difference of two
records' gradients and their $\sigma$ is the noise inside the gradient, so that with the sensitivity $s = \lambda L/b$ and the noise
$\tau = \lambda\sigma$ of a run, in parameter units, $L/(b\sigma) = s/\tau$.
"""

import math
from typing import ClassVar

import numpy as np

from lethe.calculus.guarantees import GDP
from lethe.calculus.rounding import round_up
from lethe.certificates.findings import Finding
from lethe.certificates.parts import Citation, StepConstant
from lethe.run.run import Run
from lethe.theorems import requirements as require
from lethe.theorems.base import Bound, Theorem
from lethe.theorems.lipschitz import plain_step

_PAPER = "Bok, Su, Altschuler 2024, Shifted interpolation for differential privacy, arXiv:2403.00278"


def citation(what: str) -> tuple[Citation, ...]:
    """The paper, and which of its results."""
    return (Citation(key="bok-2024", text=f"{_PAPER}, {what}."),)


def shared_hypotheses(run: Run, batches: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Only the last iterate seen, convex smooth losses, steps that do not expand, a constant schedule."""
    return (
        require.last_iterate(run),
        *batches,
        require.gradient_bound(run),
        require.convex(run),
        require.unclipped(run),
        require.step_at_most(run, require.two_over_smoothness(run), "2/smoothness"),
        require.constant_noise_and_step(run),
    )


def contraction(run: Run) -> float:
    r"""$c = \max(|1 - \lambda m|, |1 - \lambda M|)$ for losses of curvature in $[m, M]$, $m \ge 0$, rounded up.

    The steps have one size, at most 2/M.
    """
    assert run.loss.curvature is not None  # `convex` has seen to it
    return plain_step(float(run.step_sizes[0]), *run.loss.curvature)


def gdp(mu: float) -> GDP:
    """`mu` of a run whose steps do not expand, rounded outward."""
    return GDP(round_up(mu, 1e-14))


def step_constant(run: Run) -> StepConstant:
    """`contraction`, and why it holds."""
    return StepConstant(constant=contraction(run), certificate=f"{run.loss.summary}, no clipping active")


def touch(run: Run) -> float:
    r"""$s/\tau$, of a run with a constant schedule."""
    return 1.0 / float(run.relative_noise[0])


def gd_mu(contraction: float, steps: int, touch: float) -> float:
    r"""$\mu$ of noisy gradient descent whose steps contract by c; exact for quadratic losses.

    $$\mu = \frac s\tau\sqrt{\frac{1-c^T}{1+c^T}\cdot\frac{1+c}{1-c}}$$

    It tends to $\sqrt T s/\tau$, composition, as c tends to 1. $0 \le c \le 1$; the touch is $s/\tau > 0$, $L/(n\sigma)$ in the paper. Not
    rounded outward. Reference: Bok, Su, Altschuler 2024, arXiv:2403.00278, closed form as in the authors' code.
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
    never larger. The diameter is $D/s$, in units of one touch; the touch is as in `gd_mu`. Not rounded outward. Reference: Bok, Su,
    Altschuler 2024, arXiv:2403.00278, Lemma C.3, with equal payments.
    """
    # D / sqrt(R) + sqrt(R) falls up to R = D and rises from there.
    middle = int(np.floor(min(diameter, float(steps))))
    windows = {max(1, middle), min(steps, middle + 1)}
    return touch * min(math.sqrt(steps), *((diameter + window) / math.sqrt(window) for window in windows))


def _half_rate(contraction: float) -> float:
    r"""$u = -\log(c)/2$; inf at c = 0."""
    return -0.5 * math.log(contraction) if contraction > 0.0 else math.inf


class Bok2024GD(Theorem):
    r"""Noisy gradient descent for strongly convex losses; for convex ones its limit, which is composition: `gd_mu`.

    Stated for one record replaced, where $s/\tau = L/(n\sigma)$; its proof needs only how far a step moves, so under zero_out s is half
    as large. Exact where losses are quadratic and all differences point the same way.
    """

    name: ClassVar[str] = "bok-2024-gd"
    statement: ClassVar[str] = "Shifted interpolation for full batches and strongly convex losses, exact; convex losses as its limit."
    formula: ClassVar[str] = r"\mu = \frac{s}{\tau}\sqrt{\frac{1-c^T}{1+c^T}\cdot\frac{1+c}{1-c}}"
    needs: ClassVar[str] = "full batches, convex smooth losses, no clipping, step size at most 2/M, constant noise"
    citations: ClassVar[tuple[Citation, ...]] = citation("strongly convex NoisyGD, closed form of the authors' code; Lemma C.3")

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        return shared_hypotheses(run, (require.design(run, ("full",), "every record at every step"),))

    def _bound(self, run: Run) -> Bound:
        mu = gd_mu(contraction(run), run.total_steps, touch(run))
        return Bound(guarantee=gdp(mu), lipschitz=step_constant(run))


class Bok2024GDDomain(Theorem):
    r"""Noisy gradient descent for convex losses on a domain of diameter D: privacy loss stops growing after about $D/s$ steps.

    The paper prints the value at $R = \lceil D/s\rceil$, rounded up, for $T \ge D/s$; its lemma gives every R, and the best of them is
    taken here (`gd_domain_mu`), which is never more than what is printed.
    """

    name: ClassVar[str] = "bok-2024-gd-domain"
    statement: ClassVar[str] = "Shifted interpolation for full batches and convex losses on a bounded domain."
    formula: ClassVar[str] = (
        r"\mu = \min\left(\frac{s}{\tau}\sqrt T,\ \min_{R \le T}\frac{D + sR}{\tau\sqrt R}\right)"
        r" \le \frac1\tau\sqrt{3sD + s^2\lceil D/s\rceil}"
    )
    needs: ClassVar[str] = "full batches, convex smooth losses, a bounded domain, no clipping, step size at most 2/M, constant noise"
    citations: ClassVar[tuple[Citation, ...]] = citation(
        "convex NoisyGD on a bounded domain, closed form of the authors' code; any window by Lemma C.3 (statement reconstructed)"
    )

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        return (*shared_hypotheses(run, (require.design(run, ("full",), "every record at every step"),)), require.bounded_domain(run))

    def _bound(self, run: Run) -> Bound:
        mu = gd_domain_mu(run.diameter / float(run.sensitivities[0]), run.total_steps, touch(run))
        return Bound(guarantee=gdp(mu), lipschitz=step_constant(run))


def cgd_mu(contraction: float, batches_per_pass: int, passes: int, touch: float) -> float:
    r"""$\mu$ of noisy cyclic gradient descent whose steps contract by c, for a record in the last batch, the worst place.

    $$\mu = \frac s\tau\sqrt{1 + c^{2\ell-2}\frac{1-c^2}{(1-c^\ell)^2}\cdot\frac{1-c^{\ell(E-1)}}{1+c^{\ell(E-1)}}}$$

    It tends to $\frac s\tau\sqrt{1 + (E-1)/\ell}$ as c tends to 1. $0 \le c \le 1$; the touch is $s/\tau > 0$, $L/(b\sigma)$ in the paper.
    Not rounded outward. Reference: Bok, Su, Altschuler 2024, arXiv:2403.00278, closed form as in the authors' code.
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

    The paper applies it from $\lceil(\mu^* b\sigma/L)^2\rceil$ passes on; with fewer it holds as well, and composition is smaller. The
    diameter is $D/s$, in units of one touch, finite; the touch is as in `cgd_mu`. Not rounded outward. Reference: Bok, Su, Altschuler 2024,
    arXiv:2403.00278, closed form as in the authors' code.
    """
    return touch * math.sqrt(1.0 + (3.0 * diameter + float(np.ceil(diameter))) / batches_per_pass)


class Bok2024CGD(Theorem):
    r"""Noisy cyclic gradient descent for strongly convex losses, worst batch; for convex ones its limit: `cgd_mu`.

    Stated for one record replaced, where $s/\tau = L/(b\sigma)$; its proof needs only how far a step moves, so under zero_out s is half
    as large.
    """

    name: ClassVar[str] = "bok-2024-cgd"
    statement: ClassVar[str] = "Shifted interpolation for cyclic batches and strongly convex losses, worst batch; convex ones as its limit."
    formula: ClassVar[str] = (
        r"\mu = \frac{s}{\tau}\sqrt{1 + c^{2\ell-2}\frac{1-c^2}{(1-c^\ell)^2}\cdot\frac{1-c^{\ell(E-1)}}{1+c^{\ell(E-1)}}}"
    )
    needs: ClassVar[str] = "cyclic batches in whole passes, convex smooth losses, no clipping, step size at most 2/M, constant noise"
    citations: ClassVar[tuple[Citation, ...]] = citation(
        "strongly convex NoisyCGD, closed form of the authors' code; its convex limit by Lemma C.3 (statement reconstructed)"
    )

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        return shared_hypotheses(run, _cyclic_passes(run))

    def _bound(self, run: Run) -> Bound:
        slots = run.steps_per_pass
        mu = cgd_mu(contraction(run), slots, run.total_steps // slots, touch(run))
        return Bound(guarantee=gdp(mu), lipschitz=step_constant(run))


class Bok2024CGDDomain(Theorem):
    r"""Noisy cyclic gradient descent for convex losses on a domain of diameter D: `cgd_domain_printed_mu`, or composition.

    The first is the smaller one from $E^* = \lceil(\mu^* b\sigma/L)^2\rceil$ passes on, where the paper states it; before, composition is.
    """

    name: ClassVar[str] = "bok-2024-cgd-domain"
    statement: ClassVar[str] = "Shifted interpolation for cyclic batches and convex losses on a bounded domain."
    formula: ClassVar[str] = (
        r"\mu = \min\left(\frac{s}{\tau}\sqrt E,\ \frac1\tau\sqrt{s^2 + \frac{3sD}\ell + \frac{s^2}\ell\lceil D/s\rceil}\right)"
    )
    needs: ClassVar[str] = (
        "cyclic batches in whole passes, convex smooth losses, a bounded domain, no clipping, step size at most 2/M, constant noise"
    )
    citations: ClassVar[tuple[Citation, ...]] = citation("convex NoisyCGD on a bounded domain, closed form of the authors' code")

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        return (*shared_hypotheses(run, _cyclic_passes(run)), require.bounded_domain(run))

    def _bound(self, run: Run) -> Bound:
        slots, ratio = run.steps_per_pass, touch(run)
        # Where D/s rounds down to a whole number the formula steps down too, and stays within rounding of what the lemma gives there.
        diameter = run.diameter / float(run.sensitivities[0])
        mu = min(ratio * math.sqrt(run.total_steps // slots), cgd_domain_printed_mu(diameter, slots, ratio))
        return Bound(guarantee=gdp(mu), lipschitz=step_constant(run))


def _cyclic_passes(run: Run) -> tuple[Finding, ...]:
    """Fixed disjoint batches, in whole passes."""
    return require.design(run, ("cyclic",), "fixed, disjoint, every record once a pass; worst batch"), require.whole_passes(run)
