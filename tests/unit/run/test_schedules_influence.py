"""The influence of noise as data: two forms, one scale, exact documents, and errors for people."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.errors import InputError
from lethe.run.schedules import Influence

RATED = Influence(rate=0.98, basis="curvature", detail="1 - mu/M with kappa = 50")
LISTED = Influence(weights=(1.0, 4.0, 2.0), basis="public", detail="digits")


def test_a_rate_counts_from_the_end() -> None:
    assert Influence(rate=0.5, basis="assumed").values(4).tolist() == [0.125, 0.25, 0.5, 1.0]
    assert Influence(rate=2.0, basis="assumed").values(4).tolist() == [1.0, 0.5, 0.25, 0.125]
    assert Influence(rate=1, basis="assumed").values(3).tolist() == [1.0, 1.0, 1.0]


def test_weights_are_scaled_to_their_largest() -> None:
    assert LISTED.values(3).tolist() == [0.25, 1.0, 0.5]
    assert Influence(weights=np.array([1e300, 1e-5]), basis="synthetic").values(2) == pytest.approx([1.0, 1e-305], rel=1e-14)
    assert Influence(weights=[5e-324, 5e-324], basis="synthetic").values(2).tolist() == [1.0, 1.0]


@pytest.mark.slow
@given(st.floats(0.9, 1.1), st.integers(1, 3000))
def test_ratios_are_those_of_the_rate_and_nothing_underflows(rate: float, steps: int) -> None:
    values = Influence(rate=rate, basis="assumed").values(steps)
    assert values.shape == (steps,)
    assert values.max() == 1.0
    assert values.min() > 1e-300
    assert values[:-1] / values[1:] == pytest.approx(np.full(steps - 1, rate), rel=1e-12)  # two powers and a quotient, each to an ulp


@pytest.mark.parametrize(
    ("influence", "steps"),
    [
        (Influence(rate=0.5, basis="assumed"), 1024),
        (Influence(rate=2.0, basis="assumed"), 1024),
        (Influence(rate=1e-200, basis="assumed"), 3),
    ],
)
def test_ratios_beyond_doubles_are_refused(influence: Influence, steps: int) -> None:
    with pytest.raises(InputError, match="doubles hold ratios down to"):
        influence.values(steps)
    assert influence.values(2).min() > 0.0


def test_extreme_weights_are_refused() -> None:
    with pytest.raises(InputError, match=r"exp\(-1453\.64"):
        Influence(weights=[5e-324, 1e308], basis="assumed").values(2)


def test_another_number_of_steps_is_refused() -> None:
    with pytest.raises(InputError, match="lists 3 weights; 4 steps need 4"):
        LISTED.values(4)


@pytest.mark.parametrize("steps", [0, -1, 1.0, True, "3", None, 10**12])
def test_bad_counts_are_refused(steps: object) -> None:
    with pytest.raises(InputError, match="steps"):
        RATED.values(steps)  # pyright: ignore[reportArgumentType]


def test_one_line_for_people() -> None:
    assert RATED.describe() == "influence 0.98^(T-t) (curvature: 1 - mu/M with kappa = 50)"
    assert LISTED.describe() == "influence of 3 listed steps, the largest 4 times the smallest (public: digits)"
    assert Influence(weights=[5e-324, 1e308], basis="assumed").describe().count("\n") == 0


@pytest.mark.parametrize("influence", [RATED, LISTED])
@pytest.mark.parametrize("suffix", [".yaml", ".json"])
def test_documents_round_trip(influence: Influence, suffix: str, tmp_path: Path) -> None:
    assert Influence.from_document(influence.to_document()) == influence
    influence.save(tmp_path / f"influence{suffix}")
    assert Influence.load(tmp_path / f"influence{suffix}") == influence


def test_a_bad_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("rate: -1\nbasis: assumed\n")
    with pytest.raises(InputError, match=r"bad\.yaml"):
        Influence.load(tmp_path / "bad.yaml")
    with pytest.raises(InputError, match="mapping of its fields"):
        Influence.from_document([1.0])  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({}, "exactly one"),
        ({"rate": 0.9, "weights": (1.0,)}, "exactly one"),
        ({"rate": 0.0}, "rate"),
        ({"rate": -0.5}, "rate"),
        ({"rate": math.nan}, "rate"),
        ({"rate": math.inf}, "rate"),
        ({"rate": True}, "rate"),
        ({"rate": "0.9"}, "rate"),
        ({"weights": ()}, "weights"),
        ({"weights": (1.0, 0.0)}, r"weights\.1"),
        ({"weights": (1.0, -1.0)}, r"weights\.1"),
        ({"weights": (1.0, math.inf)}, r"weights\.1"),
        ({"weights": (1.0, math.nan)}, r"weights\.1"),
        ({"weights": (1.0, True)}, r"weights\.1"),
        ({"weights": np.array([[1.0]])}, "weights"),
        ({"weights": 1.0}, "weights"),
        ({"rate": 0.9, "basis": "private"}, "basis"),
        ({"rate": 0.9, "detail": None}, "detail"),
        ({"rate": 0.9, "data": [1]}, "unknown key"),
    ],
)
def test_bad_influences_are_refused(fields: dict[str, object], named: str) -> None:
    with pytest.raises(InputError, match=named):
        Influence(**{"basis": "assumed", **fields})


def test_without_a_basis_it_is_a_guess() -> None:
    assert Influence(rate=0.9).basis == "assumed"
    with pytest.raises(InputError, match="basis"):
        Influence(rate=0.9, basis="private")  # type: ignore[arg-type]
