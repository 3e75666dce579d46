"""The checkpoint's file: read as it was written, or refused; and where checkpoints may be kept."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lethe.errors import InputError, LetheError
from lethe.train.checkpoints.file import read_checkpoint, write_checkpoint

CONTENT = {"numbers": torch.arange(50.0), "text": "a", "nested": {"list": [1, None, 2.5], "counts": torch.ones(3, dtype=torch.int64)}}


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    assert read_checkpoint(path) is None
    write_checkpoint(path, {"old": 1})
    write_checkpoint(path, CONTENT)
    found = read_checkpoint(path)
    assert found is not None
    assert torch.equal(found.pop("numbers"), CONTENT["numbers"])  # type: ignore[arg-type]
    assert torch.equal(found["nested"].pop("counts"), torch.ones(3, dtype=torch.int64))
    assert found == {"text": "a", "nested": {"list": [1, None, 2.5]}}
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint.pt"]
    assert path.stat().st_mode & 0o077 == 0


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("written") / "checkpoint.pt"
    write_checkpoint(path, CONTENT)
    return path.read_bytes()


@given(cut=st.floats(0, 1, exclude_max=True))
def test_a_file_cut_short_is_refused(tmp_path_factory: pytest.TempPathFactory, written: bytes, cut: float) -> None:
    path = tmp_path_factory.mktemp("cut") / "checkpoint.pt"
    path.write_bytes(written[: int(cut * len(written))])
    with pytest.raises(InputError, match="no checkpoint of this version, or it is damaged"):
        read_checkpoint(path)


@given(place=st.integers(0, 10**9), bit=st.integers(0, 7))
def test_a_flipped_bit_is_refused_or_was_in_no_content(
    tmp_path_factory: pytest.TempPathFactory, written: bytes, place: int, bit: int
) -> None:
    path = tmp_path_factory.mktemp("bit") / "checkpoint.pt"
    spoilt = bytearray(written)
    spoilt[place % len(written)] ^= 1 << bit
    path.write_bytes(spoilt)
    try:
        found = read_checkpoint(path)
    except InputError:
        return
    assert found is not None
    assert torch.equal(found["numbers"], torch.arange(50.0))
    assert torch.equal(found["nested"]["counts"], torch.ones(3, dtype=torch.int64))


class Loud:
    """A pickle that would run code."""

    def __reduce__(self) -> Any:
        return os.system, ("touch /tmp/lethe-was-run",)


@pytest.mark.parametrize("content", [Loud(), {"format": 1, "digest": "", "content": Loud()}, {"format": 1}, 3, torch.zeros(3)])
def test_foreign_files_are_refused_and_run_nothing(tmp_path: Path, content: Any) -> None:
    path = tmp_path / "checkpoint.pt"
    torch.save(content, path)
    with pytest.raises(InputError, match="no checkpoint"):
        read_checkpoint(path)
    assert not Path("/tmp/lethe-was-run").exists()
    path.write_bytes(b"PK\3\4 hello")
    with pytest.raises(InputError, match="no checkpoint"):
        read_checkpoint(path)


def test_what_could_not_be_read_back_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    write_checkpoint(path, {"old": 1})
    with pytest.raises(InputError, match="cannot be read back safely"):
        write_checkpoint(path, {"new": np.random.default_rng(0)})
    assert read_checkpoint(path) == {"old": 1}


@pytest.mark.parametrize("where", ["replace", "fsync"])
def test_a_failing_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    path = tmp_path / "checkpoint.pt"
    write_checkpoint(path, {"old": 1})

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, where, fails)
    with pytest.raises(LetheError, match="No space left on device"):
        write_checkpoint(path, {"new": 1})
    assert read_checkpoint(path) == {"old": 1}
    assert len(list(tmp_path.iterdir())) == 1
