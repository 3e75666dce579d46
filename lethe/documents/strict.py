"""YAML, JSON and NumPy files: read strictly, written whole or not at all, exact to the bit.

All files that Lethe reads or writes (runs, configurations, certificates, statements) pass through here: a number read otherwise than
written would be another epsilon.

Strict means: no duplicate keys (YAML and JSON both let the last one win silently), no NaN, and `1e-5` is a number
in YAML too (YAML 1.1 reads it as text). Infinity is written as the text "inf", which strict JSON allows.
"""

import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pydantic_core
import yaml

from lethe.errors import InputError, LetheError

DOCUMENTS = (".json", ".yaml", ".yml")
"""How the name of a document may end."""
_LONG_LIST = 1000
# PyYAML's constructors look at nothing where a tag does not fit its text, such as "!!bool maybe".
_UNREADABLE = (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)
# Numbers and truth values as YAML 1.2 and JSON have them. YAML 1.1, PyYAML's own, reads 1e-5 as text, 1:30 as 90, 010 as 8, no as false.
_SCALARS = {
    "tag:yaml.org,2002:int": (r"^[-+]?\d+$", "-+0123456789"),
    "tag:yaml.org,2002:float": (r"^[-+]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][-+]?\d+)?$", "-+0123456789."),
    "tag:yaml.org,2002:bool": (r"^(true|True|TRUE|false|False|FALSE)$", "tTfF"),
    "tag:yaml.org,2002:null": (r"^(~|null|Null|NULL|)$", ["~", "n", "N", ""]),
}
_PROVED = "`lethe explain {file}` says what it proves, and `lethe verify {file}` whether it holds."
# The first of them all of whose keys a document has is its kind; statements and totals name theirs.
_KINDS = (
    ("certificate", {"theorem", "guarantee", "run"}, _PROVED),
    ("result of an audit", {"subject", "canary", "audits"}, "put it into a folder of `lethe train`: `lethe report FOLDER`."),
    ("configuration of `lethe audit`", {"subject"}, "`lethe audit {file}` carries it out."),
    (
        "run",
        {"batches"},
        "`lethe certify {file} --delta D -o certificate.json` certifies it. To train by it, put its fields under run:, and add data: and "
        "privacy: (docs/train_file.md); to audit it: a file with subject: {{kind: run, run: {file}}} (docs/audit.md).",
    ),
    (
        "configuration of `lethe train`",
        {"privacy"},
        "`lethe train {file} -o FOLDER` trains as it says, and writes FOLDER/run.json and FOLDER/certificate.json. To audit it: a file "
        "with subject: {{kind: train, config: {file}}} (docs/audit.md).",
    ),
)


class _StrictLoader(yaml.SafeLoader):
    """SafeLoader that reads scalars as YAML 1.2 does and refuses a key given twice, and anchors and aliases."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012  # PyYAML's own name and type

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        # A few hundred letters of aliases of aliases stand for billions of entries.
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise InputError(
                f"line {self.line + 1} has an anchor (&name) or an alias (*name); documents are read without them.",
                remedy="write out what the alias stands for.",
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        _refuse_duplicates(self.construct_object(key, deep=True) for key, _ in node.value)
        return super().construct_mapping(node, deep=deep)


class _PlainDumper(yaml.SafeDumper):
    """SafeDumper that writes a value out wherever it stands, and never as an alias of an earlier one."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


for _tag, (_pattern, _first) in _SCALARS.items():
    _StrictLoader.add_implicit_resolver(_tag, re.compile(_pattern), list(_first))
_StrictLoader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: int(str(loader.construct_scalar(node))))  # pyright: ignore[reportArgumentType]


def _refuse_duplicates(keys: Iterable[object]) -> None:
    earlier: set[object] = set()
    for key in keys:
        if not isinstance(key, str):
            raise InputError(f"the key {key!r} is not text.", remedy="name every entry.")
        if key in earlier:
            raise InputError(f"the key {key!r} is given twice.", remedy="keep one of the two.")
        earlier.add(key)


def _pairs_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _refuse_duplicates(key for key, _ in pairs)
    return dict(pairs)


def _refuse_constant(text: str) -> float:
    raise InputError(f"{text} is not a number a document may hold.", remedy="write a finite number.")


def as_path(path: str | os.PathLike[str]) -> Path:
    """`path` as a Path; InputError of what is none."""
    try:
        return Path(path)
    except TypeError as error:
        raise InputError(f"path: got {type(path).__name__}; it needs the path of a file.") from error


@contextmanager
def errors_from(source: str | os.PathLike[str] | None) -> Iterator[None]:
    """Within: an InputError says that it comes from there."""
    try:
        yield
    except InputError as error:
        where = ": ".join(str(part) for part in (source, error.source) if part) or None
        raise InputError(error.what, source=where, remedy=error.remedy) from error


def read_document(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read one mapping of plain Python values from a .json, .yaml or .yml file; its suffix decides the format.

    Raises:
        InputError: no such file, an unknown suffix, text that cannot be parsed, a key given twice, or no mapping at the top.
    """
    file = as_path(path)
    _require_document(file)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InputError(f"{file} cannot be read: {error}.", remedy="give the path of a readable YAML or JSON file.") from error
    return parse_document(text, str(file))


def parse_document(text: str, name: str) -> dict[str, Any]:
    """Read one mapping from the text of the file of that name, as `read_document` does."""
    file = Path(name)
    _require_document(file)
    try:
        with errors_from(name):
            if file.suffix.lower() == ".json":
                content = json.loads(text, object_pairs_hook=_pairs_once, parse_constant=_refuse_constant)
            else:
                content = yaml.load(text, Loader=_StrictLoader)
    except InputError:
        raise
    except _UNREADABLE as error:
        raise InputError(f"{name} is not valid: {error}", remedy="mend the text at the place named.") from error
    if not isinstance(content, dict):
        raise InputError(f"{name} holds {type(content).__name__}; it needs key: value pairs at the top.")
    return content


def _require_document(file: Path) -> None:
    if file.is_dir():
        raise InputError(
            f"{file} is a folder; it needs a document in a file.",
            source=str(file),
            remedy=f"of a folder that `lethe train` wrote, give run.json or certificate.json; `lethe report {file}` takes all of it.",
        )
    if file.suffix.lower() not in DOCUMENTS:
        raise InputError(
            f"{file.name} ends in {file.suffix!r}; a document ends in .json, .yaml or .yml.",
            source=str(file),
            remedy="give a run, a configuration or a certificate; a table goes to `lethe init --data FILE --target COLUMN`.",
        )


def refuse_other_kind(content: Mapping[str, Any], expected: str, source: str | None) -> None:
    """Refuse a document that is clearly not of the `expected` kind, such as "run", and say what it is for; what is of no kind passes."""
    if content.get("kind") in ("statement", "total"):
        name, use = content["kind"], _PROVED
    else:
        name, use = next(((name, use) for name, keys, use in _KINDS if keys <= content.keys()), (expected, ""))
    if name != expected:
        raise InputError(f"{source or 'this'} is a {name}, not a {expected}.", source=source, remedy=use.format(file=source or "FILE"))


def parse_value(text: str, name: str) -> Any:
    """Read one YAML value, which errors call `name`: a number, a word, a list or a mapping; None of an empty text."""
    try:
        return yaml.load(text, Loader=_StrictLoader)
    except InputError as error:
        raise InputError(f"{name}: {error.what}", source=name, remedy=error.remedy) from error
    except _UNREADABLE as error:
        raise InputError(f"{name}: got {text!r}, which is no YAML value.", source=name, remedy=f"mend it: {error}") from error


@contextmanager
def reading_arrays(file: Path, *, remedy: str) -> Iterator[None]:
    """Within: whatever NumPy raises of this file is an InputError.

    A header is parsed as Python text and believed, so damage shows as many kinds of error: syntax and tokens, memory for a shape of 10^12
    rows, unknown compression, a check sum that is wrong.
    """
    try:
        yield
    except LetheError:
        raise
    except Exception as error:
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        raise InputError(f"{file} cannot be read: {reason}.", remedy=remedy) from error


def to_yaml(content: dict[str, Any]) -> str:
    """YAML text of a mapping, in its order."""
    return yaml.dump(content, Dumper=_PlainDumper, sort_keys=False, allow_unicode=True)


def to_json(content: object, *, indent: int | None = 2) -> str:
    """Strict JSON text; floats as their shortest exact form, so that a round trip changes no bit.

    A document with a long list stands on one line and is written by pydantic's encoder: nobody reads it by eye, and with the standard
    one writing it would take longer than certifying it. Both write the shortest digits that read back as the same number.
    """
    if _holds_long_list(content):
        return pydantic_core.to_json(content, inf_nan_mode="constants").decode() + "\n"
    return json.dumps(content, indent=indent, allow_nan=False, ensure_ascii=False) + "\n"


def _holds_long_list(content: object) -> bool:
    if isinstance(content, dict):
        return any(_holds_long_list(entry) for entry in content.values())
    return isinstance(content, list) and (len(content) > _LONG_LIST or any(_holds_long_list(entry) for entry in content))


def write_document(path: str | os.PathLike[str], content: dict[str, Any]) -> None:
    """Write a mapping to a .json, .yaml or .yml file, whole or not at all."""
    file = as_path(path)
    if file.suffix.lower() not in DOCUMENTS:
        raise InputError(f"{file.name} ends in {file.suffix!r}; a document ends in .json, .yaml or .yml.")
    write_bytes(file, (to_json(content) if file.suffix.lower() == ".json" else to_yaml(content)).encode("utf-8"))


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file through a temporary neighbour and a rename, so that readers see the old file or the new one."""
    file, temporary = Path(path), None
    try:
        handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, usual_mode(0o666))
        os.replace(temporary, file)
    except BaseException as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):
            # The reason alone: the whole message names a temporary file that nobody gave.
            raise InputError(
                f"{file} cannot be written: {error.strerror or error}.", remedy="give a path in an existing folder you may write to."
            ) from error
        raise


def require_place(path: str | os.PathLike[str], *suffixes: str) -> None:
    """Refuse a file that could not be written, before long work: another suffix, or a parent that may not be written to."""
    file = as_path(path)
    if file.suffix.lower() not in suffixes:
        raise InputError(f"{file.name} ends in {file.suffix!r}; it needs to end in {' or '.join(suffixes)}.", source=str(file))
    if not file.parent.is_dir() or not os.access(file.parent, os.W_OK | os.X_OK):
        raise InputError(f"{file.parent} is no folder you may write to.", source=str(file), remedy="give a path in an existing folder.")


def usual_mode(mode: int) -> int:
    """What the process's mask leaves of a file mode: temporary files are born private and should not stay so."""
    mask = os.umask(0)  # the mask can only be read by setting it
    os.umask(mask)
    return mode & ~mask
