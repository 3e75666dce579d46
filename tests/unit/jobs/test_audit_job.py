import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from audited_callables import ABOUT, EPSILON, described, place, written
from joblib.externals.loky import get_reusable_executor
from repository import ROOT

import lethe
from lethe.audit.trainers import FunctionTraining, LinearTraining
from lethe.documents.strict import write_document
from lethe.jobs.audit.job import AuditJob
from lethe.jobs.audit.subjects import SUBJECTS, RunSubject, TrainSubject
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"runz": 3}, "runz: unknown key; did you mean 'runs'"),
        ({"runs": 1}, "runs: got 1"),
        ({"runs": True}, "runs: got True"),
        ({"level": 0.7}, "level: got 0.7"),
        ({"delta": 1.0}, "delta: got 1"),
        ({"workers": 0}, "workers: got 0"),
        ({"seed": -1}, "seed: got -1"),
        ({"game": "three_worlds"}, "game: got 'three_worlds'"),
        ({"canary": "yellow"}, "canary: got 'yellow'"),
        ({"canaries": 50}, "canaries: belongs to game: one_run"),
        ({"game": "one_run", "runs": 5}, "runs: belongs to game: two_world"),
        ({"game": "one_run", "runs": 1000, "score_file": "s.jsonl"}, "score_file: belongs to game: two_world"),
        ({"score_file": "scores.txt"}, "needs to end in .jsonl"),
        ({"score_file": "nowhere/scores.jsonl"}, "no folder you may write to"),
        ({"subject": {"kind": "model"}}, "subject.kind: got 'model'"),
        ({"subject": {"train": "mechanism:train"}}, "subject.kind: missing"),
        ({"subject": {"kind": "train"}}, "config: missing"),
        ({"subject": {"kind": "train", "config": "missing.yaml"}}, "missing.yaml cannot be read"),
        ({"subject": {"kind": "run", "run": "missing.yaml"}, "delta": 1e-5}, "missing.yaml cannot be read"),
        ({"subject": {"kind": "run", "run": "missing.yaml"}}, "delta: missing; a run has none"),
        ({"subject_claim": None}, "delta: missing"),
        ({"subject_claim": {"delta": 0.0, **ABOUT}}, "claim.epsilon: missing"),
        ({"subject_claim": {"epsilon": 1.0, "delta": 0.0, "release": "last"}}, "claim.neighbours: missing"),
        ({"subject_claim": {"epsilon": 1.0, "delta": 0.0, "neighbours": "replace_one"}}, "claim.release: missing"),
        ({"subject_claim": {"epsilon": -1.0, "delta": 0.0, **ABOUT}}, "claim.epsilon: got -1"),
        ({"subject_claim": {"epsilon": 1.0, "delta": 0.0, **ABOUT, "neighbours": "none"}}, "claim.neighbours: got 'none'"),
        ({"subject_claim": {"epsilon": 1.0, "delta": 0.0, **ABOUT, "neighbours": "zero_out"}}, "claim: it says nothing of this audit"),
        ({"delta": 1e-6, "subject_claim": {"epsilon": 1.0, "delta": 1e-5, **ABOUT}}, "claim: it says nothing of this audit"),
        ({"subject_train": "mechanism.train"}, "subject.train: got 'mechanism.train'; it needs module:function"),
        ({"subject_train": "mechanismus:train"}, "no module 'mechanismus' in"),
        ({"subject_train": "mechanism.inner:train"}, "no module 'mechanism.inner' in"),
        ({"subject_train": "mechanism:trian"}, "nothing under the name 'trian'; did you mean 'train'"),
        ({"subject_score": "mechanism:NUMBER"}, "int under the name 'NUMBER'"),
        ({"subject_train": "failing:train"}, "importing 'failing' raised ZeroDivisionError"),
        ({"subject_train": "needing:train"}, "needs the module 'numby', which is not installed"),
        ({"subject_train": "mechanism:raising"}, r"mechanism:raising raised KeyError: 'gone'\n  From: .*mechanism.py, line \d+"),
        ({"subject_score": "mechanism:wordy"}, "mechanism:wordy returned str; it needs a number"),
        ({"subject_data": {"path": "missing.npz"}}, "missing.npz cannot be read"),
        ({"subject_data": {"path": "bare.npz"}}, "no features and targets among the arrays x"),
        ({"subject_data": {"path": "records.npz", "target": "label"}}, "no features and targets among the arrays x, y for target 'label'"),
        ({"subject_data": {"path": "records.npz", "labels": "y"}}, "data.labels: unknown key|labels: unknown key"),
        ({"subject_data": 3}, "subject.data"),
        ({"canary": "random_direction"}, "random_direction"),
    ],
)
def test_bad_configurations_are_one_message(folder: Path, changes: dict[str, Any], message: str) -> None:
    (folder / "failing.py").write_text("1 / 0\n")
    (folder / "needing.py").write_text("import numby\n")
    before = sorted(folder.iterdir())
    with pytest.raises(lethe.InputError, match=message):
        AuditJob(**described(**changes)).execute()
    assert sorted(entry for entry in folder.iterdir() if entry.name != "__pycache__") == before


def test_a_training_that_fails_at_once_leaves_no_score_file(folder: Path) -> None:
    with pytest.raises(lethe.InputError, match="gone"):
        AuditJob(**described(subject_train="mechanism:raising", score_file="scores.jsonl")).execute()
    assert not (folder / "scores.jsonl").exists()
    job = AuditJob(**described(score_file="scores.jsonl"))
    assert job.kept() == 0
    job.execute()
    assert job.kept() == 200


def test_scores_of_other_code_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    AuditJob(**described(score_file="scores.jsonl")).execute()
    monkeypatch.delitem(sys.modules, "mechanism")
    (folder / "mechanism.py").write_text((folder / "mechanism.py").read_text().replace("scale=0.25", "scale=0.5"))
    with pytest.raises(lethe.InputError, match="another game"):
        AuditJob(**described(score_file="scores.jsonl")).execute()


def test_other_configurations_are_told_apart(folder: Path) -> None:
    write_document(folder / "train.yaml", TRAINING)
    with pytest.raises(lethe.InputError, match=r"is a configuration of `lethe train`, not.*\n.*\n.*kind: train, config: "):
        AuditJob.load(folder / "train.yaml")
    with pytest.raises(lethe.InputError, match=r"audit.yaml"):
        AuditJob.load(written(folder, runs=0))


def test_every_word_of_a_configuration_is_documented() -> None:
    page = (ROOT / "docs" / "audit.md").read_text()
    for name in (*AuditJob.model_fields, *SUBJECTS, *(field for subject in SUBJECTS.values() for field in subject.model_fields)):
        assert name in page


def test_the_configurations_on_the_page_are_some(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "audit.md").read_text()
    kinds: list[str] = []
    for block in re.findall(r"```yaml\n(subject.*?)```", page, flags=re.S):
        (tmp_path / "audit.yaml").write_text(block)
        kinds.append(AuditJob.load(tmp_path / "audit.yaml").subject.kind)
    assert kinds == list(SUBJECTS)


def test_the_example_is_a_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    job = AuditJob.load("examples/audit_digits.yaml")
    assert job.subject.prepare(job.delta).certificate is not None


@pytest.mark.nightly(by_day="test_a_training_and_its_run_give_the_same_audit_of_the_same_certificate")
@pytest.mark.slow
def test_two_processes_find_what_one_finds(folder: Path) -> None:
    del folder
    get_reusable_executor().shutdown(wait=True)  # joblib's processes of an earlier test would not know the new folder of modules
    one, two = (AuditJob(**described(workers=workers)).execute().page for workers in (None, 2))
    assert one == two


@pytest.mark.slow
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
