r"""The convergence rates of Liang et al. 2025, with their unnamed constants 1: shapes only, never guarantees.

The noise is inside the gradient, $\sigma$ in the paper's units: $\sigma = zC/b$ for a noise multiplier z. The rates bound the best of
all iterates on the way, $\min_t$, which nobody can choose without looking at the data; they say nothing of the last one.
Rates of Corollaries 3.11 and 3.12 are those of Lemma 3.7 and Theorem 3.9 at the noise that makes the run $(\alpha, \epsilon)$-RDP.

Reference: Liang, Zhang, He, Wu, Xing 2025, arXiv:2502.17772, Lemma 3.7, Theorem 3.9, Corollaries 3.11 and 3.12.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from lethe.calculus.domains import require_count, require_nonnegative, require_positive
from lethe.errors import HypothesisError
from lethe_experiments.ranges import require_between
from lethe_experiments.standing import PublishedNumber, order


@dataclass(frozen=True, slots=True, kw_only=True)
class ClippedDescent:
    r"""A run of clipped stochastic descent and what is known of its loss.

    Args:
        dimension: $d \ge 1$.
        records: $n \ge 1$.
        batch_size: $b \in 1..n$.
        steps: $T \ge 1$.
        step_size: $\eta > 0$.
        clip_norm: $C > 0$.
        smoothness: $L > 0$.
        gradient_std: $\sigma_{\rm SGD} \ge 0$: $E\|\nabla l_\xi - \nabla l\|^2 \le \sigma_{\rm SGD}^2$.
    Raises:
        InputError: a number is outside its range.
    """

    dimension: int
    records: int
    batch_size: int
    steps: int
    step_size: float
    clip_norm: float
    smoothness: float
    gradient_std: float

    def __post_init__(self) -> None:
        for field in fields(self)[:4]:
            require_count(field.name, getattr(self, field.name))
        for field in fields(self)[4:7]:
            require_positive(field.name, getattr(self, field.name))
        require_nonnegative("gradient_std", self.gradient_std, allow_infinity=False)
        require_between(
            "batch_size", self.batch_size, low=1.0, high=float(self.records), needed=f"a whole number from 1 to records = {self.records}"
        )


def gradient_norm_rate(run: ClippedDescent, *, noise_std: float) -> PublishedNumber:
    r"""Lemma 3.7, smooth losses, $\eta \le 1/(9L)$: a rate of $\min_t E\|\nabla l(\theta_t)\|$.

    $$\frac1{\eta CT} + \frac1{\sqrt{\eta T}} + \min\Big(\sigma_{\rm SGD}, \frac{\sigma_{\rm SGD}^2}{C}\Big)
    + \sqrt{\frac{\eta L}{b}}\,\sigma_{\rm SGD} + \frac{dL\eta}{C}\sigma^2 + \sqrt{dL\eta}\,\sigma$$

    Args:
        run: the run.
        noise_std: $\sigma \ge 0$, of the noise on the mean gradient.
    Raises:
        InputError: the noise is negative or not finite.
        HypothesisError: the step is too long.
    """
    _step_at_most(run, 1.0 / 9.0, "1/(9L)")
    noise, step, clip, spread = _noise(noise_std), run.step_size, run.clip_norm, run.gradient_std
    moved = run.dimension * run.smoothness * step
    value = 1.0 / (step * clip * run.steps) + 1.0 / math.sqrt(step * run.steps) + min(spread, spread * spread / clip)
    value += math.sqrt(step * run.smoothness / run.batch_size) * spread + moved / clip * noise * noise + math.sqrt(moved) * noise
    formula = r"\frac1{\eta CT}+\frac1{\sqrt{\eta T}}+\min(\sigma_{SGD},\sigma_{SGD}^2/C)+\sqrt{\eta L/b}\,\sigma_{SGD}"
    return order(value, formula + r"+\frac{dL\eta}{C}\sigma^2+\sqrt{dL\eta}\,\sigma")


def root_gap_rate(run: ClippedDescent, *, noise_std: float, diameter: float, strong_convexity: float) -> PublishedNumber:
    r"""Theorem 3.9, $\mu$-strongly convex losses on a domain of diameter D, $\eta \le 9/(20L)$: of $\min_t E\sqrt{l(\theta_t) - l^*}$.

    $$\frac{\sqrt L D^2}{\eta CT} + \frac{D}{\sqrt{\eta T}}
    + \min\Big(\frac{L^{3/4}}{\mu^{5/4}}\sigma_{\rm SGD}, \sqrt{\frac{\sigma_{\rm SGD}^3}{\mu C}}\Big)
    + \sqrt{\frac\eta b}\,\sigma_{\rm SGD} + \frac{d\eta\sqrt L}{C}\sigma^2 + \sqrt{d\eta}\,\sigma$$

    Args:
        run: the run.
        noise_std: $\sigma \ge 0$, of the noise on the mean gradient.
        diameter: $D > 0$; the minimiser lies inside the domain.
        strong_convexity: $\mu > 0$, at most L.
    Raises:
        InputError: an argument is outside its range.
        HypothesisError: the step is too long.
    """
    _step_at_most(run, 9.0 / 20.0, "9/(20L)")
    noise, step, clip, spread = _noise(noise_std), run.step_size, run.clip_norm, run.gradient_std
    wide, root = require_positive("diameter", diameter), math.sqrt(run.smoothness)
    mu = require_between(
        "strong_convexity",
        require_positive("strong_convexity", strong_convexity),
        low=0.0,
        high=run.smoothness,
        needed=f"a number > 0 and at most smoothness = {run.smoothness:g}",
    )
    value = root * wide * wide / (step * clip * run.steps) + wide / math.sqrt(step * run.steps)
    value += min(run.smoothness**0.75 / mu**1.25 * spread, math.sqrt(spread**3 / (mu * clip))) + math.sqrt(step / run.batch_size) * spread
    value += run.dimension * step * root / clip * noise * noise + math.sqrt(run.dimension * step) * noise
    formula = r"\frac{\sqrt L D^2}{\eta CT}+\frac{D}{\sqrt{\eta T}}+\min(L^{3/4}\mu^{-5/4}\sigma_{SGD},\sqrt{\sigma_{SGD}^3/(\mu C)})"
    return order(value, formula + r"+\sqrt{\eta/b}\,\sigma_{SGD}+\frac{d\eta\sqrt L}{C}\sigma^2+\sqrt{d\eta}\,\sigma")


def private_gradient_norm_rate(run: ClippedDescent, *, order_alpha: float, epsilon: float, restricted: bool) -> PublishedNumber:
    r"""Corollary 3.11: `gradient_norm_rate` at $\sigma^2 = \alpha C^2T/(\epsilon nb)$ (20), or $\alpha C^2T/(\epsilon n^2)$ (21).

    The first noise comes from the paper's equation (12), which is false: it does not make the run $(\alpha, \epsilon)$-RDP.

    Args:
        run: the run.
        order_alpha: $\alpha > 1$.
        epsilon: $\epsilon > 0$ at that order.
        restricted: whether the noise is that of equation (21), for $b \le n/5$, orders that are not large and much noise.
    Raises:
        InputError: an argument is outside its range.
        HypothesisError: the step is too long.
    """
    variance = _price(order_alpha, epsilon) * run.clip_norm**2 * run.steps / (run.records * _divisor(run, restricted))
    return gradient_norm_rate(run, noise_std=math.sqrt(variance))


def private_root_gap_rate(
    run: ClippedDescent, *, order_alpha: float, epsilon: float, restricted: bool, diameter: float, strong_convexity: float
) -> PublishedNumber:
    r"""Corollary 3.12: `root_gap_rate` at the noise of equation (22), or of (23) with $n^2$ for $nb$.

    $$\sigma^2 = \frac\alpha\epsilon\Big(\frac{(1+\eta L)^2D^2}{\eta^2} + \frac{C^2}{nb}\Big)$$

    The first noise comes from the paper's equation (14), whose sampling term is false.

    Args:
        run: the run.
        order_alpha: $\alpha > 1$.
        epsilon: $\epsilon > 0$ at that order.
        restricted: whether the noise is that of equation (23), as in `private_gradient_norm_rate`.
        diameter: $D > 0$.
        strong_convexity: $\mu > 0$, at most L.
    Raises:
        InputError: an argument is outside its range.
        HypothesisError: the step is too long.
    """
    shift = (1.0 + run.step_size * run.smoothness) * require_positive("diameter", diameter) / run.step_size
    sampled = run.clip_norm**2 / (run.records * _divisor(run, restricted))
    variance = _price(order_alpha, epsilon) * (shift * shift + sampled)
    return root_gap_rate(run, noise_std=math.sqrt(variance), diameter=diameter, strong_convexity=strong_convexity)


def _noise(noise_std: float) -> float:
    return require_nonnegative("noise_std", noise_std, allow_infinity=False)


def _price(order_alpha: float, epsilon: float) -> float:
    alpha = require_between("order_alpha", order_alpha, low=1.0 + 2.0**-52, needed="a finite number > 1")
    return alpha / require_positive("epsilon", epsilon)


def _divisor(run: ClippedDescent, restricted: bool) -> int:
    return run.records if restricted else run.batch_size


def _step_at_most(run: ClippedDescent, factor: float, name: str) -> None:
    if run.step_size * run.smoothness > factor * (1.0 + 1e-12):
        raise HypothesisError(
            f"the rate does not apply: step_size = {run.step_size:g}; it is stated up to {name} = {factor / run.smoothness:g}.",
            source="step_size and smoothness",
            remedy="take shorter steps.",
        )
