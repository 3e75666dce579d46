"""`lethe.verify`: yes only to what is known."""

import base64
import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from seal_cases import DELTA, WEIGHTS, make_record, sealed_content, statement_of, stranger, with_statement

import lethe
from lethe.accounting.verify import Verification
from lethe.certificates.keys import signing_key
from lethe.certificates.weights import tensors_digest
from lethe.documents.strict import write_document

MOVED = {**WEIGHTS, "intercept": np.array([0.5, -0.25])}


def verified(content: dict[str, Any], tmp_path: Path, **options: Any) -> Verification:
    write_document(tmp_path / "certificate.json", content)
    return lethe.verify(tmp_path / "certificate.json", **options)


def test_a_sealed_certificate_of_these_weights_is_all_yes(tmp_path: Path) -> None:
    np.savez(tmp_path / "weights.npz", **WEIGHTS)
    for weights in (WEIGHTS, tmp_path / "weights.npz"):
        found = verified(sealed_content(), tmp_path, weights=weights, max_epsilon=10.0)
        assert found.yes
        assert [answer.yes for answer in found.answers] == [True] * 5
        assert "this installation's key" in found.sealed.why
    assert [line.split(":")[0] for line in found.declared] == ["release", "start"]
    assert found.certificate is not None
    assert lethe.verify(lethe.certify(make_record(), DELTA), weights=WEIGHTS).yes


def test_other_weights_are_no(tmp_path: Path) -> None:
    found = verified(sealed_content(), tmp_path, weights=MOVED)
    assert not found.yes
    assert found.sealed.yes
    assert found.belongs is not None
    assert not found.belongs.yes
    assert tensors_digest(MOVED) in found.belongs.why


def test_a_stranger_can_seal_anything_and_proves_nothing(tmp_path: Path) -> None:
    content, key = sealed_content(), stranger()
    statement = statement_of(content)
    statement["subject"][0]["digest"]["sha256"] = tensors_digest(MOVED)
    forged = with_statement(content, statement, key)
    found = verified(forged, tmp_path, weights=MOVED)
    assert found.follows.yes
    assert not found.sealed.yes
    assert "proves nothing about who" in found.sealed.why
    assert found.belongs is not None
    assert not found.belongs.yes
    assert sum("the file says: enforced by lethe.train" in line for line in found.declared) == 4
    # For whoever trusts the stranger it is a seal, and ours is none.
    assert verified(forged, tmp_path, weights=MOVED, key=key.public).yes
    by_other = verified(content, tmp_path, key=key.public)
    assert not by_other.yes
    assert "not the key that was given" in by_other.sealed.why


def test_the_public_key_is_enough_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = sealed_content()
    (tmp_path / "team.pem").write_text(signing_key().public.pem())
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "elsewhere"))
    found = verified(content, tmp_path, weights=WEIGHTS, key=tmp_path / "team.pem")
    assert found.yes
    assert found.sealed.why.endswith("the key that was given")
    assert [line.split(":")[0] for line in found.declared] == ["release", "start"]
    assert not verified(content, tmp_path, weights=WEIGHTS).yes


def _statement_changed(content: dict[str, Any]) -> None:
    statement = statement_of(content)
    statement["predicate"]["enforced"].append({"name": "release", "detail": "by hand"})
    content.update(with_statement(content, statement))


def _truncated(content: dict[str, Any]) -> None:
    content["seal"]["payload"] = content["seal"]["payload"][: len(content["seal"]["payload"]) // 2 // 4 * 4]


def _other_type(content: dict[str, Any]) -> None:
    content["seal"]["payloadType"] = "application/json"


def _signed_twice(content: dict[str, Any]) -> None:
    content["seal"]["signatures"] *= 2


def _no_signature(content: dict[str, Any]) -> None:
    content["seal"]["signatures"] = []


def _signature_changed(content: dict[str, Any]) -> None:
    (one,) = content["seal"]["signatures"]
    raw = bytearray(base64.b64decode(one["sig"]))
    raw[0] ^= 1
    one["sig"] = base64.b64encode(bytes(raw)).decode()


def _named_otherwise(content: dict[str, Any]) -> None:
    """Signed by a stranger, and called ours."""
    ours = content["seal"]["signatures"][0]["keyid"]
    content.update(with_statement(content, statement_of(content), stranger()))
    content["seal"]["signatures"][0]["keyid"] = ours


def _no_envelope(content: dict[str, Any]) -> None:
    content["seal"] = {}


def _key_twice(content: dict[str, Any]) -> None:
    text = base64.b64decode(content["seal"]["payload"]).decode()
    content["seal"]["payload"] = base64.b64encode(('{"_type": 1, ' + text[1:]).encode()).decode()


@pytest.mark.parametrize(
    "harm",
    [
        _statement_changed,
        _truncated,
        _other_type,
        _signed_twice,
        _no_signature,
        _signature_changed,
        _named_otherwise,
        _no_envelope,
        _key_twice,
    ],
)
def test_a_seal_that_was_tampered_with_is_no(tmp_path: Path, harm: Any) -> None:
    content = sealed_content()
    untouched = copy.deepcopy(content)
    harm(content)
    assert content != untouched
    for key in (None, signing_key().public):
        found = verified(content, tmp_path, weights=WEIGHTS, key=key)
        assert not found.sealed.yes
        assert not found.follows.yes  # a broken seal is no part of a certificate
        assert found.belongs is not None
        assert not found.belongs.yes
        assert not any("enforced" in line and "the file says" not in line for line in found.declared)
        assert found.certificate is None


def test_what_a_known_key_signed_and_is_no_statement_is_no_seal(tmp_path: Path) -> None:
    content = sealed_content()
    for statement in ({}, [], {**statement_of(content), "_type": "https://in-toto.io/Statement/v0.1"}, 3):
        found = verified(with_statement(content, statement, signing_key()), tmp_path)
        assert not found.sealed.yes
        assert "no seal of a training" in found.sealed.why


def test_what_does_not_follow_is_no_and_says_why(tmp_path: Path) -> None:
    content = sealed_content()
    content["lipschitz"]["constant"] = 0.5
    found = verified(content, tmp_path)
    assert not found.follows.yes
    assert "Lipschitz constant" in found.follows.why
    assert found.sealed.yes  # the seal is of the training, and that is as it was
    assert not found.yes


@pytest.mark.parametrize(("limit", "yes"), [(0.0, False), (1.0, False), (1e300, True)])
def test_a_largest_epsilon_is_a_gate(tmp_path: Path, limit: float, yes: bool) -> None:
    found = verified(sealed_content(), tmp_path, max_epsilon=limit)
    assert found.within is not None
    assert found.within.yes is yes
    assert found.yes is yes
    exactly = lethe.certify(make_record(), DELTA).epsilon
    assert verified(sealed_content(), tmp_path, max_epsilon=exactly).yes


@pytest.mark.parametrize("of_a_record", [1.0, 90.0])
def test_a_delta_that_promises_nothing_passes_only_where_it_is_meant(tmp_path: Path, of_a_record: float) -> None:
    """The delta of a certificate is not under its seal: whoever holds the file can write it again at 0.9, where epsilon is 0."""
    record = make_record()
    large = of_a_record / record.run.records
    content = lethe.certify(record, large, allow_large_delta=True).to_dict()
    found = verified(content, tmp_path, weights=WEIGHTS, max_epsilon=1e300)
    assert found.follows.yes
    assert not found.private.yes
    assert "delta >= 1/records" in found.private.why
    assert not found.yes
    assert found.to_dict()["large_delta"] is True
    meant = verified(content, tmp_path, weights=WEIGHTS, max_epsilon=1e300, allow_large_delta=True)
    assert meant.yes
    assert "delta >= 1/records" in meant.private.why
    assert "large_delta" not in verified(sealed_content(), tmp_path).to_dict()
    with pytest.raises(lethe.InputError, match="allow_large_delta"):
        verified(content, tmp_path, allow_large_delta=1)


def test_bad_input_is_an_error_and_no_answer(tmp_path: Path) -> None:
    content = sealed_content()
    (tmp_path / "private.pem").write_text("no key")
    for options in (
        {"max_epsilon": -1.0},
        {"max_epsilon": float("nan")},
        {"max_epsilon": float("inf")},
        {"weights": tmp_path / "nowhere.npz"},
        {"weights": 3},
        {"weights": {}},
        {"key": tmp_path / "private.pem"},
        {"key": tmp_path / "nowhere.pem"},
    ):
        with pytest.raises(lethe.InputError):
            verified(content, tmp_path, **options)
    with pytest.raises(lethe.InputError, match="needs a Certificate or the file of one"):
        lethe.verify(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(lethe.InputError, match="the seal is"):
        verified({**content, "seal": 3}, tmp_path)
    with pytest.raises(lethe.InputError, match="not a certificate"):
        verified({"seal": content["seal"]}, tmp_path)
