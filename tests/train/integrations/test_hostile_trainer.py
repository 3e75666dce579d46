"""What goes wrong around a private Trainer: collators, losses, records that are not numbers."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

import torch
from helpers import with_fresh_noise
from how_many import by_night
from small_models import DELTA, RECORDS, arguments, classifier, flat, language_model, padded, private, run_of, sentences, texts
from torch.nn import functional
from transformers import BertForSequenceClassification

import lethe
from lethe.errors import InputError
from lethe.integrations.transformers import PrivateTrainer


def broken(records: list[dict[str, Any]], key: str) -> dict[str, torch.Tensor]:
    batch = padded(records)
    return {**batch, key: batch[key][:, :-1]}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("collator", "said"),
    [
        (None, "makes no batch"),  # lengths that differ, and nobody pads
        (lambda records: broken(records, "attention_mask"), "of more than that record"),
        (lambda records: {**padded(records), "names": ["x"] * len(records)}, "names of a batch is list; it needs a tensor"),
        (
            lambda records: {**padded(records), "labels": torch.zeros(1 + len(records))},
            "a tensor with . rows, one for each record",
        ),
        (lambda records: {key: part.reshape(1, -1) for key, part in padded(records).items()}, "packing: several records in one row"),
        (lambda records: list(padded(records)), "made a list"),
        (lambda records: {**padded(records), "labels": padded(records)["labels"].min().expand(len(records))}, "of more than that record"),
        (lambda records: {**padded(records), "labels": padded(records)["labels"].double()}, "labels: got shape"),
        (lambda records: {key: part for key, part in padded(records).items() if key != "labels"}, "of the labels .labels. it has none"),
    ],
)
def test_batches_of_another_shape_are_refused_before_they_are_used(collator: Any, said: str, tmp_path: Path) -> None:
    model = classifier()
    before = flat(model)
    trainer = private(tmp_path, model, sentences(length=None), run=run_of(), told={"data_collator": collator})
    with pytest.raises(InputError, match=said):
        trainer.train()
    assert torch.equal(flat(model), before)


def test_a_record_without_labels_takes_part_with_a_loss_of_0(tmp_path: Path) -> None:
    data = texts()
    data[3] = {**data[3], "labels": [-100] * len(data[3]["labels"])}
    run = run_of(batches=lethe.batches.Cyclic(RECORDS), steps=1)
    given = {"optim": "sgd", "learning_rate": 0.1, "lr_scheduler_type": "constant"}
    ends = []
    for records in (data, [one for place, one in enumerate(data) if place != 3]):
        model = language_model()
        here = run.replace(records=len(records), batches=lethe.batches.Cyclic(len(records)))
        trainer = private(tmp_path, model, records, run=here, told={"data_collator": padded}, **given)
        trainer.train()
        ends.append((flat(model) - flat(language_model())) * len(records))
    assert float((ends[0] - ends[1]).abs().max()) < 1e-7


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"labels": 9}, "labels: one of them is 9; the model tells 3 classes"),
        ({"labels": -5}, "labels: one of them is -5; the model tells 3 classes"),
        ({"labels": 0.5}, "(?s)labels: got shape .*of a multi_label.*give a class as a whole number"),
        ({"input_ids": [1000] * 8}, "(?s)on a record alone.*vocab_size"),
        ({"input_ids": [1] * 40, "attention_mask": [1] * 40}, "(?s)on a record alone.*max_position_embeddings"),
    ],
)
def test_numbers_that_the_model_does_not_take(changed: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        private(tmp_path, classifier(), [{**record, **changed} for record in sentences()], run=run_of()).train()


def each(outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
    assert num_items_in_batch is None
    return functional.cross_entropy(outputs.logits, labels, reduction="none")


class Own(PrivateTrainer):
    """A compute_loss that is overridden."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None) -> Any:
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        return functional.cross_entropy(outputs.logits, labels, reduction="none")


def test_a_loss_function_of_the_user_s_own(tmp_path: Path) -> None:
    ends = []
    for kind, told in ((PrivateTrainer, {}), (PrivateTrainer, {"compute_loss_func": each}), (Own, {}))[: 2 + by_night()]:
        model, args = classifier(), arguments(tmp_path, max_steps=-1)
        kind(model=model, args=args, train_dataset=sentences(), run=run_of(steps=1), delta=DELTA, **told).train()
        ends.append(flat(model))
    assert all(float((end - ends[0]).abs().max()) < 1e-12 for end in ends)
    for function, said in (
        (lambda outputs, labels, num_items_in_batch=None: each(outputs, labels).mean(), "one loss a record"),
        (
            lambda outputs, labels, num_items_in_batch=None: each(outputs, labels) / each(outputs, labels).detach().mean(),
            "depends on the other",
        ),
    ):
        with pytest.raises(InputError, match=said):
            private(tmp_path, classifier(), sentences(), run=run_of(), told={"compute_loss_func": function}).train()


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
        private(tmp_path, model, sentences(), run=run_of()).train()
    Penalised.__name__ = "Unheard"
    with pytest.raises(InputError, match=r"(?s)is not known of Unheard.*compute_loss_func"):
        private(tmp_path, model, sentences(), run=run_of()).train()


def test_a_random_collator_has_to_be_declared(tmp_path: Path) -> None:
    from transformers import BertConfig, BertForMaskedLM

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
