r"""AuditSetting: for what a lower bound is stated, and which trade-off curve is assumed; and the $\epsilon$ that two error rates then
prove.

Users and verdict.py give an `AuditSetting` (delta, level, neighbours, adversary, curve) to every bound of this package. A trade-off curve
says how rarely a test can miss the record for each rate of false alarms.

`AnyMechanism` assumes nothing. The others prove an $\epsilon$ only if the curve is of their family: a Gaussian formula on a mechanism
that is not Gaussian can be wrong every time, so what comes out is called conditional.
"""

import math
from abc import abstractmethod
from typing import Annotated, ClassVar, Literal, TypeAlias

import numpy as np
from pydantic import Field, InstanceOf
from scipy import fft, special

from lethe.audit.statistics.counts import Rates, lowered
from lethe.calculus import conversions
from lethe.calculus.domains import FloatArray, outside, require_delta, require_nonnegative, require_probability
from lethe.documents.specification import Specification
from lethe.errors import HypothesisError

Estimator = Literal["clopper_pearson", "gaussian", "sampled_gaussian", "bayesian", "one_run", "one_run_gaussian", "plug_in"]

Threat = Literal["black_box", "black_box_chosen_start", "final_model", "white_box", "average_case"]
Neighbours = Literal["replace_one", "zero_out", "add_or_remove"]
Level: TypeAlias = Annotated[float, Field(ge=1e-12, le=0.5)]
r"""$\alpha$, the probability with which a result may be wrong."""

_POINTS = 1 << 22
# Cells of one step's outcome, over 9 standard deviations to either side of both means.
_CELLS = 400_000
_REACH = 9.0
# A transform's rounding, raised to the power T, is T * 3e-16 of the norm of the masses (at most 1); a sum of them has sqrt(points) more.
_ROUNDING = 1e-12


class TradeOffCurve(Specification):
    """A family of trade-off curves."""

    estimator: ClassVar[Estimator]
    _family: ClassVar[str | None] = None

    @property
    def family(self) -> str | None:
        """The assumed family, in words; None if nothing is assumed."""
        return self._family

    @abstractmethod
    def epsilon(self, rates: Rates, delta: float) -> float:
        """The epsilon proved by a test whose error rates are at most `rates`; rounded down."""

    @abstractmethod
    def strengths(self, false_positive: FloatArray, false_negative: FloatArray, delta: float) -> FloatArray:
        r"""A quick number that `epsilon` never decreases with, for comparing thresholds.

        Args:
            false_positive, false_negative: bounds p and r of the two rates, in (0, 1], of any one shape.
            delta: $\delta \in [0, 1)$.
        """

    def strength(self, rates: Rates, delta: float) -> float:
        """`strengths` of one pair of rates."""
        return float(self.strengths(np.array(rates.false_positive), np.array(rates.false_negative), delta))


class AnyMechanism(TradeOffCurve):
    r"""No assumption: $\delta + e^\epsilon\,\mathrm{FPR} \ge 1 - \mathrm{FNR}$ and its mirror image, which every test obeys.

    $$\epsilon \ge \max\left\{0,\ \log\frac{1-\delta-r}{p},\ \log\frac{1-\delta-p}{r}\right\}$$

    for $\mathrm{FPR} \le p$, $\mathrm{FNR} \le r$. One pair of bounds serves both directions, so their maximum costs nothing.

    Reference: Kairouz, Oh, Viswanath 2015, arXiv:1311.0776, Theorem 2.1; Nasr et al. 2021, arXiv:2101.04535.
    """

    estimator: ClassVar[Estimator] = "clopper_pearson"

    def epsilon(self, rates: Rates, delta: float) -> float:
        r"""The largest $\epsilon$ that error rates at this $\delta$ refute, 0 where they refute none."""
        return lowered(max(0.0, printed_epsilon(rates, delta)))

    def strengths(self, false_positive: FloatArray, false_negative: FloatArray, delta: float) -> FloatArray:
        r"""$\epsilon$ of each pair of error rates, which any mechanism may have."""
        with np.errstate(divide="ignore"):
            forward = np.log(np.maximum(1.0 - delta - false_negative, 0.0)) - np.log(false_positive)
            backward = np.log(np.maximum(1.0 - delta - false_positive, 0.0)) - np.log(false_negative)
        return np.maximum(forward, backward)


class GaussianCurve(TradeOffCurve):
    r"""The curve is that of $N(0,1)$ against $N(\mu,1)$ for some $\mu$: $\mu \ge \Phi^{-1}(1-p) - \Phi^{-1}(r)$.

    Exact for full batches, every step's gradient observed, the same canary in each. Not for sampled batches, a projection, Laplace noise
    or hidden iterates.

    Reference: Nasr et al. 2023, arXiv:2302.07956, Section 4.2.
    """

    estimator: ClassVar[Estimator] = "gaussian"
    _family: ClassVar[str | None] = "Gaussian"

    def mu(self, rates: Rates) -> float:
        r"""The $\mu$ that the rates prove, rounded down; 0 if none."""
        return lowered(self.strength(rates, 0.0))

    def epsilon(self, rates: Rates, delta: float) -> float:
        r"""$\epsilon$ of that $\mu$ at $\delta > 0$; see `gaussian_epsilon`."""
        return gaussian_epsilon(self.mu(rates), delta)

    def strengths(self, false_positive: FloatArray, false_negative: FloatArray, delta: float) -> FloatArray:
        r"""$\mu$ of each pair of error rates: of the Gaussian mechanism that has them."""
        return -special.ndtri(false_positive) - special.ndtri(false_negative)


class SampledGaussianCurve(TradeOffCurve):
    r"""One observation is $N(0,1)$ without the record, and with it $(1-q)N(0,1) + qN(\mu,1)$; the run is T of them.

    $$\mu \ge t - \Phi^{-1}\!\left(\frac{r - (1-q)(1-p)}{q}\right), \qquad t = \Phi^{-1}(1-p)$$

    Here the trials may be the steps of one run that shows every noisy gradient. No $\mu$ explains $r \le (1-q)(1-p)$: that refutes the
    sampling itself.

    Args:
        sampling_probability: $q \in (0, 1]$, the Poisson rate.
        steps: T, how many steps the epsilon is for.
    Reference: Nasr et al. 2023, arXiv:2302.07956, Section 4.3.
    """

    estimator: ClassVar[Estimator] = "sampled_gaussian"
    sampling_probability: float = Field(gt=0, le=1)
    steps: int = Field(ge=1, le=1_000_000)

    @property
    def family(self) -> str:
        """What is assumed."""
        return f"Poisson-sampled Gaussian, q = {self.sampling_probability:g}, {self.steps} steps"

    def mu(self, rates: Rates) -> float:
        r"""The $\mu$ of one step that the rates prove, rounded down; 0 if none; HypothesisError if the misses are fewer than any allows."""
        mu = self.strength(rates, 0.0)
        if mu == math.inf:
            raise HypothesisError(
                f"no Gaussian sampled with q = {self.sampling_probability:g} has misses <= {rates.false_negative:.4g} at FPR <= "
                f"{rates.false_positive:.4g}: (1 - q)(1 - FPR) is more.",
                source="the error rates of the test",
                remedy="find out why the record is seen in more steps than its sampling rate says.",
            )
        return lowered(mu) if mu > 0.0 else 0.0

    def epsilon(self, rates: Rates, delta: float) -> float:
        r"""$\epsilon$ of T steps with that $\mu$ at $\delta > 0$, rounded down; see `sampled_epsilon`."""
        mu, target = self.mu(rates), _require_some(delta)
        if self.sampling_probability == 1.0:
            return gaussian_epsilon(mu * math.sqrt(self.steps), target)
        return sampled_epsilon(mu, self.sampling_probability, self.steps, target)

    def strengths(self, false_positive: FloatArray, false_negative: FloatArray, delta: float) -> FloatArray:
        r"""$\mu$ of each pair of error rates of sampled Gaussian steps; infinite where the sampling is refuted."""
        rate = self.sampling_probability
        # The most the share of misses can be among the trials that hold the record, raised by its rounding error.
        missed = (false_negative - (1.0 - rate) * (1.0 - false_positive) + 4e-16) / rate
        return -special.ndtri(false_positive) - special.ndtri(np.clip(missed, 0.0, 1.0))


class AuditSetting(Specification):
    r"""The statement that a lower bound on $\epsilon$ is about.

    Args:
        delta: $\delta \in [0, 1)$; above 0 for a Gaussian curve.
        neighbours: which two data sets count as neighbours: what "without the record" meant.
        threat: what the adversary, so the score, sees.
        level: $\alpha$ from 1e-12 to 1/2, the probability that the bound is above the truth.
        curve: what is assumed of the mechanism's trade-off curve; by default nothing, and anything else makes the result conditional.
    """

    delta: float = Field(ge=0, lt=1)
    neighbours: Neighbours
    threat: Threat
    level: Level = 0.05
    curve: InstanceOf[TradeOffCurve] = AnyMechanism()


def printed_epsilon(rates: Rates, delta: float) -> float:
    r"""Equation (24) of Liang et al., as printed, of error rates p and r.

    $$\hat\epsilon = \max\Big\{\log\frac{1-\delta-r}{p},\ \log\frac{1-\delta-p}{r}\Big\}$$

    Of the exact rates of a test its positive part is the $\epsilon$ at which that test is the best allowed. Of estimates it is no bound: a
    guess without any information has $\hat\epsilon = 0$ at $\delta = 0$, and one that is worse a negative value. Infinite where an error
    never happened and the rest of the formula is positive; $-\infty$ where neither logarithm exists.

    Reference: Liang, Zhang, He, Wu, Xing 2025, arXiv:2502.17772, equation (24); the formula is that of Kairouz, Oh, Viswanath 2015,
        arXiv:1311.0776.
    """
    first, second = (require_probability(name, rate) for name, rate in zip(Rates._fields, rates, strict=True))
    target, best = require_delta(delta), -math.inf
    for other_errors, error in ((second, first), (first, second)):
        hits = 1.0 - target - other_errors
        if hits > 0.0:
            best = max(best, math.log(hits / error) if error > 0.0 else math.inf)
    return best


def gaussian_epsilon(mu: float, delta: float) -> float:
    r"""$\epsilon$ of $N(0,1)$ against $N(\mu,1)$ at $\delta$, rounded down.

    Whatever the threshold t, that test proves $\epsilon \ge \log[(\Phi(\mu-t) - \delta)/\Phi(-t)]$, and the best t gives equality. The
    accountant's own $\epsilon$ only proposes t, so nothing here rests on its rounding up.

    At $\delta = 0$, where every $\mu > 0$ is infinitely bad, it is refused.
    """
    distance, target = require_nonnegative("mu", mu, allow_infinity=False), _require_some(delta)
    proposed = conversions.gdp_epsilon(distance, target)
    if not 0.0 < proposed < math.inf:
        return 0.0
    threshold = proposed / distance + 0.5 * distance
    hits = float(special.ndtr(distance - threshold)) * (1.0 - 1e-13) - target
    return lowered(math.log(hits) - float(special.log_ndtr(-threshold))) if hits > 0.0 else 0.0


def _require_some(delta: object) -> float:
    target = require_delta(delta)
    if target == 0.0:
        raise outside("delta", delta, "a number above 0 and below 1, since a Gaussian has no finite epsilon at 0")
    return target


def sampled_epsilon(mu: float, probability: float, steps: int, delta: float) -> float:
    r"""A lower bound on $\epsilon(\delta)$ of T steps of $(1-q)N(0,1) + qN(\mu,1)$ against $N(0,1)$.

    $$\delta(\epsilon) = \mathbb{E}_{L}\left[(1 - e^{\epsilon - L})_+\right], \qquad
        L = \sum_{t \le T} \log(1 - q + q e^{\mu z_t - \mu^2/2}),$$

    z from the mixture, grows with every $L$. So each step's loss is rounded DOWN to a grid, outcomes far out are dropped, and T of them are
    summed by a circular convolution that starts at the least loss possible: what is beyond its end wraps to smaller losses. All three only
    lower $\delta(\epsilon)$, and an $\epsilon$ with $\delta(\epsilon) > \delta$ is one that the mechanism does not meet.

    The result is below $\epsilon(\delta)$ by about T/2 grid steps: T / 2^23 of the range of losses that matters.
    """
    if mu == 0.0:
        return 0.0
    losses, masses = _one_step(mu, probability)
    lowest = math.log1p(-probability)
    mean = float(masses @ losses)
    spread = math.sqrt(float(masses @ np.square(losses - mean)) * steps)
    # Chernoff's bound on the far end; further out is less than delta / 10^4.
    orders = np.geomspace(0.01, 100.0, 60)
    cumulants = np.array([special.logsumexp(order * losses, b=masses) for order in orders])
    highest = min(float(np.min((steps * cumulants - math.log(1e-4 * delta)) / orders)), steps * float(losses[-1])) + spread
    grid = (highest - steps * lowest) / _POINTS
    cells = np.maximum(np.floor((losses - lowest) / grid * (1.0 - 1e-12)).astype(np.int64), 0)
    step = np.bincount(cells % _POINTS, weights=masses, minlength=_POINTS)
    summed = fft.irfft(fft.rfft(step) ** steps, _POINTS)
    totals: FloatArray = np.asarray(steps * lowest + grid * np.arange(_POINTS), dtype=np.float64)
    return _last_level_above(totals, np.maximum(np.asarray(summed, dtype=np.float64), 0.0), delta * (1.0 + 1e-7) + _ROUNDING * steps)


def _one_step(mu: float, probability: float) -> tuple[FloatArray, FloatArray]:
    """Losses at the lower edges of the cells of z, increasing, and the mixture's masses there, each lowered by its rounding error."""
    edges = np.linspace(-_REACH, _REACH + mu, _CELLS + 1)
    exponents = mu * edges[:-1] - 0.5 * mu * mu
    losses = np.logaddexp(math.log1p(-probability), math.log(probability) + exponents)
    masses = (1.0 - probability) * np.diff(special.ndtr(edges)) + probability * np.diff(special.ndtr(edges - mu))
    return losses, np.maximum(masses - 4e-16, 0.0)


def _last_level_above(losses: FloatArray, masses: FloatArray, delta: float) -> float:
    r"""The largest grid point $\epsilon \ge 0$ with $\delta(\epsilon)$ above `delta`, or 0."""
    above = np.cumsum(masses[::-1])[::-1]
    positive = losses >= 0.0
    levels, tail = losses[positive], above[positive]
    tilted = np.cumsum((masses[positive] * np.exp(-levels))[::-1])[::-1]
    deltas = tail - np.exp(np.minimum(levels, 700.0)) * tilted
    exceeding = np.flatnonzero((deltas > delta) & (levels < 700.0))
    return float(levels[exceeding[-1]]) if exceeding.size else 0.0
