"""The record of a release: what is signed of a statement, and what a known key may have signed and is none."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from seal_cases import WEIGHTS, sealed_content, statement_of, stranger, with_statement

import lethe
from lethe.certificates.derivation import derivation
from lethe.certificates.findings import ESTIMATORS, holds
from lethe.certificates.keys import signing_key
from lethe.certificates.records import Released, ReleaseRecord
from lethe.certificates.statement import Statement
from lethe.certificates.weights import tensors_digest
from lethe.mechanisms.base import gaussian_guarantee, joint

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


def content() -> dict[str, Any]:
    return json.loads(json.dumps(Statement.sealed(record()).to_dict()))


def read(changed: dict[str, Any], **options: Any) -> Statement:
    return Statement.from_dict(copy.deepcopy(changed), **options)


def test_it_is_an_in_toto_statement_of_its_own_kind() -> None:
    signed = statement_of(content())
    assert (signed["_type"], signed["predicateType"]) == ("https://in-toto.io/Statement/v1", "urn:lethe-dp:release-record:v1")
    assert signed["subject"] == [{"name": "the mean", "digest": {"sha256": tensors_digest(WEIGHTS)}}]
    predicate = signed["predicate"]
    assert set(predicate) == {"lethe", "by", "statement", "fresh_noise"}
    assert predicate["statement"] == {key: value for key, value in content().items() if key != "seal"}
    assert [(one["name"], one["evidence"], one.get("by")) for one in predicate["statement"]["findings"]] == [
        ("rows", "enforced", ESTIMATORS),
        ("public size", "declared", None),
        ("fresh noise", "enforced", ESTIMATORS),
    ]
    assert lethe.verify(read(content()), weights=WEIGHTS).yes


def test_a_number_may_be_written_as_a_whole_one() -> None:
    """In memory 4 and 4.0 are one number; what is signed is what is read."""
    whole = replace(STATED, derivation=derivation("mean of rows", norm=1, noise_std=4), guarantee=lethe.guarantees.GDP(1))
    sealed = Statement.sealed(record(whole))
    assert sealed.seal is not None
    assert sealed.seal.holds
    assert lethe.verify(sealed, weights=WEIGHTS).sealed.yes
    assert lethe.verify(read(json.loads(json.dumps(sealed.to_dict())))).sealed.yes


def test_an_older_file_and_one_without_a_seal_are_as_they_were() -> None:
    plain = {key: value for key, value in content().items() if key != "seal"}
    assert read(plain).seal is None
    assert "enforced" not in {one.evidence for one in read(plain).findings}
    assert read(plain).trusting(signing_key().public) == read(plain)
    answers = lethe.verify(read(plain), weights="nowhere.npz")  # which nothing is asked of
    assert (answers.follows.yes, answers.sealed.yes) == (True, False)
    assert answers.sealed.why == "by nobody: its numbers may have been typed by hand"


def _altered(change: Any) -> dict[str, Any]:
    signed = statement_of(content())
    change(signed)
    return signed


FORGED = {
    "another type": lambda one: one.update(predicateType="urn:lethe-dp:training-record:v1"),
    "noise that was not fresh": lambda one: one["predicate"].update(fresh_noise=False),
    "another version": lambda one: one["predicate"].update(lethe="0.0.1"),
    "other code": lambda one: one["predicate"].update(by="lethe.train"),
    "code that nobody knows": lambda one: one["predicate"].update(by="lethe.nobody"),
    "enforced by other code": lambda one: one["predicate"]["statement"]["findings"][0].update(by="lethe.train"),
    "enforced by nobody": lambda one: one["predicate"]["statement"]["findings"][0].pop("by"),
    "one more key": lambda one: one["predicate"].update(audited=True),
    "a seal within": lambda one: one["predicate"]["statement"].update(seal=content()["seal"]),
    "no weights": lambda one: one.update(subject=[]),
    "no records": lambda one: one["predicate"]["statement"].update(records=None),
    "no statement": lambda one: one["predicate"].update(statement=3),
}


@pytest.mark.parametrize("change", FORGED.values(), ids=list(FORGED))
def test_what_a_known_key_signed_and_is_no_such_record_is_no_seal(change: Any) -> None:
    loaded = read(with_statement(content(), _altered(change), signing_key()))
    assert loaded.seal is not None
    assert loaded.seal.flaw.startswith("no seal of a release: ")
    answers = lethe.verify(loaded, weights=WEIGHTS)
    assert [answers.follows.yes, answers.sealed.yes, answers.belongs and answers.belongs.yes] == [False] * 3


def test_a_stranger_signs_what_it_likes_and_enforces_nothing() -> None:
    signed, key = statement_of(content()), stranger()
    forged = with_statement(content(), signed, key)
    assert {one.evidence for one in read(forged).findings} == {"declared"}
    answers = lethe.verify(read(forged), weights=WEIGHTS)
    assert [answers.follows.yes, answers.sealed.yes, answers.belongs and answers.belongs.yes] == [True, False, False]
    assert lethe.verify(read(forged), weights=WEIGHTS, key=key.public).yes
    ours = Statement.sealed(record())
    for known, believed in ((None, True), (signing_key().public, True), (key.public, False)):
        assert lethe.verify(ours, weights=WEIGHTS, key=known).yes is believed
        assert lethe.total([ours], 1e-5, key=known).parts[0].sealed is believed
    under_our_name = copy.deepcopy(forged)
    under_our_name["seal"]["signatures"][0]["keyid"] = signing_key().public.fingerprint
    for broken in (under_our_name, with_statement(content(), {**signed, "subject": []})):
        assert read(broken).seal.flaw.startswith("broken: ")  # pyright: ignore[reportOptionalMemberAccess]


def test_the_seals_of_the_two_kinds_never_pass_for_each_other() -> None:
    certificate = sealed_content()
    for mixed in ({**content(), "seal": certificate["seal"]}, {**certificate, "seal": content()["seal"]}):
        loaded: Any = Statement.from_dict(mixed) if "kind" in mixed else lethe.Certificate.from_dict(mixed)
        assert "it states 'urn:lethe-dp:" in loaded.seal.flaw
        assert "enforced" not in {one.evidence for one in loaded.findings}
        assert not lethe.verify(loaded).follows.yes


def test_a_record_says_who_and_how_many() -> None:
    for changes, message in (
        ({"by": "lethe.train"}, "by: got 'lethe.train'"),
        ({"released": ()}, "a seal is bound to weights"),
    ):
        with pytest.raises(lethe.InputError, match=message):
            ReleaseRecord.of(STATED, **{"by": ESTIMATORS, "released": RELEASED, **changes})
    with pytest.raises(lethe.InputError, match="says no number of them"):
        record(replace(STATED, records=None))
    of_others = replace(STATED, findings=(replace(holds("rows", "of norm at most 1", evidence="enforced"), by="lethe.train"),))
    with pytest.raises(lethe.InputError, match=r"'rows' is enforced by 'lethe\.train' in it"):
        record(replace(joint([of_others]), findings=()))
    for told in (STATED.as_read(), joint([STATED, STATED.as_read()])):
        with pytest.raises(lethe.InputError, match="was read from a file, whose word nobody vouches for"):
            record(replace(told, records=1000))
    with pytest.raises(lethe.InputError, match="the seal is int"):
        read({**content(), "seal": 3})


def test_a_number_that_rounds_otherwise_elsewhere_keeps_its_seal() -> None:
    """A statement that another processor sealed stays as it was signed, the same but for rounding; what is further off is refused."""
    for factor, holds_still in ((1 + 1e-9, True), (0.99, False)):
        signed = statement_of(content())
        written = signed["predicate"]["statement"]
        written["guarantee"]["mu"] *= factor
        written["epsilon"] = lethe.guarantees.GDP(written["guarantee"]["mu"]).epsilon(1e-5)
        elsewhere = {**written, "seal": with_statement(content(), signed, signing_key())["seal"]}
        answers = lethe.verify(read(elsewhere), weights=WEIGHTS)
        assert answers.follows.yes is holds_still
        assert answers.sealed.yes
        if holds_still:
            assert read(answers.certificate.to_dict()).seal.holds  # pyright: ignore[reportOptionalMemberAccess]
