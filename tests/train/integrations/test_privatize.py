"""privatize: every kind of trainer clips what its records give alone, goes on after a kill, and tells nothing private."""

import copy
import signal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")
pytest.importorskip("accelerate")
pytest.importorskip("trl")

import torch
from conversations import PAIRS, config, model, tokenizer
from datasets import Dataset
from forked_processes import told, told_by
from helpers import with_fresh_noise
from small_models import DELTA, RECORDS, arguments, classifier, flat, padded, run_of, sentences, texts
from torch.nn import functional
from trainers import PREFERRED, QUIET, SGD, TRAINERS, bert, gpt2
from transformers import BertForMaskedLM, DataCollatorForLanguageModeling, Trainer, TrainerCallback
from trl.trainer.dpo_config import DPOConfig
from trl.trainer.dpo_trainer import DPOTrainer
from trl.trainer.kto_config import KTOConfig
from trl.trainer.kto_trainer import KTOTrainer
from trl.trainer.sft_trainer import SFTTrainer

import lethe
from lethe.errors import InputError, RecordByRecordWarning, UnknownArgumentError
from lethe.integrations.transformers import PrivateTrainer, privatize
from lethe.integrations.transformers.on_policy import Answers
from lethe.train.core.training_records import released_states

CLIP, MODULE = 0.5, "test_privatize"
ALL = run_of(batches=lethe.batches.Cyclic(RECORDS), steps=1, clip_norm=CLIP)


@pytest.fixture(autouse=True)
def _no_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")


def by_hand(trainer: Any) -> torch.Tensor:
    """The sum of clipped gradients of the trainer's own loss of batches of one record, as its own loop would call it."""
    data, language_model = trainer.train_dataset, trainer.model.train()
    if hasattr(data, "remove_columns"):
        data = trainer._remove_unused_columns(data, description="training")
    total = torch.zeros_like(flat(language_model))
    for record in data:
        batch = trainer._prepare_inputs(trainer.data_collator([record]))
        items = trainer._get_num_items_in_batch([batch], trainer.args.device)
        loss = trainer.compute_loss(language_model, batch, num_items_in_batch=items)
        trained = [parameter for parameter in language_model.parameters() if parameter.requires_grad]
        gradients = iter(torch.autograd.grad(loss, trained, allow_unused=True, materialize_grads=True))
        every = [next(gradients) if one.requires_grad else torch.zeros_like(one) for one in language_model.parameters()]
        whole = torch.cat([gradient.reshape(-1) for gradient in every])
        if bool(loss.isfinite()):
            total += whole * min(1.0, CLIP / float(whole.norm()))
    return total


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", TRAINERS)
@pytest.mark.filterwarnings("ignore::lethe.errors.RecordByRecordWarning")
def test_the_clipped_sum_is_that_of_records_alone(name: str, tmp_path: Path) -> None:
    """Of lengths of their own, in parts of 5, 5, 5, 5 and 4 records."""
    make, way = TRAINERS[name]
    start = flat((plain := make(tmp_path)).model)
    expected = start - 0.1 / RECORDS * by_hand(plain)
    trainer = privatize(make(tmp_path, max_steps=-1), run=ALL, delta=DELTA)
    trainer.train()
    assert float((flat(trainer.model) - expected).abs().max()) < 1e-8
    assert float((expected - start).norm()) > 1e-3
    assert trainer.engine.diagnostics.gradients == way


def kept(name: str, folder: Path) -> Any:
    """A trainer of six steps that may be killed."""
    saved = {"save_strategy": "steps", "save_steps": 2, "max_steps": -1}
    run = run_of(steps=6, noise_multiplier=1.0, clip_norm=CLIP)
    return privatize(TRAINERS[name][0](folder / name, **saved), run=run, delta=DELTA)


def trained(folder: Path, number: int, rank: int, processes: int, how: str) -> dict[str, Any]:
    """See forked_processes."""
    how, name = how.split("=")
    if how == "train":
        made = TRAINERS[name][0](folder / f"out-{number}", max_steps=-1, per_device_train_batch_size=2)
        (trainer := privatize(made, run=run_of(steps=6, clip_norm=CLIP), delta=DELTA)).train()
    else:
        (trainer := kept(name, folder)).train(resume_from_checkpoint=how == "resume")
    return {"model": flat(trainer.model), "run": trainer.record().run.to_document(), "steps": trainer.state.global_step}


@pytest.mark.nightly(by_day="test_two_processes_train_as_one_and_go_on_after_sigkill")
@pytest.mark.filterwarnings("ignore")
def test_every_kind_goes_on_after_sigkill(tmp_path: Path) -> None:
    names = [name for name in TRAINERS if " " not in name]
    words = [word for name in names for word in (f"kill={name}:1:4", f"resume={name}:1")]
    assert told_by(MODULE, tmp_path, *words) == [[-signal.SIGKILL], [0]] * len(names)
    assert [int(line) for line in (tmp_path / "drawn").read_text().split()] == [1, 2, 3, 5, 6] * len(names)
    for place, name in enumerate(names):
        end = told(tmp_path, 2 * place + 1)
        assert end["steps"] == 6
        assert with_fresh_noise(lethe.Run.from_document(end["run"])) == run_of(steps=6, noise_multiplier=1.0, clip_norm=CLIP)
        again = kept(name, tmp_path)  # it is finished
        again.train(resume_from_checkpoint=True)
        assert torch.equal(flat(again.model), end["model"])


@pytest.mark.nightly(by_day="test_two_processes_train_as_one_and_go_on_after_sigkill")
def test_two_processes_are_as_one(tmp_path: Path) -> None:
    """However often either computes a loss: nothing that TRL's gather would wait for."""
    names = ("dpo", "sft", "reward", "orpo")
    words = [f"train={name}:{processes}" for name in names for processes in (1, 2)]
    assert told_by(MODULE, tmp_path, *words) == [[0], [0, 0]] * len(names)
    for number in range(0, len(words), 2):
        for rank in range(2):
            assert float((told(tmp_path, number + 1, rank)["model"] - told(tmp_path, number)["model"]).abs().max()) < 1e-12


def test_one_row_is_one_record_and_none_is_dropped(tmp_path: Path) -> None:
    pairs = Dataset.from_list(PREFERRED)
    common = {"train_dataset": pairs, "processing_class": tokenizer(), "delta": DELTA, "epsilon": 3.0}
    trainer = privatize(DPOTrainer)(model=gpt2(), ref_model=gpt2(), args=DPOConfig(str(tmp_path), **QUIET, max_steps=2), **common)
    assert trainer.run.records == len(pairs)
    assert type(trainer).__name__ == "PrivateDPOTrainer"
    with pytest.raises(InputError, match="made 48 records of 24 rows"):  # each answer by itself
        privatize(KTOTrainer)(
            model=gpt2(), ref_model=gpt2(), args=KTOConfig(str(tmp_path), **QUIET, loss_type="apo_zero_unpaired"), **common
        )
    judged = Dataset.from_list([{**pair, "label": place % 2 == 0} for place, pair in enumerate(PAIRS)])
    with pytest.raises(InputError, match=r"(?s)the answer of another record.*apo_zero_unpaired"):
        privatize(KTOTrainer)(model=gpt2(), ref_model=gpt2(), args=KTOConfig(str(tmp_path), **QUIET), **{**common, "train_dataset": judged})
    with pytest.raises(InputError, match="'aot' sorts the batch"):
        privatize(DPOTrainer)(model=gpt2(), ref_model=gpt2(), args=DPOConfig(str(tmp_path), **QUIET, loss_type=["aot"]), **common)


class OwnSteps(Trainer):
    def training_step(self, *args: Any, **others: Any) -> torch.Tensor:
        return super().training_step(*args, **others)


class OwnBatches(Trainer):
    def get_train_dataloader(self) -> Any:
        return super().get_train_dataloader()


def test_what_is_no_trainer_or_has_steps_of_its_own(tmp_path: Path) -> None:
    for kind, said in ((dict, "got dict"), (OwnSteps, "training_step: OwnSteps"), (OwnBatches, "get_train_dataloader: OwnBatches")):
        with pytest.raises(InputError, match=said):
            privatize(kind)
    assert privatize(Trainer) is PrivateTrainer is privatize(PrivateTrainer)
    made = Trainer(model=classifier(), args=arguments(tmp_path), train_dataset=sentences())
    with pytest.raises(InputError, match="got a class and epsilon"):
        privatize(Trainer, epsilon=1.0)
    with pytest.raises(UnknownArgumentError, match="did you mean 'epsilon'"):
        privatize(made, target_epsilon=1.0)
    privatize(made, epsilon=1.0, delta=DELTA)
    with pytest.raises(InputError, match="this trainer is private"):
        privatize(made, epsilon=1.0, delta=DELTA)


class Logged(TrainerCallback):
    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **others: Any) -> None:
        self.told.append(dict(logs))


class Chatty(SFTTrainer):
    """Logs from within its loss."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None) -> Any:
        if self.model.training:
            self.log({"learning_rate": 1.0, "eval_longest": float(inputs["input_ids"].shape[1])})
        return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)


@pytest.mark.filterwarnings("ignore:the model is trained record by record")
def test_logs_hold_nothing_of_the_records(tmp_path: Path) -> None:
    """Neither what TRL notes in its loss, nor what it counts and tells in evaluation, nor what a loss logs by itself."""
    logged, told_of = Logged(), {"logging_strategy": "steps", "logging_steps": 1, "eval_strategy": "steps", "eval_steps": 1}
    data = {"train_dataset": Dataset.from_list(PAIRS), "eval_dataset": Dataset.from_list(PAIRS[:4])}
    made = Chatty(model=model(), args=config(tmp_path, **told_of, max_steps=2), processing_class=tokenizer(), callbacks=[logged], **data)
    trainer = privatize(made, epsilon=3.0, delta=DELTA)
    output = trainer.train()
    words = set().union(*logged.told, *trainer.state.log_history)
    own = {word for word in words if not word.startswith("eval_")}
    assert own <= {"epsilon", "learning_rate", "grad_norm", "epoch", "step"}
    assert {"eval_loss", "eval_entropy"} <= words
    assert "eval_longest" not in words
    assert {entry["eval_num_tokens"] for entry in logged.told if "eval_num_tokens" in entry} == {0}
    assert all(entry["learning_rate"] < 1 for entry in logged.told if "learning_rate" in entry)
    assert set(output.metrics) <= {"epoch"}


def test_the_iterate_that_evaluation_finds_best(tmp_path: Path) -> None:
    """It is released like all others; the record is of its weights, and says what it was chosen by; the schedule may follow it too."""
    steps = {
        "eval_strategy": "steps",
        "eval_steps": 1,
        "save_strategy": "steps",
        "save_steps": 1,
        "lr_scheduler_type": "reduce_lr_on_plateau",
    }
    args = arguments(tmp_path / "out", **steps, load_best_model_at_end=True, metric_for_best_model="least", greater_is_better=False)
    told = iter([3.0, 1.0, 2.0])
    made = Trainer(
        model=classifier(),
        args=args,
        train_dataset=sentences(),
        eval_dataset=sentences(6),
        compute_metrics=lambda found: {"least": next(told)},
    )
    trainer = privatize(made, epsilon=3.0, delta=DELTA)
    trainer.train()
    best = type(classifier()).from_pretrained(tmp_path / "out" / "checkpoint-2", dtype=torch.float64)
    assert torch.equal(flat(trainer.model), flat(best))
    assert any("best by least on eval_dataset" in claim.detail for claim in trainer.record().declared)
    assert trainer.certificate_.seal is not None
    assert trainer.record().released == released_states({"model": best.state_dict()})


@pytest.mark.nightly(by_day="test_the_clipped_sum_is_that_of_records_alone")
@pytest.mark.filterwarnings("ignore")
def test_with_torch_compile_training_is_as_it_was(tmp_path: Path) -> None:
    ends = []
    for compiled in (False, True):
        changes: dict[str, Any] = {"torch_compile": True, "torch_compile_backend": "eager"} if compiled else {}
        args = arguments(tmp_path, **{**SGD, **changes, "max_steps": -1})
        made = Trainer(model=classifier(), args=args, train_dataset=sentences())
        trainer = privatize(made, run=ALL, delta=DELTA)
        trainer.train()
        assert trainer.engine.diagnostics.gradients == "fast"
        ends.append(flat(trainer.model))
    assert torch.equal(*ends)


@pytest.mark.nightly(by_day="test_the_clipped_sum_is_that_of_records_alone")
def test_a_masked_language_model_needs_no_word_for_its_own_collator(tmp_path: Path) -> None:
    words = tokenizer()
    words.mask_token = "<bot>"
    collator, args = DataCollatorForLanguageModeling(words, mlm_probability=0.3), arguments(tmp_path, max_steps=2)
    rows = [{name: record[name] for name in ("input_ids", "attention_mask")} for record in sentences()]
    trainer = privatize(
        Trainer(model=bert(BertForMaskedLM), args=args, train_dataset=rows, data_collator=collator), epsilon=3.0, delta=DELTA
    )
    trainer.train()
    assert trainer.certificate_.epsilon <= 3.0


class Sorted(Trainer):
    """One number that is a mean of records while their losses are alike, and not when they are not."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None) -> Any:
        labels = inputs.pop("labels")
        each = functional.cross_entropy(model(**inputs).logits, labels, reduction="none")
        return (each.sort().values * torch.arange(1, 1 + len(each))).mean()


@pytest.mark.parametrize("batched", [False, True])
def test_a_loss_of_the_whole_batch_is_taken_of_records_one_after_another(batched: bool, tmp_path: Path) -> None:
    """Which is said once; a mean over tokens that nobody counts is one as well."""
    if batched:
        made: Any = Sorted(model=classifier(), args=arguments(tmp_path), train_dataset=sentences())
    else:

        def mean(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
            chosen = labels > 3
            each = functional.cross_entropy(outputs.logits.flatten(0, 1), labels.clamp(min=0).flatten(), reduction="none")
            return (each * chosen.flatten()).sum() / chosen.sum()

        made = Trainer(model=gpt2(), args=arguments(tmp_path), train_dataset=talks(), data_collator=padded, compute_loss_func=mean)
    trainer = privatize(made, epsilon=3.0, delta=DELTA)
    with pytest.warns(RecordByRecordWarning, match="one number for its batch") as caught:
        trainer.train()
    assert len([one for one in caught if issubclass(one.category, RecordByRecordWarning)]) == 1
    assert trainer.engine.diagnostics.gradients != "fast"


def talks() -> list[dict[str, Any]]:
    """In few words."""
    small = ("input_ids", "labels")
    return [{**record, **{name: [token % 20 if token > 0 else token for token in record[name]] for name in small}} for record in texts()]


def test_the_arguments_of_a_trainer_are_as_they_were(tmp_path: Path) -> None:
    """Those that a private step changes for a while are put back."""
    made = TRAINERS["sft"][0](tmp_path, max_steps=2, gradient_accumulation_steps=2)
    before = copy.deepcopy(made.args.to_dict())
    privatize(made, epsilon=3.0, delta=DELTA).train()
    assert made.args.to_dict() == before


@pytest.mark.nightly(by_day="test_the_clipped_sum_is_that_of_records_alone")
def test_answers_are_made_scored_and_clipped_record_by_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GRPO: rewards see the answers to one prompt; the step is that of each prompt's own loss."""
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    asked, answered, of = list[set[str]](), list[Any](), Answers.of

    def reward(prompts: list[str], completions: list[str], **others: Any) -> list[float]:
        asked.append(set(prompts))
        return [float(len(set(answer.split()))) for answer in completions]

    def noted(self: Answers, batch: Any) -> Any:
        answered.append(made := of(self, batch))
        return made

    monkeypatch.setattr(Answers, "of", noted)
    rows = [{"prompt": pair["prompt"]} for pair in PREFERRED[:6]]
    sizes: dict[str, Any] = {"num_generations": 4, "max_completion_length": 6, "per_device_train_batch_size": 8, "beta": 0.0}

    def made(**changes: Any) -> Any:
        args = GRPOConfig(str(tmp_path), **{**QUIET, **SGD, **sizes, **changes})
        return GRPOTrainer(
            model=gpt2(), args=args, train_dataset=Dataset.from_list(rows), processing_class=tokenizer(), reward_funcs=reward
        )

    for changes, said in (({"scale_rewards": "batch"}, 'scale_rewards="group"'), ({"num_iterations": 2}, "num_iterations=1")):
        with pytest.raises(InputError, match=said):
            privatize(made(**changes), epsilon=3.0, delta=0.01)
    run = run_of(records=6, batches=lethe.batches.Cyclic(6), steps=1, clip_norm=CLIP)
    trainer = privatize(made(max_steps=-1), run=run, delta=0.01)
    trainer.train()
    assert len(asked) == len(answered) == 6
    assert all(len(prompts) == 1 for prompts in asked)
    plain = made()
    total, start = torch.zeros_like(flat(plain.model)), flat(plain.model)
    plain.current_gradient_accumulation_steps = plain.args.steps_per_generation = 1
    for answers in answered:
        loss = plain.compute_loss(plain.model.train(), {name: value[0] for name, value in answers.items()})
        gradient = torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, list(plain.model.parameters()))])
        total += gradient * min(1.0, CLIP / max(float(gradient.norm()), 1e-12))
    assert float(total.norm()) > 0.01
    assert float((flat(trainer.model) - (start - 0.1 / 6 * total)).abs().max()) < 1e-8
    assert privatize(made(), epsilon=3.0, delta=0.01).run.batch_size == 2
