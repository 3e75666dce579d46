"""Bad input never yields a number, and says what it needs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lethe.errors import InputError
from lethe.theorems.shift import engine as shift

GOOD: dict[str, Any] = {"lipschitz": [1.0, 1.0], "sensitivity": [1.0, 0.0], "noise_std": [1.0, 1.0]}
BAD: list[Any] = [
    1.0,
    [],
    [[1.0, 1.0]],
    [1.0],
    [1.0, -1e-9],
    [1.0, float("nan")],
    [1.0, float("inf")],
    ["a", "b"],
    [1.0, None],
    [1j, 1.0],
    [True, False],
    None,
    [[1.0], [1.0, 2.0]],
    [10**400, 1],
]


@pytest.mark.parametrize("bad", BAD, ids=repr)
@pytest.mark.parametrize("name", list(GOOD))
def test_every_sequence_is_checked(name: str, bad: Any) -> None:
    with pytest.raises(InputError, match=name) as caught:
        shift.solve(**{**GOOD, name: bad})
    assert "it needs" in caught.value.what or "they need" in caught.value.what
    assert caught.value.source
    assert caught.value.remedy


@pytest.mark.parametrize("bad", [-1.0, float("nan"), [1.0], [1.0, -1.0], [1.0, float("nan")], "wide", [[1.0, 1.0]]], ids=repr)
def test_the_diameter_is_checked(bad: Any) -> None:
    with pytest.raises(InputError, match="diameter"):
        shift.solve(**GOOD, diameter=bad)


def test_the_caller_keeps_his_arrays() -> None:
    # Also where pooling goes one by one: one violation among many segments.
    lipschitz, touches, noise = np.ones(64), np.linspace(1.0, 2.0, 64), np.ones(64)
    touches[-1] = 1e-9
    copies = lipschitz.copy(), touches.copy(), noise.copy()
    solved = shift.solve(lipschitz, touches, noise, 3.0)
    _ = solved.payments, solved.shifts
    for mine, copy in zip((lipschitz, touches, noise), copies, strict=True):
        np.testing.assert_array_equal(mine, copy)
