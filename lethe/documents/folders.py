"""Folders of results: written whole or not at all, and never over somebody else's files.

`lethe train`, `demo` and other verbs that write several files call `write_folder`; a folder with half of them would be taken for a result.
"""

import os
import shutil
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

from lethe.documents.strict import usual_mode
from lethe.errors import InputError

_REMEDY = "give a path in an existing folder you may write to."


def write_folder(path: str | os.PathLike[str], files: Mapping[str, bytes], *, replace: bool = False) -> None:
    """Write a folder of files: a temporary neighbour, then a rename.

    Args:
        path: the folder; its parent must exist.
        files: name -> content; names may contain one level of sub-folder, "runs/a.json".
        replace: an existing folder may be replaced if it holds nothing but files of these names.
    """
    folder = Path(path)
    require_new_folder(folder, replaceable=files if replace else None)
    temporary: Path | None = None
    try:
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        new, old = temporary / "new", temporary / "old"
        for name, content in files.items():
            file = new / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        os.chmod(new, usual_mode(0o777))
        if folder.exists():
            os.replace(folder, old)
        try:
            os.replace(new, folder)
        except BaseException:
            if old.exists():
                os.replace(old, folder)
            raise
    except OSError as error:
        # The reason alone: the whole message names a temporary folder that nobody gave and that is gone by now.
        raise InputError(f"{folder} cannot be written: {error.strerror or error}.", remedy=_REMEDY) from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def require_new_folder(path: str | os.PathLike[str], *, replaceable: Collection[str] | None = None) -> None:
    """Refuse a folder that `write_folder` would refuse, before long work: its parent is no folder or may not be written to, or it exists.

    If it holds nothing but files of the names that are `replaceable`, it may exist.
    """
    folder = Path(path)
    if not folder.parent.is_dir():
        raise InputError(f"{folder.parent} is not a folder.", source=str(folder), remedy="create it, or give another path.")
    if not os.access(folder.parent, os.W_OK | os.X_OK):
        raise InputError(f"{folder} cannot be written: you may not write to {folder.parent}.", remedy=_REMEDY)
    if not os.path.lexists(folder):
        return
    if replaceable is None or not folder.is_dir() or folder.is_symlink():
        raise InputError(f"{folder} exists already.", remedy="give a folder that does not exist yet.")
    names = {entry.relative_to(folder).as_posix() for entry in folder.rglob("*") if not entry.is_dir() or entry.is_symlink()}
    if foreign := sorted(names - set(replaceable)):
        raise InputError(f"{folder} exists already and holds {foreign[0]!r}, which is not ours to delete.", remedy="give another folder.")
