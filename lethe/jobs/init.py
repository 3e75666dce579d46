"""What `lethe init` writes: a run for a usual task; or a configuration for a table, with a question wherever an answer would need a look
at the records.

The command writes the text to a file, which the user completes and gives to `lethe train`; ranges read off the records would be a release
that nobody pays for.
"""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from lethe.documents.specification import near_miss
from lethe.errors import InputError
from lethe.jobs.configuration import UNANSWERED
from lethe.jobs.tables.columns import DROP, REFUSE
from lethe.jobs.tables.entries import as_day, is_missing
from lethe.jobs.tables.reading import ColumnTable, table_suffix

READ_OFF = "read off the table"
_MOST_ANSWERS = 100
_PLAIN = re.compile(r"[A-Za-z][\w.-]*")
_WORDS_OF_YAML = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
_NOT_LOOKED = """\
# Taken as public: names and types of the columns, and the number of records for delta. Nothing else of the table stands here.
# Every {unanswered} is a question that `lethe train` waits for. Answer it by what is known without a look at the records: of a form, an
# instrument, a law. An answer that is read off the records is a release of them that nothing pays for."""
_LOOKED = """\
# The ranges, categories and classes below were READ OFF THE TABLE. No certificate covers that: it says, as declared, that they are public
# knowledge. If they are not, replace them by what is known without a look at the records, and drop the line `public:`."""

TASKS: dict[str, str] = {file.stem: file.read_text(encoding="utf-8") for file in sorted((Path(__file__).parent / "tasks").glob("*.yaml"))}
"""Usual ways to train -> a run to begin with: YAML with comments, the first of which says what it is."""


def task_run(name: str) -> str:
    """The text of the run; InputError where no task has that name."""
    if name not in TASKS:
        raise InputError(
            f"TASK: got {name!r};{near_miss(name, TASKS)} it needs one of {', '.join(TASKS)}.",
            remedy="`lethe init` lists them; `lethe init --data FILE --target COLUMN` is for a table of yours.",
        )
    return TASKS[name]


def table_configuration(path: Path, target: str, *, look: bool = False) -> str:
    """The text of a configuration of `lethe train`, with comments; to `look` reads ranges, categories and classes off the records, and the
    configuration then declares that.
    """
    typed = ColumnTable.read(path)  # for the types
    target = typed.require_target(target)
    table = ColumnTable.read(path, as_text=typed.names) if look else typed
    used = [name for name in typed.names if name != target]
    blocks = {name: _column(typed, table, name, look=look) for name in used}
    columns_used = sum(DROP not in block.splitlines()[0] for block in blocks.values())
    if not columns_used:
        raise InputError(f"{path}: none of its columns but the target holds numbers or words.", remedy="give another table.")
    longest = math.ceil(1000.0 * math.sqrt(columns_used)) / 1000.0  # the square root, rounded up in its third decimal
    numbers = typed.is_number(target) and not typed.is_truth(target)
    regression = numbers and not re.fullmatch(r"u?int\d+", typed.type_of(target))
    facts = _target_range(table, target, look=look) if regression else _classes(typed, table, target, look=look)
    lines = [
        "# A configuration of `lethe train`: lethe train THIS-FILE -o results",
        _LOOKED if look else _NOT_LOOKED.format(unanswered=UNANSWERED),
        "# purpose: what it is for   # the title of the report; and by: who trains",
        "data:",
        f"  path: {quoted_text(str(path))}",
        f"  target: {quoted_text(target)}   # {typed.type_of(target)}",
        *facts,
        "  test_fraction: 0.2   # of the rows, kept for testing",
        *([f"public: {READ_OFF}"] if look else []),
        f"columns:   # leave nothing out: a column that is not to be used gets `NAME: {DROP}`",
        *blocks.values(),
        "model:",
        "  estimator: ridge   # or linear_regression, lasso, elastic_net, huber_regressor; of counts and costs poisson_regressor,"
        " gamma_regressor, tweedie_regressor"
        if regression
        else "  estimator: logistic_regression   # or softmax_regression, linear_svc",
        f"  feature_norm: {longest:g}   # nothing to ask: of {columns_used} columns no scaled row is longer than sqrt({columns_used})",
        "  # A smaller feature_norm shortens the longest rows and needs less noise; auto is a private quantile of the norms, paid for.",
        "  neighbours: zero_out   # one record's contribution becomes zero; or replace_one, which takes up to twice the noise",
        "privacy:",
        "  epsilon: 1.0",
        f"  delta: 1e-{max(5, math.ceil(math.log10(10 * typed.content.num_rows)))}   # at most a tenth of one over the number of records",
        "",
    ]
    return "\n".join(lines)


def quoted_text(text: str) -> str:
    """A text as YAML reads it back, in quotes where it needs them."""
    if _PLAIN.fullmatch(text) and text.casefold() not in _WORDS_OF_YAML:
        return text
    return yaml.dump(text, default_style='"', allow_unicode=True, width=math.inf).strip()


def _column(typed: ColumnTable, table: ColumnTable, name: str, *, look: bool) -> str:
    """The lines of one column; `look`: the user declared the data public, so ranges may be read off."""
    key, kind = quoted_text(name), typed.type_of(name)
    if re.search(r"(?i:(^|[\W_])(uu)?id$)|[a-z]I[dD]$", name):
        return f"  {key}: {DROP}   # {kind}: an identifier, by its name"
    if typed.is_truth(name):
        return f"  {key}:   # {kind}: nothing to ask\n    range: [0, 1]\n{_FILL}"
    if typed.is_number(name):
        column_range = _range(table, name) if look else UNANSWERED
        if column_range is None:
            return f"  {key}: {DROP}   # {kind}: one value in all records"
        return f"  {key}:   # {kind}\n    range: {column_range}{'' if look else _ASK_RANGE}\n{_FILL}"
    if typed.is_date(name):
        days = sorted({text.strip()[:10] for text in table.texts(name) if text and as_day(text)}) if look else [UNANSWERED]
        if look and len(days) < 2:
            return f"  {key}: {DROP}   # {kind}: one day in all records"
        return f"  {key}:   # {kind}\n    dates: {f'[{days[0]}, {days[-1]}]' if look else UNANSWERED + _ASK_DATES}\n{_FILL_DATE}"
    if kind not in ("string", "large_string", "string_view"):
        return f"  {key}: {DROP}   # {kind}: neither numbers nor words"
    answers = _answers(table, name) if look else None
    if look and not 2 <= len(answers or []) <= _MOST_ANSWERS:
        return f"  {key}: {DROP}   # {kind}: {len(answers or [])} different answers"
    listed = UNANSWERED if answers is None else f"[{', '.join(map(quoted_text, answers))}]"
    return f"  {key}:   # {kind}\n    categories: {listed}{'' if look else _ASK_CATEGORIES}"


_FILL = f"    missing: {REFUSE}   # or a number within the range that stands for a missing value, such as the usual one"
_FILL_DATE = f"    missing: {REFUSE}   # or a day within them that stands for a missing one"
_ASK_RANGE = (
    "   # [low, high] that everybody may know; a value beyond it counts as its end; log: true below it for amounts with a long tail"
)
_ASK_DATES = "   # [first, last] that everybody may know, such as [2020-01-01, 2025-12-31]; a day beyond them counts as their end"
_ASK_CATEGORIES = "   # [the answers that could occur]; any other, or none, becomes zeros"


def _range(table: ColumnTable, name: str) -> str | None:
    if table.is_number(name):
        numbers = table.numbers(name)
    else:
        texts: list[Any] = [text for text in table.texts(name) if not is_missing(text)]
        numbers = np.array([{"true": 1.0, "false": 0.0}.get(text.strip().casefold(), text) for text in texts], dtype=np.float64)
    numbers = numbers[np.isfinite(numbers)]
    if not len(numbers) or numbers.min() == numbers.max():
        return None
    return f"[{numbers.min().item()!r}, {numbers.max().item()!r}]"


def _answers(table: ColumnTable, name: str) -> list[str]:
    return sorted({text.strip() for text in table.texts(name) if text is not None and not is_missing(text)})


def _classes(typed: ColumnTable, table: ColumnTable, target: str, *, look: bool) -> list[str]:
    if look:
        return [f"  classes: [{', '.join(map(quoted_text, _answers(table, target)))}]"]
    if typed.is_truth(target) and table_suffix(typed.file) == ".parquet":
        return ['  classes: ["False", "True"]   # nothing to ask: bool']
    return [f"  classes: {UNANSWERED}   # [the labels that could occur]; from_data declares that those found are public knowledge"]


def _target_range(table: ColumnTable, target: str, *, look: bool) -> list[str]:
    if look:
        target_range = _range(table, target)
        if target_range is None:
            raise InputError(f"{target!r} holds one value; there is nothing to learn.", source=str(table.file))
        return [f"  target_range: {target_range}"]
    return [f"  target_range: {UNANSWERED}   # [low, high] that everybody may know; auto: released, for a twentieth of the budget"]
