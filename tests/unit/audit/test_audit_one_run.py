"""One run with many canaries: published digits, laws of the test, and refusals."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lethe.audit.statistics.counts import Guesses
from lethe.audit.statistics.curves import gaussian_epsilon
from lethe.audit.statistics.one_run import gaussian_guesses_refuted, one_run_epsilon, one_run_gaussian_mu, one_run_p_value
from lethe.errors import InputError


def guesses(canaries: int, guessed: int, correct: int) -> Guesses:
    return Guesses(canaries=canaries, guessed=guessed, correct=correct)


@pytest.mark.parametrize(("epsilon", "delta", "value"), [(1.0, 0.0, 0.000027), (1.5, 1e-5, 0.018765)])
def test_p_values(epsilon: float, delta: float, value: float) -> None:
    assert one_run_p_value(guesses(1000, 100, 90), epsilon=epsilon, delta=delta) == pytest.approx(value, abs=5.1e-7)  # six decimals


@pytest.mark.parametrize(
    ("counts", "delta", "epsilon"),
    [
        (guesses(1000, 100, 90), 0.0, 1.630823),
        (guesses(1000, 100, 90), 1e-5, 1.626143),
        (guesses(1000, 100, 100), 1e-5, 3.465376),
        (guesses(1000, 1000, 750), 1e-5, 0.976367),
        (guesses(10000, 500, 490), 1e-5, 3.313549),
        (guesses(1000, 1000, 500), 1e-5, 0.0),
        # The ceilings: all guesses right.
        (guesses(1000, 50, 50), 1e-5, 2.756),
        (guesses(1000, 250, 250), 1e-5, 4.391),
        (guesses(1000, 500, 500), 1e-5, 5.088),
        (guesses(1000, 1000, 1000), 1e-5, 5.782),
    ],
)
def test_epsilons(counts: Guesses, delta: float, epsilon: float) -> None:
    tolerance = 1e-6 if len(f"{epsilon}") > 5 else 6e-4  # six decimals are given, or three
    assert one_run_epsilon(counts, delta=delta, level=0.05) == pytest.approx(epsilon, abs=tolerance)


@pytest.mark.parametrize(
    ("counts", "mu", "epsilon"),
    [
        (guesses(1000, 100, 90), 0.602504, 2.456405),
        (guesses(1000, 100, 100), 1.225533, 5.549028),
        (guesses(1000, 1000, 750), 0.460625, 1.818896),
        (guesses(10000, 500, 490), 1.047201, 4.617660),
    ],
)
def test_gaussian_mus(counts: Guesses, mu: float, epsilon: float) -> None:
    found = one_run_gaussian_mu(counts, level=0.05)
    assert found == pytest.approx(mu, abs=1e-6)  # six decimals are given
    assert gaussian_epsilon(found, 1e-5) == pytest.approx(epsilon, abs=1e-6)


def test_all_right_in_closed_form() -> None:
    # (e^eps / (1 + e^eps))^r = alpha at delta = 0.
    assert one_run_epsilon(guesses(40, 40, 40), delta=0.0, level=0.05) == pytest.approx(-math.log(0.05 ** (-1 / 40) - 1), abs=1e-7)


counts = st.tuples(st.integers(1, 300), st.floats(0, 1), st.floats(0, 1)).map(
    lambda t: guesses(t[0], g := 1 + int(t[1] * (t[0] - 1)), int(t[2] * g))
)


@pytest.mark.slow
@given(counts, st.floats(0, 6), st.floats(0, 0.02))
def test_the_p_value_against_the_printed_theorem(counts: Guesses, epsilon: float, delta: float) -> None:
    law = stats.binom(counts.guessed, math.exp(epsilon) / (1 + math.exp(epsilon)))
    v = counts.correct
    terms = [(law.cdf(v - 1) - law.cdf(v - i - 1)) / i for i in range(1, v + 1)]
    printed = law.sf(v - 1) + 2 * counts.canaries * delta * max(terms, default=0.0)
    assert one_run_p_value(counts, epsilon=epsilon, delta=delta) == pytest.approx(min(printed, 1.0), rel=1e-8, abs=1e-13)


@given(counts, st.floats(0, 0.3))
def test_everything_below_the_bound_is_refuted(counts: Guesses, delta: float) -> None:
    """Also where 2 m delta is above 1 and the p-value is not monotone."""
    bound = one_run_epsilon(counts, delta=delta, level=0.05)
    for share in np.linspace(0, 1, 7):
        if bound > 0:
            assert one_run_p_value(counts, epsilon=share * bound, delta=delta) <= 0.05
    assert one_run_p_value(counts, epsilon=bound + 1e-8, delta=delta) > 0.05 * (1 - 1e-6)


@pytest.mark.slow
@given(counts)
def test_more_right_guesses_prove_more(counts: Guesses) -> None:
    if counts.correct < counts.guessed:
        better = guesses(counts.canaries, counts.guessed, counts.correct + 1)
        assert one_run_epsilon(better, delta=1e-5, level=0.05) >= one_run_epsilon(counts, delta=1e-5, level=0.05) - 1e-9
        assert one_run_gaussian_mu(better, level=0.05) >= one_run_gaussian_mu(counts, level=0.05) - 1e-8


@given(counts, st.floats(0, 4), st.floats(0, 4))
def test_a_larger_mu_is_never_refuted_first(counts: Guesses, mu: float, more: float) -> None:
    if gaussian_guesses_refuted(counts, mu=mu + more, level=0.05):
        assert gaussian_guesses_refuted(counts, mu=mu, level=0.05)


def test_what_is_refused() -> None:
    for fields in ((10, 11, 3), (10, 5, 6), (10, 0, 0), (0, 1, 1), (10, 5, -1), (10, 5.0, 1), (10, True, 1)):
        with pytest.raises(InputError):
            guesses(*fields)
    good = guesses(10, 5, 5)
    for epsilon in (-1.0, math.nan, math.inf, "1"):
        with pytest.raises(InputError, match="epsilon"):
            one_run_p_value(good, epsilon=epsilon, delta=0.0)  # pyright: ignore[reportArgumentType]
    for level in (0.0, 0.7, math.nan, True):
        with pytest.raises(InputError, match="level"):
            one_run_epsilon(good, delta=0.0, level=level)
        with pytest.raises(InputError, match="level"):
            one_run_gaussian_mu(good, level=level)
    with pytest.raises(InputError, match="Guesses"):
        one_run_epsilon((10, 5, 5), delta=0.0, level=0.05)  # pyright: ignore[reportArgumentType]
