"""Certificates: no file's word is taken for what is enforced, all else is computed again, and a page says what holds."""

import copy
import dataclasses
import json
import math
import pickle
from pathlib import Path
from typing import Any

import pytest
from helpers import DESIGNS, LOSSES, batches, make_run
from seal_cases import DELTA, LOSS, evidence, make_record, sealed_content, statement_of

import lethe
from lethe.accounting.recheck import recheck, words_differ
from lethe.calculus.upward_formatting import shown
from lethe.certificates.findings import SAID_BY_RUN
from lethe.certificates.records import TrainingRecord
from lethe.documents.strict import to_json
from lethe.theorems.registry import ALL

FILE_SAYS = "(the file says: enforced by lethe.train)"
CERTIFICATE = lethe.certify(make_run(), DELTA)


def plain_content() -> dict[str, Any]:
    """A certificate that nobody sealed."""
    return json.loads(json.dumps(CERTIFICATE.to_dict()))


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
    assert "the run says" not in CERTIFICATE.explain()


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


EDITS: list[tuple[tuple[Any, ...], Any, str]] = [
    (("epsilon",), 0.001, "its guarantee gives"),
    (("epsilon",), "nan", "its guarantee gives"),
    (("delta",), 5.0, "delta is 5"),
    (("guarantee",), {"kind": "gdp", "mu": 1e-9}, "its guarantee gives"),
    (("guarantee",), {"kind": "magic"}, "kind"),
    (("neighbours",), "zero_out", "neighbours is 'zero_out'"),
    (("release",), "all", "release is 'all'"),
    (("theorem",), 3, "needed"),
    (("hypotheses", 0, "name"), 3, "needed"),
    (("hypotheses", 0, "status"), "maybe", "known status"),
    (("others", 0, "status"), "great", "great"),
    (("run",), 3, "mapping"),
    (("lipschitz", "constant"), None, "not a certificate"),
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
]


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize(("path", "value", "message"), EDITS)
def test_no_field_can_be_altered(sealed: bool, path: tuple[Any, ...], value: object, message: str) -> None:
    content = sealed_content() if sealed else plain_content()
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
    recheck(loaded(content))
    findings = content["hypotheses"]
    added = {"name": "fresh noise 2", "status": "holds", "evidence": "declared", "detail": "really"}
    enforced = {"name": "release", "status": "holds", "evidence": "enforced", "detail": "x", "by": "lethe.estimators"}
    for changed in ([*findings, added], [*findings, enforced], findings[:-1], findings[1:], findings[::-1], [*findings, findings[-1]]):
        with pytest.raises(lethe.InputError, match="its hypotheses are not those of optimal-shift"):
            recheck(loaded({**content, "hypotheses": changed}))
    with pytest.raises(lethe.InputError, match="there twice"):
        recheck(loaded({**content, "others": [*content["others"], content["others"][0]]}))


def test_a_forgery_is_found_by_certifying_again() -> None:
    """That of all numbers together, between the deltas that are looked at, of better evidence, and of an epsilon a little smaller."""
    content = plain_content()
    # True at a larger delta, and claimed at one that is not looked at.
    point = lethe.guarantees.ApproxDP(CERTIFICATE.epsilon_at(10 * DELTA, allow_large_delta=True), DELTA * (1 + 1e-7))
    parts = {"kind": "tightest", "parts": [content["guarantee"], point.to_dict()]}
    epsilon = lethe.guarantees.GDP(1e-3).epsilon(DELTA)
    better = [{**finding, "evidence": "enforced"} for finding in content["hypotheses"]]
    for changes, message in (
        ({"guarantee": {"kind": "gdp", "mu": 1e-3}, "epsilon": epsilon}, "from its run follows epsilon"),
        ({"guarantee": parts}, "not those of optimal-shift"),
        ({"hypotheses": better}, "not those of optimal-shift"),
    ):
        with pytest.raises(lethe.InputError, match=message):
            recheck(lethe.Certificate.from_dict({**content, **changes}))
    with pytest.raises(lethe.InputError, match="from its run follows epsilon"):
        recheck(dataclasses.replace(CERTIFICATE, epsilon=CERTIFICATE.epsilon * (1 - 1e-5)))
    rounded_elsewhere = {**content, "epsilon": math.nextafter(content["epsilon"], 0)}
    assert recheck(lethe.Certificate.from_dict(rounded_elsewhere))


def test_words_of_another_version_are_told_from_altered_numbers() -> None:
    content = {**plain_content(), "lethe": "0.0.9"}
    content["hypotheses"][0]["detail"] = "only the end of it is published"
    content["citations"][0]["text"] = "Feldman et al."
    old = lethe.Certificate.from_dict(copy.deepcopy(content))
    again = recheck(old)
    assert again == CERTIFICATE  # in this version's words
    assert "written by lethe 0.0.9, with the same numbers but other reasons, citations" in words_differ(old, again)
    assert words_differ(again, again) == ""
    for path, value in ((("epsilon",), 1.0), (("lipschitz", "constant"), 1.5), (("others", 4, "epsilon"), 1.0)):
        changed: Any = copy.deepcopy(content)
        place = changed
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value
        with pytest.raises(lethe.InputError, match=r"follows|guarantee gives"):
            recheck(lethe.Certificate.from_dict(changed))
    smaller = lethe.guarantees.GDP(0.9 * old.guarantee.mu)  # pyright: ignore[reportAttributeAccessIssue]
    larger = lethe.guarantees.GDP(1.1 * old.guarantee.mu)  # pyright: ignore[reportAttributeAccessIssue]
    for guarantee in (smaller, larger):
        forged = {**content, "guarantee": guarantee.to_dict(), "epsilon": guarantee.epsilon(DELTA)}
        with pytest.raises(lethe.InputError, match="another version may prove other numbers"):
            recheck(lethe.Certificate.from_dict(forged))


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
        CERTIFICATE.sealed(make_record())


def test_a_training_record_comes_back_from_its_statement() -> None:
    record = make_record()
    statement = statement_of(sealed_content())
    assert TrainingRecord.from_statement(statement) == record
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["subject"][0]["digest"].keys() == {"sha256"}


def test_a_seeded_training_is_sealed_as_no_release() -> None:
    run = make_run(loss=LOSS, seeded=True)
    certificate = lethe.certify(make_record(run=run), DELTA)
    assert certificate.epsilon == float("inf")
    assert [finding.status for finding in certificate.findings if finding.name == "fresh noise"] == ["fails"]
    assert recheck(loaded(certificate.to_dict())).to_dict() == certificate.to_dict()


def test_what_is_no_certificate_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "certificate.json"
    for text in ("{}", '{"epsilon": 1}', '{"lipschitz": 3, "run": {}}'):
        path.write_text(text)
        with pytest.raises(lethe.InputError, match="not a certificate"):
            lethe.Certificate.load(path)


@pytest.mark.parametrize("design", ["poisson", "cyclic", "full"])
def test_the_price_of_replacing_a_record_is_printed_beside(design: str) -> None:
    run = make_run(batches=batches(design, 10), release="all", neighbours="add_or_remove" if design != "cyclic" else "zero_out")
    certificate = lethe.certify(run, 1e-5)
    replaced = lethe.certify(run.replace(neighbours="replace_one"), 1e-5)
    line = f"    compare    epsilon would be {shown(replaced.epsilon)} under neighbours=replace_one: another record in the place of one"
    assert line in certificate.explain().splitlines()
    assert line in str(certificate).splitlines()
    assert replaced.epsilon > certificate.epsilon
    assert "compare" not in replaced.explain()
    assert "compare" not in lethe.certify(run.replace(seeded=True), 1e-5).explain()
    assert "replace_one" not in to_json(certificate.to_dict())
    assert pickle.loads(pickle.dumps(certificate)).explain() == certificate.explain()


def test_a_price_that_nothing_proves_is_not_printed() -> None:
    certificate = dataclasses.replace(lethe.certify(make_run(neighbours="zero_out"), 1e-5), under_replace_one=lambda run, delta: None)
    assert "compare" not in certificate.explain()
