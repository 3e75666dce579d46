"""Receipt of what pays for a training, beside its checkpoint, so that a training that goes on is not paid for twice."""

from __future__ import annotations

import os
from pathlib import Path

from lethe.documents.strict import write_bytes
from lethe.errors import InputError
from lethe.train.checkpoints.journal import to_disk

_NAME = "reservation"


def read_receipt(folder: Path) -> str | None:
    """What `write_receipt` wrote there; None: nothing, or beside another journal than the one that is there now.

    Raises:
        InputError: it cannot be read.
    """
    try:
        head, _, receipt = (folder / _NAME).read_text(encoding="ascii").rstrip("\n").partition("\n")
        return receipt if head == _head(folder) else None
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{folder / _NAME} cannot be read: {error}.", source="checkpoints.folder") from error


def write_receipt(folder: Path, receipt: str) -> None:
    """Have it on disk, in the place of an earlier one, bound to the journal: one that begins anew is paid anew.

    Args:
        folder: of the checkpoint, which this process has locked; a training has begun there.
        receipt: a line of ASCII.
    Raises:
        InputError: it cannot be written.
    """
    write_bytes(folder / _NAME, f"{_head(folder)}\n{receipt}\n".encode("ascii"))
    os.chmod(folder / _NAME, 0o600)
    to_disk(folder)


def _head(folder: Path) -> str:
    """The journal's first line, which has its name."""
    with open(folder / "journal", encoding="ascii") as file:
        return file.readline().rstrip("\n")
