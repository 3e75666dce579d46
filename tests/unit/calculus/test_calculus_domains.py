"""Counts are whole numbers in their range, of any integer type, and nothing else."""

import numpy as np
import pytest

from lethe.calculus.domains import require_count
from lethe.errors import InputError


@pytest.mark.parametrize("value", [1, 5, np.int64(5), np.uint8(5), 10**12])
def test_whole_numbers(value: int) -> None:
    told = require_count("n", value)
    assert told == value
    assert type(told) is int


@pytest.mark.parametrize("value", [0, -1, 5.0, True, np.True_, "5", None, 10**12 + 1, np.array([5])])
def test_everything_else_is_refused(value: object) -> None:
    with pytest.raises(InputError, match=r"n = .*; it needs a whole number from 1 to 10\^12"):
        require_count("n", value)


def test_another_range() -> None:
    assert require_count("seed", 0, low=0, high=9) == 0
    with pytest.raises(InputError, match="from 0 to 9"):
        require_count("seed", 10, low=0, high=9)
