"""Lightning's trainings that are killed and taken up again: all steps count, and no noise is drawn twice for one step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("lightning")

from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning_modules import DELTA, Classifier, flat, loader, run_of, trainer

import lethe
from lethe.errors import InputError, LetheWarning
from lethe.integrations.lightning import PrivateTraining

STEPS, EVERY = 10, 3  # of two epochs of 5


class Killed(BaseException):
    """Stands for the end of a process."""


class Kill(Callback):
    """Ends the process after a step, before Lightning saves anything; or after that, where the next batch begins."""

    def __init__(self, after: int, *, saved: bool) -> None:
        self.after, self.saved = after, saved

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step == self.after and not self.saved:
            raise Killed

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step == self.after and self.saved:
            raise Killed


class Reading(Callback):
    """Reads the journal after the last step, before the run is finished."""

    def __init__(self, path: Path) -> None:
        self.path, self.text = path, ""

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step == STEPS:
            self.text = self.path.read_text()


def private(folder: Path, **changes: Any) -> PrivateTraining:
    # Batches that are no secret may be known, and without noise there is none: what goes on can be compared with what was not killed.
    run = run_of(batches=lethe.batches.Cyclic(5), neighbours="zero_out", noise_multiplier=0.0)
    return PrivateTraining(**{"run": run, "delta": DELTA, "checkpoints": folder / "private", **changes})


def fit(folder: Path, callback: PrivateTraining, *others: Callback, ckpt_path: Any = None, epochs: int = 2) -> tuple[Any, Classifier]:
    module = Classifier()
    kept = ModelCheckpoint(dirpath=folder / "checkpoints", every_n_train_steps=EVERY, save_top_k=-1, save_last=True)
    made = trainer(callback, kept, *others, folder=folder, max_epochs=epochs)
    made.fit(module, loader(), ckpt_path=ckpt_path)
    return made, module


@pytest.mark.sampled(2)
@pytest.mark.parametrize("after", [3, 6])
def test_killed_just_after_a_checkpoint_it_ends_where_nobody_killed_it(tmp_path: Path, after: int) -> None:
    unkilled, callback = private(tmp_path / "alone", ema=0.9), private(tmp_path, ema=0.9)
    _, alone = fit(tmp_path / "alone", unkilled)
    with pytest.raises(Killed):
        fit(tmp_path, private(tmp_path, ema=0.9), Kill(after, saved=True))
    made, module = fit(tmp_path, callback, ckpt_path="last")
    assert made.global_step == callback.record().run.total_steps == STEPS
    assert torch.equal(flat(module), flat(alone))
    assert callback.averaged is not None
    assert unkilled.averaged is not None
    assert all(torch.equal(callback.averaged[name], average) for name, average in unkilled.averaged.items())
    assert made.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.01 * 0.5**5)


def test_noise_of_steps_that_were_lost_is_counted_and_drawn_anew(tmp_path: Path) -> None:
    """With noise: the certificate is of all steps, and the two processes drew other noise."""
    run = run_of()
    with pytest.raises(Killed):
        fit(tmp_path, private(tmp_path, run=run), Kill(5, saved=False))
    callback = private(tmp_path, run=run)
    reading = Reading(tmp_path / "private" / "journal")
    with pytest.warns(LetheWarning, match="steps 4 to 5"):
        fit(tmp_path, callback, reading, ckpt_path=str(tmp_path / "checkpoints" / "last.ckpt"))
    assert callback.certificate_.epsilon == lethe.certify(run, DELTA).epsilon
    assert [reading.text.count(f"step {step}\n") for step in range(1, STEPS + 1)] == [1] * STEPS


def test_going_on_without_the_private_part_or_unasked_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        fit(tmp_path, private(tmp_path), Kill(4, saved=False))
    with pytest.raises(InputError, match=r"fit: [34] steps of this run were taken before"):
        fit(tmp_path, private(tmp_path))
    with pytest.raises(InputError, match="ckpt_path: 3 steps were taken before, and there is no record here"):
        fit(tmp_path, private(tmp_path, checkpoints=None), ckpt_path="last")
    with pytest.raises(InputError, match="ckpt_path: its 3 steps are more than the 0 in"):
        fit(tmp_path, private(tmp_path / "another"), ckpt_path=str(tmp_path / "checkpoints" / "last.ckpt"))
