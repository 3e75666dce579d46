"""AttackRates: what a guarantee allows the best membership attack, and the Gaussian mechanism that says nearly the same in one number.

`attack_rates` of certificates, statements and totals gives it, and the report prints it: rates of attacks are easier to judge than epsilon.
`FLOOR` is the small probability (1e-10) up to which the Gaussian mechanism has to cover the guarantee.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lethe.calculus.composition import gaussian_mu
from lethe.calculus.domains import require_probability
from lethe.calculus.guarantees import Guarantee
from lethe.calculus.rounding import round_up
from lethe.calculus.tradeoffs import FLOOR, TradeOff
from lethe.calculus.upward_formatting import shown

_EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackRates:
    r"""Bounds on every attack that is to tell whether, or as what, one record was used; all rounded up.

    Args:
        advantage: the most by which true positives can be more frequent than false ones: $\delta(0)$, the total variation distance.
        true_positive_rates: the largest true positive rate by false positive rate.
        mu: of the nearest Gaussian mechanism that gives away no less: what was released is $\mu$-GDP up to a chance `slack`:
            $\delta(\epsilon) \le s + (1 - s)\,\delta_\mu(\epsilon)$ for all $\epsilon$. Infinite where there is none.
        regret: by how much an attacker of that Gaussian mechanism may err less often, at the odds of the two cases where that is most:
            how far its trade-off curve lies below the proved one. Below 0.01, $\mu$ says nearly all.
        slack: s.
        deltas: $\delta$ by $\epsilon$, where it is not below s.
    Reference: Gomez et al. 2025, arXiv:2503.10945; Kaissis et al. 2024, arXiv:2406.08918; docs/theory.md, Lemma 12a.
    """

    advantage: float
    true_positive_rates: Mapping[float, float]
    mu: float
    regret: float
    slack: float
    deltas: Mapping[float, float]

    @classmethod
    def of(cls, guarantee: Guarantee, false_positive_rates: Sequence[float], curve: TradeOff | None = None) -> AttackRates:
        """The bounds of a guarantee; of its curve, where that has been looked at already."""
        curve, rates = curve or TradeOff.of(guarantee), [require_probability("false_positive_rates", rate) for rate in false_positive_rates]
        mu = min(curve.covering_mu(FLOOR), gaussian_mu(guarantee))
        return cls(
            advantage=curve.advantage,
            true_positive_rates={rate: curve.true_positive_rate(rate) for rate in rates},
            mu=mu,
            regret=curve.regret(mu, FLOOR),
            slack=FLOOR,
            deltas={epsilon: guarantee.delta(epsilon) for epsilon in _EPSILONS if epsilon <= curve.epsilons[-1]},
        )

    @property
    def best_guess(self) -> float:
        """How often the best guess between two data sets that are equally likely is right, at most."""
        return min(round_up(0.5 + 0.5 * self.advantage, 4e-16), 1.0)

    @property
    def gaussian(self) -> str:
        """The Gaussian mechanism in words."""
        if self.mu == float("inf"):
            return f"no mu-GDP, even up to a chance of {self.slack:g}"
        return f"{shown(self.mu)}-GDP up to a chance of {self.slack:g}, regret {shown(self.regret, 2)}"

    def __str__(self) -> str:
        rates = ", ".join(f"{shown(bound)} at {rate:g}" for rate, bound in self.true_positive_rates.items())
        deltas = ", ".join(f"{shown(delta, 3)} at {epsilon:g}" for epsilon, delta in self.deltas.items())
        attacks = f"advantage at most {shown(self.advantage)}"
        attacks += f"; true positive rate by false positive rate at most {rates}" if rates else ""
        named = {"attacks": attacks, "Gaussian": self.gaussian, "delta": deltas and f"by epsilon {deltas}"}
        return "\n".join(f"    {name:<8}   {words}" for name, words in named.items() if words)
