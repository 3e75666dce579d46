import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.calculus.upward_formatting import shown, shown_down


@given(st.floats(min_value=1e-300, max_value=1e300), st.integers(1, 8))
def test_what_is_shown_is_never_less_and_what_is_shown_down_never_more(value: float, digits: int) -> None:
    assert value <= float(shown(value, digits)) <= value * (1 + 10.0 ** (1 - digits)) * (1 + 1e-12)
    assert value >= float(shown_down(value, digits)) >= value * (1 - 10.0 ** (1 - digits)) * (1 - 1e-12)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (1.0, "1"), (0.79841, "0.7985"), (77.331, "77.34"), (3.8490001, "3.85"), (1e-5, "1e-05"), (math.inf, "infinity")],
)
def test_examples(value: float, text: str) -> None:
    assert shown(value) == text
