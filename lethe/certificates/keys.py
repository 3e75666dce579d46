"""ed25519 keys: one of the installation, made on first use, or a team's own, given by an environment variable.

seal.py signs training and release records with one and checks signatures; `lethe verify` and the ledger take the public keys of others.

A key's fingerprint is "ed25519:" and the 64 hexadecimal digits of the public key itself, which is no longer than a hash of it would be.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from lethe.errors import InputError

VARIABLE = "LETHE_SIGNING_KEY"
"""The environment variable that names a PEM file with a private ed25519 key to sign with, instead of the installation's."""

_FINGERPRINT = re.compile(r"ed25519:([0-9a-f]{64})")
_MOST_BYTES = 100_000
_MAKE_ONE = "make a key by `openssl genpkey -algorithm ed25519`."


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public ed25519 key of 32 bytes, which identifies a signer."""

    raw: bytes

    @property
    def fingerprint(self) -> str:
        """Such as ed25519:5f0a..., the whole key in hexadecimal."""
        return f"ed25519:{self.raw.hex()}"

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether the signature of the message is this key's."""
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True

    def pem(self) -> str:
        """As a PEM file, which other tools read."""
        key = Ed25519PublicKey.from_public_bytes(self.raw)
        return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode()

    @classmethod
    def from_fingerprint(cls, text: str) -> PublicKey | None:
        """The key of a fingerprint, None where the text is none."""
        match = _FINGERPRINT.fullmatch(text)
        return None if match is None else cls(bytes.fromhex(match[1]))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PublicKey:
        """Read the PEM file of a public ed25519 key, as `lethe key` writes it.

        Raises:
            InputError: it cannot be read, or holds a private key, a key of another kind, or none.
        """
        content, remedy = _content(path), "give the public key that `lethe key` prints where the model was trained."
        if b"PRIVATE KEY" in content:
            raise InputError(f"{path} holds a private key, which its owner should give to nobody.", source=str(path), remedy=remedy)
        try:
            key = serialization.load_pem_public_key(content)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise InputError(f"{path} holds no public key in PEM.", source=str(path), remedy=remedy) from error
        if not isinstance(key, Ed25519PublicKey):
            raise InputError(f"{path} holds {type(key).__name__}; it needs an ed25519 public key.", source=str(path), remedy=remedy)
        return cls(key.public_bytes_raw())


@dataclass(frozen=True, slots=True, repr=False)
class SigningKey:
    """A private ed25519 key, and where it came from, in words; its text form shows the public half only."""

    _private: Ed25519PrivateKey
    source: str

    def __repr__(self) -> str:
        return f"SigningKey({self.public.fingerprint}, {self.source})"

    @property
    def public(self) -> PublicKey:
        """Its public half."""
        return PublicKey(self._private.public_key().public_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        """The signature, 64 bytes."""
        return self._private.sign(message)


def signing_key() -> SigningKey:
    """The key to sign with: of the file that LETHE_SIGNING_KEY names, else the installation's, which is made on first use."""
    team = os.environ.get(VARIABLE)
    if team:
        return _read(Path(team), f"the key that {VARIABLE} names")
    path = _installation_file()
    if not path.exists():
        _create(path)
    return _read(path, "this installation's key")


def known_keys() -> dict[PublicKey, str]:
    """The keys whose seals are believed here without being told, and whose each is: this installation's, and that of LETHE_SIGNING_KEY."""
    keys = [signing_key()] if os.environ.get(VARIABLE) else []
    path = _installation_file()
    if path.exists():
        keys.append(_read(path, "this installation's key"))
    return {key.public: key.source for key in reversed(keys)}


def _installation_file() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME", "")
    try:
        folder = Path(base) if os.path.isabs(base) else Path.home() / ".config"  # the XDG rule: a relative path counts as none
    except RuntimeError as error:
        raise InputError(f"there is no home folder for a signing key: {error}", remedy=f"set {VARIABLE} to a key file.") from error
    return folder / "lethe" / "signing_key.pem"


def _create(path: Path) -> None:
    """Write a new key that only its owner may read: whole or not at all, and never over one that another process wrote meanwhile."""
    pem = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as stream:
                stream.write(pem)
                stream.flush()
                os.fsync(stream.fileno())
            os.link(temporary, path)  # unlike a rename it fails where a file is
        finally:
            temporary.unlink(missing_ok=True)
    except FileExistsError:
        return
    except OSError as error:
        raise InputError(
            f"no signing key can be made: {path} cannot be written: {error.strerror or error}.",
            remedy=f"set {VARIABLE} to the PEM file of an ed25519 key; or go without a seal: certify the run alone, take statement_.",
        ) from error


def _read(path: Path, whose: str) -> SigningKey:
    content = _content(path)
    if os.name == "posix" and path.stat().st_mode & 0o077:
        raise InputError(f"{path}: others may read this signing key, so that they may sign with it.", remedy=f"chmod 600 {path}")
    try:
        private = serialization.load_pem_private_key(content, password=None)
    except TypeError as error:
        raise InputError(f"{path}: this signing key is encrypted.", source=whose, remedy="give it without a passphrase.") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InputError(f"{path} holds no private key in PEM.", source=whose, remedy=_MAKE_ONE) from error
    if not isinstance(private, Ed25519PrivateKey):
        raise InputError(f"{path} holds {type(private).__name__}; it needs an ed25519 private key.", source=whose, remedy=_MAKE_ONE)
    return SigningKey(private, whose)


def _content(path: str | os.PathLike[str]) -> bytes:
    try:
        with open(path, "rb") as stream:
            return stream.read(_MOST_BYTES)
    except (OSError, TypeError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}.", remedy="give the path of a key in PEM.") from error
