"""Clopper-Pearson intervals against their own definition, and in many digits."""

import mpmath
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lethe.audit.statistics.counts import clopper_pearson_lower, clopper_pearson_upper, upper_table


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


def test_a_table_holds_every_end() -> None:
    assert upper_table(60, 0.05).tolist() == [clopper_pearson_upper(k, 60, 0.05) for k in range(61)]
    assert (clopper_pearson_upper(60, 60, 0.05), clopper_pearson_lower(0, 60, 0.05)) == (1.0, 0.0)
