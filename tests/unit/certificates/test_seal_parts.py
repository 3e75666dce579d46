"""What a seal is made of: envelopes and keys, who may read a key, and the digest of weights, one for one set of tensors."""

import base64
import hashlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy as safetensors
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from repository import ROOT
from seal_cases import private_pem, stranger

from lethe.certificates.keys import PublicKey, SigningKey, _create, known_keys, signing_key
from lethe.certificates.seal import Envelope, pae
from lethe.certificates.weights import RawTensor, as_tensors, canonical_chunks, read_weights, tensors_digest
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


def test_a_key_signs_the_same_bytes_in_every_version() -> None:
    """ed25519 draws nothing: what older versions of Lethe signed, and wrote into an envelope, is what this one writes."""
    key = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(range(32))), "a test's key")
    signature = "F//V9QJKl8lDq52kEtYIKX9Gjln9WQReGuIPB2K6NGucsUf8QZZlhHWhcnlypW0HRsDTG87PIGlx+DuUr2v7BA=="
    assert Envelope.of(b'{"a": 1}', key).to_dict() == {
        "payloadType": "application/vnd.in-toto+json",
        "payload": "eyJhIjogMX0=",
        "signatures": [{"keyid": "ed25519:03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8", "sig": signature}],
    }


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


NAMED = {"b": np.array([[1.5, -0.0], [np.inf, 2.0]]), "a": np.array(7, dtype=np.int64), "ü": np.zeros((0, 3), dtype=np.float32)}


def test_the_bytes_are_those_that_the_docs_say() -> None:
    by_hand = b"lethe-tensors-v1\n"
    by_hand += b'["a","int64",[]]\n' + (7).to_bytes(8, "little")
    by_hand += b'["b","float64",[2,2]]\n' + np.array([1.5, -0.0, np.inf, 2.0], dtype="<f8").tobytes()
    by_hand += b'["\\u00fc","float32",[0,3]]\n'
    assert b"".join(bytes(chunk) for chunk in canonical_chunks(NAMED)) == by_hand
    assert tensors_digest(NAMED) == hashlib.sha256(by_hand).hexdigest()


def test_order_and_layout_in_memory_do_not_matter() -> None:
    turned = {name: NAMED[name] for name in reversed(NAMED)}
    turned["b"] = np.asfortranarray(turned["b"]).astype(">f8")
    wide = np.zeros((2, 4))
    wide[:, ::2] = NAMED["b"]
    assert tensors_digest(turned) == tensors_digest(NAMED) == tensors_digest({**NAMED, "b": wide[:, ::2]})


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({}, "there are none"),
        ({"a": np.array(["text"])}, "an array of str"),
        ({"a": np.array([None])}, "an array of object"),
        ({"a": np.zeros(2, dtype=[("x", "f8")])}, "an array of void"),
        ({3: np.zeros(2)}, "have no name"),
        ({"a": RawTensor("float64", (2,), b"1234")}, "has 4 bytes"),
        ({"a": RawTensor("float7", (1,), b"1")}, "float7"),
    ],
)
def test_what_has_no_canonical_bytes_is_refused(weights: dict[Any, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        tensors_digest(weights)


def test_every_kind_of_file_gives_the_same_digest(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    arrays = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "flags": np.array([True, False]), "n": np.array(3)}
    np.savez(tmp_path / "w.npz", **arrays)
    torch.save({name: torch.tensor(array) for name, array in arrays.items()}, tmp_path / "w.pt")
    safetensors.save_file(arrays, tmp_path / "w.safetensors")
    wanted = tensors_digest(arrays)
    assert {tensors_digest(read_weights(tmp_path / f"w.{kind}")) for kind in ("npz", "pt", "safetensors")} == {wanted}
    assert tensors_digest(as_tensors({name: torch.tensor(array) for name, array in arrays.items()})) == wanted
    assert tensors_digest(as_tensors({"w": 0.5})) == tensors_digest({"w": np.array(0.5)})


def test_tensors_are_read_wherever_their_numbers_lie() -> None:
    torch = pytest.importorskip("torch")
    plain = torch.arange(6.0).reshape(2, 3)
    views = (plain.T.contiguous().T, torch.nn.Parameter(plain), torch.arange(12.0).reshape(2, 6)[:, :3] * 0 + plain)
    assert len({tensors_digest(as_tensors({"w": view})) for view in (plain, *views)}) == 1
    half = torch.tensor([1.0, -2.0], dtype=torch.bfloat16)
    assert as_tensors({"w": half})["w"].dtype == "bfloat16"
    assert bytes(as_tensors({"w": half})["w"].data) == b"\x80\x3f\x00\xc0"
    turned = torch.tensor([1 + 2j]).conj()
    assert tensors_digest(as_tensors({"w": turned})) == tensors_digest({"w": np.array([1 - 2j], dtype=np.complex64)})
    for strange in (torch.zeros(2).to_sparse(), torch.zeros(2, device="meta")):
        with pytest.raises(InputError, match="no plain numbers in memory"):
            as_tensors({"w": strange})


def test_files_that_could_run_code_or_hold_no_weights_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "objects.npz", a=np.array([print], dtype=object))
    (tmp_path / "text.npz").write_text("no archive")
    np.save(tmp_path / "one.npy", np.zeros(2))
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    whole = safetensors.save({"w": np.zeros(2, dtype=np.float32)})
    for name, content in (("empty", b""), ("short", whole[:-1]), ("long", whole + b"x"), ("strange", whole.replace(b"F32", b"F99"))):
        (tmp_path / f"{name}.safetensors").write_bytes(content)
    kinds = ("objects.npz", "text.npz", "one.npz", "w.pkl", "nowhere.npz")
    for name in (*kinds, *(f"{name}.safetensors" for name in ("empty", "short", "long", "strange"))):
        with pytest.raises(InputError):
            read_weights(tmp_path / name)


class _Runs:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("was_run"),))


def test_a_file_of_torch_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    torch.save({"w": _Runs()}, tmp_path / "bad.pt")
    torch.save([torch.zeros(2)], tmp_path / "list.pt")
    torch.save({"model": {"w": torch.zeros(2)}}, tmp_path / "nested.pt")
    (tmp_path / "text.pt").write_text("no archive")
    for name in ("bad.pt", "list.pt", "nested.pt", "text.pt"):
        with pytest.raises(InputError):
            read_weights(tmp_path / name)
    assert not (tmp_path / "was_run").exists()


def test_of_the_file_that_lethe_train_writes_the_numbers_count(tmp_path: Path) -> None:
    model = {"weights": np.ones((3, 2)), "intercept": np.zeros(2)}
    np.savez(tmp_path / "w.npz", **model, class_names=np.array(["u", "v"]), loss=np.array("softmax"), feature_norm=np.array(1.0))
    assert tensors_digest(read_weights(tmp_path / "w.npz")) == tensors_digest(model)
    np.savez(tmp_path / "w.npz", **model, extra=np.zeros(1))
    assert tensors_digest(read_weights(tmp_path / "w.npz")) != tensors_digest(model)


def test_the_recipe_on_the_page_gives_the_digest() -> None:
    page = (ROOT / "docs" / "seals.md").read_text()
    (recipe,) = [block for block in re.findall(r"```python\n(.*?)```", page, flags=re.S) if "def digest" in block]
    names: dict[str, Any] = {}
    exec(compile(recipe, "seals.md", "exec"), names)
    assert names["digest"](NAMED) == tensors_digest(NAMED)
