"""The privacy budget of one try of a private search: the weakest guarantee with which the best of all tries meets the total."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scipy import optimize

from lethe.calculus.domains import as_number, outside
from lethe.calculus.guarantees import GDP, ApproxDP, Guarantee
from lethe.calculus.rounding import round_down
from lethe.errors import CalibrationError
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.models.linear_model import PrivateLinearModel
from lethe.estimators.options import options_of
from lethe.mechanisms.repetitions import TruncatedNegativeBinomial
from lethe.mechanisms.selection import selection_guarantee

# Whose guarantee is mu-GDP whatever the problem, if no norm or range is released; every fit is checked.
GAUSSIAN = frozenset({"adassp", "output_perturbation", "cyclic", "pass_ends", "full_batch", "correlated"})
DOWN = 1e-9  # what a fit gets less than one try is charged for: calibrations round


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """The budget of one try."""

    guarantee: Guarantee  # of a fit, and of a score
    target: ApproxDP  # that a fit is calibrated to

    def covers(self, found: Guarantee) -> bool:
        """Whether the guarantee of a fit is at least as strong."""
        if isinstance(self.guarantee, GDP):
            return isinstance(found, GDP) and found.mu <= self.guarantee.mu
        assert isinstance(self.guarantee, ApproxDP)
        return found.epsilon(self.guarantee.delta_bound) <= self.guarantee.epsilon_bound


def law_of_tries(tries: Any) -> TruncatedNegativeBinomial:
    """The law of K: geometric with a mean, or of a pair (mean, eta)."""
    asked, eta = tries if isinstance(tries, tuple) and len(tries) == 2 else (tries, 1.0)
    mean = as_number("tries", asked, "a number above 1 and at most 1000")
    if not 1.000001 <= mean <= 1000.0:
        raise outside("tries", asked, "a number above 1 and at most 1000")
    return TruncatedNegativeBinomial.of_mean(mean, eta=eta)


def is_gaussian(model: PrivateLinearModel) -> bool:
    """Whether its parameters say that a fit is mu-GDP."""
    released = [getattr(model, name, None) for name in ("feature_norm", "target_bound")]
    return options_of(model).mechanism in GAUSSIAN and not any(isinstance(value, str) for value in released)


def one_try(budget: PrivacyBudget, repetitions: TruncatedNegativeBinomial, *, gaussian: bool) -> Try:
    """The budget of one try: the weakest guarantee with which the best of all tries meets the total.

    Args:
        budget: of the search, nothing spent.
        repetitions: the law of K.
        gaussian: whether every candidate is mu-GDP.
    Raises:
        CalibrationError: nothing is left for one try.
    """

    def over(level: float) -> float:
        return selection_guarantee(at(level), repetitions, delta=budget.delta).epsilon(budget.delta) - budget.epsilon

    # Half of delta for tries that fail, so that the other bound on the rest has room too.
    failing = round_down(budget.delta / repetitions.mean / 2.0, 1e-14)

    def at(level: float) -> Guarantee:
        return GDP(level) if gaussian else ApproxDP(level, failing)

    high = budget.total_mu if gaussian else budget.epsilon
    low = high * 1e-4
    if over(low) > 0.0:
        raise CalibrationError(
            f"epsilon = {budget.epsilon:g}: nothing is left of it for one try of {repetitions.mean:g}.",
            source="the parameters epsilon and tries",
            remedy="take a larger epsilon or fewer tries",
        )
    level = high if over(high) <= 0.0 else float(optimize.brentq(over, low, high, xtol=1e-9 * high))
    for _ in range(60):
        if over(level) <= 0.0:
            break
        level *= 1.0 - 1e-9
    guarantee = at(level)
    if isinstance(guarantee, GDP):
        target = ApproxDP(GDP(guarantee.mu * (1.0 - DOWN)).epsilon(budget.delta), budget.delta)
    else:
        target = ApproxDP(level * (1.0 - DOWN), failing)
    return Try(guarantee=guarantee, target=target)
