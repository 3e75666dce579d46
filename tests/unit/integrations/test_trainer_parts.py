"""Parts of the private Trainer: losses of many kinds of models against the models' own, the corrected AdamW, the examples."""

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
from small_models import CLASSES, SIZES, WORDS, classifier, flat, private, run_of, sentences

from lethe.errors import InputError
from lethe.integrations.transformers.corrected_adam import CorrectedAdamW
from lethe.integrations.transformers.criteria import criterion_of, labels_of, with_decoder_inputs

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*(lr_scheduler.step|pin_memory).*"),
]

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


def test_a_batch_of_tokens_without_labels_is_told_of_the_collator_that_makes_them() -> None:
    with pytest.raises(InputError, match="for a language model DataCollatorForLanguageModeling"):
        labels_of(tokens(), ["labels"])


NOT_SMOOTHED = ("numbers", "many numbers", "many classes", "answers")  # by the Trainer


@pytest.mark.sampled(4)
@pytest.mark.slow
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


def test_what_no_loss_of_a_record_is_known_for() -> None:
    with pytest.raises(InputError, match="is not known of Linear"):
        criterion_of(torch.nn.Linear(2, 2), 0.0, None)
    with pytest.raises(InputError, match="override compute_loss"):
        labels_of({"input_ids": torch.ones(2, 3), "labels": torch.ones(2), "next": torch.ones(2)}, ["labels", "next"])


def test_without_noise_the_corrected_adamw_is_adamw_up_to_its_floor() -> None:
    ends = []
    for make in (torch.optim.AdamW, lambda groups, **given: CorrectedAdamW(groups, noise_std=0.0, **given)):
        parameter = torch.nn.Parameter(torch.linspace(-1.0, 1.0, 5, dtype=torch.float64))
        optimizer = make([parameter], lr=0.1, betas=(0.8, 0.9), eps=1e-30, weight_decay=0.1)
        for step in range(5):
            parameter.grad = torch.cos(parameter.detach() + step) + 2.0
            optimizer.step()
        ends.append(parameter.detach().clone())
    assert float((ends[0] - ends[1]).abs().max()) < 1e-12


def test_a_step_of_the_corrected_adamw_is_the_formula_s() -> None:
    """A mean of 2 over the root of 4 - 1.5, and of 0.5 over the root of the floor: 1 % less noise would show in the fourth digit."""
    parameter = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
    optimizer = CorrectedAdamW([parameter], noise_std=1.5**0.5, lr=0.1, eps=0.04)
    parameter.grad = torch.tensor([2.0, 0.5], dtype=torch.float64)
    optimizer.step()
    assert parameter.tolist() == pytest.approx([-0.1 * 2.0 / 2.5**0.5, -0.1 * 0.5 / 0.2], rel=1e-12)


@pytest.mark.slow
def test_the_correction_finds_the_size_of_the_gradient_beneath_the_noise() -> None:
    """A gradient of 1 under noise of 1 is divided by 1, not by the root of 2."""
    random, rate = torch.Generator().manual_seed(0), 1e-4
    parameter = torch.nn.Parameter(torch.zeros(4000, dtype=torch.float64))
    optimizer = CorrectedAdamW([parameter], noise_std=1.0, lr=rate, betas=(0.0, 0.9999))
    before = parameter.detach().clone()
    for _ in range(600):
        before = parameter.detach().clone()
        parameter.grad = 1.0 + torch.randn(4000, generator=random, dtype=torch.float64)
        optimizer.step()
    moved = (before - parameter.detach()).mean() / rate
    assert 0.93 < float(moved) < 1.07  # four standard deviations; uncorrected it is 0.71
    with pytest.raises(InputError, match="eps"):
        CorrectedAdamW([parameter], noise_std=1.0, eps=0.0)


@pytest.mark.slow
def test_the_trainer_takes_the_corrected_adamw(tmp_path: Path) -> None:
    run = run_of(noise_multiplier=2.0, clip_norm=1.0)
    trainer = private(tmp_path, classifier(), sentences(), run=run, told={"noise_corrected": True}, adam_epsilon=1e-3, weight_decay=0.1)
    before = flat(trainer.model)
    trainer.train()
    optimizer: Any = trainer.optimizer
    assert isinstance(optimizer.optimizer, CorrectedAdamW)
    assert {group["weight_decay"] for group in optimizer.param_groups} == {0.0, 0.1}
    assert trainer.run == run
    assert {group["noise_std"] for group in optimizer.param_groups} == {run.noise_multiplier * 1.0 / run.batch_size}
    assert bool(flat(trainer.model).isfinite().all())
    assert not torch.equal(before, flat(trainer.model))
    for told, changes, said in (({}, {"optim": "sgd"}, "AdamW alone"), ({"run": True}, {}, "one noise multiplier")):
        run = run_of(noise_multiplier=[1.0, 2.0, 1.0] if told else 2.0, clip_norm=1.0)
        with pytest.raises(InputError, match=said):
            private(tmp_path, classifier(), sentences(), run=run, told={"noise_corrected": True}, **changes).train()


def test_the_private_script_differs_in_twelve_lines_at_most() -> None:
    scripts = [ROOT.joinpath(f"examples/{name}.py").read_text().splitlines()[1:] for name in ("fine_tune", "fine_tune_privately")]
    changed = [line for line in difflib.ndiff(*scripts) if line.startswith(("+ ", "- ")) and line[2:].strip()]
    assert 3 <= len(changed) <= 12
    new = [line for line in changed if line.startswith("+ ")]
    assert any("epsilon=" in line for line in new)


@pytest.mark.slow
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
