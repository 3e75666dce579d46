"""Seal: the record of a training or a release in a DSSE envelope, signed by the installation of Lethe that carried it out.

`Certificate` and `Statement` seal the record they rest on; `lethe verify` opens it, to show that the released weights are those of the
certificate. DSSE is an envelope format for signed texts.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from lethe.certificates.keys import PublicKey, SigningKey, known_keys, signing_key
from lethe.certificates.records import ReleaseRecord, TrainingRecord, require_keys
from lethe.documents.strict import to_json
from lethe.errors import InputError

PAYLOAD_TYPE = "application/vnd.in-toto+json"


def pae(payload_type: str, payload: bytes) -> bytes:
    """The bytes that are signed: "DSSEv1", then length and content of the type and of the payload, a space between each two."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """An in-toto statement and one signature over its type and its bytes, by DSSE protocol 1.0 (github.com/secure-systems-lab/dsse).

    Nothing may rest on the keyid. The signature has 64 bytes.
    """

    payload: bytes
    keyid: str
    signature: bytes

    @classmethod
    def of(cls, payload: bytes, key: SigningKey) -> Envelope:
        """The payload, signed by the key."""
        return cls(payload=payload, keyid=key.public.fingerprint, signature=key.sign(pae(PAYLOAD_TYPE, payload)))

    def signed_by(self, key: PublicKey) -> bool:
        """Whether the signature is this key's, over this payload as one of this type."""
        return key.verifies(self.signature, pae(PAYLOAD_TYPE, self.payload))

    def to_dict(self) -> dict[str, Any]:
        """As DSSE writes it in JSON."""
        return {
            "payloadType": PAYLOAD_TYPE,
            "payload": base64.b64encode(self.payload).decode(),
            "signatures": [{"keyid": self.keyid, "sig": base64.b64encode(self.signature).decode()}],
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Envelope:
        """The envelope that `to_dict` wrote, with one signature; an InputError of any other."""
        require_keys("the envelope", content, {"payloadType", "payload", "signatures"})
        if content["payloadType"] != PAYLOAD_TYPE:
            raise InputError(f"its payload is of the type {content['payloadType']!r}; it needs {PAYLOAD_TYPE}.")
        signatures = content["signatures"]
        if not isinstance(signatures, list) or len(signatures) != 1:
            got = f"{len(signatures)} signatures" if isinstance(signatures, list) else "no list of signatures"
            raise InputError(f"it has {got}; it needs exactly one.")
        (signature,) = signatures
        require_keys("the signature", signature, {"keyid", "sig"})
        if not isinstance(signature["keyid"], str):
            raise InputError("the keyid of its signature is no text.")
        return cls(payload=_decoded("payload", content["payload"]), keyid=signature["keyid"], signature=_decoded("sig", signature["sig"]))


def _decoded(name: str, text: object) -> bytes:
    if not isinstance(text, str):
        raise InputError(f"its {name} is no text.")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InputError(f"its {name} is not base64: {error}.") from error


_STRANGER = "a key that is not known here: it proves nothing about who trained"


Record = TypeVar("Record", TrainingRecord, ReleaseRecord)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal(Generic[Record]):
    """A signed envelope, the record in it, and its signer.

    Args:
        content: the DSSE envelope as plain data, as it stands in a certificate or a statement.
        record: what was signed; None where `flaw` says why there is none.
        signer: the key whose signature it is; None where it is nobody's.
        known: whether that key is believed here: the one that was given, else this installation's or its team's.
        whose: whose key it is, in words, or that nobody here knows it.
        flaw: what is wrong with it; empty where the signature is good and over a record of what it stands in.
    """

    content: Mapping[str, Any] = field(hash=False)
    record: Record | None
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

    def flawed(self, flaw: str) -> Seal[Record]:
        """The same envelope where it seals nothing, and why."""
        return Seal(content=self.content, record=None, signer=None, known=False, whose="", flaw=flaw)


def seal(record: Record) -> Seal[Record]:
    """The record, signed by `lethe.certificates.keys.signing_key`."""
    payload = to_json(record.to_statement(), indent=None).strip().encode()
    key = signing_key()
    return Seal(content=Envelope.of(payload, key).to_dict(), record=record, signer=key.public, known=True, whose=key.source, flaw="")


def read_seal(content: object, read: Callable[[object], Record], *, of: str, key: PublicKey | None = None) -> Seal[Record]:
    """The seal in a certificate or a statement, verified; an invalid one is no error but has a `flaw`.

    Whether its record is of what the seal stands in, whoever reads it asks next. `read` makes a record of what was signed (`of`, in words),
    or raises a ValueError. Only `key` is believed, or without one this installation's and its team's.
    """
    if not isinstance(content, Mapping):
        raise InputError(
            f"the seal is {type(content).__name__}; it needs a DSSE envelope.",
            source="the entry seal",
            remedy="ask for the file as it was written; without this entry it is one that nobody sealed.",
        )
    plain: dict[str, Any] = dict(content)
    none: Seal[Record] = Seal(content=plain, record=None, signer=None, known=False, whose="", flaw="no seal")
    try:
        envelope = Envelope.from_dict(plain)
    except InputError as error:
        return none.flawed(f"no seal: {error.what.rstrip('.')}")
    believed = known_keys() if key is None else {key: "the key that was given"}
    signer = next((believed_key for believed_key in believed if envelope.signed_by(believed_key)), None)
    named = PublicKey.from_fingerprint(envelope.keyid)
    if signer is None and named is not None and envelope.signed_by(named):
        signer = named
    if signer is None:
        by_nobody = "broken: the signature is not one of this content by the key it names"
        return none.flawed(by_nobody + (", nor by the one given" if key else ""))
    try:
        record = read(json.loads(envelope.payload.decode("utf-8"), object_pairs_hook=_once))
    except (ValueError, RecursionError) as error:
        return none.flawed(f"no seal of a {of}: {str(error).splitlines()[0]}")
    stranger = _STRANGER if key is None else "which is not the key that was given"
    return Seal(content=plain, record=record, signer=signer, known=signer in believed, whose=believed.get(signer, stranger), flaw="")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        raise InputError("a key of its statement is given twice.")
    return dict(pairs)
