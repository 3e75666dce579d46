"""The Trainer of transformers, private: the same result where nothing is clipped or noised, exact clipping, and a true certificate."""

import math
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

import numpy as np
import torch
from helpers import with_fresh_noise
from how_many import by_night
from small_models import DELTA, RECORDS, arguments, classifier, flat, gpt2, language_model, padded, private, run_of, sentences, texts
from torch.utils.data import DataLoader, SequentialSampler
from transformers import Trainer, TrainerCallback

import lethe
from lethe.errors import InputError
from lethe.integrations.transformers import record_losses
from lethe.train import TrainOptions, fit
from lethe.train.network.noise import training_noise
from lethe.train.planning import steps_per_epoch

SGD: dict[str, Any] = {"optim": "sgd", "learning_rate": 0.1, "lr_scheduler_type": "constant"}


class InOrder(Trainer):
    """The Trainer with batches in order, as a cyclic run has them."""

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        return SequentialSampler(self.train_dataset)


MODELS: dict[str, tuple[Any, Any, Any]] = {
    "classifier": (classifier, sentences(), None),
    "regression": (lambda: classifier(num_labels=1), [{**one, "labels": float(one["labels"])} for one in sentences()], None),
    "language model": (language_model, texts(length=8), padded),
}


CHANGES: list[dict[str, Any]] = [{}, {"label_smoothing_factor": 0.1}, {"optim": "sgd", "warmup_steps": 2, "learning_rate": 0.1}]
# A number is no label to smooth.
COMPARED = [(name, changes) for name in MODELS for changes in CHANGES if name != "regression" or "label_smoothing_factor" not in changes]


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("name", "changes"), COMPARED)
def test_without_noise_and_clipping_it_is_the_trainer(name: str, changes: dict[str, Any], tmp_path: Path) -> None:
    """The plain one divides by the batch's number of tokens: the same where all records predict equally many."""
    make, data, collator = MODELS[name]
    if name == "language model":
        data = [{**one, "labels": one["input_ids"]} for one in data]
    changes = {"learning_rate": 1e-2, "num_train_epochs": 2.0, "max_steps": -1, "max_grad_norm": 0.0, "weight_decay": 0.1, **changes}
    plain = InOrder(model=make(), args=arguments(tmp_path, **changes), train_dataset=data, data_collator=collator)
    plain.train()
    changes["max_grad_norm"] = 1.0
    run = run_of(steps=6)
    for physical in (8, 3) if by_night() else (3,):
        trainer = private(
            tmp_path, make(), data, run=run, told={"data_collator": collator}, **{**changes, "per_device_train_batch_size": physical}
        )
        trainer.train()
        assert float((flat(trainer.model) - flat(plain.model)).abs().max()) < (
            1e-5 if name == "language model" else 1e-9
        )  # its loss is float32
        assert trainer.state.global_step == plain.state.global_step == 6
        schedules: list[Any] = [trainer.lr_scheduler, plain.lr_scheduler]
        assert schedules[0].get_last_lr() == schedules[1].get_last_lr()
        assert with_fresh_noise(trainer.record().run) == run


def by_hand(model: Any, data: Any, clip_norm: float) -> torch.Tensor:
    """The sum of clipped gradients, record by record, of the model's own loss."""
    total = torch.zeros_like(flat(model))
    model.train()
    for record in data:
        loss = model(**padded([record])).loss
        gradient = torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, list(model.parameters()))])
        total += gradient * min(1.0, clip_norm / float(gradient.norm()))
    return total


@pytest.mark.sampled(3)
@pytest.mark.filterwarnings("ignore::lethe.errors.RecordByRecordWarning")
@pytest.mark.parametrize("isolation", ["checked", "enforced"])
@pytest.mark.parametrize(("make", "data"), [(classifier, sentences(length=None)), (language_model, texts()), (gpt2, texts())])
def test_the_clipped_sum_is_that_of_records_alone(make: Any, data: Any, isolation: str, tmp_path: Path) -> None:
    """Records of different lengths, and prompts of different lengths: each loss is normalised by its own tokens."""
    norm = 0.5
    run = run_of(batches=lethe.batches.Cyclic(RECORDS), steps=1, clip_norm=norm)
    expected = flat(make()) - 0.1 / RECORDS * by_hand(make(), data, norm)
    told = {"data_collator": padded, "isolation": isolation}
    trainer = private(tmp_path, make(), data, run=run, told=told, **SGD, per_device_train_batch_size=5)
    trainer.train()
    assert trainer.engine is not None
    assert trainer.engine.diagnostics is not None
    assert ("fast" in str(trainer.engine.diagnostics.gradients)) == (isolation == "checked")
    assert float((flat(trainer.model) - expected).abs().max()) < 1e-7
    assert float((flat(make()) - expected).norm()) > 1e-3


def test_the_certificate_is_that_of_the_planned_run(tmp_path: Path) -> None:
    trainer = private(tmp_path, classifier(), sentences(), per_device_train_batch_size=2, gradient_accumulation_steps=3, max_steps=5)
    run = trainer.run
    assert (run.records, run.batches, run.total_steps, run.clip_norm) == (RECORDS, lethe.batches.RandomAllocation(6), 5, 1.0)
    assert (run.neighbours, run.release) == ("add_or_remove", "all")
    with pytest.raises(InputError, match="none before training is over"):
        _ = trainer.certificate_
    trainer.train()
    assert with_fresh_noise(trainer.record().run) == with_fresh_noise(run)
    assert not trainer.record().run.seeded
    certificate = lethe.certify(trainer.record(), DELTA)
    assert certificate.epsilon == trainer.certificate_.epsilon == lethe.certify(run, DELTA).epsilon
    assert 2.999 < certificate.epsilon <= 3.0
    assert certificate.seal is not None
    assert trainer.args.gradient_accumulation_steps == 3
    assert trainer.args.max_steps == 5
    with pytest.raises(InputError, match="this trainer has trained"):
        trainer.train()


def test_epochs_are_those_of_the_trainer(tmp_path: Path) -> None:
    for physical, accumulated, epochs in ((7, 3, 1.5), (5, 2, 2.0))[: 1 + by_night()]:
        changes = {"per_device_train_batch_size": physical, "gradient_accumulation_steps": accumulated, "num_train_epochs": epochs}
        plain = Trainer(model=classifier(), args=arguments(tmp_path, **changes, max_steps=-1), train_dataset=sentences())
        steps = plain.set_initial_training_values(plain.args, plain.get_train_dataloader())[-1]
        trainer = private(tmp_path, classifier(), sentences(), **changes, max_steps=-1)
        assert trainer.run.total_steps == steps
        per_epoch = steps_per_epoch(len(sentences()), physical * accumulated)
        assert trainer.run.batch_size == math.ceil(len(sentences()) / per_epoch) <= physical * accumulated
        assert trainer.run.steps_per_pass == per_epoch


def test_what_is_logged_is_what_is_spent_and_nothing_private(tmp_path: Path) -> None:
    given: dict[str, Any] = {"logging_strategy": "steps", "logging_steps": 1, "eval_strategy": "steps", "eval_steps": 2}
    noisy = run_of(noise_multiplier=2.0, clip_norm=1.0, steps=4)
    trainer = private(tmp_path, classifier(), sentences(), run=noisy, told={"eval_dataset": sentences(6)}, **given)
    output = trainer.train()
    run = trainer.run
    told = [entry for entry in trainer.state.log_history if "learning_rate" in entry]
    assert [entry["epsilon"] for entry in told] == [lethe.certify(run.replace(steps=step), DELTA).epsilon for step in (1, 2, 3, 4)]
    assert all(entry["grad_norm"] > 0 for entry in told)
    assert sum("eval_loss" in entry for entry in trainer.state.log_history) == 2
    words = set().union(*trainer.state.log_history)
    assert words.isdisjoint({"loss", "train_loss", "total_flos", "train_runtime", "train_samples_per_second", "num_input_tokens_seen"})
    assert output.training_loss != output.training_loss
    assert trainer.state.total_flos == 0
    told_all = {"log_private": True}
    shown = private(tmp_path, classifier(), sentences(), run=noisy, told=told_all, logging_strategy="steps", logging_steps=1)
    output = shown.train()
    assert abs(output.training_loss - math.log(3)) < 0.5


def test_a_checkpoint_and_the_card_hold_no_secret(tmp_path: Path) -> None:
    import yaml

    out = tmp_path / "out"
    run = run_of(noise_multiplier=2.0, clip_norm=1.0, steps=4)
    trainer = private(out, classifier(), sentences(), run=run, save_strategy="steps", save_steps=2)
    trainer.train()
    assert sorted(path.name for path in out.iterdir()) == ["checkpoint-2", "checkpoint-4"]
    assert sorted(path.name for path in (tmp_path / "out.private").iterdir()) == ["checkpoint.pt", "journal"]
    trainer.create_model_card(tags=["small"])
    for _ in range(2):
        text = (out / "README.md").read_text()
        head = yaml.safe_load(text.split("---\n")[1])
        said = head["differential_privacy"]
        assert (said["private"], said["sealed"], said["epsilon"], said["delta"]) == (True, True, trainer.certificate_.epsilon, DELTA)
        assert {"small", "differential-privacy", "lethe"} <= set(head["tags"])
        assert head["library_name"] == "transformers"
        assert text.count("# Privacy report") == 1
        trainer.create_model_card(tags=["small"])
    trainer.save_model()
    released = type(classifier()).from_pretrained(out)
    assert torch.equal(flat(released), flat(trainer.model))


def test_autocast_and_padding_and_empty_batches(tmp_path: Path) -> None:
    """Batches of one expected record: many are empty; all others are padded to the physical size."""
    run = run_of(batches=lethe.batches.Poisson(1), steps=12, noise_multiplier=1.0, clip_norm=1.0)
    for changes in ({"bf16": True}, {})[: 1 + by_night()]:
        model = language_model().float()
        before = flat(model)
        trainer = private(tmp_path, model, texts(), run=run, told={"data_collator": padded}, per_device_train_batch_size=2, **changes)
        trainer.train()
        assert with_fresh_noise(trainer.record().run) == run
        after = flat(model)
        assert bool(after.isfinite().all())
        assert not torch.equal(before, after)


def test_the_noisy_gradient_is_clipped_where_that_is_asked_for(tmp_path: Path) -> None:
    """By an argument of its own, or in a callback; the certificate is the same, a step of SGD no longer than its rate times the norm."""
    run = run_of(noise_multiplier=2.0, clip_norm=1.0, steps=1)

    class Clipping(TrainerCallback):
        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            torch.nn.utils.clip_grad_norm_(others["model"].parameters(), 0.01)

    moved = {}
    for name, told in {"plain": {}, "argument": {"noisy_grad_norm": 0.01}, "callback": {"callbacks": [Clipping()]}}.items():
        trainer = private(tmp_path, classifier(), sentences(), run=run, told=told, **SGD | {"learning_rate": 1.0})
        trainer.train()
        moved[name] = float((flat(trainer.model) - flat(classifier())).norm())
        assert trainer.certificate_.epsilon == lethe.certify(trainer.run, DELTA).epsilon
    assert moved["argument"] == pytest.approx(0.01, rel=1e-4)
    assert moved["callback"] == pytest.approx(0.01, rel=1e-4)
    assert moved["plain"] > 0.1


PEOPLE = [f"person {place * place % 6}" for place in range(RECORDS)]  # of 0, 1, 3 and 4, with 4, 8, 4 and 8 records


def test_a_user_is_clipped_once(tmp_path: Path) -> None:
    """The sum over users of the clipped gradient of the mean loss of their records, by the model's own loss of a batch."""
    norm, users = 0.3, len(set(PEOPLE))
    run = run_of(records=users, unit="user", batches=lethe.batches.Cyclic(users), steps=1, clip_norm=norm)
    trainer = private(tmp_path, classifier(), sentences(), run=run, told={"users": PEOPLE}, **SGD, per_device_train_batch_size=2)
    trainer.train()
    model, expected = classifier(), flat(classifier())
    for person in set(PEOPLE):
        mine = [record for record, owner in zip(sentences(), PEOPLE, strict=True) if owner == person]
        gradient = torch.cat([part.reshape(-1) for part in torch.autograd.grad(model(**padded(mine)).loss, list(model.parameters()))])
        expected -= 0.1 / users * gradient * min(1.0, norm / float(gradient.norm()))
    assert float((flat(trainer.model) - expected).abs().max()) < 1e-7
    assert float((flat(classifier()) - expected).norm()) > 1e-3
    assert trainer.record().run.unit == "user"


def test_a_planned_training_counts_users_and_reads_their_column(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_list([{**record, "person": person} for record, person in zip(sentences(), PEOPLE, strict=True)])
    told = {"users": "person", "records_per_user": 2}
    trainer = private(tmp_path, classifier(), data, told=told, per_device_train_batch_size=2, max_steps=-1, num_train_epochs=2.0)
    run = trainer.run
    assert (run.unit, run.records, run.batches, run.total_steps) == ("user", 4, lethe.batches.RandomAllocation(2), 4)
    trainer.train()
    assert trainer.certificate_.epsilon == lethe.certify(run, DELTA).epsilon
    assert "one user" in trainer.certificate_.explain()


@pytest.mark.sampled(3)
@pytest.mark.filterwarnings("ignore::lethe.errors.LetheWarning")
@pytest.mark.parametrize(("make", "data"), [(classifier, sentences(length=None)), (language_model, texts()), (gpt2, texts())])
def test_fit_with_the_losses_of_records_is_that_of_each_record_alone(make: Any, data: Any) -> None:
    """One record of a language model has no label at all: its loss is 0 here, and NaN where the model computes it: both add nothing."""
    if make is not classifier:
        data[3]["labels"] = [-100] * len(data[3]["labels"])
    run = run_of(batches=lethe.batches.Poisson(6), step_size=0.5, clip_norm=0.3)
    ends = []
    for model, alone in ((make(), False), (make(), True)):
        loader: Any = DataLoader(data, batch_size=2, collate_fn=padded)
        options = TrainOptions(seed=5, physical_size=1 if alone else 4)
        fitted = fit(model, None if alone else record_losses(model), loader, run, options=options)
        assert fitted.diagnostics.gradients == "fast"
        ends.append(flat(model))
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-5, atol=1e-6)  # a language model's own loss is in float32


@pytest.mark.filterwarnings("ignore::lethe.errors.LetheWarning")
def test_losses_of_records_that_cannot_be() -> None:
    model, without = classifier(), [{key: record[key] for key in ("input_ids", "attention_mask")} for record in sentences()]
    for call, said in (
        (lambda: record_losses(torch.nn.Linear(2, 2)), "what the loss of one record is, is not known of Linear"),
        (lambda: record_losses(model, label_smoothing=1), "label_smoothing: got 1"),
        (lambda: record_losses(model)(None, torch.zeros(2)), r"got a Tensor; it needs the batch(?s:.*)criterion\(model"),  # pyright: ignore
        (lambda: fit(model, record_losses(model), without, run_of()), r"of the labels .* it has none"),
    ):
        with pytest.raises(InputError, match=said):
            call()
    data: Any = DataLoader(sentences(), batch_size=2, collate_fn=padded)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match=r"(?s)loss: .*a SequenceClassifierOutput.*outputs\.logits.*record_losses"):
        fit(model, torch.nn.CrossEntropyLoss(reduction="none"), data, run_of(), options=TrainOptions(seed=5))


@pytest.mark.filterwarnings("ignore::lethe.errors.LetheWarning")
def test_correlated_noise_is_that_of_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its noise comes from fresh entropy, which here is the same for both."""
    monkeypatch.setattr(training_noise, "fresh_numpy_generator", lambda: np.random.default_rng(3))
    banded = {"kind": "banded_toeplitz", "coefficients": [1.0, 0.6, 0.3]}
    run = run_of(noise=banded, noise_multiplier=2.0, clip_norm=0.5, steps=6)
    trainer = private(tmp_path, classifier(), sentences(), run=run, **SGD, per_device_train_batch_size=8)
    trainer.train()
    model = classifier()
    records: Any = DataLoader(sentences(), batch_size=8, collate_fn=padded)  # pyright: ignore[reportArgumentType]
    fit(model.train(), record_losses(model), records, run, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    torch.testing.assert_close(flat(trainer.model), flat(model), rtol=1e-9, atol=1e-12)
    recorded = trainer.record().run
    assert recorded == run
    assert (trainer.certificate_.theorem, trainer.certificate_.epsilon) == ("correlated-noise", lethe.certify(run, DELTA).epsilon)
