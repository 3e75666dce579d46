"""`ledger=` of the Trainers of Hugging Face, TRL and Lightning: reserved before the first step, settled with the recorded run."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sqlalchemy")

from lethe.errors import BudgetExceededError, InputError
from lethe.ledger import Budget, Ledger, Spending, spending


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger.open(tmp_path / "ledger.sqlite", make=True)
    for relation in ("zero_out", "add_or_remove"):
        made.create(relation, neighbours=relation, budget=Budget(epsilon=3, delta=1e-3), by="keeper")
    return made


def stopped_at(step: int, base: Any) -> Any:
    """A callback that breaks a Trainer's training off after a step."""

    class Stop(base):
        def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            if state.global_step == step:
                raise KeyboardInterrupt

        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
            if trainer.global_step == step > 0:
                raise RuntimeError("stopped")  # Lightning makes an end of its own of a KeyboardInterrupt

    return Stop()


def hugging_face(folder: Path, multiplier: float, told: dict[str, Any], *, stop: int = 99, resume: bool = False) -> Any:
    from small_models import classifier, private, run_of, sentences
    from transformers import TrainerCallback

    run = run_of(noise_multiplier=multiplier, clip_norm=1.0, steps=4)
    made = private(folder, classifier(), sentences(), run=run, told=told, save_strategy="steps", save_steps=1)
    made.add_callback(stopped_at(stop, TrainerCallback))
    made.train(resume_from_checkpoint=resume)
    return made


def trl(folder: Path, multiplier: float, told: dict[str, Any]) -> Any:
    from conversations import EVEN, private_sft
    from small_models import run_of

    made = private_sft(folder, EVEN, run=run_of(noise_multiplier=multiplier, clip_norm=1.0), told=told)
    made.train()
    return made


def lightning(folder: Path, multiplier: float, told: dict[str, Any], *, stop: int = 99, resume: bool = False) -> Any:
    from lightning.pytorch.callbacks import Callback, ModelCheckpoint
    from lightning_modules import DELTA, Classifier, loader, run_of, trainer

    from lethe.integrations.lightning import PrivateTraining

    private = PrivateTraining(run=run_of(noise_multiplier=multiplier), delta=DELTA, checkpoints=folder / "private", **told)
    kept = ModelCheckpoint(dirpath=folder / "shown", every_n_train_steps=1, save_last=True)
    made = trainer(private, kept, stopped_at(stop, Callback), folder=folder, max_epochs=2)
    made.fit(Classifier(), loader(), ckpt_path="last" if resume else None)
    private.certificate_  # noqa: B018  # by which it is settled
    return private


TRAINERS: dict[str, tuple[Any, str]] = {
    "transformers": (hugging_face, "zero_out"),
    "trl": (trl, "zero_out"),
    "lightning": (lightning, "add_or_remove"),
}


@pytest.fixture
def trains(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, str]:
    """What trains, and the data set whose neighbours its runs have."""
    pytest.importorskip(name)
    pytest.importorskip("accelerate")
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    return TRAINERS[name]


@pytest.mark.parametrize("name", ["transformers", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("trl", "lightning"))])
def test_a_trainer_is_paid_and_a_second_training_refused(trains: tuple[Any, str], ledger: Ledger, tmp_path: Path) -> None:
    train, data_set = trains
    trained = train(tmp_path / "one", 4.0, {"ledger": Spending(ledger, data_set, by="team A", slack=1e-6)})
    (line,) = ledger.show(data_set).lines
    assert (line.state, line.by) == ("settled", "team A")
    assert line.artefact == trained.record().released[0].sha256
    assert trained.certificate_.epsilon <= ledger.show(data_set).epsilon_alone(line) * (1 + 1e-9)
    with pytest.raises(BudgetExceededError, match="you can still train once"):
        train(tmp_path / "two", 0.3, {"ledger": Spending(ledger, data_set, slack=1e-6)})
    with spending(ledger, data_set, slack=1e-6):
        train(tmp_path / "three", 8.0, {})
    assert [line.state for line in ledger.show(data_set).lines] == ["settled", "settled"]
    ledger.verify()


@pytest.mark.parametrize("name", ["transformers", pytest.param("lightning", marks=pytest.mark.nightly)])
def test_a_trainer_goes_on_under_its_own_reservation(trains: tuple[Any, str], ledger: Ledger, tmp_path: Path) -> None:
    train, data_set = trains
    paid = {"ledger": Spending(ledger, data_set, by="team A", slack=1e-6)}
    with pytest.raises((KeyboardInterrupt, RuntimeError)):
        train(tmp_path / "out", 4.0, paid, stop=3)
    with pytest.raises(InputError, match="were taken before"):  # nobody asked it to go on
        train(tmp_path / "out", 4.0, paid)
    assert [line.state for line in ledger.show(data_set).lines] == ["started"]
    train(tmp_path / "out", 4.0, paid, resume=True)
    assert [line.state for line in ledger.show(data_set).lines] == ["settled"]
    ledger.verify()
