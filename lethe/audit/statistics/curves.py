r"""What is assumed of the mechanism's trade-off curve, and the $\epsilon$ that two error rates then prove.

`AnyMechanism` assumes nothing. The others prove an $\epsilon$ only if the curve is of their family: a Gaussian formula on a mechanism
that is not Gaussian can be wrong every time, so what comes out is called conditional.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field
from scipy import special

from lethe.audit.statistics.counts import Rates
from lethe.audit.statistics.inputs import lowered
from lethe.audit.statistics.sampled_composition import sampled_epsilon
from lethe.calculus import conversions
from lethe.calculus.domains import FloatArray, outside, require_delta, require_nonnegative
from lethe.documents.specification import Specification
from lethe.errors import HypothesisError

Estimator = Literal["clopper_pearson", "gaussian", "sampled_gaussian", "bayesian", "one_run", "one_run_gaussian", "plug_in"]


class TradeOffCurve(Specification):
    """A family of trade-off curves."""

    estimator: ClassVar[Estimator]

    @property
    @abstractmethod
    def family(self) -> str | None:
        """The assumed family, in words; None if nothing is assumed."""

    @abstractmethod
    def epsilon(self, rates: Rates, delta: float) -> float:
        """The epsilon proved by a test whose error rates are at most `rates`; rounded down."""

    @abstractmethod
    def strengths(self, false_positive: FloatArray, false_negative: FloatArray, delta: float) -> FloatArray:
        r"""A quick number that `epsilon` never decreases with, for comparing thresholds.

        Args:
            false_positive: bounds p of the false-positive rate, in (0, 1], of any shape.
            false_negative: bounds r of the false-negative rate, of the same shape.
            delta: $\delta \in [0, 1)$.
        Returns:
            One number for each pair, of that shape.
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

    @property
    def family(self) -> None:
        """Nothing is assumed."""
        return None

    def epsilon(self, rates: Rates, delta: float) -> float:
        """See the class."""
        return lowered(rates_epsilon(rates, delta))

    def strengths(self, false_positive: FloatArray, false_negative: FloatArray, delta: float) -> FloatArray:
        """See `TradeOffCurve`."""
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

    @property
    def family(self) -> str:
        """What is assumed."""
        return "Gaussian"

    def mu(self, rates: Rates) -> float:
        r"""The $\mu$ that the rates prove, rounded down; 0 if none."""
        return lowered(-float(special.ndtri(rates.false_positive)) - float(special.ndtri(rates.false_negative)))

    def epsilon(self, rates: Rates, delta: float) -> float:
        r"""$\epsilon$ of that $\mu$ at $\delta > 0$; see `gaussian_epsilon`."""
        return gaussian_epsilon(self.mu(rates), delta)

    def strengths(self, false_positive: FloatArray, false_negative: FloatArray, delta: float) -> FloatArray:
        """See `TradeOffCurve`."""
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
        r"""The $\mu$ of one step that the rates prove, rounded down; 0 if none.

        Raises:
            HypothesisError: the misses are fewer than any $\mu$ allows.
        """
        argument = float(self._missed(np.float64(rates.false_positive), np.float64(rates.false_negative)))
        if argument <= 0.0:
            raise HypothesisError(
                f"no Gaussian sampled with q = {self.sampling_probability:g} has misses <= {rates.false_negative:.4g} at FPR <= "
                f"{rates.false_positive:.4g}: (1 - q)(1 - FPR) is more.",
                source="the error rates of the test",
                remedy="find out why the record is seen in more steps than its sampling rate says.",
            )
        return lowered(-float(special.ndtri(rates.false_positive)) - float(special.ndtri(argument))) if argument < 1.0 else 0.0

    def epsilon(self, rates: Rates, delta: float) -> float:
        r"""$\epsilon$ of T steps with that $\mu$ at $\delta > 0$, rounded down; see `sampled_epsilon`."""
        mu, target = self.mu(rates), _require_some(delta)
        if self.sampling_probability == 1.0:
            return gaussian_epsilon(mu * math.sqrt(self.steps), target)
        return sampled_epsilon(mu, self.sampling_probability, self.steps, target)

    def strengths(self, false_positive: FloatArray, false_negative: FloatArray, delta: float) -> FloatArray:
        """See `TradeOffCurve`; infinite where the sampling is refuted."""
        return -special.ndtri(false_positive) - special.ndtri(np.clip(self._missed(false_positive, false_negative), 0.0, 1.0))

    def _missed(self, false_positive: FloatArray | np.float64, false_negative: FloatArray | np.float64) -> FloatArray | np.float64:
        """The most the share of misses can be among the trials that hold the record, raised by its rounding error."""
        rate = self.sampling_probability
        return (false_negative - (1.0 - rate) * (1.0 - false_positive) + 4e-16) / rate


def rates_epsilon(rates: Rates, delta: float) -> float:
    r"""$\epsilon$ at which a test with exactly these error rates is the best allowed; infinite if an error never happens."""
    return max(0.0, signed_rates_epsilon(rates, delta))


def signed_rates_epsilon(rates: Rates, delta: float) -> float:
    r"""$\max\{\log\frac{1-\delta-r}{p}, \log\frac{1-\delta-p}{r}\}$ of the rates p and r; $-\infty$ where neither logarithm exists."""
    target, best = require_delta(delta), -math.inf
    for others, error in ((rates.false_negative, rates.false_positive), (rates.false_positive, rates.false_negative)):
        hits = 1.0 - target - others
        if hits > 0.0:
            best = max(best, math.log(hits / error) if error > 0.0 else math.inf)
    return best


def gaussian_epsilon(mu: float, delta: float) -> float:
    r"""$\epsilon$ of $N(0,1)$ against $N(\mu,1)$ at $\delta$, rounded down.

    Whatever the threshold t, that test proves $\epsilon \ge \log[(\Phi(\mu-t) - \delta)/\Phi(-t)]$, and the best t gives equality. The
    accountant's own $\epsilon$ only proposes t, so nothing here rests on its rounding up.

    Args:
        mu: $\mu \ge 0$, finite.
        delta: $\delta \in (0, 1)$.
    Raises:
        InputError: an argument is outside its range; at $\delta = 0$ every $\mu > 0$ is infinitely bad.
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
