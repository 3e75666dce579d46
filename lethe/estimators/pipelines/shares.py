r"""A privacy budget divided among the steps of a pipeline: those of one try of a private search, or several fits on the same records.

private_search.py calls it before its tries; users call `split_budget` for estimators that they fit one after the other. A guarantee is
$\mu$-GDP or $(\epsilon, \delta)$-DP; a try is one random draw of parameters, fitted and scored.

Let G be the guarantee of all, and $p_j$ the shares of the steps, $\sum_j p_j = 1$. Each step is calibrated to a guarantee $G_j$:

- G is $\mu$-GDP, every step is: $\mu_j = \mu\sqrt{p_j}$, since squares of $\mu$ add up (Dong, Roth, Su 2019, Corollary 3.3).
- G is $(\epsilon, \delta)$-DP: a step that need not be Gaussian has $(p_j\epsilon, p_j\delta)$, whatever mechanism it comes to use. The
  Gaussian ones have $P = \sum p_j$ together: $\mu_j = \mu_P\sqrt{p_j/P}$ with $\mu_P$-GDP the weakest that implies
  $(P\epsilon, P\delta)$-DP. Then epsilons and deltas add up. The order of the steps does not matter: whatever was released before, the loss
  of each is dominated by that of a pair of its own (Blackwell), and those pairs may be put in any order.

A later step sees the records as the earlier ones transformed them, row by row, by numbers that were released: neighbours stay neighbours,
and the composition is adaptive. So the whole fit has G.

A split by $\mu$ for all of them is not enough: that a fit meets $(\epsilon, \delta)$ at one point says nothing of the rest of its privacy
profile, on which the composition depends. With objective perturbation, which `mechanism="auto"` may choose, such a split came to 4.08 of 4.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy import optimize
from sklearn.base import clone

from lethe.calculus.composition import compose_gdp
from lethe.calculus.conversions import gdp_mu
from lethe.calculus.domains import as_number, outside, require_positive, require_vector
from lethe.calculus.guarantees import GDP, ApproxDP, Guarantee
from lethe.calculus.rounding import round_down, round_up
from lethe.errors import CalibrationError, InputError
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.models.linear_model import PrivateLinearModel
from lethe.estimators.options import options_of
from lethe.estimators.preprocessing.scaler import PrivateTransformer
from lethe.estimators.private_estimator import PrivateEstimator
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

    def covers(self, guarantee: Guarantee) -> bool:
        """Whether the guarantee of a fit is at least as strong."""
        if isinstance(self.guarantee, GDP):
            return isinstance(guarantee, GDP) and guarantee.mu <= self.guarantee.mu
        assert isinstance(self.guarantee, ApproxDP)
        return guarantee.epsilon(self.guarantee.delta_bound) <= self.guarantee.epsilon_bound


def law_of_tries(tries: Any) -> TruncatedNegativeBinomial:
    """The law of K: geometric with a mean, or of a pair (mean, eta)."""
    mean_tries, eta = tries if isinstance(tries, tuple) and len(tries) == 2 else (tries, 1.0)
    mean = as_number("tries", mean_tries, "a number above 1 and at most 1000")
    if not 1.000001 <= mean <= 1000.0:
        raise outside("tries", mean_tries, "a number above 1 and at most 1000")
    return TruncatedNegativeBinomial.of_mean(mean, eta=eta)


def is_gaussian(model: PrivateLinearModel) -> bool:
    """Whether its parameters say that a fit is mu-GDP."""
    released = [getattr(model, name, None) for name in ("feature_norm", "target_bound")]
    return options_of(model).mechanism in GAUSSIAN and not any(isinstance(value, str) for value in released)


def one_try(budget: PrivacyBudget, repetitions: TruncatedNegativeBinomial, *, gaussian: bool) -> Try:
    """The budget of one try: the weakest guarantee with which the best of all tries meets the total; where all are mu-GDP by that."""

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


_SLACK = 1.0 - 1e-11  # for what adding up rounds up, many times over
_MODEL = 0.8  # of the budget, where no shares are given


def step_tries(attempt: Try, gaussian: Mapping[str, bool], shares: Mapping[str, float], *, delta: float) -> dict[str, Try]:
    """The budget of each step, by proportions p > 0; a single step has the whole. Gaussian steps of a mu-GDP try count at delta."""
    if len(gaussian) == 1:
        return dict.fromkeys(gaussian, attempt)
    total = math.fsum(shares[step] for step in gaussian)
    parts = {step: shares[step] / total * _SLACK for step in gaussian}
    by_step: dict[str, Try] = {}
    if isinstance(attempt.guarantee, GDP):
        by_step = {step: _gaussian(step, attempt.guarantee.mu * math.sqrt(part), delta) for step, part in parts.items()}
    else:
        assert isinstance(attempt.guarantee, ApproxDP)
        epsilon, failing = attempt.guarantee.epsilon_bound, attempt.guarantee.delta_bound
        together = math.fsum(part for step, part in parts.items() if gaussian[step])
        mu = gdp_mu(together * epsilon, together * failing) if together > 0.0 else 0.0
        for step, part in parts.items():
            if gaussian[step]:
                by_step[step] = _gaussian(step, mu * math.sqrt(part / together) * _SLACK, together * failing)
            else:
                by_step[step] = Try(
                    guarantee=ApproxDP(part * epsilon, part * failing), target=ApproxDP(part * epsilon * (1.0 - DOWN), part * failing)
                )
    if not _cover(attempt, by_step.values()):
        raise CalibrationError("the steps of a pipeline cost more together than one try may.", source="the option shares")
    return by_step


def declared_shares(shares: Any, steps: Mapping[str, object]) -> dict[str, float]:
    """A share for each private step by its prefix, numbers > 0 in proportion; None: four fifths for the last, the rest in equal parts."""
    if shares is not None and len(steps) == 1 and "" in steps:
        raise InputError(
            "shares: the estimator is one model, which has the whole budget.", source="the option shares", remedy="leave it at None"
        )
    if shares is None:
        other_steps = max(len(steps) - 1, 1)
        return {step: _MODEL if index == len(steps) - 1 else (1.0 - _MODEL) / other_steps for index, step in enumerate(steps)}
    if not isinstance(shares, Mapping):
        raise outside("shares", shares, "None, or a number > 0 for each private step, by its name")
    by_name = {str(name): require_positive(f"shares[{name!r}]", share) for name, share in shares.items()}
    missing = [step.removesuffix("__") for step in steps if step.removesuffix("__") not in by_name]
    if missing:
        raise InputError(
            f"shares: none for {', '.join(missing)}; every private step needs one.",
            source="the option shares",
            remedy=f"name {', '.join(step.removesuffix('__') for step in steps)}",
        )
    return {step: by_name[step.removesuffix("__")] for step in steps}


def _gaussian(step: str, mu: float, delta: float) -> Try:
    r"""The budget of a Gaussian step that has $\mu$ of a try."""
    epsilon = GDP(mu * (1.0 - DOWN)).epsilon(delta)
    if not epsilon > 0.0:
        raise CalibrationError(
            f"shares: nothing is left for step {step.removesuffix('__')} of one try.",
            source="the parameters epsilon, tries and shares",
            remedy="take a larger epsilon, fewer tries or a larger share",
        )
    return Try(guarantee=GDP(mu), target=ApproxDP(epsilon, delta))


def _cover(attempt: Try, parts: Iterable[Try]) -> bool:
    """Whether parts together are within the whole: the same sums the other way round, with what they are rounded to."""
    guarantees = [part.guarantee for part in parts]
    mus = [guarantee.mu for guarantee in guarantees if isinstance(guarantee, GDP)]
    points = [guarantee for guarantee in guarantees if isinstance(guarantee, ApproxDP)]
    gaussian = GDP(compose_gdp(mus)) if mus else GDP(0.0)
    if isinstance(attempt.guarantee, GDP):
        return not points and gaussian.mu <= attempt.guarantee.mu
    assert isinstance(attempt.guarantee, ApproxDP)
    failing = attempt.guarantee.delta_bound - round_up(math.fsum(point.delta_bound for point in points), 1e-15)
    spent = round_up(math.fsum(point.epsilon_bound for point in points), 1e-15)
    return failing >= 0.0 and gaussian.epsilon(round_down(failing, 1e-15)) + spent <= attempt.guarantee.epsilon_bound


def split_budget(steps: Sequence[PrivateEstimator], epsilon: float, delta: float, *, shares: Sequence[float]) -> tuple[Any, ...]:
    r"""The same steps, each with an epsilon and a delta of its own, such that together they meet $(\epsilon, \delta)$ on the same records.

    A step counts as Gaussian if it is a transformer, or a linear model that names a mechanism of `tries.GAUSSIAN` and public bounds. A
    mechanism that is named gets more out of its share than "auto", whose choice is not known before the fit.

    Args:
        steps: estimators of this package, in the order in which they are fitted; each is fitted once.
        epsilon: the total, > 0.
        delta: in (0, 1).
        shares: p > 0 of each step, of sum at most 1; what is left of 1 stays unspent.
    Returns:
        Clones with their epsilon and delta set; change nothing else that says which mechanism they use.
    Raises:
        InputError: an argument is out of its range, or a step is no estimator of this package.
        CalibrationError: a share is too small for any epsilon.
    Reference: Dong, Roth, Su 2019, arXiv:1905.02383, Corollary 3.3.
    """
    listed = list(steps) if isinstance(steps, list | tuple) else []
    if not listed or not all(isinstance(step, PrivateEstimator) for step in listed):
        raise outside("steps", steps, "a list of estimators of lethe.estimators, at least one")
    parts = require_vector("shares", list(shares), low=0.0, strict=True).tolist()
    total = math.fsum(parts)
    if len(parts) != len(listed) or total > 1.0 + 1e-12:
        raise InputError(
            f"shares: {len(parts)} of {len(listed)} steps, of sum {total:g}; it needs one for each step, together at most 1.",
            source="the argument shares",
            remedy="divide them by their sum",
        )
    budget, names = PrivacyBudget(epsilon=epsilon, delta=delta), [str(index) for index in range(len(listed))]
    gaussian = {  # whether parameters say that a fit is mu-GDP, whatever the data
        name: isinstance(step, PrivateTransformer) or (isinstance(step, PrivateLinearModel) and is_gaussian(step))
        for name, step in zip(names, listed, strict=True)
    }
    part = min(total, 1.0)
    if all(gaussian.values()):
        mu = budget.total_mu * math.sqrt(part) * _SLACK
        whole = Try(guarantee=GDP(mu), target=ApproxDP(GDP(mu).epsilon(budget.delta), budget.delta))
    else:
        point = ApproxDP(budget.epsilon * part * _SLACK, budget.delta * part * _SLACK)
        whole = Try(guarantee=point, target=point)
    by_step = step_tries(whole, gaussian, dict(zip(names, parts, strict=True)), delta=budget.delta)
    copies: list[Any] = [clone(step) for step in listed]
    for name, step in zip(names, copies, strict=True):
        step.set_params(epsilon=by_step[name].target.epsilon_bound, delta=by_step[name].target.delta_bound)
    return tuple(copies)
