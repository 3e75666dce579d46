"""`ledger=` of the Trainers of Hugging Face, TRL and Lightning: reserved before the first step, settled with the recorded run."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sqlalchemy")

from lethe.errors import BudgetExceededError, InputError
from lethe.ledger import Budget, Ledger, Spending, spending

NOISY = {"noise_multiplier": 4.0, "clip_norm": 1.0}


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger.open(tmp_path / "ledger.sqlite", make=True)
    for relation in ("zero_out", "add_or_remove"):
        made.create(relation, neighbours=relation, budget=Budget(epsilon=3, delta=1e-3), by="keeper")
    return made


def hugging_face(folder: Path, multiplier: float, told: dict[str, Any]) -> tuple[Any, str]:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from small_models import classifier, private, run_of, sentences

    made = private(folder, classifier(), sentences(), run=run_of(**NOISY | {"noise_multiplier": multiplier}), told=told)
    made.train()
    return made, "zero_out"


def trl(folder: Path, multiplier: float, told: dict[str, Any]) -> tuple[Any, str]:
    pytest.importorskip("trl")
    from conversations import EVEN, private_sft
    from small_models import run_of

    made = private_sft(folder, EVEN, run=run_of(**NOISY | {"noise_multiplier": multiplier}), told=told)
    made.train()
    return made, "zero_out"


def lightning(folder: Path, multiplier: float, told: dict[str, Any]) -> tuple[Any, str]:
    pytest.importorskip("lightning")
    from lightning_modules import DELTA, Classifier, fitted, run_of

    from lethe.integrations.lightning import PrivateTraining

    private = PrivateTraining(run=run_of(noise_multiplier=multiplier), delta=DELTA, **told)
    fitted(Classifier(), private)
    return private, "add_or_remove"


TRAINERS = {"transformers": (hugging_face, "zero_out"), "trl": (trl, "zero_out"), "lightning": (lightning, "add_or_remove")}


@pytest.mark.parametrize("name", ["transformers", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("trl", "lightning"))])
def test_a_trainer_is_paid_and_a_second_training_refused(name: str, ledger: Ledger, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    train, data_set = TRAINERS[name]
    trained, _ = train(tmp_path / "one", 4.0, {"ledger": Spending(ledger, data_set, by="team A", slack=1e-6)})
    (line,) = ledger.show(data_set).lines
    assert (line.state, line.by) == ("settled", "team A")
    assert line.artefact == trained.record().released[0].sha256
    assert trained.certificate_.epsilon <= ledger.show(data_set).epsilon_alone(line) * (1 + 1e-9)
    with pytest.raises(BudgetExceededError, match="still fits"):
        train(tmp_path / "two", 0.3, {"ledger": Spending(ledger, data_set, slack=1e-6)})
    with spending(ledger, data_set, slack=1e-6):
        train(tmp_path / "three", 8.0, {})
    assert [line.state for line in ledger.show(data_set).lines] == ["settled", "settled"]
    ledger.verify()


def hugging_face_again(folder: Path, paid: Spending, stop: int) -> None:
    pytest.importorskip("accelerate")
    from small_models import classifier, private, run_of, sentences
    from transformers import TrainerCallback

    class Stop(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            if state.global_step == stop:
                raise KeyboardInterrupt

    run = run_of(**NOISY, steps=4)
    made = private(folder, classifier(), sentences(), run=run, told={"ledger": paid}, save_strategy="steps", save_steps=1)
    made.add_callback(Stop())
    made.train(resume_from_checkpoint=not stop)


def lightning_again(folder: Path, paid: Spending, stop: int) -> None:
    pytest.importorskip("lightning")
    from lightning.pytorch.callbacks import Callback, ModelCheckpoint
    from lightning_modules import DELTA, Classifier, loader, run_of, trainer

    from lethe.integrations.lightning import PrivateTraining

    class Stop(Callback):
        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
            if trainer.global_step == stop > 0:
                raise RuntimeError("stopped")  # Lightning makes an end of its own of a KeyboardInterrupt

    private = PrivateTraining(run=run_of(noise_multiplier=4.0), delta=DELTA, checkpoints=folder / "private", ledger=paid)
    kept = ModelCheckpoint(dirpath=folder / "shown", every_n_train_steps=1, save_last=True)
    made = trainer(private, kept, Stop(), folder=folder, max_epochs=2)
    made.fit(Classifier(), loader(), ckpt_path=None if stop else "last")
    private.certificate_  # noqa: B018  # by which it is settled


@pytest.mark.parametrize("name", ["transformers", pytest.param("lightning", marks=pytest.mark.nightly)])
def test_a_trainer_goes_on_under_its_own_reservation(name: str, ledger: Ledger, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    pytest.importorskip(name)
    train, data_set = (hugging_face_again if name == "transformers" else lightning_again), TRAINERS[name][1]
    paid = Spending(ledger, data_set, by="team A", slack=1e-6)
    with pytest.raises((KeyboardInterrupt, RuntimeError)):
        train(tmp_path / "out", paid, 3)
    with pytest.raises(InputError, match="were taken before"):  # nobody asked it to go on
        train(tmp_path / "out", paid, 99)
    assert [line.state for line in ledger.show(data_set).lines] == ["started"]
    train(tmp_path / "out", paid, 0)
    assert [line.state for line in ledger.show(data_set).lines] == ["settled"]
    ledger.verify()
