"""Trains a small classifier by a PrivateTrainer, in processes of its own, one after another; for test_resumed_trainer.

`python killed_trainer.py OUTPUT_DIR begin:6 resume:9 resume:0`: each forks a process that begins or goes on, and kills itself by SIGKILL
once the noise of that step is journaled (0: never); prints how each ended. Beside OUTPUT_DIR it leaves `drawn`, the steps whose noise was
drawn, and at the end told.json: the recorded run and what was logged.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import torch
from small_models import classifier, private, run_of, sentences

from lethe.train.checkpoints.journal import Journal

STEPS, EVERY = 12, 4


def main(folder: Path, kill: int, *, resume: bool) -> None:
    """Train, and be killed or finish."""
    torch.set_num_threads(1)
    release = Journal.release
    drawn = folder.parent / "drawn"

    def watched(self: Journal, step: int) -> None:
        release(self, step)
        if step == kill:
            os.kill(os.getpid(), signal.SIGKILL)
        with drawn.open("a") as file:
            file.write(f"{step}\n")

    Journal.release = watched
    run = run_of(steps=STEPS, noise_multiplier=1.0, clip_norm=1.0)
    changes = {"save_strategy": "steps", "save_steps": EVERY, "logging_strategy": "steps", "logging_steps": 1, "learning_rate": 1e-2}
    trainer = private(folder, classifier(), sentences(), run=run, warmup_steps=3, **changes)
    trainer.train(resume_from_checkpoint=resume)
    told = {
        "run": trainer.record().run.to_document(),
        "epsilon": trainer.certificate_.epsilon,
        "history": trainer.state.log_history,
        "steps": trainer.state.global_step,
        "epoch": trainer.state.epoch,
    }
    (folder.parent / "told.json").write_text(json.dumps(told))


def served(folder: Path, word: str) -> int:
    """How a process ended that was told this."""
    how, _, step = word.partition(":")
    process = os.fork()
    if process == 0:
        status = 1
        try:
            main(folder, int(step), resume=how == "resume")
            status = 0
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


if __name__ == "__main__":
    print("ended", *(served(Path(sys.argv[1]), word) for word in sys.argv[2:]))
