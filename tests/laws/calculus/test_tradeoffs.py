"""Attack rates and Gaussian covers against exact trade-off curves, which a bound that is one per cent too small would be below."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from lethe.calculus.guarantees import GDP, ApproxDP, GDPMixture, Guarantee, NotPrivate, Tightest, WithSlack
from lethe.calculus.sampled.gaussian import sampled_gaussian
from lethe.calculus.tradeoffs import FLOOR, TradeOff
from lethe.certificates.attack_rates import AttackRates
from lethe.errors import InputError

# By the logarithm of the likelihood ratio that a test goes by, its errors of both kinds: an exact trade-off curve, point by point.
Curve = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
LEVELS = 60.0 * np.linspace(-1.0, 1.0, 20_001) ** 3


def gaussian(mu: float) -> Curve:
    return lambda level: (norm.sf(level / mu + mu / 2), norm.cdf(level / mu - mu / 2))


def mixture(mus: tuple[float, ...], weights: tuple[float, ...]) -> Curve:
    """Whoever knows the component goes by its ratio. What is left of the weight is the same on both sides, and says no where it may."""

    def errors(level: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        pairs = [(weight, gaussian(mu)(level)) for mu, weight in zip(mus, weights, strict=True)]
        left = 1.0 - sum(weights)
        alphas, betas = (sum(weight * each[kind] for weight, each in pairs) for kind in (0, 1))
        return alphas + left * (level < 0), betas + left * (level >= 0)

    return errors


def one_sampled_step(q: float, noise: float, *, turned: bool) -> Curve:
    r"""$(1-q)N(0, z^2) + qN(1, z^2)$ against $N(0, z^2)$, or the other way round, by the point from which on it says yes."""

    def errors(level: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        points = np.linspace(-9 * noise, 9 * noise + 1, level.size)
        out, into = norm.sf(points / noise), (1 - q) * norm.cdf(points / noise) + q * norm.cdf((points - 1) / noise)
        return (into, out) if turned else (out, into)

    return errors


SOME = (0.3, 1.0, 3.0), (0.5, 0.3, 0.15)
CASES: dict[str, tuple[Guarantee, tuple[Curve, ...]]] = {
    **{f"{mu}-GDP": (GDP(mu), (gaussian(mu),)) for mu in (0.01, 0.5, 1.0, 4.0, 8.0)},
    "mixture": (GDPMixture(*SOME), (mixture(*SOME),)),
    "mostly nothing": (GDPMixture((0.1, 5.0), (0.98, 0.02)), (mixture((0.1, 5.0), (0.98, 0.02)),)),
    **{
        f"sampled, q = {q}, noise {noise}": (
            sampled_gaussian(q, np.array([noise]), "zero_out", "poisson"),
            tuple(one_sampled_step(q, noise, turned=turned) for turned in (False, True)),
        )
        for q, noise in ((0.1, 0.8), (0.5, 1.5))
    },
}
RATES = (0.3, 0.01, 0.001)


@cache
def curve_of(name: str) -> TradeOff:
    return TradeOff.of(CASES[name][0])


def rates_of(name: str) -> AttackRates:
    return AttackRates.of(CASES[name][0], RATES, curve_of(name))


@pytest.mark.parametrize("name", CASES)
def test_rates_and_advantage_are_those_of_the_best_attack(name: str) -> None:
    _, curves = CASES[name]
    found, errors = rates_of(name), [curve(LEVELS) for curve in curves]
    exact = max(float((1.0 - alphas - betas).max()) for alphas, betas in errors)
    assert exact * (1 - 1e-9) <= found.advantage <= exact * 1.005 + 1e-12
    for rate in RATES:
        ways = [np.interp(rate, alphas[order], 1.0 - betas[order]) for alphas, betas in errors for order in (np.argsort(alphas),)]
        assert max(ways) * (1 - 1e-6) <= found.true_positive_rates[rate] <= max(ways) * 1.005
    assert found.best_guess == pytest.approx(0.5 + 0.5 * found.advantage, rel=1e-15)


@pytest.mark.parametrize("name", CASES)
def test_mu_is_valid_at_a_thousand_points_of_both_directions_and_one_per_cent_less_is_not(name: str) -> None:
    _, curves = CASES[name]
    found = rates_of(name)

    def beaten(mu: float) -> bool:
        """Whether an exact test errs less than the cover by this mu allows: (1 - s) G(alpha / (1 - s))."""
        level = LEVELS[:: LEVELS.size // 1000]
        for alphas, betas in (curve(level) for curve in curves):
            allowed = (1 - FLOOR) * norm.sf(norm.ppf(np.minimum(alphas / (1 - FLOOR), 1.0)) + mu)
            if np.any(betas < allowed - 1e-14):
                return True
        return False

    assert not beaten(found.mu)
    assert beaten(0.99 * found.mu)


@pytest.mark.parametrize("name", CASES)
def test_the_regret_is_the_largest_gap_between_the_two_curves_along_the_diagonal(name: str) -> None:
    """By its definition: the least k with f(alpha + k) - k nowhere above the curve of the cover."""
    guarantee, _ = CASES[name]
    curve, found = curve_of(name), rates_of(name)
    alphas = np.concatenate((np.linspace(0.0, 1.0, 4_001), np.geomspace(1e-12, 1e-2, 1_001)))
    below = (1 - FLOOR) * norm.cdf(norm.isf(np.minimum(alphas / (1 - FLOOR), 1.0)) - found.mu)

    def enough(k: float) -> bool:
        return bool(np.all(curve.type_two(np.minimum(alphas + k, 1.0)) - k <= below + 1e-9))

    assert enough(found.regret)
    assert found.regret < 1e-5 or not enough(0.98 * found.regret - 1e-6)
    assert not isinstance(guarantee, GDP) or found.regret < 1e-9


def test_a_pure_guarantee_is_randomised_response() -> None:
    found = AttackRates.of(ApproxDP(1.0, 0.0), RATES)
    assert found.advantage == pytest.approx(math.tanh(0.5), rel=1e-12)
    assert found.mu == pytest.approx(2 * norm.ppf(math.e / (1 + math.e)), rel=1e-8)
    assert found.true_positive_rates[0.01] == pytest.approx(0.01 * math.e, rel=1e-12)
    assert found.deltas == {0.5: 1.0, 1.0: 0.0}


def test_what_may_fail_openly_is_no_gaussian_and_has_rates_all_the_same() -> None:
    """(1, 1e-5)-DP has nothing to say at smaller deltas, and so has no mu; its rates are those of the two lines."""
    for guarantee in (ApproxDP(1.0, 1e-5), WithSlack(GDP(0.5), 1e-5), Tightest((ApproxDP(1.0, 1e-5), ApproxDP(3.0, 1e-7)))):
        found = AttackRates.of(guarantee, (0.001,))
        assert found.mu == math.inf
        assert "no mu-GDP" in str(found)
        assert found.true_positive_rates[0.001] <= (0.001 * math.e + 1e-5) * 1.005 or isinstance(guarantee, WithSlack)
    hidden = AttackRates.of(WithSlack(GDP(0.5), 1e-11), ())
    assert 0.5 <= hidden.mu <= 0.502


def test_the_ends() -> None:
    nothing, everything = AttackRates.of(NotPrivate(), RATES), AttackRates.of(GDP(0.0), RATES)
    assert (nothing.advantage, nothing.mu, nothing.true_positive_rates[0.01]) == (1.0, math.inf, 1.0)
    assert (everything.advantage, everything.mu) == (0.0, 0.0)
    assert all(rate <= most <= rate + 1e-14 for rate, most in everything.true_positive_rates.items())
    assert AttackRates.of(GDP(30.0), ()).mu == 30.0
    with pytest.raises(InputError, match="false_positive_rates"):
        AttackRates.of(GDP(1.0), (1.5,))


@given(st.floats(0.0, 1.0), st.floats(0.01, 6.0))
def test_a_curve_is_never_above_a_gaussian_s(alpha: float, mu: float) -> None:
    exact = norm.cdf(norm.isf(alpha) - mu)
    assert exact - 2e-3 <= float(TradeOff.of(GDP(mu)).type_two(alpha)) <= exact + 1e-14


def test_what_is_printed_says_all_of_it() -> None:
    assert str(AttackRates.of(GDP(1.0), (0.01, 0.001))).splitlines() == [
        "    attacks    advantage at most 0.383; true positive rate by false positive rate at most 0.09241 at 0.01, 0.01833 at 0.001",
        "    Gaussian   1-GDP up to a chance of 1e-10, regret 3.1e-11",
        "    delta      by epsilon 0.239 at 0.5, 0.127 at 1, 0.021 at 2, 4.72e-05 at 4",
    ]
