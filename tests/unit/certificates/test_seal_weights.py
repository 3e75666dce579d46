"""The digest of weights: one for one set of tensors, whatever holds them, and another for any other set."""

import hashlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy as safetensors
from repository import ROOT

from lethe.certificates.weights import RawTensor, as_tensors, canonical_chunks, read_weights, tensors_digest
from lethe.errors import InputError

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
    "other",
    [
        {**NAMED, "b": np.nextafter(NAMED["b"], 5.0)},
        {**NAMED, "b": np.abs(NAMED["b"])},  # -0.0 is another number to a file
        {**NAMED, "b": NAMED["b"].reshape(4)},
        {**NAMED, "b": NAMED["b"].T},
        {**NAMED, "b": NAMED["b"].view(np.int64)},
        {**NAMED, "a": np.array([7])},
        {**NAMED, "c": np.zeros(0)},
        {"b": NAMED["b"], "a": NAMED["a"]},
        {"b ": NAMED["b"], "a": NAMED["a"], "ü": NAMED["ü"]},
    ],
)
def test_anything_else_has_another_digest(other: dict[str, np.ndarray[Any, Any]]) -> None:
    assert tensors_digest(other) != tensors_digest(NAMED)


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
