"""Signing: ed25519 keys of an installation or a team, and the DSSE envelopes that they sign."""
