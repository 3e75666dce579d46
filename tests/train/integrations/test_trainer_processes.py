"""PrivateTrainer in several processes and after a kill: the training of one; losses against the models' own, and the examples."""

import difflib
import os
import runpy
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

import torch
import transformers
from forked_processes import flat_average, require_same, told, told_by
from helpers import with_fresh_noise
from repository import ROOT
from small_models import CLASSES, DELTA, SIZES, WORDS, classifier, flat, padded, private, run_of, sentences
from torch import nn

import lethe
from lethe.errors import InputError
from lethe.integrations.transformers.losses import criterion_of, labels_of

STEPS, MODULE = 6, "test_trainer_processes"
RUN = run_of(steps=STEPS, noise_multiplier=1.0, clip_norm=0.3)


def trained(folder: Path, number: int, rank: int, processes: int, how: str) -> dict[str, Any]:
    """Train in this process; `plain` and `shards` are without noise, which is drawn shard by shard. See forked_processes."""
    if how == "shards":
        torch.distributed.init_process_group("gloo")
    kept = how in ("kill", "resume")
    given = {
        "data_collator": padded,
        "eval_dataset": sentences(7, length=None),
        "log_private": True,
        "ema": None if how == "shards" else 0.5,
    }
    changes: dict[str, Any] = {
        "eval_strategy": "steps",
        "eval_steps": 3,
        "logging_strategy": "steps",
        "logging_steps": 1,
        "warmup_steps": 2,
    }
    changes |= {"save_strategy": "steps", "save_steps": 2, "learning_rate": 1e-2, "per_device_train_batch_size": 2}
    model: Any = sharded(classifier()) if how == "shards" else classifier()
    run = RUN.replace(noise_multiplier=0.0 if how in ("plain", "shards") else 1.0)
    trainer = private(folder / ("kept" if kept else f"out-{number}"), model, sentences(length=None), run=run, told=given, **changes)
    if not kept:
        trainer._options["seed"] = 3
    trainer.train(resume_from_checkpoint=how == "resume")
    trainer.create_model_card()
    return {
        "model": whole(trainer.model),
        "average": flat_average(trainer.averaged),
        "wrapped": trainer.model_wrapped is not trainer.model,
        "run": trainer.record().run.to_document(),
        "epsilon": trainer.certificate_.epsilon,
        "history": trainer.state.log_history,
        "steps": trainer.state.global_step,
    }


def sharded(model: Any) -> nn.Module:
    """The model in shards over all processes, layer by layer and the rest."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),))
    for layer in model.bert.encoder.layer:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def whole(model: Any) -> torch.Tensor:
    """All parameters, flat."""
    from torch.distributed.tensor import DTensor

    found = [parameter.full_tensor() if isinstance(parameter, DTensor) else parameter for parameter in model.parameters()]
    return torch.cat([parameter.detach().double().reshape(-1) for parameter in found])


def logged(found: dict[str, Any]) -> list[dict[str, float]]:
    """What was logged and does not depend on time, nor on how transformers puts evaluated batches together."""
    names = ("step", "epoch", "loss", "learning_rate", "grad_norm", "epsilon")
    return [{name: entry[name] for name in names if name in entry} for entry in found["history"]]


def compared(folder: Path, *words: str, then: tuple[str, ...] = ()) -> list[list[int]]:
    """Each training is the first one, in one process, and each of its processes tells the same; how those ended that were made then."""
    folder.mkdir(exist_ok=True)
    ended = told_by(MODULE, folder, *words, *then)
    assert ended[: len(words)] == [[0] * int(word.split(":")[1]) for word in words]
    alone = told(folder, 0)
    assert float(alone["model"].std()) > 0
    for number, word in enumerate(words):
        require_same(folder, number, processes := int(word.split(":")[1]), alone)
        for found in (told(folder, number, rank) for rank in range(processes)):
            assert found["steps"] == STEPS
            for entry, expected in zip(logged(found), logged(alone), strict=True):
                assert entry == pytest.approx(expected, rel=1e-5)
        out = folder / f"out-{number}"
        assert {path.name for path in out.iterdir()} == {"checkpoint-2", "checkpoint-4", "checkpoint-6", "README.md"}
        assert "differential_privacy" in (out / "README.md").read_text()
        saved: Any = transformers.AutoModelForSequenceClassification.from_pretrained(out / "checkpoint-6", dtype=torch.float64)
        assert float((flat(saved) - alone["model"]).abs().max()) < 1e-6
    return ended[len(words) :]


def gone_on(folder: Path, number: int, processes: int, *, lost: set[int]) -> None:
    """A training that was killed went on to its end as training `number`: the noise of these steps may have been seen, and counts."""
    drawn = [int(line) for line in (folder / "drawn").read_text().split()]
    assert drawn[-(STEPS - len(lost)) :] == [step for step in range(1, STEPS + 1) if step not in lost]  # none is drawn twice
    for rank in range(processes):
        end = told(folder, number, rank)
        assert torch.equal(end["model"], told(folder, number)["model"])
        assert with_fresh_noise(lethe.Run.from_document(end["run"])) == RUN
        assert (end["epsilon"], end["steps"]) == (lethe.certify(RUN, DELTA).epsilon, STEPS)
        entries = {entry["step"]: entry for entry in end["history"] if "learning_rate" in entry}
        assert set(entries) == set(range(1, STEPS + 1)) - lost
        for step, entry in entries.items():
            assert entry["epoch"] == pytest.approx(step / 3)
            assert entry["epsilon"] == pytest.approx(lethe.certify(RUN.replace(steps=step), DELTA).epsilon)
            assert entry["learning_rate"] == pytest.approx(1e-2 * ((step - 1) / 2 if step <= 2 else (7 - step) / 4))


def test_two_processes_train_as_one_and_go_on_after_sigkill(tmp_path: Path) -> None:
    """In one call of the script, which imports for longer than it trains."""
    killed, resumed = compared(tmp_path, "train:1", "train:2", then=("kill:2:5", "resume:1"))
    assert (killed, resumed) == ([-signal.SIGKILL, 1], [0])  # the other process is told, and ends
    gone_on(tmp_path, 3, 1, lost={5})


@pytest.mark.nightly(by_day="test_two_processes_train_as_one_and_go_on_after_sigkill")
def test_three_processes_and_shards_train_as_one(tmp_path: Path) -> None:
    compared(tmp_path / "whole", "train:1", "train:3")
    compared(tmp_path / "shards", "plain:1", "shards:2", "shards:3")


@pytest.mark.nightly(by_day="test_two_processes_train_as_one_and_go_on_after_sigkill")
def test_a_killed_training_is_killed_again_and_goes_on_in_more_processes(tmp_path: Path) -> None:
    words = ("kill:2:3", "resume:1:5", "resume:3")
    assert told_by(MODULE, tmp_path, *words) == [[-signal.SIGKILL, 1], [-signal.SIGKILL], [0, 0, 0]]
    gone_on(tmp_path, 2, 3, lost={3, 5})


def begun(folder: Path, **changes: Any) -> Any:
    steps = {"save_strategy": "steps", "save_steps": 2, "learning_rate": 1e-2, **changes}
    return private(folder, classifier(), sentences(), run=run_of(steps=6), **steps)


def test_stopped_in_the_middle_it_ends_where_it_would_have_ended(tmp_path: Path) -> None:
    class Stop(transformers.TrainerCallback):
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


B, T = 5, 7


def bert(**changes: Any) -> Any:
    return transformers.BertConfig(**{**SIZES, "num_labels": CLASSES, **changes})


def t5() -> Any:
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2, "vocab_size": WORDS, "decoder_start_token_id": 0}
    return transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes))


def vit() -> Any:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    config = transformers.ViTConfig(image_size=4, patch_size=2, num_channels=1, num_labels=CLASSES, **sizes)
    return transformers.ViTForImageClassification(config)


def tokens() -> dict[str, torch.Tensor]:
    return {"input_ids": torch.randint(1, WORDS, (B, T)), "attention_mask": torch.ones(B, T, dtype=torch.long)}


def some(labels: torch.Tensor) -> torch.Tensor:
    """Labels of which each record predicts another number."""
    return torch.where(torch.arange(labels.shape[1]) < 1 + torch.arange(B)[:, None], labels, -100)


def words() -> torch.Tensor:
    return torch.randint(0, WORDS, (B, T))


MODELS: dict[str, tuple[Callable[[], Any], Callable[[], dict[str, torch.Tensor]]]] = {
    "masked language model": (lambda: transformers.BertForMaskedLM(bert()), lambda: {**tokens(), "labels": some(words())}),
    "tokens": (lambda: transformers.BertForTokenClassification(bert()), lambda: {**tokens(), "labels": some(words() % CLASSES)}),
    "classes": (lambda: transformers.BertForSequenceClassification(bert()), lambda: {**tokens(), "labels": torch.arange(B) % CLASSES}),
    "numbers": (lambda: transformers.BertForSequenceClassification(bert(num_labels=1)), lambda: {**tokens(), "labels": torch.randn(B)}),
    "many numbers": (
        lambda: transformers.BertForSequenceClassification(bert(problem_type="regression")),
        lambda: {**tokens(), "labels": torch.randn(B, CLASSES)},
    ),
    "many classes": (
        lambda: transformers.BertForSequenceClassification(bert()),
        lambda: {**tokens(), "labels": torch.randint(0, 2, (B, CLASSES)).float()},
    ),
    "pictures": (vit, lambda: {"pixel_values": torch.randn(B, 1, 4, 4), "labels": torch.arange(B) % CLASSES}),
    "choices": (
        lambda: transformers.BertForMultipleChoice(bert()),
        lambda: {"input_ids": torch.randint(1, WORDS, (B, 4, T)), "labels": torch.arange(B) % 4},
    ),
    "answers": (
        lambda: transformers.BertForQuestionAnswering(bert(num_labels=2)),
        lambda: {**tokens(), "start_positions": torch.arange(B) % T, "end_positions": torch.tensor([1, 2, T, T + 3, 0])},
    ),
    "encoder and decoder": (t5, lambda: {**tokens(), "labels": some(words())}),
}


NOT_SMOOTHED = ("numbers", "many numbers", "many classes", "answers")  # by the Trainer


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("name", "smoothing"), [*((name, 0.0) for name in MODELS), *((name, 0.2) for name in MODELS if name not in NOT_SMOOTHED)]
)
def test_a_record_s_loss_is_the_trainer_s_of_the_record_alone(name: str, smoothing: float, tmp_path: Path) -> None:
    make, batch_of = MODELS[name]
    torch.manual_seed(0)
    model, batch = make().eval(), batch_of()
    args = transformers.TrainingArguments(str(tmp_path), use_cpu=True, label_smoothing_factor=smoothing, report_to="none")
    trainer = transformers.Trainer(model=model, args=args)
    losses = criterion_of(model, smoothing)(model(**batch), labels_of(batch, trainer.label_names)[1])
    for record in range(B):
        alone = {key: part[record : record + 1] for key, part in batch.items()}
        if smoothing and name == "encoder and decoder":  # the Trainer takes the labels away, and the model then needs its decoder's input
            alone["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(alone["labels"])
        own: Any = trainer.compute_loss(model, alone)
        if own.isnan():  # a mean of no answers: here both lie outside the text
            assert name == "answers"
            assert losses[record].item() < 3
        else:
            assert losses[record].item() == pytest.approx(own.item(), rel=2e-6)
    assert losses.shape == (B,)
    assert len({round(loss, 6) for loss in losses.tolist()}) > 1


def test_the_private_script_differs_in_four_lines_at_most() -> None:
    scripts = [ROOT.joinpath(f"examples/{name}.py").read_text().splitlines()[1:] for name in ("fine_tune", "fine_tune_privately")]
    changed = [line for line in difflib.ndiff(*scripts) if line.startswith(("+ ", "- ")) and line[2:].strip()]
    assert len(changed) <= 4
    new = [line for line in changed if line.startswith("+ ")]
    assert any("epsilon=" in line for line in new)


@pytest.mark.parametrize(
    "name", [pytest.param("fine_tune", marks=pytest.mark.nightly(by_day="test_the_examples_run")), "fine_tune_privately"]
)
def test_the_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("datasets")
    pytest.importorskip("sklearn")
    script = ROOT.joinpath(f"examples/{name}.py").read_text().replace("num_train_epochs=10", "max_steps=2").replace("64, ", "16, ")
    small = tmp_path / f"{name}.py"
    small.write_text(script.replace('"intermediate_size": 128', '"intermediate_size": 16'))
    monkeypatch.setattr(sys, "argv", [str(small), str(tmp_path / "out")])
    names = runpy.run_path(str(small))
    assert (tmp_path / "out" / "model.safetensors").exists()
    assert names["trainer"].state.global_step == 2
    assert "accuracy 0." in capsys.readouterr().out
