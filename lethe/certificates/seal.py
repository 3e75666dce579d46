"""Seal: a training record, signed by the installation of Lethe that carried the training out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lethe.certificates.signing import Envelope, PublicKey, known_keys, signed, signing_key
from lethe.certificates.training_record import TrainingRecord
from lethe.documents.strict import to_json
from lethe.errors import InputError

_STRANGER = "a key that is not known here: it proves nothing about who trained"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """A signed envelope, the training record in it, and its signer.

    Args:
        content: the DSSE envelope as plain data, as it stands in a certificate.
        record: what was signed; None where `flaw` says why there is none.
        signer: the key whose signature it is; None where it is nobody's.
        known: whether that key is believed here: the one that was given, else this installation's or its team's.
        whose: whose key it is, in words, or that nobody here knows it.
        flaw: what is wrong with it; empty where the signature is good and over a record of the certificate's run.
    """

    content: Mapping[str, Any] = field(hash=False)
    record: TrainingRecord | None
    signer: PublicKey | None
    known: bool
    whose: str
    flaw: str

    @property
    def holds(self) -> bool:
        """Whether the record is trusted: it has a valid signature by a known key."""
        return self.known and not self.flaw

    @property
    def words(self) -> str:
        """The signer, or what is wrong with the seal, as text."""
        if self.flaw:
            return self.flaw
        assert self.signer is not None
        return f"by {self.signer.fingerprint}, {self.whose}"


def seal(record: TrainingRecord) -> Seal:
    """The record, signed by `lethe.certificates.signing.signing_key`.

    Raises:
        InputError: there is no key and none can be made, or the record has no digest of the weights.
    """
    payload = to_json(record.to_statement(), indent=None).strip().encode()
    key = signing_key()
    return Seal(content=signed(payload, key).to_dict(), record=record, signer=key.public, known=True, whose=key.source, flaw="")


def read_seal(content: object, run: object, *, key: PublicKey | None = None) -> Seal:
    """The seal in a certificate, verified; an invalid one is no error but has a `flaw`.

    Args:
        content: what stands in the certificate.
        run: the certificate's.
        key: the only one to be believed; None: this installation's and its team's.
    Raises:
        InputError: it is no mapping, or a key file of this installation cannot be used.
    """
    if not isinstance(content, Mapping):
        raise InputError(f"the seal is {type(content).__name__}; it needs a DSSE envelope.")
    plain: dict[str, Any] = dict(content)
    try:
        envelope = Envelope.from_dict(plain)
    except InputError as error:
        return _flawed(plain, f"no seal: {error.what}")
    believed = known_keys() if key is None else {key: "the key that was given"}
    signer = next((known for known in believed if envelope.signed_by(known)), None)
    named = PublicKey.from_fingerprint(envelope.keyid)
    if signer is None and named is not None and envelope.signed_by(named):
        signer = named
    if signer is None:
        return _flawed(
            plain, "broken: the signature is not one of this content by the key it names" + (", nor by the one given" if key else "")
        )
    try:
        record = TrainingRecord.from_statement(json.loads(envelope.payload.decode("utf-8"), object_pairs_hook=_once))
    except (ValueError, RecursionError) as error:
        return _flawed(plain, f"no seal of a training: {str(error).splitlines()[0]}")
    if record.run != run:
        return _flawed(plain, "over another run than the certificate's")
    stranger = _STRANGER if key is None else "which is not the key that was given"
    return Seal(content=plain, record=record, signer=signer, known=signer in believed, whose=believed.get(signer, stranger), flaw="")


def _flawed(content: Mapping[str, Any], flaw: str) -> Seal:
    return Seal(content=content, record=None, signer=None, known=False, whose="", flaw=flaw)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        raise InputError("a key of its statement is given twice.")
    return dict(pairs)
