"""The least value over whole numbers, against all values."""

import math
from collections.abc import Callable

import pytest

from lethe.calculus.crossing import least_whole


def _valley(bottom: float, left: float, right: float) -> Callable[[int], float]:
    return lambda n: 1.0 + (left * (bottom - n) if n < bottom else right * (n - bottom)) / (1.0 + bottom)


@pytest.mark.parametrize("most", [1, 2, 3, 7, 40, 1000])
@pytest.mark.parametrize("bottom", [0.2, 1.0, 2.0, 3.4, 17.5, 39.9, 800.0, 1e5])
@pytest.mark.parametrize(("left", "right"), [(1.0, 1.0), (50.0, 0.01), (0.01, 50.0)])
def test_it_is_the_least_of_all(most: int, bottom: float, left: float, right: float) -> None:
    tried: list[int] = []
    value = _valley(bottom, left, right)

    def counted(n: int) -> float:
        tried.append(n)
        return value(n)

    assert least_whole(counted, most, tolerance=0.0) == min(range(1, most + 1), key=value)
    assert len(tried) == len(set(tried)) <= 60


def test_of_values_as_good_as_the_least_it_is_the_first() -> None:
    assert least_whole(lambda n: 1.0 + 2.0**-n, 1000, tolerance=1e-3) == 10  # 2^-10 < .001 < 2^-9
    assert least_whole(lambda n: math.inf if n < 30 else 1.0, 1000) == 30
    assert least_whole(lambda n: 5.0, 1000) == 1
