"""Clopper-Pearson intervals against published digits, many digits and their own definition."""

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lethe.audit.statistics.counts import clopper_pearson_lower, clopper_pearson_upper, upper_table


@pytest.mark.parametrize(("k", "n", "value"), [(0, 100, 0.036217), (5, 1000, 0.011629), (120, 1000, 0.141767), (1000, 1000, 1.0)])
def test_values(k: int, n: int, value: float) -> None:
    assert clopper_pearson_upper(k, n, 0.025) == pytest.approx(value, abs=5e-7)  # six decimals are given


def test_no_successes_in_closed_form() -> None:
    # (1 - p)^n = alpha; the margin of the quantile is 1e-10.
    assert clopper_pearson_upper(0, 7, 0.01) == pytest.approx(1.0 - 0.01 ** (1 / 7), rel=2e-10)
    assert clopper_pearson_lower(7, 7, 0.01) == pytest.approx(0.01 ** (1 / 7), rel=2e-10)
    assert clopper_pearson_lower(0, 7, 0.01) == 0.0


@given(n=st.integers(1, 10**6), share=st.floats(0, 1), log_level=st.floats(-11.9, -0.31))
def test_the_end_is_just_outside_the_exact_quantile(n: int, share: float, log_level: float) -> None:
    k, level = int(share * (n - 1)), 10.0**log_level
    upper = clopper_pearson_upper(k, n, level)
    # At the end itself k or fewer successes have probability `level`, by the binomial law and not the beta law; a little further less.
    assert stats.binom.cdf(k, n, upper) <= level * (1 + 1e-12 * n**0.5)
    assert stats.binom.cdf(k, n, upper * (1 - 1e-8)) > level
    lower = clopper_pearson_lower(k + 1, n, level)
    assert stats.binom.sf(k, n, lower) <= level * (1 + 1e-12 * n**0.5)
    assert lower < (k + 1) / n <= 1


def test_forty_digits() -> None:
    with mpmath.workdps(40):
        for k, n, level in ((3, 50, 1e-9), (400, 1000, 0.025), (0, 10**6, 0.05), (90, 100, 1e-6)):
            upper = clopper_pearson_upper(k, n, level)
            # The tail beyond the end, by the regularised incomplete beta function; 1e-10 of the rate is under 1e-6 of the tail.
            tail = mpmath.betainc(k + 1, n - k, mpmath.mpf(upper), 1, regularized=True)
            assert level * (1 - mpmath.mpf(10) ** -6) <= tail <= level


@pytest.mark.parametrize("rate", [0.003, 0.1, 0.5])
def test_coverage_is_exact_by_enumeration(rate: float) -> None:
    n, level = 60, 0.05
    table = upper_table(n, level)
    assert table.tolist() == [clopper_pearson_upper(k, n, level) for k in range(n + 1)]
    assert stats.binom.pmf(np.arange(n + 1), n, rate)[table < rate].sum() <= level
