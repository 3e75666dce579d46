"""PrivateTrainer in several processes: the training of one, with one noise; saved by process 0, and taken up again after a kill."""

import signal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

import torch
from forked_processes import told_by
from helpers import with_fresh_noise
from small_models import DELTA, run_of
from transformers import AutoModelForSequenceClassification

import lethe

SCRIPT = Path(__file__).with_name("trainers_together.py")
RUN = run_of(steps=6, noise_multiplier=1.0, clip_norm=0.3)


def told(folder: Path, number: int, rank: int) -> dict[str, Any]:
    return torch.load(folder / f"told-{number}-{rank}.pt", weights_only=True)


def logged(found: dict[str, Any]) -> list[dict[str, float]]:
    """What was logged and does not depend on time, nor on how transformers puts evaluated batches together."""
    names = ("step", "epoch", "loss", "learning_rate", "grad_norm", "epsilon")
    return [{name: entry[name] for name in names if name in entry} for entry in found["history"]]


def compared(folder: Path, *words: str, then: tuple[str, ...] = ()) -> list[list[int]]:
    """Each training is the first one, in one process, and each of its processes tells the same; how those ended that were made then."""
    folder.mkdir(exist_ok=True)
    ended = told_by(SCRIPT, str(folder), *words, *then)
    assert ended[: len(words)] == [[0] * int(word.split(":")[1]) for word in words]
    alone = told(folder, 0, 0)
    assert float(alone["model"].std()) > 0
    for number, word in enumerate(words):
        for rank in range(int(word.split(":")[1])):
            found = told(folder, number, rank)
            assert float((found["model"] - alone["model"]).abs().max()) < 1e-6
            assert torch.equal(found["model"], told(folder, number, 0)["model"])
            assert found["wrapped"]  # no reducer of DistributedDataParallel
            assert (found["run"], found["epsilon"], found["steps"]) == (alone["run"], alone["epsilon"], 6)
            for entry, expected in zip(logged(found), logged(alone), strict=True):
                assert entry == pytest.approx(expected, rel=1e-5)
            if found["averaged"] is not None:
                for name, average in alone["averaged"].items():
                    assert float((found["averaged"][name] - average).abs().max()) < 1e-6
        out = folder / f"out-{number}"
        assert {path.name for path in out.iterdir()} == {"checkpoint-2", "checkpoint-4", "checkpoint-6", "README.md"}
        assert "differential_privacy" in (out / "README.md").read_text()
        saved: Any = AutoModelForSequenceClassification.from_pretrained(out / "checkpoint-6", dtype=torch.float64)
        flat = torch.cat([parameter.detach().reshape(-1) for parameter in saved.parameters()])
        assert float((flat - alone["model"]).abs().max()) < 1e-6
    return ended[len(words) :]


def gone_on(folder: Path, number: int, processes: int) -> None:
    """The training that was killed at step 5 went on to its end as training `number`."""
    ends = [told(folder, number, rank) for rank in range(processes)]
    for end in ends:
        assert torch.equal(end["model"], ends[0]["model"])
        assert with_fresh_noise(lethe.Run.from_document(end["run"])) == RUN
        assert end["epsilon"] == lethe.certify(RUN, DELTA).epsilon
        # The noise of step 5 may have been seen: it counts and is not drawn again.
        assert [entry["step"] for entry in end["history"] if "learning_rate" in entry] == [1, 2, 3, 4, 6]


def test_two_processes_train_as_one_and_go_on_after_sigkill(tmp_path: Path) -> None:
    """In one call of the script, which imports for longer than it trains."""
    killed, resumed = compared(tmp_path, "train:1", "train:2", then=("kill:2:5", "resume:1"))
    assert (killed, resumed) == ([-signal.SIGKILL, 1], [0])  # the other process is told, and ends
    gone_on(tmp_path, 3, 1)


@pytest.mark.nightly(by_day="test_two_processes_train_as_one_and_go_on_after_sigkill")
def test_three_processes_and_shards_train_as_one(tmp_path: Path) -> None:
    compared(tmp_path / "whole", "train:1", "train:3")
    compared(tmp_path / "shards", "plain:1", "shards:2", "shards:3")


@pytest.mark.nightly(by_day="test_two_processes_train_as_one_and_go_on_after_sigkill")
def test_a_killed_training_goes_on_in_more_processes(tmp_path: Path) -> None:
    assert told_by(SCRIPT, str(tmp_path), "kill:2:5", "resume:3") == [[-signal.SIGKILL, 1], [0, 0, 0]]
    gone_on(tmp_path, 1, 3)
