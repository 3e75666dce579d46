"""Descriptions of tables: worst neighbours by brute force, tables of every kind of column, and what is told of them."""

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest

import lethe
import lethe.estimators.evaluation.describe as describing
from lethe.calculus.guarantees import GDP
from lethe.errors import BudgetExceededError, InputError
from lethe.estimators import Description, describe
from lethe.ledger import Budget, Ledger, Spending
from tests.support.constant_noise import Constant

COUNT = 4000
DRAWN = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "age": DRAWN.normal(55.0, 15.0, COUNT),
        "cost": np.exp(DRAWN.normal(7.0, 0.5, COUNT)),
        "ward": DRAWN.choice(["a", "b", "c"], COUNT, p=[0.6, 0.3, 0.1]),
        "note": DRAWN.choice(["x", None], COUNT),
        "flag": DRAWN.random(COUNT) < 0.1,
        "score": pd.array(DRAWN.integers(0, 100, COUNT), dtype="Int64"),
        "day": pd.date_range("2020-01-01", periods=COUNT),
    }
)
FRAME.loc[DRAWN.random(COUNT) < 0.2, "cost"] = np.nan
FRAME.loc[DRAWN.random(COUNT) < 0.3, "score"] = pd.NA
KNOWN: dict[str, Any] = {"ranges": {"age": (0.0, 120.0)}, "categories": {"ward": ["a", "b"], "flag": [False, True]}}


def test_a_frame_is_described_by_what_it_holds() -> None:
    found = describe(FRAME, 8.0, delta=1e-5, generator=np.random.default_rng(1), **KNOWN)
    assert found.statement.planned.epsilon(1e-5) <= 8.0
    columns = found.columns
    assert [*columns] == [*FRAME.columns]
    for name in FRAME.columns:
        assert columns[name].missing == pytest.approx(FRAME[name].isna().mean(), abs=0.01)
    for name in ("age", "cost", "score"):
        ends, values = columns[name].range, FRAME[name].dropna().astype(float)
        assert ends is not None
        for share, value in columns[name].quantiles.items():
            assert value == pytest.approx(np.quantile(values, share), abs=0.04 * (ends[1] - ends[0]))
        assert sum(columns[name].counts.values()) == pytest.approx(len(values), abs=200)
    assert columns["age"].range == (0.0, 120.0)
    wards = columns["ward"].counts
    assert [*wards] == ["a", "b", "others"]
    assert [*wards.values()] == pytest.approx([(FRAME.ward == one).sum() for one in ("a", "b", "c")], abs=60)
    assert columns["note"].counts == columns["day"].counts == {}
    assert "give its range, or its categories" in repr(found)


@pytest.mark.parametrize("neighbours", ["zero_out", "replace_one"])
def test_one_record_moves_what_is_released_by_no_more_than_is_said_and_some_record_by_as_much(neighbours: Any, monkeypatch: Any) -> None:
    seen: list[Any] = []

    def listened(release: Any) -> Any:
        def with_known_noise(*values: Any, **settings: Any) -> Any:
            found = release(*values, **{**settings, "generator": Constant(0.0)})
            seen.append(found[0].ravel() / settings["noise_std"])
            return found

        return with_known_noise

    for name in ("noisy_sums", "noisy_counts"):
        monkeypatch.setattr(describing, name, listened(getattr(describing, name)))
    rest = [(0.5, "u"), (0.25, "v")] * 30
    points = list(itertools.product((0.5, -3.0, 0.9, np.nan), ("u", "v", "w", None)))

    def released(rows: list[tuple[float, Any]]) -> tuple[Any, float]:
        seen.clear()
        table = pd.DataFrame({"x": [one for one, _ in rows], "w": pd.Series([one for _, one in rows], dtype=object)})
        settings: dict[str, Any] = {"ranges": {"x": (0.0, 1.0)}, "categories": {"w": ["u", "v", "u"]}, "generator": Constant(0.0)}
        stated = describe(table, 1.0, delta=1e-3, neighbours=neighbours, bins=4, **settings).statement.planned
        assert isinstance(stated, GDP)
        assert stated.epsilon(1e-3) <= 1.0
        return np.concatenate(seen), stated.mu

    found = [released([*rest, point]) for point in points]
    others = found if neighbours == "replace_one" else [released(rest)]
    moved = max(np.linalg.norm(one - other) for (one, _), (other, _) in itertools.product(found, others))
    # A record without entries moves gaps by the most, and counts but as one with others does: both at once by nearly the whole.
    assert 0.9 * found[0][1] <= moved <= found[0][1] * (1.0 + 1e-9)


def test_categories_that_are_equal_are_one_so_that_no_record_counts_twice() -> None:
    table = pd.DataFrame({"x": pd.Series([1, True, 1.0, "1"] * 10, dtype=object)})
    counts = describe(table, 5.0, delta=1e-3, categories={"x": [1, True, 1.0]}, generator=Constant(0.0)).columns["x"].counts
    assert counts == {"1": 30.0, "others": 10.0}


def test_a_description_is_verified_and_paid(tmp_path: Any) -> None:
    ledger = Ledger.open(tmp_path / "ledger.sqlite", make=True)
    ledger.create("patients", neighbours="zero_out", budget=Budget(epsilon=1.2, delta=1e-4))
    pays = Spending(ledger, "patients")
    found = describe(FRAME, 1.0, delta=1e-5, ledger=pays, **KNOWN)
    assert isinstance(found, Description)
    found.statement.save(tmp_path / "description.json")
    said = lethe.verify(tmp_path / "description.json")
    assert (said.follows.yes, said.private.yes, found.statement.epsilon(1e-5) <= 1.0) == (True, True, True)
    with pytest.raises(BudgetExceededError):
        describe(FRAME, 1.0, delta=1e-5, ledger=pays, **KNOWN)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"ranges": {"age": (0.0, np.inf)}}, "finite low < high"),
        ({"ranges": {"weight": (0.0, 1.0)}}, "columns among"),
        ({"ranges": {"ward": (0.0, 1.0)}}, "columns among"),
        ({"ranges": {"age": (1.0, 1.0)}}, "low < high"),
        ({"categories": {"weight": [1]}}, "columns among"),
        ({"bins": 1}, "bins"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 0.5}, "delta"),
        ({"neighbours": "add_or_remove"}, "neighbours"),
    ],
    ids=str,
)
def test_what_bounds_nothing_is_refused(changed: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        describe(FRAME, **{"epsilon": 1.0, **changed})
