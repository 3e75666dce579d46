"""The table that the demo trains on, with what a training configuration states of its columns and classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from lethe.documents.strict import read_document, refuse_other_kind
from lethe.errors import InputError
from lethe.jobs.configuration import Data, as_data, refuse_unanswered
from lethe.jobs.datasets import RecordTable, centred_digits, load_table
from lethe.jobs.tables.public_columns import PublicColumns


class OwnTable(NamedTuple):
    """A table, and what was taken as public of it.

    Args:
        table: the records.
        own: whether they are the user's, not the digits.
        stated: whether the columns were stated, so that rows are scaled.
        notes: what was taken as public, a line each.
    """

    table: RecordTable
    own: bool
    stated: bool
    notes: tuple[str, ...]


def own_table(data: Path | None, target: str | None, columns: Path | None) -> OwnTable:
    """Read it.

    Args:
        data: a file with a table; None: the one that `columns` names, or the digits of scikit-learn.
        target: the column to predict; None: the one that `columns` names.
        columns: a configuration of `lethe train`, of which columns:, public: and data: are read.
    Raises:
        InputError: a file cannot be used, or one of data and target is missing.
    """
    stated, public, section = (None, None, Data()) if columns is None else _stated(columns)
    path = data if data is not None or section.path is None else Path(section.path)
    target = target if target is not None else section.target
    if (path is None) != (target is None) or (columns is not None and path is None):
        raise InputError("--data and --target: one is given without the other.", remedy="name the file and the column to predict.")
    if path is None or target is None:
        return OwnTable(centred_digits(), own=False, stated=False, notes=())
    classes = section.classes or None
    table = load_table(path, target, task="classification", classes=classes, columns=stated)
    how = "read off the data and are" if classes is None else "stated and are"
    notes = [f"The classes were {how} taken as public: {', '.join(table.class_names)}."]
    if stated is not None:
        said = "" if public is None else f" ({public})"
        notes.append(f"Ranges and categories of {len(stated.kept)} columns were stated and are taken as public{said}.")
    return OwnTable(table, own=True, stated=stated is not None, notes=tuple(notes))


def _stated(file: Path) -> tuple[PublicColumns, Any, Data]:
    content = read_document(file)
    refuse_other_kind(content, "configuration of `lethe train`", source=str(file))
    try:
        section: dict[str, Any] = {key: content[key] for key in ("data", "columns", "public") if key in content}
        refuse_unanswered(section)
        if "columns" not in section:
            raise InputError("columns: missing; nothing is stated of the columns.")
        # target_range and test_fraction are for `lethe train`
        return PublicColumns.parse(section["columns"]), section.get("public"), as_data(section.get("data", {}))
    except InputError as error:
        remedy = error.remedy or "give a configuration of `lethe train`; `lethe init --data FILE --target COLUMN` writes one."
        raise InputError(error.what, source=str(file), remedy=remedy) from error
