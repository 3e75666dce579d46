"""`to_frame` and `plot` of a comparison and of a sweep: the numbers of the table, the picture of the command."""

import sys

import numpy as np
import pytest
from helpers import make_run

import lethe

COMPARISON = lethe.compare(make_run(), 1e-5, theorems=["optimal-shift", "composition", "feldman-2018", "sampled-gaussian"])
SWEEP = lethe.compare(make_run(), 1e-5, over="step_size", values=[0.25, 0.5], theorems=["optimal-shift", "composition", "sampled-gaussian"])


def test_a_comparison_is_a_frame_with_a_line_a_theorem() -> None:
    pytest.importorskip("pandas")
    frame = COMPARISON.to_frame()
    assert list(frame["theorem"]) == [row.theorem for row in COMPARISON.rows]
    assert frame["epsilon"].min() == COMPARISON.certificate.epsilon
    assert np.isnan(frame.set_index("theorem")["epsilon"]["sampled-gaussian"])
    assert not frame.set_index("theorem")["proves"]["sampled-gaussian"]
    assert frame.attrs["title"] == COMPARISON.title


def test_a_sweep_is_a_frame_with_a_line_a_theorem_and_value() -> None:
    pytest.importorskip("pandas")
    table = SWEEP.to_frame().pivot(index="step_size", columns="theorem", values="epsilon")
    assert tuple(table.index) == SWEEP.values
    assert tuple(table["composition"]) == SWEEP.epsilons("composition")
    assert table["sampled-gaussian"].isna().all()


def test_without_pandas_a_frame_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(lethe.MissingExtraError, match="pandas"):
        SWEEP.to_frame()


def test_plots_are_figures() -> None:
    figure = pytest.importorskip("matplotlib.figure")
    for shown in (COMPARISON, SWEEP, lethe.compare(make_run(), 1e-6, over="delta", theorems=["composition"])):
        drawn = shown.plot()
        assert isinstance(drawn, figure.Figure)
        assert len(drawn.axes) == 1
    lines = SWEEP.plot().axes[0].get_lines()
    assert any(np.allclose(line.get_ydata(), SWEEP.epsilons("composition")) for line in lines if len(line.get_ydata()) == 2)


def test_a_sweep_from_zero_and_over_delta_can_be_drawn() -> None:
    pytest.importorskip("matplotlib")
    weakly = make_run(loss=lethe.losses.WeaklyConvex(weak_convexity=0.0, smoothness=0.5, gradient_bound=1.0))
    sweep = lethe.compare(weakly, 1e-5, over="weak_convexity", theorems=["optimal-shift", "composition"])
    assert sweep.values[0] == 0.0
    assert sweep.plot().axes[0].get_xscale() == "linear"
    assert lethe.compare(make_run(), 1e-6, over="delta", theorems=["composition"]).plot().axes[0].get_ylabel() == "epsilon"
