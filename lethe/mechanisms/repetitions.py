"""Laws of the random number of tries of a private selection, which make the choice of the best try private.

selection.py draws its number of tries from these laws, and `PrivateSearch` plans with their laws: with a fixed number of tries the best of
them would be less private.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize

from lethe.calculus.domains import as_number, outside, require_positive, require_probability
from lethe.calculus.rounding import round_up

_MOST = 1e6
_ETA, _GAMMA = "a number above -1 and at most 100", "a number above 0 and below 1, for at most a million tries on average"
_MEAN = "a number above 1 and at most a million"


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncatedNegativeBinomial:
    r"""K, the secret number of tries, in {1, 2, ...} with

    $$P(K=k) = \frac{(1-\gamma)^k}{\gamma^{-\eta}-1}\prod_{l=0}^{k-1}\frac{l+\eta}{l+1},\qquad
      P(K=k) = \frac{(1-\gamma)^k}{k\log(1/\gamma)}\ (\eta = 0),\qquad
      E[K] = \frac{\eta(1-\gamma)}{\gamma(1-\gamma^\eta)}.$$

    $\eta = 1$ is the geometric law with mean $1/\gamma$, $\eta = 0$ the logarithmic one. A smaller $\eta$ is cheaper and spreads K wider.

    $-1 < \eta \le 100$, and $\gamma \in (0, 1)$ is such that the mean is at most $10^6$.

    Reference: Papernot & Steinke 2022, arXiv:2110.03620, Definition 1.
    """

    eta: float
    gamma: float

    def __post_init__(self) -> None:
        eta, gamma = as_number("eta", self.eta, _ETA), as_number("gamma", self.gamma, _GAMMA)
        if not -1.0 < eta <= 100.0:
            raise outside("eta", self.eta, _ETA)
        if not (1e-100 < gamma < 1.0 and _mean(eta, gamma) <= _MOST):
            raise outside("gamma", self.gamma, _GAMMA)
        object.__setattr__(self, "eta", eta)
        object.__setattr__(self, "gamma", gamma)

    @classmethod
    def of_mean(cls, mean: float, *, eta: float = 1.0) -> TruncatedNegativeBinomial:
        """The member of the family with that mean, above 1 and at most a million."""
        target_mean, shape = as_number("mean", mean, _MEAN), cls(eta=eta, gamma=1.0 - 1e-9).eta
        if not 1.000001 <= target_mean <= _MOST:
            raise outside("mean", mean, _MEAN)

        def gap(log_gamma: float) -> float:
            return math.log(_mean(shape, math.exp(log_gamma)) / target_mean)

        return cls(eta=shape, gamma=math.exp(optimize.brentq(gap, -200.0, -1e-12, xtol=1e-13) + 1e-12))

    @property
    def mean(self) -> float:
        """E[K]."""
        return _mean(self.eta, self.gamma)

    def to_dict(self) -> dict[str, Any]:
        """As plain data, which `repetitions_from_dict` reads."""
        return {"law": "truncated negative binomial", "eta": self.eta, "gamma": self.gamma}

    def probability(self, count: int) -> float:
        """P(K = count)."""
        if count < 1:
            return 0.0
        if self.eta == 0.0:
            return math.exp(count * math.log1p(-self.gamma)) / (count * -math.log(self.gamma))
        # eta / (gamma^-eta - 1) > 0 for either sign of eta; the other factors of the product are positive.
        head = self.eta * math.exp(self.eta * math.log(self.gamma)) / -math.expm1(self.eta * math.log(self.gamma))
        rest = math.lgamma(count + self.eta) - math.lgamma(1.0 + self.eta) - math.lgamma(count + 1.0)
        return head * math.exp(rest + count * math.log1p(-self.gamma))

    def hit_probability(self, delta: float) -> float:
        r"""$1 - E[(1-\delta)^K] \le \delta E[K]$, rounded up: that an event of probability $\delta$ a try happens at least once.

        $\frac{1 - (\gamma'/\gamma)^{-\eta}}{1-\gamma^\eta}$ with $\gamma' = \gamma + \delta(1-\gamma)$, and its limit at $\eta = 0$.
        """
        grown = math.log1p(require_probability("delta", delta) * (1.0 - self.gamma) / self.gamma)
        log_gamma = math.log(self.gamma)
        chance = grown / -log_gamma if self.eta == 0.0 else math.expm1(-self.eta * grown) / math.expm1(self.eta * log_gamma)
        return min(round_up(chance, 1e-13), 1.0)

    def thinned(self, delta: float) -> TruncatedNegativeBinomial:
        r"""The law given that it never happened, weights times $(1-\delta)^k$: $\eta$ stays, $\gamma' = \gamma + \delta(1-\gamma)$."""
        thinned_gamma = 1.0 - (1.0 - self.gamma) * (1.0 - require_probability("delta", delta))
        return TruncatedNegativeBinomial(eta=self.eta, gamma=min(thinned_gamma, 1.0 - 1e-15))


@dataclass(frozen=True, slots=True, kw_only=True)
class PoissonRepetitions:
    r"""$K \sim \mathrm{Poisson}(\mu)$, $0 < \mu \le 500$: concentrated, but 0 with probability $e^{-\mu}$, and then nothing is chosen.

    Reference: Papernot & Steinke 2022, arXiv:2110.03620, section 3.3.
    """

    rate: float

    def __post_init__(self) -> None:
        rate = require_positive("rate", self.rate)
        if rate > 500.0:
            raise outside("rate", self.rate, "a number above 0 and at most 500")
        object.__setattr__(self, "rate", rate)

    @property
    def mean(self) -> float:
        """E[K]."""
        return self.rate

    def to_dict(self) -> dict[str, Any]:
        """As plain data, which `repetitions_from_dict` reads."""
        return {"law": "poisson", "rate": self.rate}

    def probability(self, count: int) -> float:
        """P(K = count)."""
        return math.exp(count * math.log(self.rate) - self.rate - math.lgamma(count + 1.0)) if count >= 0 else 0.0

    def hit_probability(self, delta: float) -> float:
        r"""As of `TruncatedNegativeBinomial`: $1 - e^{-\mu\delta}$."""
        return min(round_up(-math.expm1(-self.rate * require_probability("delta", delta)), 1e-15), 1.0)

    def thinned(self, delta: float) -> PoissonRepetitions:
        r"""As there: Poisson with mean $\mu(1-\delta)$."""
        return PoissonRepetitions(rate=max(self.rate * (1.0 - require_probability("delta", delta)), 1e-300))


Repetitions = TruncatedNegativeBinomial | PoissonRepetitions


def draw_tries(law: Repetitions, generator: np.random.Generator) -> int:
    """One K, by inversion."""
    remaining, count = float(generator.random()), 0
    term = law.probability(0)
    while remaining >= term:
        remaining -= term
        count += 1
        term = law.probability(count)
        if count > law.mean and term < 1e-18:  # what is left of the tail is rounding
            break
    return count


def repetitions_from_dict(content: Mapping[str, Any]) -> Repetitions:
    """The law that `to_dict` wrote, or InputError."""
    numbers = {name: value for name, value in content.items() if name != "law"}
    if content.get("law") == "poisson" and set(numbers) == {"rate"}:
        return PoissonRepetitions(**numbers)
    if content.get("law") == "truncated negative binomial" and set(numbers) == {"eta", "gamma"}:
        return TruncatedNegativeBinomial(**numbers)
    raise outside("repetitions", dict(content), "a law that its to_dict writes")


def _mean(eta: float, gamma: float) -> float:
    if eta == 0.0:
        return (1.0 - gamma) / (gamma * -math.log(gamma))
    return eta * (1.0 - gamma) / (gamma * -math.expm1(eta * math.log(gamma)))
