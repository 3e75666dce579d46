import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from influence_problems import make_estimate
from repository import ROOT

from lethe.influence import fit_exponential
from lethe.influence.retraining import choose_probes
from lethe.run.schedules.influence import Influence


@given(steps=st.integers(1, 2000), wanted=st.integers(2, 50))
def test_probes_run_from_the_first_to_the_last_step(steps: int, wanted: int) -> None:
    probes = choose_probes(steps, wanted)
    assert probes[0] == 1
    assert probes[-1] == steps
    assert (np.diff(probes) > 0).all()
    assert len(probes) <= wanted or steps < wanted
    assert len(probes) == steps if wanted >= steps else len(probes) >= 2


def test_probes_by_hand() -> None:
    assert list(choose_probes(16, 5)) == [1, 9, 13, 15, 16]  # 16, 8, 4, 2, 1 steps left
    assert list(choose_probes(32)) == list(range(1, 33))
    assert len(choose_probes(1000)) == 16
    assert list(choose_probes(9, [9, 1, 4])) == [1, 4, 9]
    assert list(choose_probes(1)) == [1]


def test_between_probes_the_logarithm_is_straight() -> None:
    influence = make_estimate([1.0, 4.0, 1.0], probes=[1, 3, 6]).influence
    expected = np.array([1.0, 2.0, 4.0, 4.0 ** (2 / 3), 4.0 ** (1 / 3), 1.0]) / 4
    assert influence.values(6) == pytest.approx(expected, rel=1e-12)
    assert influence.basis == "synthetic"


@given(rate=st.floats(0.5, 1.5), factor=st.floats(1e-3, 1e3))
def test_an_exponential_is_found_again(rate: float, factor: float) -> None:
    weights = factor * rate ** (20.0 - np.arange(1, 21))
    influence = fit_exponential(make_estimate(weights))
    assert influence.rate == pytest.approx(rate, rel=1e-10)
    assert "R^2 = 1.0000, 0% of 20 entries left out" in influence.detail
    assert influence.values(20) == pytest.approx(weights / weights.max(), rel=1e-8)


def test_the_fit_is_numpy_s_and_leaves_out_what_is_not_positive() -> None:
    weights = np.array([1.0, 1.5, -0.2, 2.0, 0.0, 5.0, 4.0, 9.0])
    kept = weights > 0
    steps = np.arange(1, 9)[kept]
    slope, intercept = np.polyfit(steps, np.log(weights[kept]), 1)
    unexplained = ((np.log(weights[kept]) - slope * steps - intercept) ** 2).sum()
    r_squared = 1 - unexplained / ((np.log(weights[kept]) - np.log(weights[kept]).mean()) ** 2).sum()
    influence = fit_exponential(make_estimate(weights))
    assert influence.rate == pytest.approx(np.exp(-slope), rel=1e-12)
    assert f"R^2 = {r_squared:.4f}, 25% of 8 entries left out" in influence.detail
    assert influence.basis == "synthetic"


@pytest.mark.slow
def test_the_page_s_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "influence.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, flags=re.S)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(example, "docs/influence.md", "exec"), names)
    assert Influence.load(tmp_path / "influence.json") == names["adjoint"].influence
    assert "4 paired retrainings at 5 of 40 steps" in capsys.readouterr().out
