"""Envelopes and keys: what is signed, what is refused, and who may read a key."""

import base64
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from seal_cases import private_pem, stranger

from lethe.certificates.keys import PublicKey, SigningKey, _create, known_keys, signing_key
from lethe.certificates.seal import PAYLOAD_TYPE, Envelope, pae
from lethe.errors import InputError


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installation without a key."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "lethe" / "signing_key.pem"


def test_what_is_signed_is_what_the_protocol_says() -> None:
    """The example of the DSSE protocol, and one with bytes that are no ASCII, whose lengths are in bytes."""
    assert pae("http://example.com/HelloWorld", b"hello world") == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    assert pae("ä", b"\x00\xff") == b"DSSEv1 2 \xc3\xa4 2 \x00\xff"


def test_an_envelope_comes_back_and_is_its_signer_s_alone() -> None:
    key, other = stranger(), stranger()
    envelope = Envelope.of(b'{"a": 1}', key)
    again = Envelope.from_dict(envelope.to_dict())
    assert again == envelope
    assert again.signed_by(key.public)
    assert not again.signed_by(other.public)
    assert PublicKey.from_fingerprint(again.keyid) == key.public


def test_a_key_signs_the_same_bytes_in_every_version() -> None:
    """ed25519 draws nothing: what older versions of Lethe signed, and wrote into an envelope, is what this one writes."""
    key = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(range(32))), "a test's key")
    signature = "F//V9QJKl8lDq52kEtYIKX9Gjln9WQReGuIPB2K6NGucsUf8QZZlhHWhcnlypW0HRsDTG87PIGlx+DuUr2v7BA=="
    assert Envelope.of(b'{"a": 1}', key).to_dict() == {
        "payloadType": "application/vnd.in-toto+json",
        "payload": "eyJhIjogMX0=",
        "signatures": [{"keyid": "ed25519:03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8", "sig": signature}],
    }


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_openssl_accepts_the_signature(tmp_path: Path) -> None:
    key = stranger()
    envelope = Envelope.of(b'{"a": 1}', key)
    content = {"key.pem": key.public.pem().encode(), "message": pae(PAYLOAD_TYPE, envelope.payload), "sig": envelope.signature}
    for name, data in content.items():
        (tmp_path / name).write_bytes(data)
    words = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", "key.pem", "-rawin", "-in", "message", "-sigfile", "sig"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_key_is_made_once_and_only_its_owner_may_read_it(config: Path) -> None:
    assert known_keys() == {}
    assert not config.exists()  # asking makes none
    first = signing_key()
    assert config.stat().st_mode & 0o777 == 0o600
    assert config.parent.stat().st_mode & 0o777 == 0o700
    assert [file.name for file in config.parent.iterdir()] == ["signing_key.pem"]
    assert signing_key().public == first.public
    assert known_keys() == {first.public: "this installation's key"}
    assert base64.b64encode(first.sign(b"")).decode() not in repr(first)
    assert repr(first) == f"SigningKey({first.public.fingerprint}, this installation's key)"


def test_a_key_that_another_process_wrote_meanwhile_stays(config: Path) -> None:
    first = signing_key()
    _create(config)
    assert signing_key().public == first.public
    assert [file.name for file in config.parent.iterdir()] == ["signing_key.pem"]


def test_a_key_that_others_may_read_signs_nothing(config: Path) -> None:
    signing_key()
    config.chmod(0o640)
    with pytest.raises(InputError, match="others may read this signing key"):
        signing_key()
    with pytest.raises(InputError, match="others may read"):
        known_keys()


def test_a_team_s_key_goes_before_the_installation_s(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, team = signing_key(), tmp_path / "team.pem"
    private = Ed25519PrivateKey.generate()
    team.write_bytes(private_pem(private))
    team.chmod(0o600)
    monkeypatch.setenv("LETHE_SIGNING_KEY", str(team))
    assert signing_key().public == PublicKey(private.public_key().public_bytes_raw())
    assert known_keys() == {own.public: "this installation's key", signing_key().public: "the key that LETHE_SIGNING_KEY names"}


def public_pem(key: Any) -> bytes:
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


ENCRYPTED = Ed25519PrivateKey.generate().private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"word")
)
BROKEN = b"-----BEGIN PRIVATE KEY-----\nMC4CAQAw\n-----END PRIVATE KEY-----\n"
OTHER = ec.generate_private_key(ec.SECP256R1())
FILES: list[tuple[str, bytes | None, str]] = [
    *(("signing", content, "no private key in PEM") for content in (b"", BROKEN, stranger().public.pem().encode())),
    ("signing", private_pem(rsa.generate_private_key(65537, 2048)), "RSAPrivateKey; it needs an ed25519 private key"),
    ("signing", private_pem(OTHER), "holds E"),
    ("signing", ENCRYPTED, "is encrypted"),
    ("signing", None, "cannot be read"),
    ("public", private_pem(Ed25519PrivateKey.generate()), "holds a private key"),
    ("public", public_pem(OTHER.public_key()), "holds E"),
    ("public", bytes(range(100)), "no public key"),
    ("public", None, "cannot be read"),
]


@pytest.mark.parametrize(("kind", "content", "message"), FILES)
def test_a_file_without_a_key_of_this_kind_is_refused(
    kind: str, content: bytes | None, message: str, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "team.pem"
    if content is not None:
        file.write_bytes(content)
        file.chmod(0o600)
    monkeypatch.setenv("LETHE_SIGNING_KEY", str(file))
    with pytest.raises(InputError, match=message):
        signing_key() if kind == "signing" else PublicKey.load(file)
    assert not config.exists()


def test_a_place_where_no_key_can_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").write_text("a file where a folder should be")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with pytest.raises(InputError, match="no signing key can be made"):
        signing_key()


def test_a_relative_config_folder_counts_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "config")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    signing_key()
    assert (tmp_path / ".config" / "lethe" / "signing_key.pem").exists()
    assert not (tmp_path / "config").exists()


def test_public_keys_come_back_from_their_files(tmp_path: Path) -> None:
    key, file = stranger().public, tmp_path / "key.pem"
    file.write_text(key.pem())
    assert PublicKey.load(file) == key
    assert PublicKey.from_fingerprint(key.fingerprint) == key
    assert PublicKey.from_fingerprint(key.fingerprint.upper()) is None
