"""Hong et al. 2022, Figure 1, left, in small: each influence is that of its trainings; Tables 1 and 2 against formulas by hand."""

import math
from pathlib import Path

import numpy as np
import pytest
from entry_point import status

from lethe.errors import InputError
from lethe_experiments import EXPERIMENTS, REPRODUCTIONS, Options
from lethe_experiments.hong.tables import SETTING, hong_tables
from lethe_experiments.risk.momentum_risk import erub_momentum_dyn, largest_relative_step

torch = pytest.importorskip("torch")
from lethe.influence.retraining import repeat_seeds  # noqa: E402  # after the optional torch is seen to be there
from lethe_experiments.hong.figure_1 import BUDGET, CLIP_NORM, STEP_SIZE  # noqa: E402
from lethe_experiments.hong.figure_1_left import LeftPlan, final_loss, hong_figure_1_left  # noqa: E402
from lethe_experiments.hong.samples import COMPONENTS, gaussian_sample  # noqa: E402
from lethe_experiments.hong.two_layer_network import Records, TwoLayerNetwork, descend  # noqa: E402

PLAN = LeftPlan(scales=(1.0, 10.0), records=70, hidden=5, steps=4, probes=3, repeats=2)
NETWORK = TwoLayerNetwork(inputs=COMPONENTS, hidden=5, outputs=2)


def _records(scale: float) -> Records:
    sample = gaussian_sample(70, 2, 0)
    return Records.of(sample.features * scale / 10.0, sample.labels, 2, torch.float64)


def test_an_influence_is_what_more_noise_at_its_step_adds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figure = hong_figure_1_left(plan=PLAN)
    rows = figure.records()
    assert [(row["data_scale"], row["step"]) for row in rows] == [(scale, step) for scale in PLAN.scales for step in (1, 3, 4)]
    std = STEP_SIZE * CLIP_NORM * math.sqrt(4 / BUDGET) / 70
    for row in rows:
        rises = []
        for seed in repeat_seeds(1, 2):

            def at(noise: float, row: dict[str, float] = row, seed: int = seed) -> float:
                stds = np.full(4, std)
                stds[int(row["step"]) - 1] = noise
                return final_loss(NETWORK, _records(row["data_scale"]), stds, seed)

            louder, quieter = at(math.sqrt(2) * std) + at(-math.sqrt(2) * std), at(std) + at(-std)
            rises.append((louder - quieter) / (2 * std**2))
        assert row["influence"] == pytest.approx(np.mean(rises), rel=1e-6)
        assert row["error"] == pytest.approx(abs(rises[0] - rises[1]) / 2, rel=1e-6)
    pytest.importorskip("matplotlib")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(EXPERIMENTS, "hong-figure-1-left", lambda progress, options: figure)
        assert status("reproduce", "hong-figure-1-left", "--repeats", 2, "-o", tmp_path / "out") == 0
    assert "data scale" in capsys.readouterr().out
    for refused in (Options(data=Path("x.npz")), Options(full=True), Options(repeats=1)):
        with pytest.raises(InputError):
            hong_figure_1_left(options=refused, plan=PLAN)


def test_its_training_is_that_of_the_right_panel_without_noise() -> None:
    records = _records(10.0)
    same = descend(NETWORK, records, np.zeros(4), clip_norm=CLIP_NORM, step_size=STEP_SIZE, seed=3)
    assert final_loss(NETWORK, records, np.zeros(4), 3) == pytest.approx(NETWORK.loss(same, records), rel=1e-12)


def test_orders_and_what_is_proved_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = {row["method"]: row for row in hong_tables().records()}
    assert len(rows) == 23
    n, d, budget = SETTING.records, SETTING.dimension, SETTING.budget
    assert rows["gd-static"]["order"] == pytest.approx(d * math.log(n) / (n**2 * budget))
    alpha, rest = d / (2 * budget * n**2), 0.9
    steps = np.arange(1, 2000)
    equal = rest**steps + alpha * 10.0 * steps * (1 - rest**steps)
    falling = rest**steps + alpha * ((1 - rest ** (steps / 2)) / (1 - math.sqrt(rest))) ** 2
    for key, bounds in (("gd-static", equal), ("gd-dynamic", falling)):
        least, best = float(bounds.min()), int(steps[bounds.argmin()])
        assert (rows[key]["proved"], rows[key]["proved_steps"]) == (pytest.approx(least, rel=1e-12), best)
        stability = 2.0 / n * (1 - rest**best) / (1 - rest)
        assert rows[f"stable-{key}"]["proved"] == pytest.approx(least + stability, rel=1e-12)
        assert rows[f"likely-{key}"]["proved"] == pytest.approx(math.sqrt(2 / 0.1 * least) + 4 / (0.1 * 0.1 * n), rel=1e-12)
    best, step = rows["momentum-dynamic"]["proved_steps"], largest_relative_step(kappa=10.0, beta=0.5)
    near = [erub_momentum_dyn(best + off, kappa=10.0, beta=0.5, relative_step=step, alpha=alpha) for off in (-1, 0, 1)]
    assert near[1] == min(near) == pytest.approx(rows["momentum-dynamic"]["proved"], rel=1e-12)
    assert [row["proved"] for key, row in rows.items() if key.startswith(("true", "adam", "stable-momentum"))] == [None] * 7
    pytest.importorskip("matplotlib")
    assert REPRODUCTIONS["hong-tables"] is hong_tables
    assert status("reproduce", "hong-tables", "-o", tmp_path / "out") == 0
    assert "order: as printed" in capsys.readouterr().out
