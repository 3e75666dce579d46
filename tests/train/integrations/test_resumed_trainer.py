"""A Trainer that was killed goes on from Lethe's journal: every noisy step is counted once, and schedule and log go on."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

import torch
from forked_processes import told_by
from helpers import with_fresh_noise
from small_models import DELTA, classifier, flat, private, run_of, sentences

import lethe
from lethe.errors import InputError

SCRIPT = Path(__file__).with_name("killed_trainer.py")


@pytest.mark.nightly(by_day="test_two_processes_train_as_one_and_go_on_after_sigkill")
def test_killed_twice_and_finished(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert told_by(SCRIPT, str(out), "begin:6", "resume:9", "resume:0") == [-signal.SIGKILL, -signal.SIGKILL, 0]
    assert [path.name for path in sorted(out.iterdir())] == ["checkpoint-12", "checkpoint-4", "checkpoint-8"]
    drawn = [int(line) for line in (tmp_path / "drawn").read_text().split()]
    assert drawn == [1, 2, 3, 4, 5, 7, 8, 10, 11, 12]  # 6 and 9 were journaled and may have been seen; none is drawn twice
    told = json.loads((tmp_path / "told.json").read_text())
    run = run_of(steps=12, noise_multiplier=1.0, clip_norm=1.0)
    assert with_fresh_noise(lethe.Run.from_document(told["run"])) == run
    assert told["epsilon"] == lethe.certify(run, DELTA).epsilon
    assert (told["steps"], told["epoch"]) == (12, 4.0)
    logged = {entry["step"]: entry for entry in told["history"] if "learning_rate" in entry}
    assert set(logged) >= {1, 2, 3, 4, 7, 8, 10, 11, 12}
    for step, entry in logged.items():
        assert entry["epoch"] == pytest.approx(step / 3)
        assert entry["epsilon"] == pytest.approx(lethe.certify(run.replace(steps=step), DELTA).epsilon)
        assert entry["learning_rate"] == pytest.approx(1e-2 * (step - 1) / 3 if step <= 3 else 1e-2 * (13 - step) / 9)


def begun(folder: Path, **changes: Any) -> Any:
    steps = {"save_strategy": "steps", "save_steps": 2, "learning_rate": 1e-2, **changes}
    return private(folder, classifier(), sentences(), run=run_of(steps=6), **steps)


def test_stopped_in_the_middle_it_ends_where_it_would_have_ended(tmp_path: Path) -> None:
    from transformers import TrainerCallback

    class Stop(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            if state.global_step == 4:
                raise KeyboardInterrupt

    whole = begun(tmp_path / "whole")
    whole.train()
    cut = begun(tmp_path / "cut", save_steps=1)
    cut.add_callback(Stop())
    with pytest.raises(KeyboardInterrupt):
        cut.train()
    with pytest.raises(InputError, match=r"4 steps of this run were taken before"):
        begun(tmp_path / "cut").train()
    again = begun(tmp_path / "cut")
    again.train(resume_from_checkpoint=True)
    assert again.state.global_step == 6
    assert with_fresh_noise(again.record().run) == run_of(steps=6)
    # Step 4 was released and lost with its move; the other five are those of the whole training, and so is the schedule.
    assert again.lr_scheduler.get_last_lr() == whole.lr_scheduler.get_last_lr()
    assert not torch.equal(flat(again.model), flat(whole.model))


@pytest.mark.nightly(by_day="test_stopped_in_the_middle_it_ends_where_it_would_have_ended")
def test_what_there_is_to_go_on_from(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(InputError, match="there is no training to take up"):
        begun(out).train(resume_from_checkpoint=True)
    with pytest.raises(InputError, match="in any folder"):
        begun(out, save_strategy="no").train(resume_from_checkpoint=True)
    first = begun(out)
    first.train()
    for wrong in (out / "checkpoint-2", tmp_path):
        with pytest.raises(InputError, match="not where this training is"):
            begun(out).train(resume_from_checkpoint=str(wrong))
    again = begun(out)  # it was finished: the same model once more
    again.train(resume_from_checkpoint=str(out / "checkpoint-6"))
    assert torch.equal(flat(again.model), flat(first.model))
    assert with_fresh_noise(again.record().run) == run_of(steps=6)
    with pytest.raises(InputError, match="run: the checkpoint is not of run"):
        private(out, classifier(), sentences(), run=run_of(steps=7), save_strategy="steps").train(resume_from_checkpoint=True)
