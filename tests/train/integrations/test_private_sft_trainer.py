"""TRL's SFTTrainer, private: the same result where nothing is clipped or noised, exact clipping, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")
pytest.importorskip("accelerate")
pytest.importorskip("trl")

import torch
from conversations import EVEN, PAIRS, TALKS, TEXTS, PrivateSFTTrainer, config, model, plain_sft, private_sft, tokenizer
from datasets import Dataset
from helpers import with_fresh_noise
from how_many import by_night
from small_models import DELTA, RECORDS, flat, run_of

import lethe
from lethe.errors import InputError

SGD: dict[str, Any] = {"optim": "sgd", "learning_rate": 0.1}


@pytest.fixture(autouse=True)
def _no_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    """TRL's own trainer, beside which ours is put, would send some."""
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")


def lora() -> Any:
    peft = pytest.importorskip("peft")
    return {"peft_config": peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")}


@pytest.mark.nightly(by_day="test_the_clipped_sum_is_that_of_records_alone")
@pytest.mark.parametrize(
    ("changes", "adapter"),
    [
        ({"learning_rate": 1e-2, "weight_decay": 0.1, "adam_epsilon": 1e-4}, False),
        ({**SGD, "warmup_steps": 2}, False),
        ({**SGD, "loss_type": "dft"}, False),
        (SGD, True),
    ],
)
def test_without_noise_and_clipping_it_is_trl_s(changes: dict[str, Any], adapter: bool, tmp_path: Path) -> None:
    """Where all records predict equally many tokens: TRL divides by the batch's number of them."""
    plain = plain_sft(tmp_path, EVEN, told=lora() if adapter else None, **changes)
    plain.train()
    for physical in (8, 3) if by_night() else (3,):
        told = lora() if adapter else None
        trainer = private_sft(tmp_path, EVEN, run=run_of(), told=told, **{**changes, "per_device_train_batch_size": physical})
        start = flat(trainer.model)
        trainer.train()
        assert float((flat(trainer.model) - flat(plain.model)).abs().max()) < 1e-6  # TRL's loss is float32
        assert float((flat(trainer.model) - start).abs().max()) > 1e-4
        assert with_fresh_noise(trainer.record().run) == run_of()


SEEN = Dataset.from_list(TEXTS)
REFUSED: list[tuple[Any, dict[str, Any], dict[str, Any], str]] = [
    # records, arguments of SFTConfig and of the trainer, and what the error says
    (PAIRS, {"max_length": 4}, {}, "made .* records of 24 rows"),
    (TEXTS, {"packing": True, "max_length": 8}, {}, "packing: got True.*one conversation a row"),
    ([{"input_ids": [4, 5, 6, 7], "seq_lengths": [2, 2]}] * RECORDS, {}, {}, "several conversations each"),
    (TEXTS, {}, {"train_dataset": SEEN, "eval_dataset": {"seen": SEEN}}, "eval_dataset: it is train_dataset"),
]


@pytest.mark.parametrize(("data", "changes", "told", "said"), REFUSED)
def test_what_joins_empties_or_shows_conversations_is_refused(data: Any, changes: Any, told: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"(?s){said}"):
        private_sft(tmp_path, data, told=told, **changes)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("reentrant", [None, False, True])
@pytest.mark.parametrize("adapter", [False, True])
def test_checkpoints_of_activations_change_nothing(adapter: bool, reentrant: bool | None, tmp_path: Path) -> None:
    """SFTConfig switches them on by default; the layers' rules find what was kept and what is computed anew."""
    run = run_of(batches=lethe.batches.Cyclic(RECORDS), steps=2, clip_norm=0.5)
    kind = {} if reentrant is None else {"gradient_checkpointing_kwargs": {"use_reentrant": reentrant}}
    ends = []
    for changes in ({}, {"gradient_checkpointing": True, **kind}):
        torch.manual_seed(0)  # of LoRA's first weights
        trainer = private_sft(tmp_path, PAIRS, run=run, told=lora() if adapter else None, lr_scheduler_type="constant", **SGD, **changes)
        trainer.train()
        assert trainer.engine is not None
        assert trainer.model.is_gradient_checkpointing == bool(changes)
        assert trainer.engine.diagnostics is not None
        ends.append((flat(trainer.model), trainer.engine.diagnostics.gradients))
    assert float((ends[0][0] - ends[1][0]).abs().max()) < 1e-9
    assert ends[0][1] == ends[1][1] == "fast"


@pytest.mark.nightly(by_day="test_what_is_logged_is_what_is_spent_and_nothing_private")
def test_logs_and_cards_hold_what_is_spent_and_nothing_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import yaml

    def refuse(**told: Any) -> None:
        raise AssertionError(told)

    monkeypatch.setattr("trl.trainer.base_trainer.send_telemetry", refuse)
    monkeypatch.delenv("CI", raising=False)
    given: dict[str, Any] = {
        "logging_strategy": "steps",
        "logging_steps": 1,
        "eval_strategy": "steps",
        "eval_steps": 1,
        "save_strategy": "steps",
    }
    public = Dataset.from_list(TEXTS[:6])
    trainer = private_sft(tmp_path / "out", PAIRS, told={"eval_dataset": {"public": public}}, save_steps=2, **given)
    trainer.train()
    history = trainer.state.log_history
    told = [entry for entry in history if "learning_rate" in entry]
    assert [entry["epsilon"] for entry in told] == [lethe.certify(trainer.run.replace(steps=step), DELTA).epsilon for step in (1, 2, 3)]
    words = set().union(*history)
    assert words.isdisjoint({"loss", "train_loss", "entropy", "mean_token_accuracy", "num_tokens", "train_runtime"})
    assert sum("eval_public_loss" in entry for entry in history) == 3
    trainer.create_model_card()
    head = yaml.safe_load((tmp_path / "out" / "README.md").read_text().split("---\n")[1])
    assert head["differential_privacy"]["epsilon"] == trainer.certificate_.epsilon
    assert {"sft", "trl", "differential-privacy"} <= set(head["tags"])


def test_adapters_of_a_quantised_model_are_float32(tmp_path: Path) -> None:
    """TRL turns them into bfloat16, on which noise is not Gaussian."""
    base = model().float()
    base.is_loaded_in_8bit = True
    trainer = private_sft(tmp_path, TEXTS, told={**lora(), "model": base}, max_steps=1)
    assert {parameter.dtype for parameter in trainer.model.parameters() if parameter.requires_grad} == {torch.float32}
    trainer.train()
    assert 2.999 < trainer.certificate_.epsilon <= 3.0


def test_arguments_may_stand_in_trl_s_order(tmp_path: Path) -> None:
    args, data = config(tmp_path, bf16=True, max_steps=1), Dataset.from_list(TALKS)
    trainer = PrivateSFTTrainer(model().float(), args, None, data, processing_class=tokenizer(), epsilon=3.0, delta=DELTA)
    trainer.train()
    assert trainer.certificate_.seal is not None
    with pytest.raises(InputError, match="delta: none was given"):
        PrivateSFTTrainer(model().float(), args, train_dataset=data, processing_class=tokenizer(), epsilon=3.0)
