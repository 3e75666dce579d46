r"""How one try of a private search divides its privacy budget among the steps of a pipeline.

Let G be the guarantee of a try, and $p_j$ the shares of the steps, $\sum_j p_j = 1$. Each step is calibrated to a guarantee $G_j$:

- G is $\mu$-GDP, every step is: $\mu_j = \mu\sqrt{p_j}$, since squares of $\mu$ add up (Dong, Roth, Su 2019, Corollary 3.3).
- G is $(\epsilon, \delta)$-DP: a step that is not Gaussian has $(p_j\epsilon, p_j\delta)$. The Gaussian ones have $P = \sum p_j$ together:
  $\mu_j = \mu_P\sqrt{p_j/P}$ with $\mu_P$-GDP the weakest that implies $(P\epsilon, P\delta)$-DP. Then epsilons and deltas add up.
  The order of the steps does not matter: whatever was released before, the loss of each is dominated by that of a pair of its own
  (Blackwell), and those pairs may be put in any order.

A later step sees the records as the earlier ones transformed them, row by row, by numbers that were released: neighbours stay neighbours,
and the composition is adaptive. So the whole fit has G.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from lethe.calculus.composition import compose_gdp
from lethe.calculus.conversions import gdp_mu
from lethe.calculus.domains import outside, require_positive
from lethe.calculus.guarantees import GDP, ApproxDP
from lethe.calculus.rounding import round_down, round_up
from lethe.errors import CalibrationError, InputError
from lethe.estimators.search.tries import DOWN, Try

_SLACK = 1.0 - 1e-11  # for what adding up rounds up
_MODEL = 0.8  # of the budget, where no shares are given


def step_tries(one: Try, gaussian: Mapping[str, bool], shares: Mapping[str, float], *, delta: float) -> dict[str, Try]:
    """The budget of each step; a single step has the whole.

    Args:
        one: what a try may.
        gaussian: for each step, whether a fit is mu-GDP whatever the data.
        shares: p > 0 of each of the same steps, in proportion.
        delta: at which Gaussian steps are calibrated, where the try is mu-GDP.
    Raises:
        CalibrationError: the share of a step is too small for any epsilon, or they cost more together than the whole.
    """
    if len(gaussian) == 1:
        return dict.fromkeys(gaussian, one)
    total = math.fsum(shares[step] for step in gaussian)
    parts = {step: shares[step] / total * _SLACK for step in gaussian}
    found: dict[str, Try] = {}
    if isinstance(one.guarantee, GDP):
        found = {step: _gaussian(step, one.guarantee.mu * math.sqrt(part), delta) for step, part in parts.items()}
    else:
        assert isinstance(one.guarantee, ApproxDP)
        epsilon, failing = one.guarantee.epsilon_bound, one.guarantee.delta_bound
        together = math.fsum(part for step, part in parts.items() if gaussian[step])
        mu = gdp_mu(together * epsilon, together * failing) if together > 0.0 else 0.0
        for step, part in parts.items():
            if gaussian[step]:
                found[step] = _gaussian(step, mu * math.sqrt(part / together) * _SLACK, together * failing)
            else:
                found[step] = Try(
                    guarantee=ApproxDP(part * epsilon, part * failing), target=ApproxDP(part * epsilon * (1.0 - DOWN), part * failing)
                )
    if not _cover(one, found.values()):
        raise CalibrationError("the steps of a pipeline cost more together than one try may.", source="the option shares")
    return found


def declared_shares(shares: Any, steps: Mapping[str, object]) -> dict[str, float]:
    """A share for each private step.

    Args:
        shares: by name of the step, as parameters have it ("outer__inner"), numbers > 0 in proportion; other names are ignored here. None:
            four fifths for the last step, the rest in equal parts.
        steps: by prefix of their parameters, in order.
    Raises:
        InputError: no mapping of names to numbers, or a step has none.
    """
    if shares is not None and len(steps) == 1 and "" in steps:
        raise InputError(
            "shares: the estimator is one model, which has the whole budget.", source="the option shares", remedy="leave it at None"
        )
    if shares is None:
        others = max(len(steps) - 1, 1)
        return {step: _MODEL if place == len(steps) - 1 else (1.0 - _MODEL) / others for place, step in enumerate(steps)}
    if not isinstance(shares, Mapping):
        raise outside("shares", shares, "None, or a number > 0 for each private step, by its name")
    known = {str(name): require_positive(f"shares[{name!r}]", share) for name, share in shares.items()}
    missing = [step.removesuffix("__") for step in steps if step.removesuffix("__") not in known]
    if missing:
        raise InputError(
            f"shares: none for {', '.join(missing)}; every private step needs one.",
            source="the option shares",
            remedy=f"name {', '.join(step.removesuffix('__') for step in steps)}",
        )
    return {step: known[step.removesuffix("__")] for step in steps}


def _gaussian(step: str, mu: float, delta: float) -> Try:
    epsilon = GDP(mu * (1.0 - DOWN)).epsilon(delta)
    if not epsilon > 0.0:
        raise CalibrationError(
            f"shares: nothing is left for step {step.removesuffix('__')} of one try.",
            source="the parameters epsilon, tries and shares",
            remedy="take a larger epsilon, fewer tries or a larger share",
        )
    return Try(guarantee=GDP(mu), target=ApproxDP(epsilon, delta))


def _cover(one: Try, parts: Iterable[Try]) -> bool:
    """Whether parts together are within the whole: the same sums the other way round, with what they are rounded to."""
    guarantees = [part.guarantee for part in parts]
    mus = [guarantee.mu for guarantee in guarantees if isinstance(guarantee, GDP)]
    points = [guarantee for guarantee in guarantees if isinstance(guarantee, ApproxDP)]
    gaussian = GDP(compose_gdp(mus)) if mus else GDP(0.0)
    if isinstance(one.guarantee, GDP):
        return not points and gaussian.mu <= one.guarantee.mu
    assert isinstance(one.guarantee, ApproxDP)
    failing = one.guarantee.delta_bound - round_up(math.fsum(point.delta_bound for point in points), 1e-15)
    spent = round_up(math.fsum(point.epsilon_bound for point in points), 1e-15)
    return failing >= 0.0 and gaussian.epsilon(round_down(failing, 1e-15)) + spent <= one.guarantee.epsilon_bound
