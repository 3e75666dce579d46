"""The file of a checkpoint: written whole or not at all, read without running anything that it may hold. `Checkpointing` writes and reads
it; `Checkpoints` is the option of `fit` and `PrivacyEngine` that says in which folder and how often.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from lethe.calculus.domains import require_count
from lethe.errors import InputError, LetheError
from lethe.train.checkpoints.journal import to_disk

_FORMAT = 3


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
        if not isinstance(self.folder, str | os.PathLike) or not self.folder:
            raise InputError(f"checkpoints: got {self.folder!r} for a folder; it needs a path.", source="checkpoints.folder")
        object.__setattr__(self, "every", require_count("every", self.every))
        if not isinstance(self.also, Mapping):
            raise InputError(f"also: got {self.also!r}; it needs a dict of names and objects.", source="checkpoints.also")
        for name, part in self.also.items():
            if not callable(getattr(part, "state_dict", None)) or not callable(getattr(part, "load_state_dict", None)):
                raise InputError(
                    f"also: {name} is a {type(part).__name__}; it needs state_dict and load_state_dict.", source="checkpoints.also"
                )

    @classmethod
    def of(cls, value: object) -> Checkpoints:
        """Checkpoints in a folder; checkpoints are returned unchanged."""
        return value if isinstance(value, Checkpoints) else cls(folder=value)  # pyright: ignore[reportArgumentType]  refused there


def write_checkpoint(path: Path, content: Mapping[str, Any]) -> None:
    """Write tensors and plain data: to a neighbour, on disk, then in the old file's place, so that there is always one whole file."""
    temporary = path.with_name(f".{path.name}.new")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            torch.save({"format": _FORMAT, **content}, file)
            file.flush()
            os.fsync(file.fileno())
        _loaded(temporary)
        os.replace(temporary, path)
        to_disk(path.parent)
    except (OSError, RuntimeError) as error:  # the latter from torch.save, whose file is full
        raise LetheError(
            f"{path} cannot be written: {_first_line(error)}.",
            source="checkpoints.folder",
            remedy="make room or mend the disk, and start again: training goes on from the last checkpoint.",
        ) from error
    except Exception as error:  # whatever pickle and torch.load make of it
        raise InputError(
            f"checkpoint: it would hold what cannot be read back safely: {_first_line(error)}",
            source="the optimiser's state, or checkpoints.also",
            remedy="keep tensors and plain data there: numbers, texts, lists and dicts.",
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def read_checkpoint(path: Path) -> dict[str, Any] | None:
    """The content of a checkpoint; None if there is no file."""
    if not path.exists():
        return None
    try:
        return _loaded(path)
    except Exception as error:  # whatever torch.load makes of foreign bytes
        raise InputError(
            f"{path} is no checkpoint of this version, or it is damaged: {_first_line(error)}",
            source="checkpoints.folder",
            remedy="put back an intact copy of this file: with the journal as it is that is safe. Without one, begin another run.",
        ) from error


def _loaded(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as file:  # torch.load does not look at its file's own checksums
        if (damaged := file.testzip()) is not None:
            raise ValueError(f"{damaged} is damaged")
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(checkpoint, dict) or checkpoint.pop("format", None) != _FORMAT:
        raise ValueError("its format is another")
    return checkpoint


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
