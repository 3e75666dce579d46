"""The file of a checkpoint: written whole or not at all, read without running anything that it may hold."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from lethe.calculus.domains import require_count
from lethe.errors import InputError, LetheError
from lethe.train.checkpoints.journal import to_disk
from lethe.train.distributed.collectives import control_device
from lethe.train.distributed.workers import Workers

_FORMAT = 1
_TEMPORARY = ".checkpoint.pt.new"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """Where, and how often, a training is saved so that it can go on after it was killed.

    Args:
        folder: made if there is none; of one run alone, and as private as the data: it holds the secret of the batches, a keyed hash of
            records, and iterates that nobody is to see. Destroy it when the model is released.
        every: steps between two checkpoints, at least; one is taken after a step with noise only.
        also: what else is to be saved, by name: objects with state_dict and load_state_dict, such as a learning rate's scheduler. What
            they hold must be tensors and plain data.
    Raises:
        InputError: an argument that cannot be used.
    """

    folder: str | os.PathLike[str]
    every: int = 100
    also: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _is_path(self.folder):
            raise InputError(f"folder: got {self.folder!r}; it needs a path.", source="checkpoints.folder")
        object.__setattr__(self, "every", require_count("every", self.every))
        if not isinstance(self.also, Mapping) or not all(isinstance(name, str) for name in self.also):
            raise InputError(f"also: got {self.also!r}; it needs a dict of names and objects.", source="checkpoints.also")
        for name, part in self.also.items():
            if not callable(getattr(part, "state_dict", None)) or not callable(getattr(part, "load_state_dict", None)):
                raise InputError(
                    f"also: {name} is a {type(part).__name__}; it needs state_dict and load_state_dict.", source="checkpoints.also"
                )

    @classmethod
    def of(cls, given: object) -> Checkpoints:
        """Checkpoints in a folder; checkpoints are returned unchanged.

        Raises:
            InputError: neither.
        """
        if isinstance(given, Checkpoints):
            return given
        if not isinstance(given, str | os.PathLike):
            raise InputError(f"checkpoints: got {given!r}; it needs a folder, Checkpoints, or None.")
        return cls(folder=given)


def write_checkpoint(path: Path, content: Mapping[str, Any]) -> None:
    """Write tensors and plain data: to a neighbour, on disk, then in the old file's place, so that there is always one whole file.

    Raises:
        InputError: `torch.load` with weights_only=True would refuse something in it; nothing is written then.
        LetheError: the file cannot be written; the old one is still there.
    """
    inner = _saved(dict(content))
    try:
        _loaded(inner)
    except Exception as error:
        raise InputError(
            f"checkpoint: it would hold what cannot be read back safely: {_first_line(error)}",
            source="the optimiser's state, or checkpoints.also",
            remedy="keep tensors and plain data there: numbers, texts, lists and dicts.",
        ) from error
    outer = _saved({"format": _FORMAT, "digest": _digest(inner), "content": torch.frombuffer(bytearray(inner), dtype=torch.uint8)})
    temporary = path.parent / _TEMPORARY
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(outer)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        to_disk(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise LetheError(
            f"{path} cannot be written: {error.strerror or error}.",
            source="checkpoints.folder",
            remedy="make room or mend the disk, and start again: training goes on from the last checkpoint.",
        ) from error


def read_checkpoint(path: Path) -> dict[str, Any] | None:
    """The content of a checkpoint; None if there is no file.

    Raises:
        InputError: the file is damaged, cut short, of another version or something else.
    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.", source="checkpoints.folder") from error
    try:
        outer = _loaded(raw)
        inner = outer["content"].numpy().tobytes()
        # torch.load does not look at its file's own checksums.
        if outer["format"] != _FORMAT or outer["digest"] != _digest(inner):
            raise ValueError("its digest or its format is another")
        content = _loaded(inner)
        if not isinstance(content, dict):
            raise TypeError("no dictionary")
    except Exception as error:  # whatever torch.load makes of foreign bytes
        raise InputError(
            f"{path} is no checkpoint of this version, or it is damaged: {_first_line(error)}",
            source="checkpoints.folder",
            remedy="put back an intact copy of this file: with the journal as it is that is safe. Without one, begin another run.",
        ) from error
    return content


def told(found: dict[str, Any] | None, released: int, workers: Workers) -> tuple[dict[str, Any] | None, int]:
    """What process 0 found, in all processes.

    Args:
        found: a checkpoint's content, of process 0; None: there is none.
        released: how many steps its journal counts.
        workers: the processes.
    """
    if not workers.several:
        return found, released
    file = io.BytesIO()
    if workers.root:
        torch.save([found, released], file)
    size = torch.tensor([len(file.getvalue())], device=control_device())
    workers.from_root([size])
    content = torch.zeros(int(size), dtype=torch.uint8) if not workers.root else torch.frombuffer(file.getbuffer(), dtype=torch.uint8)
    content = content.to(control_device())
    workers.from_root([content])
    found, released = torch.load(io.BytesIO(content.cpu().numpy().tobytes()), map_location="cpu", weights_only=True)
    return found, released


def _is_path(given: object) -> bool:
    named = os.fspath(given) if isinstance(given, str | os.PathLike) else None
    return isinstance(named, str) and bool(named) and "\0" not in named


def _saved(content: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


def _loaded(raw: bytes) -> Any:
    return torch.load(io.BytesIO(raw), map_location="cpu", weights_only=True)


def _digest(raw: bytes) -> str:
    return hashlib.blake2b(raw, digest_size=32).hexdigest()


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
