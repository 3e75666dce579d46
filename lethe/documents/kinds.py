"""What a document describes, by its keys, so that who takes another kind can say what this one is for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lethe.errors import InputError

Name = Literal[
    "certificate", "statement", "total", "run", "configuration of `lethe train`", "configuration of `lethe audit`", "result of an audit"
]

_PROVED = "`lethe explain {file}` says what it proves, and `lethe verify {file}` whether it holds."


@dataclass(frozen=True, slots=True)
class _Kind:
    name: Name
    keys: frozenset[str]
    use: str


_KINDS = (
    _Kind("certificate", frozenset({"theorem", "guarantee", "run"}), _PROVED),
    _Kind(
        "result of an audit", frozenset({"subject", "canary", "audits"}), "put it into a folder of `lethe train`: `lethe report FOLDER`."
    ),
    _Kind("configuration of `lethe audit`", frozenset({"subject"}), "`lethe audit {file}` carries it out."),
    _Kind(
        "run",
        frozenset({"batches"}),
        "`lethe certify {file} --delta D -o certificate.json` certifies it. To train by it, put its fields under run:, and add data: and "
        "privacy: (docs/train.md); to audit it: a file with subject: {{kind: run, run: {file}}} (docs/audit.md).",
    ),
    _Kind(
        "configuration of `lethe train`",
        frozenset({"privacy"}),
        "`lethe train {file} -o FOLDER` trains as it says, and writes FOLDER/run.json and FOLDER/certificate.json. To audit it: a file "
        "with subject: {{kind: train, config: {file}}} (docs/audit.md).",
    ),
)
"""The first of them all of whose keys a document has is its kind; statements and totals name theirs."""


def refuse_other_kind(content: Mapping[str, Any], wanted: Name, source: str | None) -> None:
    """Refuse a document that is clearly of another kind, and say what that is for; what is of no kind passes.

    Args:
        content: of the document.
        wanted: the kind that is taken.
        source: the file.
    Raises:
        InputError: it is of another kind.
    """
    written = content.get("kind")
    if written == "statement" or written == "total":
        name, use = written, _PROVED
    else:
        kind = next((kind for kind in _KINDS if kind.keys <= content.keys()), None)
        if kind is None:
            return
        name, use = kind.name, kind.use
    if name != wanted:
        file = source or "FILE"
        raise InputError(f"{source or 'this'} is a {name}, not a {wanted}.", source=source, remedy=use.format(file=file))
