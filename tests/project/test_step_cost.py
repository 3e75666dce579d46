"""benchmarks/step_cost.py: what it measures of a small model, and how it says no."""

import sys

import pytest
import step_cost


def test_a_private_step_costs_more_than_a_plain_one_and_little_of_it_is_ours() -> None:
    found = step_cost.measured("mlp", ["plain", "lethe fit", "lethe loop"], 1)
    assert found["plain"]["time"] == found["plain"]["times operations"] == 1
    assert found["plain"]["calls"] == 0
    for engine in ("lethe fit", "lethe loop"):
        cost = found[engine]
        assert cost["times operations"] > 1
        assert 0 < cost["files"] <= cost["functions"] <= cost["calls"] < 1000  # 1112 where losses were looked behind


@pytest.mark.parametrize(("words", "said"), [(["--models", "mlp,vgg"], "got vgg; it knows mlp, cnn"), (["--rounds", "0"], "got 0 rounds")])
def test_it_says_what_it_needs(words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["step_cost.py", *words])
    assert step_cost.main() == 2
    assert said in capsys.readouterr().err
