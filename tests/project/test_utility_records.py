"""The benchmark of records: its tables come from its file of results, models of a grid are never taken for results, and it resumes."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("torch")
pytest.importorskip("matplotlib")

import idx_files
import torch
import utility_records
from private_linear_data import Problem
from repository import ROOT
from utility_records_methods import AUTO, DELTA, POISSON, WHITENED, whitened
from utility_records_page import RESULTS, ablation, chosen, gaps, memory, published, readme_table, standings, tables, tuning
from utility_records_screening import Setting, train_together
from utility_records_summary import best_screened, best_settings, cells_of, passes_of, standing

from lethe.calculus.conversions import gdp_mu
from lethe.run.losses import Softmax
from lethe.train.linear.gradients import LinearModel

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


def test_a_place_of_a_grid_is_judged_by_the_mean_over_its_seeds() -> None:
    again = [_row(POISSON, 101, 0.7, GOOD), _row(POISSON, 101, 0.9, BAD)]
    assert best_settings(ROWS + again, "digits", 1.0, POISSON) == tuple(BAD)


def test_what_is_behind_is_said() -> None:
    worse = [row | {"score": row["score"] - 0.2} if row["method"] == AUTO else row for row in ROWS]
    assert standing(worse, POISSON).endswith("at or above in 0 of 1 places, above by a point or more in 0, behind by more than noise in 1")


def test_settings_that_are_trained_together_are_trained_as_each_alone() -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((30, 5)).astype(np.float32)
    labels = rng.integers(0, 3, 30)
    problem = Problem(train=rows, test=rows, train_targets=labels.astype(np.float64), test_targets=labels, column_bound=9.0)
    quiet = [Setting(1.0, 0.0, clip, length, momentum) for clip, length, momentum in ((0.1, 2.0, 0.0), (1.5, 0.5, 0.0), (0.1, 4.0, 0.5))]
    last, mean = train_together(problem, 3, 1, quiet, 1.0, "")  # one batch a pass: all records, each with probability 1
    for place, setting in enumerate(quiet):
        loss = Softmax(feature_norm=9.0, evidence="enforced", classes=3)
        model = LinearModel(loss, torch.from_numpy(rows), torch.from_numpy(labels)[:, None], clip_norm=setting.clip)
        iterates, speed = [torch.zeros(5, 3, dtype=torch.float64)], torch.zeros(5, 3, dtype=torch.float64)
        for _ in range(3):
            speed = setting.momentum * speed + model.clipped_gradient_sum(iterates[-1], slice(0, 30)) / 30
            iterates.append(iterates[-1] - setting.length / setting.clip * (1.0 - setting.momentum) * speed)
        ours = slice(3 * place, 3 * place + 3)
        assert torch.allclose(last[ours].double(), iterates[3].T, rtol=1e-4, atol=1e-5)
        assert torch.allclose(mean[ours].double(), (iterates[2] + iterates[3]).T / 2.0, rtol=1e-4, atol=1e-5)


def test_a_share_of_the_records_has_the_noise_of_all_in_its_mean_gradient() -> None:
    empty = np.zeros((4000, 50), dtype=np.float32)
    problem = Problem(train=empty, test=empty, train_targets=np.arange(4000.0) % 3, test_targets=np.zeros(4000), column_bound=1.0)
    for share in (1.0, 0.25):
        last, _ = train_together(problem, 1, 10, [Setting(1.0, 2.0, 0.5, 8.0, 0.0)] * 4, share, "")
        assert float(last.std()) == pytest.approx(8.0 * 2.0 / 400 * 10**0.5, rel=0.1)  # step x noise x clip / batch, ten steps


def test_the_rival_is_trained_at_what_screened_best_without_momentum(tmp_path: Path) -> None:
    tried = [("whitened", 0.0, 0.1, 0.97), ("whitened", 0.0, 0.3, 0.98), ("whitened", 0.9, 1.0, 0.99), ("plain", 0.0, 3.0, 0.99)]
    facts = {"dataset": "mnist_scattering", "epsilon": 1.0, "passes": 60, "batches": 7, "length": 3.0}
    rows = [facts | {"features": features, "momentum": m, "clip": clip, "score": score} for features, m, clip, score in tried]
    file = tmp_path / "screened.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert best_screened("mnist_scattering", 1.0, "whitened", file) == (60, 7, 0.3, 3.0)
    assert best_screened("mnist_scattering", 3.0, "whitened", file) is None


def test_a_rival_on_whitened_rows_has_rows_of_norm_at_most_1_and_the_budget_that_is_left() -> None:
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((4000, 3)) * [0.5, 0.05, 0.05] + [0.3, 0.0, 0.0]
    problem = Problem(train=rows, test=rows, train_targets=np.zeros(4000), test_targets=np.zeros(4000), column_bound=1.0)
    white, left = whitened(problem, None, 1.0, 0)
    both = np.hypot(gdp_mu(left, DELTA), 0.1**0.5 * gdp_mu(1.0, DELTA))  # a tenth of the squared mu paid for the moments
    assert both == pytest.approx(gdp_mu(1.0, DELTA), rel=1e-6)
    assert np.linalg.norm(white.train, axis=1).max() <= 1.0 + 1e-12
    spreads = white.train[:, :3].std(axis=0)
    assert spreads.min() > 0.3 * spreads.max()  # .1 before
    np.testing.assert_allclose(white.test, white.train)


def test_idx_files_are_read_as_they_say_they_are(tmp_path: Path) -> None:
    pictures = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    file = tmp_path / "images.gz"
    file.write_bytes(gzip.compress(bytes([0, 0, 8, 3]) + np.array(pictures.shape, ">i4").tobytes() + pictures.tobytes()))
    np.testing.assert_array_equal(idx_files.read(file), pictures)
    file.write_bytes(gzip.compress(bytes([0, 0, 13, 1, 0, 0, 0, 0])))
    with pytest.raises(SystemExit, match="not an IDX file of bytes"):
        idx_files.read(file)


def test_the_tables_are_of_the_results_at_hand_and_readme_has_the_short_one() -> None:
    assert readme_table() in (ROOT / "README.md").read_text()
    assert RESULTS.is_file()
    for text in (tables(), chosen(), published(), tuning(), gaps(), gaps(WHITENED), memory(), ablation()):
        assert text.count("\n|") > 2
        assert "nan" not in text
    assert standings().count("\n- ") >= 2


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
