"""benchmarks/gpu_check.py: what it says without a GPU, and that it works over gloo."""

import subprocess
import sys

import gpu_check
import pytest
import torch
from repository import ROOT

SCRIPT = ROOT / "benchmarks" / "gpu_check.py"


def said(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, timeout=300)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", [str(SCRIPT)])
    assert gpu_check.main() == 2
    assert "no GPU that PyTorch can use was found" in capsys.readouterr().err


@pytest.mark.nightly(by_day="test_processes_take_the_steps_of_one")
def test_over_gloo_every_layout_takes_the_steps_by_hand() -> None:
    told = said("--cpu", "--processes", "2", "--width", "16", "--layers", "1", "--batch", "8", "--steps", "5")
    assert told.returncode == 0, told.stderr
    assert "every layout takes the steps written out by hand" in told.stdout
    assert all(layout in told.stdout for layout in ("bare", "DistributedDataParallel", "fully_shard"))
