import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from audited_callables import ABOUT, EPSILON, described, place
from repository import ROOT

import lethe
from lethe.audit.trainers import FunctionTraining, LinearTraining
from lethe.documents.strict import write_document
from lethe.jobs.audit import SUBJECTS, AuditJob, RunSubject, TrainSubject
from lethe.jobs.training import Job

TRAINING: dict[str, Any] = {
    "privacy": {"epsilon": 8.0, "delta": 1e-5},
    "run": {
        "batches": {"design": "cyclic", "size": 700},
        "passes": 1,
        "step_size": 2.0,
        "noise_at": "pass_ends",
        "loss": {"kind": "softmax_regression", "feature_norm": 1.0, "evidence": "enforced"},
        "release": "last",
        "neighbours": "replace_one",
    },
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return place(tmp_path, monkeypatch)


def test_an_honest_claim_stands_and_a_lie_does_not(folder: Path) -> None:
    del folder
    honest = AuditJob(**described()).execute().page
    assert honest.verdict == "consistent"
    assert honest.claim is not None
    assert (honest.claim.epsilon, honest.claim.source) == (EPSILON, "the configuration")
    assert honest.strongest is not None
    assert 1.0 < honest.strongest.epsilon < EPSILON
    assert honest.subject == "mechanism:train"
    lie = AuditJob(**described(subject_claim={"epsilon": 0.1, "delta": 0.0, **ABOUT})).execute().page
    assert lie.verdict == "refuted"
    assert lie.audits == honest.audits
    assert AuditJob(**described(subject_claim=None, delta=0.0)).execute().page.verdict == "no_claim"


def test_delta_is_the_claim_s_unless_another_is_said(folder: Path) -> None:
    del folder
    page = AuditJob(**described(subject_claim={"epsilon": EPSILON, "delta": 1e-3, **ABOUT})).execute().page
    assert [result.delta for result in page.audits] == [1e-3, 1e-3]
    page = AuditJob(**described(delta=1e-2, conditional=False)).execute().page
    assert [result.delta for result in page.audits] == [1e-2]


def test_what_trains_knows_the_classes_of_its_records(folder: Path) -> None:
    """Without them no record could be given a wrong label."""
    job = AuditJob(**described(canary="mislabelled", subject_data={"path": "labelled.npz", "classes": ["0", "1"]}))
    np.savez(folder / "labelled.npz", x=np.ones((50, 2)), y=np.arange(50) % 2)
    training = job.subject.prepare(None).training
    assert isinstance(training, FunctionTraining)
    assert training.classes == 2
    write_document(folder / "train.yaml", TRAINING)
    linear = TrainSubject(config="train.yaml").prepare(None).training
    assert isinstance(linear, LinearTraining)
    assert linear.classes == 10


def test_what_a_function_does_to_its_data_stays_its_own(folder: Path) -> None:
    del folder
    kept, spoilt = (AuditJob(**described(subject_train=f"mechanism:{name}")).execute().page for name in ("train", "spoiling"))
    assert kept.audits == spoilt.audits


def test_one_run_with_a_coin_for_each_canary(folder: Path) -> None:
    del folder
    names = {"subject_train": "mechanism:train_rows", "subject_score": "mechanism:score_row"}
    job = described(game="one_run", canaries=50, guesses=[[10, 10]], **names)
    del job["runs"]
    page = AuditJob(**job).execute().page
    assert page.verdict == "consistent"
    assert page.audits[0].estimator == "one_run"
    assert 0.5 < page.audits[0].epsilon < EPSILON


def test_a_training_and_its_run_give_the_same_audit_of_the_same_certificate(folder: Path) -> None:
    write_document(folder / "train.yaml", TRAINING)
    (_, train, _), run = Job.load(folder / "train.yaml").prepare()
    run.save(folder / "run.json")
    about: dict[str, Any] = {"runs": 30, "conditional": False}
    first = AuditJob(subject={"kind": "train", "config": "train.yaml"}, **about).execute()
    second = AuditJob(subject={"kind": "run", "run": "run.json"}, delta=1e-5, **about).execute()
    assert first.certificate is not None
    assert first.page.claim is not None
    assert first.certificate == second.certificate == lethe.certify(run, 1e-5)
    assert first.page.claim.epsilon == first.certificate.epsilon <= 8.0
    assert first.page.audits == second.page.audits
    assert first.page.verdict == "consistent"
    assert len(train.features) == run.records
    deltas, epsilons = zip(*first.curve(), strict=True)
    assert (1e-5, first.certificate.epsilon) in first.curve()
    assert sorted(deltas) == list(deltas)
    assert sorted(epsilons, reverse=True) == list(epsilons)
    write_document(folder / "small.json", run.replace(records=1000).to_document())
    with pytest.raises(lethe.InputError, match="the run is of 1000; the data have 1438"):
        AuditJob(subject={"kind": "run", "run": "small.json"}, delta=1e-5, **about).execute()


def test_a_training_that_fails_at_once_leaves_no_score_file(folder: Path) -> None:
    with pytest.raises(lethe.InputError, match="gone"):
        AuditJob(**described(subject_train="mechanism:raising", score_file="scores.jsonl")).execute()
    assert not (folder / "scores.jsonl").exists()
    job = AuditJob(**described(score_file="scores.jsonl"))
    assert job.scored() == 0
    job.execute()
    assert job.scored() == 200


def test_scores_of_other_code_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    AuditJob(**described(score_file="scores.jsonl")).execute()
    monkeypatch.delitem(sys.modules, "mechanism")
    (folder / "mechanism.py").write_text((folder / "mechanism.py").read_text().replace("scale=0.25", "scale=0.5"))
    with pytest.raises(lethe.InputError, match="another game"):
        AuditJob(**described(score_file="scores.jsonl")).execute()


def test_every_word_of_a_configuration_is_documented() -> None:
    page = (ROOT / "docs" / "audit.md").read_text()
    for name in (*AuditJob.model_fields, *SUBJECTS, *(field for subject in SUBJECTS.values() for field in subject.model_fields)):
        assert name in page


def test_the_configurations_on_the_page_and_the_example_are_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "audit.md").read_text()
    kinds: list[str] = []
    for block in re.findall(r"```yaml\n(subject.*?)```", page, flags=re.S):
        (tmp_path / "audit.yaml").write_text(block)
        kinds.append(AuditJob.load(tmp_path / "audit.yaml").subject.kind)
    assert kinds == list(SUBJECTS)
    monkeypatch.chdir(ROOT)
    job = AuditJob.load("examples/audit_digits.yaml")
    assert job.subject.prepare(job.delta).certificate is not None


def test_what_is_claimed_of_a_seeded_training_is_said_to_be_of_fresh_noise(folder: Path) -> None:
    write_document(folder / "fresh.yaml", TRAINING)
    write_document(folder / "seeded.yaml", {**TRAINING, "seed": 3})
    fresh, seeded = (TrainSubject(config=str(folder / f"{name}.yaml")).prepare(None) for name in ("fresh", "seeded"))
    assert seeded.claim == fresh.claim
    assert "fresh" not in fresh.name.rpartition("says")[2]
    assert "noise that is drawn fresh: under the seed that stands there, training has no guarantee" in seeded.name
    run = seeded.certificate.run.replace(seeded=True) if seeded.certificate is not None else None
    assert run is not None
    write_document(folder / "run.json", run.to_document())
    recorded = RunSubject(run=str(folder / "run.json"), data={"test_fraction": 0.2}).prepare(1e-5)
    assert "noise that is drawn fresh" in recorded.name
