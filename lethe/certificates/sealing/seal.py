"""Seal: the record of a training or a release, signed by the installation of Lethe that carried it out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from lethe.certificates.signing.attestation import Released
from lethe.certificates.signing.dsse import Envelope, signed
from lethe.certificates.signing.keys import PublicKey, known_keys, signing_key
from lethe.documents.strict import to_json
from lethe.errors import InputError

_STRANGER = "a key that is not known here: it proves nothing about who trained"


class Sealable(Protocol):
    """The protocol of records that are signed."""

    @property
    def by(self) -> str:
        """The code that carried it out."""
        ...

    @property
    def released(self) -> tuple[Released, ...]:
        """The digests of what was released."""
        ...

    @property
    def version(self) -> str:
        """Of the Lethe that carried it out."""
        ...

    @property
    def fresh(self) -> bool:
        """Whether all noise came from fresh entropy."""
        ...

    def to_statement(self) -> dict[str, Any]:
        """As an in-toto statement."""
        ...


Record = TypeVar("Record", bound=Sealable)


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
    """The record, signed by `lethe.certificates.signing.signing_key`.

    Raises:
        InputError: there is no key and none can be made, or the record has no digest of the weights.
    """
    payload = to_json(record.to_statement(), indent=None).strip().encode()
    key = signing_key()
    return Seal(content=signed(payload, key).to_dict(), record=record, signer=key.public, known=True, whose=key.source, flaw="")


def read_seal(content: object, read: Callable[[object], Record], *, of: str, key: PublicKey | None = None) -> Seal[Record]:
    """The seal in a certificate or a statement, verified; an invalid one is no error but has a `flaw`.

    Whether its record is of what the seal stands in, whoever reads it asks next.

    Args:
        content: what stands in the file.
        read: makes a record of what was signed; a ValueError where that is of another kind.
        of: what such a record is of, in words.
        key: the only one to be believed; None: this installation's and its team's.
    Raises:
        InputError: it is no mapping, or a key file of this installation cannot be used.
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
    signer = next((known for known in believed if envelope.signed_by(known)), None)
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
