"""No file's word is taken: what it says of enforcement counts with a seal that is believed, and all else is computed again."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from helpers import DESIGNS, LOSSES, batches, make_run
from seal_cases import DELTA, LOSS, evidence, make_record, sealed_content, statement_of

import lethe
from lethe.accounting.recheck import recheck
from lethe.certificates.findings import SAID_BY_RUN
from lethe.certificates.records import TrainingRecord
from lethe.theorems.registry import ALL

FILE_SAYS = "(the file says: enforced by lethe.train)"


def plain_content(**changes: Any) -> dict[str, Any]:
    """A certificate that nobody sealed."""
    return json.loads(json.dumps(lethe.certify(make_run(**changes), DELTA).to_dict()))


def loaded(content: dict[str, Any], **options: Any) -> lethe.Certificate:
    return lethe.Certificate.from_dict(copy.deepcopy(content), **options)


def test_a_run_that_calls_its_loss_enforced_is_not_believed(tmp_path: Path) -> None:
    run = make_run(loss=LOSS)
    run.save(tmp_path / "run.yaml")
    assert "evidence: enforced" in (tmp_path / "run.yaml").read_text()
    for said in (run, lethe.Run.load(tmp_path / "run.yaml")):
        certificate = lethe.certify(said, DELTA)
        assert {finding.evidence for finding in certificate.findings} <= {"checked", "declared"}
        assert {finding.name for finding in certificate.findings if finding.said == SAID_BY_RUN} == {"gradient bound", "curvature"}
        assert certificate.explain().count("(the run says: enforced by the code that trains)") == 2
        assert recheck(loaded(certificate.to_dict())) == certificate
    declared = lethe.certify(make_run(), DELTA)
    assert "the run says" not in declared.explain()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("loss", [loss for loss in LOSSES if "feature_norm" in loss], ids=lambda loss: loss["kind"])
def test_no_theorem_takes_a_run_s_word_for_what_is_enforced(loss: dict[str, Any], design: str) -> None:
    ball = {"kind": "ball", "radius": 1.0}
    for changes in ({}, {"clip_norm": 0.5}, {"regulariser": ball}, {"release": "all"}):
        run = make_run(batches=batches(design, 10), loss={**loss, "evidence": "enforced"}, **changes)
        for theorem in ALL:
            assert all(finding.evidence != "enforced" for finding in theorem.examine(run)), theorem.name


def test_an_edited_certificate_says_only_that_the_file_says_so() -> None:
    content = plain_content()
    release = next(finding for finding in content["hypotheses"] if finding["name"] == "release")
    release |= {"evidence": "enforced", "by": "lethe.estimators", "detail": "audited twice"}
    certificate = loaded(content)
    assert evidence(certificate)["release"] == "declared"
    shown = recheck(certificate)
    assert "(the file says: enforced by lethe.estimators)" in shown.explain()
    assert "audited twice" not in shown.explain()  # how, nobody can tell from the run
    assert recheck(loaded(shown.to_dict())) == shown  # and it says no more after another time through a file


def test_a_sealed_certificate_says_what_the_code_enforced() -> None:
    certificate = lethe.certify(make_record(), DELTA)
    found = evidence(certificate)
    assert (found["gradient bound"], found["curvature"], found["fresh noise"]) == ("enforced", "enforced", "enforced")
    assert (found["release"], found["start"]) == ("declared", "declared")
    again = loaded(certificate.to_dict())
    assert again == certificate
    assert recheck(again) == certificate
    assert "sealed     by ed25519:" in again.explain()
    assert certificate.epsilon == lethe.certify(make_record().run, DELTA).epsilon


def test_the_seal_of_a_key_that_is_not_known_enforces_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = sealed_content()
    ours = lethe.certify(make_record(), DELTA).seal
    assert ours is not None
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))  # somebody else's computer
    certificate = loaded(content)
    assert set(evidence(certificate).values()) == {"checked", "declared"}
    shown = recheck(certificate)
    assert shown == certificate
    assert shown.explain().count(FILE_SAYS) == 4
    assert "a key that is not known here: it proves nothing about who trained" in shown.explain()
    assert not any(tmp_path.iterdir())  # and no key was made
    believed = loaded(content, key=ours.signer)
    assert evidence(believed)["gradient bound"] == "enforced"
    assert recheck(believed).findings == believed.findings
    # What was saved where the key was not known is whole again where it is.
    assert evidence(loaded(certificate.to_dict(), key=ours.signer)) == evidence(believed)


def test_more_than_the_seal_says_is_not_believed() -> None:
    """A good seal of ours, and a hypothesis beside it that it does not mention, or in another way."""
    for name, change in (
        ("release", {"evidence": "enforced", "by": "lethe.estimators"}),
        ("gradient bound", {"detail": "the gradient is bounded by law"}),
        ("gradient bound", {"by": "lethe.estimators"}),
        ("fresh noise", {"detail": "from dice"}),
    ):
        content = sealed_content()
        next(finding for finding in content["hypotheses"] if finding["name"] == name).update(change)
        certificate = loaded(content)
        assert evidence(certificate)[name] == "declared"
        with pytest.raises(lethe.InputError, match=r"(hypotheses|reasons) are not those"):
            recheck(certificate)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("lipschitz", "constant"), 0.5, "Lipschitz constant"),
        (("lipschitz",), None, "Lipschitz constant"),
        (("lipschitz", "certificate"), "proved by an expert", "words on the Lipschitz constant"),
        (("citations", 0, "text"), "Nobody 2031, invented", "citations"),
        (("citations", 0, "key"), "nobody-2031", "citations"),
        (("citations",), [], "citations"),
        (("hypotheses", 0, "detail"), "guarded by two officers", "reasons"),
        (("hypotheses", 0, "name"), "secrecy", "hypotheses"),
        (("hypotheses", 3, "evidence"), "declared", "hypotheses"),
        (("hypotheses", 3, "status"), "fails", "hypotheses"),
        (("hypotheses", 0, "said"), "the run says: enforced by the code that trains", "reasons"),
        (("hypotheses",), [], "hypotheses"),
        (("others", 0, "why"), "its author withdrew it", "reasons against other theorems"),
        (("others", 0, "theorem"), "grand-theorem", "grand-theorem"),
        (("others", 4, "epsilon"), 99.0, "it says of composition"),
        (("others", 4, "epsilon"), None, "it says of composition"),
        (("others", 4, "status"), "refuted", "it says of composition"),
        (("theorem",), "composition", "composition"),
        (("lethe",), "0.1.0, audited by the institute", "version"),
        (("delta",), 0.002, "its guarantee gives"),
        (("run", "noise_multiplier"), 50.0, "another run|claims epsilon"),
        (("run", "records"), 1_000, "another run|claims epsilon|Lipschitz|says of"),
        (("audited",), "yes", "'audited' is no part"),
        (("hypotheses", 0, "remedy"), "none", "'remedy' is no part"),
        (("citations", 0, "doi"), "10.1", "'doi' is no part"),
        (("hypotheses", 0, "said"), "the institute says: enforced", "said to be"),
    ],
)
def test_no_field_can_be_altered(sealed: bool, path: tuple[Any, ...], value: object, message: str) -> None:
    content = sealed_content() if sealed else plain_content()
    recheck(loaded(content))
    place: Any = content
    for step in path[:-1]:
        place = place[step]
    assert place.get(path[-1]) != value if isinstance(place, dict) else place[path[-1]] != value
    place[path[-1]] = value
    with pytest.raises(lethe.InputError, match=message):
        recheck(loaded(content))


@pytest.mark.parametrize("sealed", [False, True])
def test_nothing_can_be_added_taken_away_or_moved(sealed: bool) -> None:
    content = sealed_content() if sealed else plain_content()
    findings = content["hypotheses"]
    added = {"name": "fresh noise 2", "status": "holds", "evidence": "declared", "detail": "really"}
    enforced = {"name": "release", "status": "holds", "evidence": "enforced", "detail": "x", "by": "lethe.estimators"}
    for changed in ([*findings, added], [*findings, enforced], findings[:-1], findings[1:], findings[::-1], [*findings, findings[-1]]):
        with pytest.raises(lethe.InputError, match="its hypotheses are not those of optimal-shift"):
            recheck(loaded({**content, "hypotheses": changed}))
    with pytest.raises(lethe.InputError, match="there twice"):
        recheck(loaded({**content, "others": [*content["others"], content["others"][0]]}))


def test_a_theorem_that_was_left_out_leaves_a_certificate_that_holds() -> None:
    """It is the one that `certify` with fewer theorems gives."""
    content = plain_content()
    fewer = lethe.certify(make_run(), DELTA, theorems=["optimal-shift", "composition"])
    kept = [other for other in content["others"] if other["theorem"] == "composition"]
    assert recheck(loaded({**content, "others": kept})) == fewer


def test_a_seal_is_of_one_run() -> None:
    content = sealed_content()
    other = json.loads(json.dumps(lethe.certify(make_run(noise_multiplier=50.0), DELTA).to_dict()))
    certificate = loaded({**other, "seal": content["seal"]})
    assert "enforced" not in evidence(certificate).values()
    with pytest.raises(lethe.InputError, match="over another run"):
        recheck(certificate)
    with pytest.raises(lethe.InputError, match="not of run"):
        lethe.certify(make_run(), DELTA).sealed(make_record())


def test_a_record_can_only_enforce_what_its_code_can() -> None:
    statement = statement_of(sealed_content())
    statement["predicate"]["enforced"].append({"name": "step size", "detail": "by hand"})
    with pytest.raises(lethe.InputError, match="not known to enforce 'step size'"):
        TrainingRecord.from_statement(statement)
    with pytest.raises(lethe.InputError, match=r"lethe\.nobody"):
        make_record(by="lethe.nobody")


def test_a_statement_comes_back() -> None:
    record = make_record()
    statement = json.loads(json.dumps(record.to_statement()))
    assert TrainingRecord.from_statement(statement) == record
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["subject"][0]["digest"].keys() == {"sha256"}
    for changed in (
        {**statement, "more": 1},
        {**statement, "predicateType": "https://slsa.dev/provenance/v1"},
        {**statement, "predicate": {**statement["predicate"], "fresh_noise": False}},
        {**statement, "predicate": {**statement["predicate"], "enforced": [{"name": 3, "detail": ""}]}},
        {**statement, "subject": {}},
        [],
    ):
        with pytest.raises(lethe.InputError):
            TrainingRecord.from_statement(changed)


def test_a_seeded_training_is_sealed_as_no_release() -> None:
    run = make_run(loss=LOSS, seeded=True)
    certificate = lethe.certify(make_record(run=run), DELTA)
    assert certificate.epsilon == float("inf")
    assert [finding.status for finding in certificate.findings if finding.name == "fresh noise"] == ["fails"]
    assert recheck(loaded(certificate.to_dict())).to_dict() == certificate.to_dict()
