"""Signing: ed25519 keys of an installation or a team, and the DSSE envelopes that they sign."""

from lethe.certificates.signing.dsse import PAYLOAD_TYPE, Envelope, pae, signed
from lethe.certificates.signing.keys import VARIABLE, PublicKey, SigningKey, known_keys, signing_key
