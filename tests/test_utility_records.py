"""The benchmark of records: its tables come from its file of results, models of a grid are never taken for results, and it resumes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sklearn")
pytest.importorskip("torch")
pytest.importorskip("matplotlib")

import utility_records
from utility_records_methods import AUTO, POISSON
from utility_records_page import RESULTS, ablation, chosen, published, readme_table, standings, tables, tuning
from utility_records_summary import best_settings, cells_of, passes_of, standing

ROOT = Path(__file__).resolve().parent.parent
GOOD, BAD = [30, 10, 0.1, 1.0], [10, 10, 0.1, 1.0]


def _row(method: str, seed: int, score: float | None, settings: list[float] | None = None) -> dict[str, Any]:
    found = {"dataset": "digits", "epsilon": 1.0, "method": method, "seed": seed, "score": score, "settings": settings}
    return found | {"passes": settings[0] if settings else 50, "why": ""}


ROWS = [
    _row(POISSON, 100, 0.9, GOOD),
    _row(POISSON, 100, 0.8, BAD),
    _row(POISSON, 100, None, [90, 10, 0.1, 1.0]),
    _row(POISSON, 0, 0.85, GOOD),
    _row(POISSON, 1, 0.87, GOOD),
    _row(POISSON, 1, 0.99, BAD),  # of an older grid, whose best place it was
    _row(AUTO, 0, 0.88),
    _row(AUTO, 1, 0.90),
]


def test_a_tuned_method_is_scored_at_the_best_place_of_its_grid_and_by_other_noise() -> None:
    assert best_settings(ROWS, "digits", 1.0, POISSON) == tuple(GOOD)
    assert cells_of(ROWS) == {("digits", 1.0, POISSON): {0: 0.85, 1: 0.87}, ("digits", 1.0, AUTO): {0: 0.88, 1: 0.90}}
    assert (passes_of(ROWS, "digits", 1.0, POISSON), passes_of(ROWS, "digits", 1.0, AUTO)) == (30, 50)
    assert standing(ROWS, POISSON).startswith("at or above in 1 of 1 places, above by a point or more in 1, behind by more than noise in 0")


def test_what_is_behind_is_said() -> None:
    worse = [row | {"score": row["score"] - 0.2} if row["method"] == AUTO else row for row in ROWS]
    assert standing(worse, POISSON).endswith("at or above in 0 of 1 places, above by a point or more in 0, behind by more than noise in 1")


@pytest.mark.slow
def test_the_tables_are_of_the_results_at_hand_and_readme_has_the_short_one() -> None:
    assert readme_table() in (ROOT / "README.md").read_text()
    assert RESULTS.is_file()
    for text in (tables(), chosen(), published(), tuning(), ablation()):
        assert text.count("\n|") > 2
        assert "nan" not in text
    assert standings().count("\n- ") >= 2


@pytest.mark.slow
def test_it_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = tmp_path / "results.jsonl"
    asked = ["--datasets", "digits", "adult", "--methods", AUTO, "--epsilons", "0.5", "--results", str(results), "--cache", str(tmp_path)]
    trained: list[int] = []
    train = utility_records.train

    def counted(*given: Any) -> Any:
        trained.append(given[3])
        return train(*given)

    monkeypatch.setattr(utility_records, "train", counted)
    for seeds in ("1", "2"):
        monkeypatch.setattr("sys.argv", ["utility_records.py", "--seeds", seeds, *asked])
        utility_records.main()  # adult, whose file is in no folder that was given, is left out
    assert trained == [0, 1]
    assert len(results.read_text().splitlines()) == 2
