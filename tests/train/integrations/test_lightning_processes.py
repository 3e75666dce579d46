"""Lightning in several processes: the training of one, with one noise; and with users, whose gradient is clipped once."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightning")

import torch
from forked_processes import told_by
from helpers import with_fresh_noise
from lightning.pytorch.strategies import DDPStrategy, FSDPStrategy
from lightning_modules import DELTA, Classifier, data, fitted, flat, left_as_it_was, loader, network, run_of, trainer, users
from torch import nn
from torch.utils.data import DataLoader

import lethe
from lethe.errors import InputError
from lethe.integrations.lightning import PrivateTraining
from lethe.integrations.lightning.refusals import refuse_trainer

SCRIPT = Path(__file__).with_name("lightning_together.py")


class Plain(Classifier):
    """By plain SGD, of which one step shows its gradient."""

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def compared(folder: Path, *words: str) -> list[dict[str, Any]]:
    """Each training is the one before it, in one process, and each of its processes tells the same; what the single ones told."""
    assert told_by(SCRIPT, str(folder), *words) == [[0] * int(word.split(":")[1]) for word in words]
    singles: list[dict[str, Any]] = []
    for number, word in enumerate(words):
        told = [torch.load(folder / f"told-{number}-{rank}.pt") for rank in range(int(word.split(":")[1]))]
        if len(told) == 1:
            singles += told
            assert told[0]["strategy"] == "SingleDeviceStrategy"
            assert float((told[0]["model"] - flat(network())).abs().max()) > 1e-3
            continue
        alone = singles[-1]
        for one in told:
            assert (one["strategy"], one["wrapped"]) == ("DDPStrategy", False)  # no reducer of DistributedDataParallel
            assert float((one["model"] - alone["model"]).abs().max()) < 1e-6
            assert torch.equal(one["model"], told[0]["model"])
            if alone["average"] is not None:
                assert float((one["average"] - alone["average"]).abs().max()) < 1e-6
            assert (one["run"], one["epsilon"]) == (alone["run"], alone["epsilon"])
            assert one["losses"] == pytest.approx(alone["losses"], rel=1e-5)
    return singles


def test_two_processes_train_as_one(tmp_path: Path) -> None:
    """With records, and the average of iterates; and with users and two views, whose batches are planned: of all processes together."""
    records, of_users = compared(tmp_path, "records:1", "records:2", "users:1", "users:2")
    assert with_fresh_noise(lethe.Run.from_document(records["run"])) == run_of()
    kept: Any = torch.load(tmp_path / "kept-1" / "last.ckpt", weights_only=True)
    assert kept["global_step"] == 10
    run = lethe.Run.from_document(of_users["run"])
    assert (run.unit, run.records, run.batches, run.total_steps) == ("user", 6, lethe.batches.Poisson(3), 4)


@pytest.mark.nightly(by_day="test_two_processes_train_as_one")
def test_three_processes_train_as_one_and_go_on_after_sigkill(tmp_path: Path) -> None:
    compared(tmp_path, "records:1", "records:3")
    assert told_by(SCRIPT, str(tmp_path), "kill:2:6", "resume:3") == [[-signal.SIGKILL, 1], [0, 0, 0]]
    ends = [torch.load(tmp_path / f"told-1-{rank}.pt") for rank in range(3)]
    for end in ends:
        assert torch.equal(end["model"], ends[0]["model"])
        assert with_fresh_noise(lethe.Run.from_document(end["run"])) == run_of()
        assert end["epsilon"] == lethe.certify(run_of(), DELTA).epsilon


def test_a_user_is_clipped_once() -> None:
    """One step with all users and no noise: the sum of the clipped gradients of their mean losses, by plain autograd."""
    whose, count = users(), len(set(users()))
    run = run_of(
        records=count, unit="user", batches=lethe.batches.Cyclic(count), steps=1, noise_multiplier=0.0, clip_norm=0.2, neighbours="zero_out"
    )
    features, labels = data()
    rows = [{"features": x, "label": y, "person": person} for x, y, person in zip(features, labels, whose, strict=True)]

    class Named(Plain):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            assert set(batch) == {"features", "label"}
            return super().training_step((batch["features"], batch["label"]), batch_idx)

    module, private = Named(), PrivateTraining(run=run, delta=DELTA, users="person")
    fitted(module, private, DataLoader(rows, batch_size=2), max_steps=1)  # pyright: ignore[reportArgumentType]
    model = network()
    expected = torch.zeros_like(flat(model))
    for person in sorted(set(whose)):
        mine = [place for place, owner in enumerate(whose) if owner == person]
        loss = nn.functional.cross_entropy(model(features[mine]), labels[mine])
        gradient = torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(model.parameters()))])
        expected += gradient * min(1.0, 0.2 / float(gradient.norm()))
    assert float((flat(module) - flat(model) + 0.1 / count * expected).abs().max()) < 1e-6
    assert with_fresh_noise(private.record().run) == run


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
    module = Classifier()
    with left_as_it_was():
        made = fitted(module, PrivateTraining(run=run_of(), delta=DELTA), loader(), strategy="ddp")
    assert made.global_step == 10
    assert "configure_ddp" not in vars(made.strategy)
