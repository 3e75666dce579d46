"""PrivateTrainer with users: their records' mean loss, clipped once; batches, epochs and the certificate count users."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

import torch
from datasets import Dataset
from small_models import DELTA, RECORDS, classifier, flat, padded, private, run_of, sentences

import lethe
from lethe.errors import InputError

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*lr_scheduler.step.*"),
]

PEOPLE = 6
WHOSE = [f"person {place * place % PEOPLE}" for place in range(RECORDS)]  # of 0, 1, 3 and 4, with 4, 8, 4 and 8 records
SGD: dict[str, Any] = {"optim": "sgd", "learning_rate": 0.1, "lr_scheduler_type": "constant"}


def by_hand(clip_norm: float) -> torch.Tensor:
    """The sum over users of the clipped gradient of the mean loss of their records, by the model's own loss of a batch."""
    model, data = classifier(), sentences()
    total = torch.zeros_like(flat(model))
    for person in sorted(set(WHOSE)):
        mine = [record for record, owner in zip(data, WHOSE, strict=True) if owner == person]
        gradient = torch.cat([part.reshape(-1) for part in torch.autograd.grad(model(**padded(mine)).loss, list(model.parameters()))])
        total += gradient * min(1.0, clip_norm / float(gradient.norm()))
    return total


@pytest.mark.slow
def test_a_user_is_clipped_once(tmp_path: Path) -> None:
    norm, users = 0.3, len(set(WHOSE))
    run = run_of(records=users, unit="user", batches=lethe.batches.Cyclic(users), steps=1, clip_norm=norm)
    trainer = private(tmp_path, classifier(), sentences(), run=run, told={"users": WHOSE}, **SGD, per_device_train_batch_size=2)
    trainer.train()
    expected = flat(classifier()) - 0.1 / users * by_hand(norm)
    assert float((flat(trainer.model) - expected).abs().max()) < 1e-7
    assert float((flat(classifier()) - expected).norm()) > 1e-3
    assert trainer.record().run.unit == "user"


@pytest.mark.nightly(by_day="test_a_user_is_clipped_once")
@pytest.mark.slow
def test_users_with_one_record_each_are_records(tmp_path: Path) -> None:
    plain = private(tmp_path / "records", classifier(), sentences(), run=run_of(), **SGD)
    plain.train()
    users = [f"{place:03d}" for place in range(RECORDS)]  # in the order of the records
    trainer = private(tmp_path / "users", classifier(), sentences(), run=run_of(unit="user"), told={"users": users}, **SGD)
    trainer.train()
    assert torch.equal(flat(trainer.model), flat(plain.model))
    assert trainer.certificate_.epsilon == plain.certificate_.epsilon


@pytest.mark.slow
def test_a_planned_training_counts_users_and_reads_their_column(tmp_path: Path) -> None:
    data = Dataset.from_list([{**record, "person": person} for record, person in zip(sentences(), WHOSE, strict=True)])
    told = {"users": "person", "records_per_user": 2}
    trainer = private(tmp_path, classifier(), data, told=told, per_device_train_batch_size=2, max_steps=-1, num_train_epochs=2.0)
    run = trainer.run
    assert (run.unit, run.records, run.batches, run.total_steps) == ("user", 4, lethe.batches.Poisson(2), 4)
    trainer.train()
    certificate = trainer.certificate_
    assert certificate.epsilon == lethe.certify(run, DELTA).epsilon
    assert "one user" in certificate.explain()


def test_users_that_cannot_be_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'person' names a column"):
        private(tmp_path, classifier(), sentences(), told={"users": "person"})
    with pytest.raises(InputError, match=r"(?s)without users= knows no users.*PrivateTrainer\(\.\.\., users=ids\)"):
        private(tmp_path, classifier(), sentences(), run=run_of(unit="user"))


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("told", "run", "said"),
    [
        ({"users": WHOSE[1:]}, run_of(unit="user", records=4, batches=lethe.batches.Cyclic(4)), "users: got 23"),
        ({"users": WHOSE}, run_of(), "unit"),
        ({"users": WHOSE}, run_of(unit="user"), "24"),
        ({"records_per_user": 2}, run_of(), "records_per_user"),
    ],
)
def test_users_and_runs_that_disagree_are_refused(told: dict[str, Any], run: lethe.Run, said: str, tmp_path: Path) -> None:
    model = classifier()
    before = flat(model)
    with pytest.raises(InputError, match=said):
        private(tmp_path, model, sentences(), run=run, told=told).train()
    assert torch.equal(flat(model), before)
