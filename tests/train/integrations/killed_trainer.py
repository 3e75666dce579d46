"""Trains a small classifier by a PrivateTrainer, in processes of its own, one after another; for test_resumed_trainer.

`python killed_trainer.py OUTPUT_DIR begin:6 resume:9 resume:0`: each forks a process that begins or goes on, and kills itself by SIGKILL
once the noise of that step is journaled (0: never); prints how each ended. Beside OUTPUT_DIR it leaves `drawn`, the steps whose noise was
drawn, and at the end told.json: the recorded run and what was logged.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from forked_processes import forked, killed_at
from small_models import classifier, private, run_of, sentences

STEPS, EVERY = 12, 4


def main(folder: Path, kill: int, *, resume: bool) -> None:
    """Train, and be killed or finish."""
    torch.set_num_threads(1)
    killed_at(kill, folder.parent / "drawn")
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
    return forked(lambda rank: main(folder, int(step), resume=how == "resume"), 1)[0]


if __name__ == "__main__":
    print("ended", [served(Path(sys.argv[1]), word) for word in sys.argv[2:]])
