"""What a private Trainer refuses, by name and with what to do: arguments, targets, runs, data, batches, losses, and its surroundings."""

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

import torch
from helpers import with_fresh_noise
from small_models import DELTA, RECORDS, arguments, classifier, flat, padded, private, run_of, sentences
from torch.nn import functional
from torch.utils.data import DataLoader, WeightedRandomSampler
from transformers import BertConfig, BertForMaskedLM

import lethe
from lethe.errors import HypothesisError, InputError, MissingExtraError, UnknownArgumentError
from lethe.integrations.training import Target
from lethe.integrations.transformers import PrivateTrainer
from lethe.integrations.transformers.arguments import refuse_arguments
from lethe.integrations.transformers.losses import criterion_of, labels_of

RUN = run_of(steps=6)

FIELDS: list[tuple[str, Any, str]] = [
    ("auto_find_batch_size", True, "per_device_train_batch_size"),
    ("neftune_noise_alpha", 5.0, "leave it out"),
    ("include_num_input_tokens_seen", "all", "leave it out"),
    ("train_sampling_strategy", "group_by_length", "batch design"),
    ("optim", "galore_adamw_layerwise", "nobody clipped"),
    ("optim", "lomo", "nobody clipped"),
    ("debug", "underflow_overflow", "print them"),
    ("fsdp", "full_shard", "fully_shard"),
    ("deepspeed", "plan.json", "fully_shard"),
    ("fp16", True, "bf16=True"),
    ("packing", True, "one conversation a row"),
    ("padding_free", True, "joins all conversations"),
]


@pytest.mark.parametrize(("name", "value", "remedy"), FIELDS)
def test_arguments_that_are_not_honoured_are_refused_by_name(name: str, value: Any, remedy: str, tmp_path: Path) -> None:
    args = arguments(tmp_path)
    object.__setattr__(args, name, value)
    with pytest.raises(InputError, match=f"(?s){name}: got.*{remedy}"):
        refuse_arguments(args)


def test_devices_of_one_process_are_refused(tmp_path: Path) -> None:
    args = arguments(tmp_path)
    args._n_gpu = 2
    with pytest.raises(InputError, match=r"(?s)2 devices in one process: DataParallel.*torchrun --nproc-per-node=2"):
        refuse_arguments(args)


def test_what_the_environment_tells_accelerate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from accelerate.state import AcceleratorState

    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "fp16")
    AcceleratorState._reset_state(reset_partial_state=True)
    try:
        with pytest.raises(InputError, match=r"(?s)accelerate.*bf16=True"):
            private(tmp_path, classifier(), sentences())
    finally:
        monkeypatch.undo()
        AcceleratorState._reset_state(reset_partial_state=True)


DATA = sentences()
MADE: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    # arguments of PrivateTrainer, of TrainingArguments, and what the error says
    ({"target_epsilon": 1.0}, {}, "target_epsilon: .*did you mean 'epsilon'"),
    ({"learning_rate": 1.0}, {}, r"TrainingArguments\(learning_rate"),
    ({"clip_norm": 1.0}, {}, "clip_norm: .*max_grad_norm="),
    ({"noise_multiplier": 1.0}, {}, r"noise_multiplier: .*run=lethe\.Run"),
    ({"epochs": 1.0}, {}, "num_train_epochs="),
    ({"unit": "user"}, {}, "unit: .*users="),
    ({"eval_dataset": DATA}, {}, "eval_dataset: it is train_dataset"),
    ({"eval_dataset": {"seen": DATA, "new": sentences(4)}}, {}, "eval_dataset: it is train_dataset"),
    ({"delta": None}, {}, "delta: none was given"),
    ({"delta": 0.5}, {}, r"delta: got 0\.5; with 24 records.*allow_large_delta=True"),
    ({"delta": 0.5, "run": RUN}, {}, r"delta: got 0\.5; with 24 records.*allow_large_delta=True"),
    ({"epsilon": None}, {}, "epsilon: got None, run: none"),
    ({"epsilon": 1.0, "run": RUN}, {}, "it needs one of them"),
    ({"run": RUN.replace(unit="user")}, {}, "PrivateTrainer without users= knows no users"),
    ({"users": "person"}, {}, "'person' names a column"),
    ({"run": RUN}, {"max_steps": 7}, "max_steps: got 7; the run says 6"),
    ({"run": RUN}, {"max_grad_norm": 0.5}, r"max_grad_norm: got 0\.5"),
    ({"run": RUN}, {"num_train_epochs": 5.0}, r"num_train_epochs: got 5\.0"),
    ({"run": RUN}, {"gradient_accumulation_steps": 3}, "gradient_accumulation_steps: got 3; the run says batches of 8"),
    ({}, {"max_grad_norm": 0.0}, r"max_grad_norm: got 0\.0; .*a number > 0"),
    ({}, {"max_grad_norm": float("inf")}, "max_grad_norm: got inf"),
    ({}, {"per_device_train_batch_size": 0}, "per_device_train_batch_size: got 0; it needs a number > 0"),
    ({}, {"gradient_accumulation_steps": 0}, "gradient_accumulation_steps: got 0"),
    ({}, {"max_steps": -1, "num_train_epochs": 0}, "num_train_epochs: got 0"),
    ({"train_dataset": []}, {}, "train_dataset: it has no records"),
    ({"train_dataset": iter(DATA)}, {}, "train_dataset: .*has no length"),
    ({"noisy_grad_norm": 0.0}, {}, "noisy_grad_norm"),
]


@pytest.mark.parametrize(("own", "changes", "said"), MADE)
def test_what_contradicts_is_refused_when_the_trainer_is_made(
    own: dict[str, Any], changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    target = {"max_steps": -1} if "run" in own else {}
    given = {"train_dataset": DATA, "delta": DELTA, **({} if "run" in own else {"epsilon": 1.0}), **own}
    with pytest.raises((InputError, UnknownArgumentError), match=f"(?s){said}"):
        PrivateTrainer(model=classifier(), args=arguments(tmp_path, **target | changes), **given)


class Weighted(PrivateTrainer):
    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        return WeightedRandomSampler([1.0] * RECORDS, RECORDS)


class OwnLoader(PrivateTrainer):
    def get_train_dataloader(self) -> Any:
        return DataLoader(DATA, shuffle=True)  # pyright: ignore[reportArgumentType]


def test_a_trainer_with_an_order_of_its_own_is_refused(tmp_path: Path) -> None:
    for kind, said in ((Weighted, "more often than others"), (OwnLoader, "OwnLoader has one of its own")):
        with pytest.raises(InputError, match=said):
            kind(model=classifier(), args=arguments(tmp_path), train_dataset=DATA, epsilon=1.0, delta=DELTA)


def test_what_agrees_is_taken(tmp_path: Path) -> None:
    assert private(tmp_path, classifier(), DATA, run=RUN, per_device_train_batch_size=4, gradient_accumulation_steps=2).run == RUN
    large = private(tmp_path, classifier(), DATA, told={"allow_large_delta": True})
    assert large.run.records == len(DATA)
    with pytest.raises(InputError, match="every trial is a training"):
        large.hyperparameter_search()


USERS = [f"person {place % 4}" for place in range(24)]
LAST = run_of(release="last", noise_multiplier=1.0, clip_norm=0.5, neighbours="replace_one")
TRAINED: list[tuple[Any, dict[str, Any], lethe.Run, str]] = [
    (["a text"] * 24, {}, RUN, r"it makes no batch.*a record is a str: make it a mapping"),
    (DATA, {"users": USERS[1:]}, run_of(unit="user", records=4, batches=lethe.batches.Cyclic(4)), "users: got 23"),
    (DATA, {"users": USERS}, RUN, "unit"),
    (DATA, {"users": USERS}, run_of(unit="user"), "24"),
    (DATA, {"records_per_user": 2}, RUN, "records_per_user"),
    (DATA, {}, LAST, "of your own, with release: last"),
    *(
        ([{**record, **changed} for record in DATA], {}, RUN, said)
        for changed, said in (
            ({"labels": 9}, "Target 9 is out of bounds.*labels and tokens"),
            ({"labels": -5}, "Target -5 is out of bounds"),
            ({"labels": 0.5}, "a record alone.*size"),
            ({"input_ids": [1000] * 8}, "a record alone.*index out of range.*labels and tokens"),
            ({"input_ids": [1] * 40, "attention_mask": [1] * 40}, "a record alone.*expanded size"),
        )
    ),
    *(
        (sentences(length=None), {"data_collator": collator}, RUN, said)
        for collator, said in (
            (None, "makes no batch"),  # lengths that differ, and nobody pads
            (lambda records: {**padded(records), "attention_mask": padded(records)["attention_mask"][:, :-1]}, "of more than that record"),
            (lambda records: {**padded(records), "names": ["x"] * len(records)}, "names of a batch is list; it needs a tensor"),
            (lambda records: {**padded(records), "labels": torch.zeros(1 + len(records))}, "a tensor with . rows, one for each record"),
            (lambda records: {key: part.reshape(1, -1) for key, part in padded(records).items()}, "packing=True"),
            (lambda records: list(padded(records)), "made a list"),
            (lambda records: {**padded(records), "labels": padded(records)["labels"].min().expand(len(records))}, "of more than that"),
            (lambda records: {key: part for key, part in padded(records).items() if key != "labels"}, "did not return a loss"),
        )
    ),
    (
        DATA,
        {"compute_loss_func": lambda outputs, labels, num_items_in_batch=None: outputs.logits},
        RUN,
        "gives shape .*it needs one number",
    ),
    (DATA, {"compute_loss_func": lambda outputs, labels, num_items_in_batch=None: beside(outputs, labels)}, RUN, "depends on the other"),
]


def each(outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
    return functional.cross_entropy(outputs.logits, labels, reduction="none")


def beside(outputs: Any, labels: torch.Tensor) -> torch.Tensor:
    return each(outputs, labels) / each(outputs, labels).detach().mean()


@pytest.mark.sampled(10)
@pytest.mark.parametrize(("data", "own", "run", "said"), TRAINED)
def test_what_shows_when_training_begins_leaves_the_model(data: Any, own: dict[str, Any], run: Any, said: str, tmp_path: Path) -> None:
    model = classifier()
    before = flat(model)
    sgd: dict[str, Any] = {"optim": "sgd", "learning_rate": 0.1, "lr_scheduler_type": "constant"}
    with pytest.raises((InputError, HypothesisError), match=f"(?s){said}"):
        private(tmp_path, model, data, run=run, told=own, **sgd).train()
    assert torch.equal(flat(model), before)


def test_losses_that_are_not_known() -> None:
    tokens = {"input_ids": torch.ones(2, 3), "attention_mask": torch.ones(2, 3)}
    with pytest.raises(InputError, match="is not known of Linear"):
        criterion_of(torch.nn.Linear(2, 2), 0.0)
    with pytest.raises(InputError, match="for a language model DataCollatorForLanguageModeling"):
        labels_of(tokens, ["labels"])
    with pytest.raises(InputError, match="a loss of your own"):
        labels_of({**tokens, "labels": torch.ones(2), "next": torch.ones(2)}, ["labels", "next"])


@pytest.mark.parametrize("accumulated", [1, 3])
def test_a_planned_batch_is_of_all_processes(accumulated: int) -> None:
    target = Target(call="T(...)", epsilon=3.0, delta=DELTA, run=None, neighbours="add_or_remove", allow_large_delta=False)
    alone, shared = (target.planned(24, (size, accumulated, 4 // size), lambda epoch: 2 * epoch, 0.1, clip_norm=1.0) for size in (4, 2))
    assert (shared.run, shared.steps_per_epoch, shared.physical_size) == (alone.run, alone.steps_per_epoch, 2)
    assert shared.run.batch_size == 4 * accumulated


def test_without_the_packages_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    package = importlib.import_module("lethe.integrations.transformers")
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "transformers" else found(name, *rest))
    with pytest.raises(MissingExtraError, match=r"lethe-dp\[transformers\]"):
        importlib.reload(package)


class Own(PrivateTrainer):
    """A compute_loss that is overridden."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None) -> Any:
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        return functional.cross_entropy(outputs.logits, labels, reduction="none")


@pytest.mark.filterwarnings("ignore:the model is trained record by record")
def test_a_loss_function_of_the_user_s_own(tmp_path: Path) -> None:
    ends = []
    mean = {"compute_loss_func": lambda outputs, labels, num_items_in_batch=None: each(outputs, labels).mean()}
    for kind, told in ((PrivateTrainer, {}), (PrivateTrainer, {"compute_loss_func": each}), (PrivateTrainer, mean), (Own, {})):
        model, args = classifier(), arguments(tmp_path, max_steps=-1)
        kind(model=model, args=args, train_dataset=sentences(), run=run_of(steps=1), delta=DELTA, **told).train()
        ends.append(flat(model))
    assert all(float((end - ends[0]).abs().max()) < 1e-12 for end in ends)


def test_a_random_collator_has_to_be_declared(tmp_path: Path) -> None:
    def masked(records: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        batch = padded(records)
        hidden = torch.rand(batch["input_ids"].shape) < 0.3
        return {**batch, "labels": batch["input_ids"].masked_fill(~hidden, -100), "input_ids": batch["input_ids"].masked_fill(hidden, 3)}

    config = BertConfig(**{**classifier().config.to_dict(), "architectures": None})
    model, run = BertForMaskedLM(config).double(), run_of(noise_multiplier=1.0, clip_norm=1.0, steps=1)
    with pytest.raises(InputError, match="declared_apart=True"):
        private(tmp_path, model, sentences(), run=run, told={"data_collator": masked}).train()
    trainer = private(tmp_path, model, sentences(), run=run, told={"data_collator": masked, "declared_apart": True})
    trainer.train()
    assert with_fresh_noise(trainer.record().run) == with_fresh_noise(trainer.run)
