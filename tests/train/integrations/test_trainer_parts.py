"""Parts of the private Trainer: losses of many kinds of models against the models' own, and the examples."""

import difflib
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

import torch
import transformers
from repository import ROOT
from small_models import CLASSES, SIZES, WORDS

from lethe.integrations.transformers.losses import criterion_of, labels_of, with_decoder_inputs

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
    arguments, labels = labels_of(batch, trainer.label_names)
    losses = criterion_of(model, smoothing, None)(model(**with_decoder_inputs(model, arguments, labels)), labels)
    for record in range(B):
        alone = {key: part[record : record + 1] for key, part in batch.items()}
        if smoothing and name == "encoder and decoder":  # the Trainer takes the labels away, and the model then needs its decoder's input
            alone = with_decoder_inputs(model, alone, alone["labels"])
        own: Any = trainer.compute_loss(model, alone)
        if own.isnan():  # a mean of no answers: here both lie outside the text
            assert name == "answers"
            assert losses[record].item() < 3
        else:
            assert losses[record].item() == pytest.approx(own.item(), rel=2e-6)
    assert losses.shape == (B,)
    assert len({round(loss, 6) for loss in losses.tolist()}) > 1


def test_the_private_script_differs_in_twelve_lines_at_most() -> None:
    scripts = [ROOT.joinpath(f"examples/{name}.py").read_text().splitlines()[1:] for name in ("fine_tune", "fine_tune_privately")]
    changed = [line for line in difflib.ndiff(*scripts) if line.startswith(("+ ", "- ")) and line[2:].strip()]
    assert 3 <= len(changed) <= 12
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
