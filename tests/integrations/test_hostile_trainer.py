"""What goes wrong around a private Trainer: arguments, collators, losses, records that are not numbers."""

import warnings
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

import torch
from helpers import with_fresh_noise
from small_models import DELTA, RECORDS, arguments, classifier, flat, language_model, padded, private, run_of, sentences, texts
from torch.nn import functional
from transformers import BertForSequenceClassification, TrainingArguments

import lethe
from lethe.errors import InputError, MissingExtraError
from lethe.integrations.transformers import PrivateTrainer

pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning"), pytest.mark.filterwarnings("ignore:.*lr_scheduler.step.*")]


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("auto_find_batch_size", True, "meet records twice"),
        ("train_sampling_strategy", "group_by_length", "batches grouped by length"),
        ("torch_compile", True, "hooks on the model's layers"),
        ("neftune_noise_alpha", 5.0, "how far the batch is padded"),
        ("optim", "galore_adamw", "one gradient a step"),
        ("optim", "lomo", "one gradient a step"),
        ("lr_scheduler_type", "reduce_lr_on_plateau", "chooses the learning rate"),
        ("data_seed", 3, "fresh entropy"),
        ("include_num_input_tokens_seen", "all", "secret"),
        ("skip_memory_metrics", False, "secret"),
        ("enable_jit_checkpoint", True, "in the middle of a step"),
        ("ignore_data_skip", True, "exactly the batches that are left"),
        ("torch_empty_cache_steps", 2, "not honoured"),
        ("debug", "underflow_overflow", "prints? them"),
        ("use_liger_kernel", True, "compute gradients by themselves"),
        ("ddp_find_unused_parameters", True, "not honoured"),
        ("ddp_bucket_cap_mb", 3, "not honoured"),
    ],
)
def test_arguments_that_are_not_honoured_are_refused_by_name(name: str, value: Any, why: str, tmp_path: Path) -> None:
    args = arguments(tmp_path)
    object.__setattr__(args, name, value)
    with pytest.raises(InputError, match=f"(?s){name}: got.*{why}"):
        PrivateTrainer(model=classifier(), args=args, train_dataset=sentences(), epsilon=1.0, delta=DELTA)


def test_the_best_model_is_nobody_s_choice(tmp_path: Path) -> None:
    given: dict[str, Any] = {"eval_strategy": "epoch", "save_strategy": "epoch", "metric_for_best_model": "loss"}
    with pytest.raises(InputError, match=r"(?s)load_best_model_at_end.*another iterate than the last"):
        private(tmp_path, classifier(), sentences(), told={"eval_dataset": sentences(4)}, load_best_model_at_end=True, **given)


def test_records_are_not_trained_on_and_evaluated(tmp_path: Path) -> None:
    data = sentences()
    for looked_at in (data, {"seen": data, "new": sentences(4)}):
        with pytest.raises(InputError, match="eval_dataset: it is train_dataset"):
            private(tmp_path, classifier(), data, told={"eval_dataset": looked_at})


ENVIRONMENT = {"ACCELERATE_MIXED_PRECISION": ("fp16", "bf16=True"), "ACCELERATE_DYNAMO_BACKEND": ("INDUCTOR", "compiled model")}


@pytest.mark.parametrize("variable", ENVIRONMENT)
def test_what_the_environment_tells_accelerate(variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from accelerate.state import AcceleratorState

    value, said = ENVIRONMENT[variable]
    monkeypatch.setenv(variable, value)
    AcceleratorState._reset_state(reset_partial_state=True)
    try:
        with pytest.raises(InputError, match=f"(?s)accelerate.*{said}"):
            private(tmp_path, classifier(), sentences())
    finally:
        monkeypatch.undo()
        AcceleratorState._reset_state(reset_partial_state=True)


def test_arguments_that_nobody_has_heard_of_are_refused(tmp_path: Path) -> None:
    import dataclasses

    @dataclasses.dataclass
    class Newer(TrainingArguments):
        share_gradients: bool = False

    common = {"output_dir": str(tmp_path), "use_cpu": True, "save_strategy": "no", "report_to": "none"}
    PrivateTrainer(model=classifier(), args=Newer(**common), train_dataset=sentences(), epsilon=1.0, delta=DELTA)
    with pytest.raises(InputError, match="share_gradients: got True; whether it breaks privacy is not known"):
        PrivateTrainer(model=classifier(), args=Newer(share_gradients=True, **common), train_dataset=sentences(), epsilon=1.0, delta=DELTA)


def test_every_training_argument_has_been_thought_of() -> None:
    """A new version of transformers that brings a new one shows here; until then only its default passes."""
    import dataclasses

    from lethe.integrations.transformers.arguments import HONOURED, NEEDS

    known = {field.name for field in dataclasses.fields(TrainingArguments)}
    refused_unless_default = {
        "optim_target_modules",
        "torch_compile_backend",
        "torch_compile_mode",
        "liger_kernel_config",
        "accelerator_config",
        "ddp_find_unused_parameters",
        "ddp_bucket_cap_mb",
        "ddp_broadcast_buffers",
        "ddp_static_graph",
        "fsdp_config",
    }
    assert known - HONOURED - set(NEEDS) == refused_unless_default
    assert not HONOURED & set(NEEDS)


def test_targets_and_runs_that_contradict(tmp_path: Path) -> None:
    run = run_of(steps=6)
    with pytest.raises(InputError, match="delta: none was given"):
        PrivateTrainer(model=classifier(), args=arguments(tmp_path), train_dataset=sentences(), epsilon=1.0)
    for told, said in (({}, "epsilon: got None, run: none"), ({"epsilon": 1.0, "run": run}, "it needs one of them")):
        with pytest.raises(InputError, match=said):
            PrivateTrainer(model=classifier(), args=arguments(tmp_path), train_dataset=sentences(), delta=DELTA, **told)
    for changes, said in (
        ({"max_steps": 7}, "max_steps: got 7; the run says 6"),
        ({"max_grad_norm": 0.5}, "max_grad_norm: got 0.5"),
        ({"num_train_epochs": 5.0}, "num_train_epochs: got 5.0"),
        ({"gradient_accumulation_steps": 3}, "gradient_accumulation_steps: got 3; the run says batches of 8"),
    ):
        with pytest.raises(InputError, match=said):
            private(tmp_path, classifier(), sentences(), run=run, **changes)
    assert private(tmp_path, classifier(), sentences(), run=run, per_device_train_batch_size=4, gradient_accumulation_steps=2).run == run
    with pytest.raises(InputError, match="needs to be > 0"):
        private(tmp_path, classifier(), sentences(), max_grad_norm=0.0)
    with pytest.raises(InputError, match="delta"):
        PrivateTrainer(model=classifier(), args=arguments(tmp_path), train_dataset=sentences(), epsilon=1.0, delta=0.5)
    with pytest.raises(InputError, match="every trial is a training"):
        private(tmp_path, classifier(), sentences()).hyperparameter_search()


def broken(records: list[dict[str, Any]], key: str) -> dict[str, torch.Tensor]:
    batch = padded(records)
    return {**batch, key: batch[key][:, :-1]}


@pytest.mark.parametrize(
    ("collator", "said"),
    [
        (None, "makes no batch"),  # lengths that differ, and nobody pads
        (lambda records: broken(records, "attention_mask"), "they disagree in length"),
        (lambda records: {**padded(records), "names": ["x"] * len(records)}, "names is list; it needs a tensor"),
        (
            lambda records: {**padded(records), "labels": torch.zeros(1 + len(records))},
            "a tensor with . rows, one for each record",
        ),
        (lambda records: list(padded(records)), "made a list"),
        (lambda records: {**padded(records), "labels": padded(records)["labels"].min().expand(len(records))}, "of more than that record"),
        (lambda records: {**padded(records), "labels": padded(records)["labels"].double()}, "labels: got shape"),
        (lambda records: {key: part for key, part in padded(records).items() if key != "labels"}, "of the labels .labels. it has none"),
    ],
)
def test_batches_of_another_shape_are_refused_before_they_are_used(collator: Any, said: str, tmp_path: Path) -> None:
    model = classifier()
    before = flat(model)
    trainer = private(tmp_path, model, sentences(length=None), told={"data_collator": collator})
    with pytest.raises(InputError, match=said):
        trainer.train()
    assert torch.equal(flat(model), before)


def test_labels_of_another_length_than_the_tokens(tmp_path: Path) -> None:
    trainer = private(tmp_path, language_model(), texts(), told={"data_collator": lambda records: broken(records, "labels")})
    with pytest.raises(InputError, match="each token needs one label"):
        trainer.train()


@pytest.mark.slow
def test_a_record_without_labels_takes_part_with_a_loss_of_0(tmp_path: Path) -> None:
    data = texts()
    data[3] = {**data[3], "labels": [-100] * len(data[3]["labels"])}
    run = run_of(batches=lethe.Cyclic(size=RECORDS), steps=1)
    given = {"optim": "sgd", "learning_rate": 0.1, "lr_scheduler_type": "constant"}
    ends = []
    for records in (data, [one for place, one in enumerate(data) if place != 3]):
        model = language_model()
        here = run.replace(records=len(records), batches=lethe.Cyclic(size=len(records)))
        trainer = private(tmp_path, model, records, run=here, told={"data_collator": padded}, **given)
        trainer.train()
        ends.append((flat(model) - flat(language_model())) * len(records))
    assert float((ends[0] - ends[1]).abs().max()) < 1e-7


def numbers(bad: tuple[int, ...]) -> list[dict[str, Any]]:
    """Records whose embeddings are given; those of some are NaN."""
    random = torch.Generator().manual_seed(2)
    made = []
    for place in range(RECORDS):
        embedded = torch.randn(6, 16, generator=random, dtype=torch.float64)
        made.append(
            {"inputs_embeds": torch.full_like(embedded, torch.nan) if place in bad else embedded, "labels": torch.tensor(place % 3)}
        )
    return made


@pytest.mark.slow
def test_a_record_that_is_nan_contributes_nothing(tmp_path: Path) -> None:
    given = {"optim": "sgd", "learning_rate": 0.1, "lr_scheduler_type": "constant"}
    ends = []
    for bad in ((), (3,)):
        model = classifier()
        trainer = private(tmp_path, model, numbers(bad), run=run_of(batches=lethe.Cyclic(size=RECORDS), steps=1), **given)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*could not check everything.*")
            trainer.train()
        ends.append(RECORDS * (flat(model) - flat(classifier())) / -0.1)
    model = classifier()
    record = numbers(())[3]
    loss = model(inputs_embeds=record["inputs_embeds"][None], labels=record["labels"][None]).loss
    gradients: Any = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    own = torch.cat(
        [(torch.zeros_like(one) if part is None else part).reshape(-1) for part, one in zip(gradients, model.parameters(), strict=True)]
    )
    assert float((ends[0] - ends[1] - own).abs().max()) < 1e-7


@pytest.mark.slow
def test_records_that_are_all_nan_are_told_of_loudly(tmp_path: Path) -> None:
    trainer = private(tmp_path, classifier(), numbers(tuple(range(RECORDS))), run=run_of(steps=12, noise_multiplier=1.0))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        trainer.train()
    said = [str(one.message) for one in told]
    assert sum("no record contributed to any of the first 10 steps" in one for one in said) == 1
    assert sum("no record contributed to any step of this training" in one for one in said) == 1


def each(outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
    assert num_items_in_batch is None
    return functional.cross_entropy(outputs.logits, labels, reduction="none")


@pytest.mark.slow
def test_a_loss_function_of_the_user_s_own(tmp_path: Path) -> None:
    ends = []
    for told in ({}, {"compute_loss_func": each}):
        model = classifier()
        private(tmp_path, model, sentences(), run=run_of(), told=told).train()
        ends.append(flat(model))
    assert float((ends[0] - ends[1]).abs().max()) < 1e-12
    for function, said in (
        (lambda outputs, labels, num_items_in_batch=None: each(outputs, labels).mean(), "it needs one loss a record"),
        (
            lambda outputs, labels, num_items_in_batch=None: each(outputs, labels) / each(outputs, labels).detach().mean(),
            "depends on the other",
        ),
    ):
        with pytest.raises(InputError, match=said):
            private(tmp_path, classifier(), sentences(), run=run_of(), told={"compute_loss_func": function}).train()


class Own(PrivateTrainer):
    """A compute_loss that is overridden."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None) -> Any:
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        return functional.cross_entropy(outputs.logits, labels, reduction="none")


class OfTheBatch(PrivateTrainer):
    """One that divides by the batch's number of tokens, as the Trainer does without privacy."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None) -> Any:
        labels = inputs.pop("labels")
        logits = model(**inputs).logits[:, :-1]
        each = functional.cross_entropy(logits.transpose(1, 2), labels[:, 1:], reduction="none")
        return each.sum(1) / (labels[:, 1:] != -100).sum()


class Mean(PrivateTrainer):
    """One that gives the batch's mean."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None) -> Any:
        return model(**inputs).loss


@pytest.mark.slow
def test_a_loss_method_of_the_user_s_own(tmp_path: Path) -> None:
    ends = []
    for kind in (PrivateTrainer, Own):
        model = classifier()
        kind(model=model, args=arguments(tmp_path, max_steps=-1), train_dataset=sentences(), run=run_of(), delta=DELTA).train()
        ends.append(flat(model))
    assert float((ends[0] - ends[1]).abs().max()) < 1e-12
    mean = Mean(model=classifier(), args=arguments(tmp_path, max_steps=-1), train_dataset=sentences(), run=run_of(), delta=DELTA)
    with pytest.raises(InputError, match="a mean hides the records"):
        mean.train()
    args = arguments(tmp_path, max_steps=-1)
    divided = OfTheBatch(model=language_model(), args=args, train_dataset=texts(), data_collator=padded, run=run_of(), delta=DELTA)
    with pytest.raises(InputError, match="share"):
        divided.train()


@pytest.mark.slow
def test_models_whose_loss_is_another(tmp_path: Path) -> None:
    """A class that is known, with a term of its own in the loss; and a class of which nothing is known."""

    class Penalised(BertForSequenceClassification):
        def forward(self, input_ids: Any = None, attention_mask: Any = None, labels: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
            outputs: Any = super().forward(input_ids=input_ids, attention_mask=attention_mask, labels=labels)
            if outputs.loss is not None:
                outputs.loss = outputs.loss + 0.1 * (outputs.logits - 1).square().mean()
            return outputs

    model = classifier()
    model.__class__ = Penalised
    Penalised.__name__ = "BertForSequenceClassification"
    with pytest.raises(InputError, match="its own loss of a record alone is not that which is known"):
        private(tmp_path, model, sentences()).train()
    Penalised.__name__ = "Unheard"
    with pytest.raises(InputError, match=r"(?s)is not known of Unheard.*compute_loss_func"):
        private(tmp_path, model, sentences()).train()


@pytest.mark.slow
def test_a_random_collator_has_to_be_declared(tmp_path: Path) -> None:
    from transformers import BertConfig, BertForMaskedLM

    def masked(records: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        batch = padded(records)
        hidden = torch.rand(batch["input_ids"].shape) < 0.3
        return {**batch, "labels": batch["input_ids"].masked_fill(~hidden, -100), "input_ids": batch["input_ids"].masked_fill(hidden, 3)}

    config = BertConfig(**{**classifier().config.to_dict(), "architectures": None})
    model = BertForMaskedLM(config).double()
    with pytest.raises(InputError, match="declared_apart=True"):
        private(tmp_path, model, sentences(), told={"data_collator": masked}).train()
    trainer = private(tmp_path, model, sentences(), told={"data_collator": masked, "declared_apart": True})
    trainer.train()
    assert with_fresh_noise(trainer.record().run) == with_fresh_noise(trainer.run)


def test_without_the_packages_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib
    import importlib.util

    package = importlib.import_module("lethe.integrations.transformers")
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "transformers" else found(name, *rest))
    with pytest.raises(MissingExtraError, match=r"lethe-dp\[transformers\]"):
        importlib.reload(package)
