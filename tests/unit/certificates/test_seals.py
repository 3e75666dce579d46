"""`lethe.verify` says yes only to what is known: of certificates, and of statements, which have seals of their own kind."""

import base64
import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from seal_cases import DELTA, WEIGHTS, make_record, sealed_content, statement_of, stranger, with_statement

import lethe
from lethe.accounting.verify import Verification
from lethe.certificates.derivation import derivation
from lethe.certificates.findings import ESTIMATORS, holds
from lethe.certificates.keys import signing_key
from lethe.certificates.records import Released, ReleaseRecord
from lethe.certificates.statement import Statement
from lethe.certificates.weights import tensors_digest
from lethe.documents.strict import write_document
from lethe.mechanisms.base import gaussian_guarantee, joint

MOVED = {**WEIGHTS, "intercept": np.array([0.5, -0.25])}
STATED = Statement(
    name="mean",
    guarantee=gaussian_guarantee(2.0, 4.0),
    neighbours="replace_one",
    findings=(holds("rows", "of norm at most 1", evidence="enforced"), holds("public size", "of all", evidence="declared")),
    citations=(),
    derivation=derivation("mean of rows", norm=1.0, noise_std=4.0),
    records=1000,
    target_delta=1e-5,
    release_id="ab",
)
RELEASED = (Released("the mean", tensors_digest(WEIGHTS)),)


def record(stated: Statement = STATED) -> ReleaseRecord:
    return ReleaseRecord.of(stated, by=ESTIMATORS, released=RELEASED)


def stated_content() -> dict[str, Any]:
    return json.loads(json.dumps(Statement.sealed(record()).to_dict()))


def read(changed: dict[str, Any], **options: Any) -> Any:
    kind = Statement if "kind" in changed else lethe.Certificate
    return kind.from_dict(copy.deepcopy(changed), **options)


def verified(content: dict[str, Any], tmp_path: Path, **options: Any) -> Verification:
    write_document(tmp_path / "certificate.json", content)
    return lethe.verify(tmp_path / "certificate.json", **options)


@pytest.fixture(params=[sealed_content, stated_content], ids=["certificate", "statement"])
def content(request: pytest.FixtureRequest) -> dict[str, Any]:
    return request.param()


def test_what_is_sealed_with_these_weights_is_all_yes(content: dict[str, Any], tmp_path: Path) -> None:
    np.savez(tmp_path / "weights.npz", **WEIGHTS)
    for weights in (WEIGHTS, tmp_path / "weights.npz"):
        found = verified(content, tmp_path, weights=weights, max_epsilon=10.0)
        assert [answer.yes for answer in found.answers] == [True] * 5
        assert found.yes
        assert "this installation's key" in found.sealed.why
    assert [line.split(":")[0] for line in found.declared] == (["public size"] if "kind" in content else ["release", "start"])
    assert lethe.verify(read(content), weights=WEIGHTS).yes
    moved = verified(content, tmp_path, weights=MOVED)
    assert (moved.yes, moved.sealed.yes, moved.belongs and moved.belongs.yes) == (False, True, False)
    assert moved.belongs is not None
    assert tensors_digest(MOVED) in moved.belongs.why


def test_a_stranger_can_seal_anything_and_proves_nothing(content: dict[str, Any], tmp_path: Path) -> None:
    signed, key = statement_of(content), stranger()
    signed["subject"][0]["digest"]["sha256"] = tensors_digest(MOVED)
    forged = with_statement(content, signed, key)
    found = verified(forged, tmp_path, weights=MOVED)
    assert (found.follows.yes, found.sealed.yes, found.belongs and found.belongs.yes) == (True, False, False)
    assert "proves nothing about who" in found.sealed.why
    assert sum("the file says: enforced by lethe." in line for line in found.declared) == (2 if "kind" in content else 4)
    assert "enforced" not in {finding.evidence for finding in read(forged).findings}
    # For whoever trusts the stranger it is a seal, and ours is none.
    assert verified(forged, tmp_path, weights=MOVED, key=key.public).yes
    by_other = verified(content, tmp_path, key=key.public)
    assert not by_other.yes
    assert "not the key that was given" in by_other.sealed.why


def test_the_public_key_is_enough_elsewhere(content: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "team.pem").write_text(signing_key().public.pem())
    declared = verified(content, tmp_path).declared
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "elsewhere"))
    found = verified(content, tmp_path, weights=WEIGHTS, key=tmp_path / "team.pem")
    assert found.yes
    assert found.sealed.why.endswith("the key that was given")
    assert found.declared == declared
    assert not verified(content, tmp_path, weights=WEIGHTS).yes


def harmed(content: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What somebody can make of a seal without its key."""
    seal, (one,), signed = content["seal"], content["seal"]["signatures"], statement_of(content)
    signature, by_stranger = bytearray(base64.b64decode(one["sig"])), with_statement(content, signed, stranger())["seal"]["signatures"][0]
    signature[0] ^= 1
    twice = '{"_type": 1, ' + base64.b64decode(seal["payload"]).decode()[1:]
    return {
        "another statement": with_statement(content, {**signed, "subject": []})["seal"],
        "half of it": {**seal, "payload": seal["payload"][: len(seal["payload"]) // 2 // 4 * 4]},
        "a key twice": {**seal, "payload": base64.b64encode(twice.encode()).decode()},
        "no base64": {**seal, "payload": "a" * 3},
        "no text": {**seal, "payload": 3},
        "of another type": {**seal, "payloadType": "application/json"},
        "one key more": {**seal, "more": 1},
        "one key less": {key: value for key, value in seal.items() if key != "payload"},
        "nothing": {},
        "no signature": {**seal, "signatures": []},
        "two signatures": {**seal, "signatures": [one, one]},
        "no list of them": {**seal, "signatures": {}},
        "a number": {**seal, "signatures": [3]},
        "a number for a key": {**seal, "signatures": [{**one, "keyid": 3}]},
        "another signature": {**seal, "signatures": [{**one, "sig": base64.b64encode(bytes(signature)).decode()}]},
        "a stranger's, called ours": {**seal, "signatures": [{**one, "sig": by_stranger["sig"]}]},
    }


@pytest.mark.parametrize("known", [False, True])
def test_a_seal_that_was_tampered_with_is_no(content: dict[str, Any], known: bool, tmp_path: Path) -> None:
    key = signing_key().public if known else None
    for how, seal in harmed(content).items():
        found = verified({**content, "seal": seal}, tmp_path, weights=WEIGHTS, key=key)
        # A broken seal is no part of a certificate.
        assert [found.follows.yes, found.sealed.yes, found.belongs and found.belongs.yes] == [False] * 3, how
        assert found.sealed.why.startswith(("broken: ", "no seal: ")), how
        assert not any("enforced" in line and "the file says" not in line for line in found.declared), how
        assert found.certificate is None, how


TRAINED: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda one: one.clear(),
    "another protocol": lambda one: one.update(_type="https://in-toto.io/Statement/v0.1"),
    "another type": lambda one: one.update(predicateType="https://slsa.dev/provenance/v1"),
    "one more key": lambda one: one.update(more=1),
    "noise that was not fresh": lambda one: one["predicate"].update(fresh_noise=False),
    "a number": lambda one: one["predicate"].update(enforced=[{"name": 3, "detail": ""}]),
    "what its code cannot enforce": lambda one: one["predicate"]["enforced"].append({"name": "step size", "detail": "by hand"}),
    "no list": lambda one: one.update(subject={}),
    "code that nobody knows": lambda one: one["predicate"].update(by="lethe.nobody"),
}
STATEMENTS: dict[str, Callable[[Any], Any]] = {
    "another type": lambda one: one.update(predicateType="urn:lethe-dp:training-record:v1"),
    "noise that was not fresh": lambda one: one["predicate"].update(fresh_noise=False),
    "another version": lambda one: one["predicate"].update(lethe="0.0.1"),
    "other code": lambda one: one["predicate"].update(by="lethe.train"),
    "code that nobody knows": lambda one: one["predicate"].update(by="lethe.nobody"),
    "enforced by other code": lambda one: one["predicate"]["statement"]["findings"][0].update(by="lethe.train"),
    "enforced by nobody": lambda one: one["predicate"]["statement"]["findings"][0].pop("by"),
    "one more key": lambda one: one["predicate"].update(audited=True),
    "a seal within": lambda one: one["predicate"]["statement"].update(seal=stated_content()["seal"]),
    "no weights": lambda one: one.update(subject=[]),
    "no records": lambda one: one["predicate"]["statement"].update(records=None),
    "no statement": lambda one: one["predicate"].update(statement=3),
}


def test_what_a_known_key_signed_and_is_no_such_record_is_no_seal(content: dict[str, Any]) -> None:
    of, changes = ("release", STATEMENTS) if "kind" in content else ("training", TRAINED)
    for how, change in changes.items():
        signed = statement_of(content)
        change(signed)
        loaded = read(with_statement(content, signed, signing_key()))
        assert loaded.seal.flaw.startswith(f"no seal of a {of}: "), how
        answers = lethe.verify(loaded, weights=WEIGHTS)
        assert [answers.follows.yes, answers.sealed.yes, answers.belongs and answers.belongs.yes] == [False] * 3, how


def test_the_seals_of_the_two_kinds_never_pass_for_each_other() -> None:
    certificate, statement = sealed_content(), stated_content()
    for mixed in ({**statement, "seal": certificate["seal"]}, {**certificate, "seal": statement["seal"]}):
        loaded = read(mixed)
        assert "it states 'urn:lethe-dp:" in loaded.seal.flaw
        assert "enforced" not in {one.evidence for one in loaded.findings}
        assert not lethe.verify(loaded).follows.yes


def test_what_is_signed_is_an_in_toto_statement_of_its_own_kind() -> None:
    content = stated_content()
    signed = statement_of(content)
    assert (signed["_type"], signed["predicateType"]) == ("https://in-toto.io/Statement/v1", "urn:lethe-dp:release-record:v1")
    assert signed["subject"] == [{"name": "the mean", "digest": {"sha256": tensors_digest(WEIGHTS)}}]
    predicate = signed["predicate"]
    assert set(predicate) == {"lethe", "by", "statement", "fresh_noise"}
    assert predicate["statement"] == {key: value for key, value in content.items() if key != "seal"}
    said = [(one["name"], one["evidence"], one.get("by")) for one in predicate["statement"]["findings"]]
    assert said == [("rows", "enforced", ESTIMATORS), ("public size", "declared", None), ("fresh noise", "enforced", ESTIMATORS)]


def test_a_number_may_be_written_as_a_whole_one() -> None:
    """In memory 4 and 4.0 are one number; what is signed is what is read."""
    whole = replace(STATED, derivation=derivation("mean of rows", norm=1, noise_std=4), guarantee=lethe.guarantees.GDP(1))
    sealed = Statement.sealed(record(whole))
    assert lethe.verify(sealed, weights=WEIGHTS).sealed.yes
    assert lethe.verify(read(json.loads(json.dumps(sealed.to_dict())))).sealed.yes


def test_an_older_file_and_one_without_a_seal_are_as_they_were() -> None:
    plain = {key: value for key, value in stated_content().items() if key != "seal"}
    assert read(plain).seal is None
    assert "enforced" not in {one.evidence for one in read(plain).findings}
    assert read(plain).trusting(signing_key().public) == read(plain)
    answers = lethe.verify(read(plain), weights="nowhere.npz")  # which nothing is asked of
    assert (answers.follows.yes, answers.sealed.yes) == (True, False)
    assert answers.sealed.why == "by nobody: its numbers may have been typed by hand"


def test_whose_seal_is_believed_is_asked_again_in_a_total() -> None:
    ours, other = Statement.sealed(record()), stranger()
    for known, believed in ((None, True), (signing_key().public, True), (other.public, False)):
        assert lethe.verify(ours, weights=WEIGHTS, key=known).yes is believed
        assert lethe.total([ours], 1e-5, key=known).parts[0].sealed is believed


def test_a_number_that_rounds_otherwise_elsewhere_keeps_its_seal() -> None:
    """A statement that another processor sealed stays as it was signed, the same but for rounding; what is further off is refused."""
    for factor, holds_still in ((1 + 1e-9, True), (0.99, False)):
        content = stated_content()
        signed = statement_of(content)
        written = signed["predicate"]["statement"]
        written["guarantee"]["mu"] *= factor
        written["epsilon"] = lethe.guarantees.GDP(written["guarantee"]["mu"]).epsilon(1e-5)
        elsewhere = {**written, "seal": with_statement(content, signed, signing_key())["seal"]}
        answers = lethe.verify(read(elsewhere), weights=WEIGHTS)
        assert (answers.follows.yes, answers.sealed.yes) == (holds_still, True)
        assert not holds_still or read(answers.certificate.to_dict()).seal.holds  # pyright: ignore[reportOptionalMemberAccess]


def test_what_does_not_follow_is_no_and_a_largest_epsilon_is_a_gate(tmp_path: Path) -> None:
    content = sealed_content()
    exactly = lethe.certify(make_record(), DELTA).epsilon
    for limit, yes in ((0.0, False), (1.0, False), (exactly, True), (1e300, True)):
        found = verified(content, tmp_path, max_epsilon=limit)
        assert (found.within and found.within.yes, found.yes) == (yes, yes)
    content["lipschitz"]["constant"] = 0.5
    found = verified(content, tmp_path)
    assert (found.yes, found.follows.yes, found.sealed.yes) == (False, False, True)  # the training is as it was
    assert "Lipschitz constant" in found.follows.why


@pytest.mark.parametrize("of_a_record", [1.0, 90.0])
def test_a_delta_that_promises_nothing_passes_only_where_it_is_meant(tmp_path: Path, of_a_record: float) -> None:
    """The delta of a certificate is not under its seal: whoever holds the file can write it again at 0.9, where epsilon is 0."""
    record = make_record()
    content = lethe.certify(record, of_a_record / record.run.records, allow_large_delta=True).to_dict()
    found = verified(content, tmp_path, weights=WEIGHTS, max_epsilon=1e300)
    assert (found.yes, found.follows.yes, found.private.yes, found.to_dict()["large_delta"]) == (False, True, False, True)
    meant = verified(content, tmp_path, weights=WEIGHTS, max_epsilon=1e300, allow_large_delta=True)
    assert meant.yes
    assert all("delta >= 1/records" in one.private.why for one in (found, meant))
    assert "large_delta" not in verified(sealed_content(), tmp_path).to_dict()


BY_OTHERS = replace(STATED, findings=(replace(holds("rows", "of norm at most 1", evidence="enforced"), by="lethe.train"),))
REFUSED: list[tuple[Callable[[dict[str, Any], Path], object], str]] = [
    *(
        (lambda content, path, options=options: verified(content, path, **options), word)
        for options, word in (
            ({"max_epsilon": -1.0}, "max_epsilon"),
            ({"max_epsilon": float("nan")}, "max_epsilon"),
            ({"max_epsilon": float("inf")}, "max_epsilon"),
            ({"allow_large_delta": 1}, "allow_large_delta"),
            ({"weights": "nowhere.npz"}, "nowhere.npz"),
            ({"weights": 3}, "weights: got int"),
            ({"weights": {}}, "there are none"),
            ({"key": "nowhere.pem"}, "cannot be read"),
        )
    ),
    (lambda content, path: lethe.verify(3), "needs a Certificate or the file of one"),  # pyright: ignore[reportArgumentType]
    (lambda content, path: verified({**content, "seal": 3}, path), "the seal is int"),
    (lambda content, path: verified({"seal": content["seal"]}, path), "not a certificate"),
    (lambda content, path: make_record(by="lethe.nobody"), r"lethe\.nobody"),
    (lambda content, path: ReleaseRecord.of(STATED, by="lethe.train", released=RELEASED), r"by: got 'lethe\.train'"),
    (lambda content, path: ReleaseRecord.of(STATED, by=ESTIMATORS, released=()), "a seal is bound to weights"),
    (lambda content, path: record(replace(STATED, records=None)), "says no number of them"),
    (lambda content, path: record(replace(joint([BY_OTHERS]), findings=())), r"'rows' is enforced by 'lethe\.train' in it"),
    *(
        (lambda content, path, told=told: record(replace(told, records=1000)), "was read from a file, whose word nobody vouches for")
        for told in (STATED.as_read(), joint([STATED, STATED.as_read()]))
    ),
]


@pytest.mark.parametrize(("call", "words"), REFUSED)
def test_bad_input_is_an_error_and_no_answer(call: Any, words: str, tmp_path: Path) -> None:
    for content in (sealed_content(), stated_content()):
        with pytest.raises(lethe.InputError, match=words):
            call(content, tmp_path)
