"""Lightning in several processes and after a kill: the training of one; all steps count, and no noise is drawn twice for one step."""

import signal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightning")

import torch
from forked_processes import flat_average, require_same, told, told_by
from helpers import with_fresh_noise
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.strategies import DDPStrategy, FSDPStrategy
from lightning_modules import DELTA, Classifier, fitted, flat, left_as_it_was, loader, network, run_of, trainer, users
from torch.nn.parallel import DistributedDataParallel

import lethe
from lethe.errors import InputError, LetheWarning
from lethe.integrations.lightning import PrivateTraining
from lethe.integrations.lightning.refusals import refuse_trainer


class Log(Callback):
    """Keeps what is logged of each step, and looks for a reducer."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.wrapped = False

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if "train_loss" in trainer.callback_metrics:  # not where a step was lost before
            self.losses.append(float(trainer.callback_metrics["train_loss"]))
        self.wrapped |= isinstance(trainer.model, DistributedDataParallel)


def trained(folder: Path, number: int, rank: int, processes: int, how: str) -> dict[str, Any]:
    """Train in this process; see forked_processes."""
    ours = "killed" if how in ("kill", "resume") else str(number)
    given: dict[str, Any] = {"delta": DELTA, "log_private": True, "seed": None if ours == "killed" else 5}
    if how == "users":
        given |= {"epsilon": 4.0, "clip_norm": 0.4, "users": users(), "records_per_user": 2, "views": 2}
    else:
        given |= {"run": run_of(), "checkpoints": folder / f"private-{ours}", "ema": 0.9}
    private, log = PrivateTraining(**given), Log()
    kept = [] if how == "users" else [ModelCheckpoint(dirpath=folder / f"kept-{ours}", every_n_train_steps=2, save_last=True)]
    strategy = {"strategy": "ddp", "devices": processes} if processes > 1 else {}
    made = trainer(private, log, *kept, folder=folder if kept else None, **strategy)
    with torch.random.fork_rng():
        torch.manual_seed(rank)  # processes that do not begin alike
        module = Classifier()
        if rank:
            torch.nn.init.normal_(module.net[0].weight)
    made.fit(module, loader(4 // processes), ckpt_path="last" if how == "resume" else None)  # of 4 a step, however many processes
    return {
        "model": flat(module),
        "average": flat_average(private.averaged),
        "run": private.record().run.to_document(),
        "epsilon": private.certificate_.epsilon,
        "losses": log.losses,
        "wrapped": log.wrapped,
        "strategy": type(made.strategy).__name__,
    }


def compared(folder: Path, number: int, processes: int) -> lethe.Run:
    """Trainings in one process and in several are the same; their run."""
    alone = told(folder, number)
    assert alone["strategy"] == "SingleDeviceStrategy"
    assert float((alone["model"] - flat(network())).abs().max()) > 1e-3
    require_same(folder, number + 1, processes, alone)
    for rank in range(processes):
        one = told(folder, number + 1, rank)
        assert one["strategy"] == "DDPStrategy"
        assert one["losses"] == pytest.approx(alone["losses"], rel=1e-5)
    return lethe.Run.from_document(alone["run"])


def test_two_processes_train_as_one(tmp_path: Path) -> None:
    """With records, and the average of iterates; and with users and two views, whose batches are planned: of all processes together."""
    words = ("records:1", "records:2", "users:1", "users:2")
    assert told_by("test_lightning_processes", tmp_path, *words) == [[0], [0, 0]] * 2
    assert with_fresh_noise(compared(tmp_path, 0, 2)) == run_of()
    assert torch.load(tmp_path / "kept-1" / "last.ckpt", weights_only=True)["global_step"] == 10
    run = compared(tmp_path, 2, 2)
    assert (run.unit, run.records, run.batches, run.total_steps) == ("user", 6, lethe.batches.RandomAllocation(3), 4)


@pytest.mark.nightly(by_day="test_two_processes_train_as_one")
def test_three_processes_train_as_one_and_go_on_after_sigkill(tmp_path: Path) -> None:
    ended = told_by("test_lightning_processes", tmp_path, "records:1", "records:3", "kill:2:6", "resume:3")
    assert ended == [[0], [0, 0, 0], [-signal.SIGKILL, 1], [0, 0, 0]]
    compared(tmp_path, 0, 3)
    for rank in range(3):
        end = told(tmp_path, 3, rank)
        assert torch.equal(end["model"], told(tmp_path, 3)["model"])
        assert with_fresh_noise(lethe.Run.from_document(end["run"])) == run_of()
        assert end["epsilon"] == lethe.certify(run_of(), DELTA).epsilon


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ("ddp_spawn", "(?s)starts its processes by spawn.*torchrun"),
        (DDPStrategy(ddp_comm_hook=print), "ddp_comm_hook: got a value"),
        (DDPStrategy(model_averaging_period=2), "model_averaging_period: got a value"),
        ("fsdp", "(?s)strategy: got FSDPStrategy.*fully_shard"),
    ],
)
def test_strategies_are_refused(strategy: Any, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if strategy == "fsdp":
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        made: Any = trainer(devices=1)
        made._accelerator_connector.strategy = FSDPStrategy()
    else:
        made = trainer(strategy=strategy)
    with pytest.raises(InputError, match=message):
        refuse_trainer(made, Classifier(), log_private=False)


def test_one_process_of_ddp_trains_and_leaves_the_trainer_as_it_was() -> None:
    with left_as_it_was():
        made = fitted(Classifier(), PrivateTraining(run=run_of(), delta=DELTA), loader(), strategy="ddp")
    assert made.global_step == 10
    assert "configure_ddp" not in vars(made.strategy)


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
        if trainer.global_step == 10:
            self.text = self.path.read_text()


def kept_private(folder: Path, **changes: Any) -> PrivateTraining:
    # Batches that are no secret may be known, and without noise there is none: what goes on can be compared with what was not killed.
    run = run_of(batches=lethe.batches.Cyclic(5), neighbours="zero_out", noise_multiplier=0.0)
    return PrivateTraining(**{"run": run, "delta": DELTA, "checkpoints": folder / "private", **changes})


def fit_kept(folder: Path, callback: PrivateTraining, *others: Callback, ckpt_path: Any = None, epochs: int = 2) -> tuple[Any, Classifier]:
    module = Classifier()
    kept = ModelCheckpoint(dirpath=folder / "checkpoints", every_n_train_steps=3, save_top_k=-1, save_last=True)
    made = trainer(callback, kept, *others, folder=folder, max_epochs=epochs)
    made.fit(module, loader(), ckpt_path=ckpt_path)
    return made, module


@pytest.mark.sampled(2)
@pytest.mark.parametrize("after", [3, 6])
def test_killed_just_after_a_checkpoint_it_ends_where_nobody_killed_it(tmp_path: Path, after: int) -> None:
    unkilled, callback = kept_private(tmp_path / "alone", ema=0.9), kept_private(tmp_path, ema=0.9)
    _, alone = fit_kept(tmp_path / "alone", unkilled)
    with pytest.raises(Killed):
        fit_kept(tmp_path, kept_private(tmp_path, ema=0.9), Kill(after, saved=True))
    made, module = fit_kept(tmp_path, callback, ckpt_path="last")
    assert made.global_step == callback.record().run.total_steps == 10
    assert torch.equal(flat(module), flat(alone))
    assert callback.averaged is not None
    assert unkilled.averaged is not None
    assert all(torch.equal(callback.averaged[name], average) for name, average in unkilled.averaged.items())
    assert made.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.01 * 0.5**5)


def test_noise_of_steps_that_were_lost_is_counted_and_drawn_anew(tmp_path: Path) -> None:
    """With noise: the certificate is of all steps, and the two processes drew other noise."""
    run = run_of()
    with pytest.raises(Killed):
        fit_kept(tmp_path, kept_private(tmp_path, run=run), Kill(5, saved=False))
    callback = kept_private(tmp_path, run=run)
    reading = Reading(tmp_path / "private" / "journal")
    with pytest.warns(LetheWarning, match="steps 4 to 5"):
        fit_kept(tmp_path, callback, reading, ckpt_path=str(tmp_path / "checkpoints" / "last.ckpt"))
    assert callback.certificate_.epsilon == lethe.certify(run, DELTA).epsilon
    assert [reading.text.count(f"step {step}\n") for step in range(1, 11)] == [1] * 10


def test_going_on_without_the_private_part_or_unasked_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        fit_kept(tmp_path, kept_private(tmp_path), Kill(4, saved=False))
    with pytest.raises(InputError, match=r"fit: [34] steps of this run were taken before"):
        fit_kept(tmp_path, kept_private(tmp_path))
    with pytest.raises(InputError, match="ckpt_path: 3 steps were taken before, and there is no record here"):
        fit_kept(tmp_path, kept_private(tmp_path, checkpoints=None), ckpt_path="last")
    with pytest.raises(InputError, match="ckpt_path: its 3 steps are more than the 0 in"):
        fit_kept(tmp_path, kept_private(tmp_path / "another"), ckpt_path=str(tmp_path / "checkpoints" / "last.ckpt"))
