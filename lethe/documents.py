"""YAML and JSON documents: read strictly, written whole or not at all, exact to the bit.

Strict means: no duplicate keys (YAML and JSON both let the last one win silently), no NaN, and `1e-5` is a number
in YAML too (YAML 1.1 reads it as text). Infinity is written as the text "inf", which strict JSON allows.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from lethe.errors import InputError

_LONG_LIST = 1000
_YAML_SUFFIXES = {".yaml", ".yml"}
_BARE_EXPONENT = re.compile(r"^[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$")


class _StrictLoader(yaml.SafeLoader):
    """SafeLoader that reads 1e-5 as a float and refuses a key given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        _refuse_duplicates(keys)
        return super().construct_mapping(node, deep=deep)


_StrictLoader.add_implicit_resolver("tag:yaml.org,2002:float", _BARE_EXPONENT, list("-+0123456789."))


def _refuse_duplicates(keys: Iterable[object]) -> None:
    seen: set[object] = set()
    for key in keys:
        if key in seen:
            raise InputError(f"the key {key!r} is given twice.", remedy="keep one of the two.")
        seen.add(key)


def _pairs_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _refuse_duplicates(key for key, _ in pairs)
    return dict(pairs)


def _refuse_constant(text: str) -> float:
    raise InputError(f"{text} is not a number a document may hold.", remedy="write a finite number.")


def read_document(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read one mapping from a .json, .yaml or .yml file.

    Args:
        path: the file; its suffix decides the format.
    Returns:
        The mapping, with plain Python values.
    Raises:
        InputError: no such file, an unknown suffix, text that cannot be parsed, a key given twice, or no mapping at the top.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read: {error}.", remedy="give the path of a readable YAML or JSON file.") from error
    try:
        if file.suffix.lower() == ".json":
            content = json.loads(text, object_pairs_hook=_pairs_once, parse_constant=_refuse_constant)
        elif file.suffix.lower() in _YAML_SUFFIXES:
            content = yaml.load(text, Loader=_StrictLoader)
        else:
            raise InputError(f"{file.name} ends in {file.suffix!r}; a document ends in .json, .yaml or .yml.")
    except (json.JSONDecodeError, yaml.YAMLError, RecursionError) as error:
        raise InputError(f"{file} is not valid: {error}", remedy="mend the text at the place named.") from error
    except InputError as error:
        raise InputError(error.what, source=str(file), remedy=error.remedy) from error
    if not isinstance(content, dict):
        raise InputError(f"{file} holds {type(content).__name__}; it needs key: value pairs at the top.")
    return content


def to_json(content: object, *, indent: int | None = 2) -> str:
    """Strict JSON text; floats as their shortest exact form, so that a round trip changes no bit.

    A document with a long list stands on one line: nobody reads it by eye, and indenting it takes longer than certifying it.
    """
    return json.dumps(content, indent=None if _holds_long_list(content) else indent, allow_nan=False, ensure_ascii=False) + "\n"


def _holds_long_list(content: object) -> bool:
    if isinstance(content, dict):
        return any(_holds_long_list(entry) for entry in content.values())
    return isinstance(content, list) and (len(content) > _LONG_LIST or any(_holds_long_list(entry) for entry in content))


def write_document(path: str | os.PathLike[str], content: dict[str, Any]) -> None:
    """Write a mapping to a .json, .yaml or .yml file, whole or not at all.

    Raises:
        InputError: an unknown suffix, or a folder that cannot be written.
    """
    file = Path(path)
    if file.suffix.lower() == ".json":
        text = to_json(content)
    elif file.suffix.lower() in _YAML_SUFFIXES:
        text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    else:
        raise InputError(f"{file.name} ends in {file.suffix!r}; a document ends in .json, .yaml or .yml.")
    write_bytes(file, text.encode("utf-8"))


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file through a temporary neighbour and a rename, so that readers see the old file or the new one.

    Raises:
        InputError: the folder does not exist or cannot be written.
    """
    file = Path(path)
    try:
        handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error}.", remedy="give a path in an existing folder you may write to.") from error
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, file)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise InputError(
                f"{file} cannot be written: {error}.", remedy="give the path of a file, in a folder you may write to."
            ) from error
        raise


def write_folder(path: str | os.PathLike[str], files: Mapping[str, bytes], *, replace_if_holds: str | None = None) -> None:
    """Write a folder of files, whole or not at all: a temporary neighbour, then a rename.

    Args:
        path: the folder; its parent must exist.
        files: name -> content; names may contain one level of sub-folder, "runs/a.yaml".
        replace_if_holds: an existing folder is replaced only if it holds a file of this name, that is, if we wrote it.
    Raises:
        InputError: the folder exists and is not ours to replace, or its parent cannot be written.
    """
    folder = Path(path)
    require_new_folder(folder, replace_if_holds=replace_if_holds)
    try:
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error}.", remedy="give a path in an existing folder you may write to.") from error
    try:
        for name, content in files.items():
            file = temporary / name
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(content)
        os.chmod(temporary, 0o777 & ~_umask())
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(temporary, folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def require_new_folder(path: str | os.PathLike[str], *, replace_if_holds: str | None = None) -> None:
    """Refuse a folder that `write_folder` would refuse; to be asked before long work, not after it.

    Raises:
        InputError: it exists and does not hold the file that marks it as ours, or its parent does not exist.
    """
    folder = Path(path)
    if not folder.parent.is_dir():
        raise InputError(f"{folder.parent} is not a folder.", source=str(folder), remedy="create it, or give another path.")
    if folder.exists() and not (replace_if_holds and (folder / replace_if_holds).is_file()):
        raise InputError(f"{folder} exists already.", remedy="give a folder that does not exist yet.")


def _umask() -> int:
    # The mask can only be read by setting it; mkstemp's 0600 would otherwise stick to every file we write.
    mask = os.umask(0)
    os.umask(mask)
    return mask
