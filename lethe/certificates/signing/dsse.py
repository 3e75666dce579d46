"""DSSE, the Dead Simple Signing Envelope: what in-toto attestations are signed in, and what other tools read.

Reference: DSSE protocol 1.0, github.com/secure-systems-lab/dsse.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lethe.certificates.signing.keys import PublicKey, SigningKey
from lethe.errors import InputError

PAYLOAD_TYPE = "application/vnd.in-toto+json"
_MOST_BYTES = 64 * 2**20  # of a payload: a run that lists a number for each of 20 million steps is not sealed twice by accident


def pae(payload_type: str, payload: bytes) -> bytes:
    """The bytes that are signed: "DSSEv1", then length and content of the type and of the payload, a space between each two."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """A payload and one signature over its type and its bytes.

    Args:
        payload: what is signed.
        payload_type: of what kind it is.
        keyid: which key is said to have signed; a hint that nothing may rest on.
        signature: 64 bytes.
    """

    payload: bytes
    payload_type: str
    keyid: str
    signature: bytes

    def signed_by(self, key: PublicKey) -> bool:
        """Whether the signature is this key's, over this payload as one of this type."""
        return key.verifies(self.signature, pae(self.payload_type, self.payload))

    def to_dict(self) -> dict[str, Any]:
        """As DSSE writes it in JSON."""
        return {
            "payloadType": self.payload_type,
            "payload": base64.b64encode(self.payload).decode(),
            "signatures": [{"keyid": self.keyid, "sig": base64.b64encode(self.signature).decode()}],
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Envelope:
        """The envelope that `to_dict` wrote: of an in-toto statement, with one signature.

        Raises:
            InputError: a key is missing, unknown or of the wrong type, the payload is of another type, or the signatures are not one.
        """
        _require_keys("the envelope", content, {"payloadType", "payload", "signatures"})
        if content["payloadType"] != PAYLOAD_TYPE:
            raise InputError(f"its payload is of the type {content['payloadType']!r}; it needs {PAYLOAD_TYPE}.")
        signatures = content["signatures"]
        if not isinstance(signatures, list) or len(signatures) != 1:
            got = f"{len(signatures)} signatures" if isinstance(signatures, list) else "no list of signatures"
            raise InputError(f"it has {got}; it needs exactly one.")
        (one,) = signatures
        _require_keys("the signature", one, {"keyid", "sig"})
        if not isinstance(one["keyid"], str):
            raise InputError("the keyid of its signature is no text.")
        return cls(
            payload=_decoded("payload", content["payload"]),
            payload_type=PAYLOAD_TYPE,
            keyid=one["keyid"],
            signature=_decoded("sig", one["sig"]),
        )


def signed(payload: bytes, key: SigningKey) -> Envelope:
    """The payload, an in-toto statement, in an envelope signed by the key."""
    return Envelope(
        payload=payload, payload_type=PAYLOAD_TYPE, keyid=key.public.fingerprint, signature=key.sign(pae(PAYLOAD_TYPE, payload))
    )


def _require_keys(what: str, content: object, needed: set[str]) -> None:
    if not isinstance(content, Mapping) or set(content) != needed:
        got = sorted(map(str, content)) if isinstance(content, Mapping) else type(content).__name__
        raise InputError(f"{what} has {got}; it needs {sorted(needed)}.")


def _decoded(name: str, text: object) -> bytes:
    if not isinstance(text, str) or len(text) > 2 * _MOST_BYTES:
        raise InputError(f"its {name} is no text of a sensible length.")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InputError(f"its {name} is not base64: {error}.") from error
