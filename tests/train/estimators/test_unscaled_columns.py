"""Columns on raw scales are warned of where a norm that was paid for says so, and never from the records themselves."""

import warnings

import numpy as np
import pytest
from private_cases import build

from lethe.estimators import LogisticRegression
from lethe.estimators.inputs.ranges import UnscaledColumnsWarning

RANDOM = np.random.default_rng(0)
ROWS = np.column_stack([RANDOM.uniform(0, 9e4, 3000), RANDOM.uniform(0, 1, 3000)])
LABELS = np.where(ROWS[:, 1] > 0.5, "yes", "no")


def _fit(rows: np.ndarray, **changes: object) -> None:
    build(LogisticRegression, **{"epsilon": 3.0, "classes": ["no", "yes"], **changes}).fit(rows, LABELS[: len(rows)])  # pyright: ignore[reportArgumentType]


@pytest.mark.slow
def test_a_released_norm_that_says_so_is_warned_of_at_the_line_that_fits() -> None:
    with pytest.warns(UnscaledColumnsWarning, match=r"2 columns within \[-1, 1\] make none longer than 1.41.*PublicScaler") as caught:
        _fit(ROWS)
    assert caught[0].filename == __file__


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "changes"),
    [
        (ROWS, {"feature_norm": 1.0}),  # nothing was released, and to look would be
        (ROWS / [9e4, 1.0], {}),
        (ROWS / [9e4 / 255.0, 1.0 / 255.0], {}),  # pixels: one unit
        (ROWS[:, :1], {}),  # one column has one unit
        (ROWS[:30], {"epsilon": 0.01}),  # so much noise that the norm says nothing
    ],
)
def test_nothing_is_said_otherwise(rows: np.ndarray, changes: dict[str, object]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnscaledColumnsWarning)
        warnings.filterwarnings("ignore", message=".*delta.*")
        _fit(rows, **changes)
