"""Public facts on the columns of a table (ranges, dates, categories), and the feature vectors that rows become by them.

A configuration of `lethe train` has them in its data section; datasets.py and training.py encode rows by them, saved.py again for
predictions. All is fixed without the records, so the encoding costs no privacy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, InstanceOf, model_validator

from lethe.documents.specification import Specification
from lethe.errors import InputError, quoted
from lethe.jobs.tables.entries import as_day, as_number, is_missing
from lethe.jobs.tables.reading import ColumnTable, bad_entry

REFUSE = "refuse"
DROP = "drop"

Array = npt.NDArray[np.float64]


def _finite(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        raise InputError(f"got {quoted(value)}; it needs a finite number.")
    return float(value)


def as_range(value: Any) -> tuple[float, float]:
    """Two finite numbers, the smaller one first; InputError of anything else."""
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise InputError(f"got {quoted(value)}; it needs [low, high], two finite numbers.")
    low, high = _finite(value[0]), _finite(value[1])
    if low >= high:
        raise InputError(f"got [{low:g}, {high:g}]; low must be below high.")
    if not (high - low) / 2.0 > 0.0:
        raise InputError(f"got [{low!r}, {high!r}]; it is too narrow for floating-point numbers.")
    return low, high


def _as_date(value: Any) -> str:
    value = value.isoformat() if isinstance(value, date) else value
    if not isinstance(value, str) or as_day(value) is None:
        raise InputError(f"got {quoted(value)}; it needs a date, such as 2026-11-29.")
    return value


def _as_dates(value: Any) -> tuple[str, str]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise InputError(f"got {quoted(value)}; it needs [first, last], two dates.")
    first, last = _as_date(value[0]), _as_date(value[1])
    if not (as_day(first) or 0) < (as_day(last) or 0):
        raise InputError(f"got [{first}, {last}]; the first must be before the last.")
    return first, last


def _as_word(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        remedy = 'write it in quotes, such as "true" or "1.5".'
        raise InputError(f"got {quoted(value)}; a category is text, or a whole number.", remedy=remedy)
    word = str(value)
    if word != word.strip() or not word:
        raise InputError(f"got {quoted(value)}; a category has letters, and no spaces at its ends.", remedy="leave the spaces out.")
    return word


def _as_words(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not value:
        raise InputError(f"got {quoted(value)}; it needs the list of the answers that could occur.")
    words = tuple(map(_as_word, value))
    if twice := [word for word in words if words.count(word) > 1]:
        raise InputError(f"{twice[0]!r} is listed twice.", remedy="list every category once.")
    return words


class _Column(Specification):
    def to_document(self) -> dict[str, Any]:
        """As plain data."""
        return self.model_dump(mode="json", exclude_defaults=True)


class NumberColumn(_Column):
    r"""Numbers in a public range, mapped to [-1, 1]; one beyond the range becomes its end.

    Args:
        range: (low, high), finite, low < high.
        log: whether the logarithm is mapped: $\log x$, or $\log(1 + x)$ of a range that begins at 0. A range below 0 has none.
        missing: what stands for a missing value, public and within the range; None or "refuse": a missing value is refused.
    """

    range: Annotated[tuple[float, float], BeforeValidator(as_range)]
    log: bool = False
    missing: Annotated[float | None, BeforeValidator(lambda value: None if value is None or value == REFUSE else _finite(value))] = None

    @model_validator(mode="after")
    def _fill_within(self) -> NumberColumn:
        low, high = self.range
        if self.log and low < 0.0:
            raise InputError(f"log: got a range from {low:g}; a logarithm needs one from 0 or more.", remedy="state another, or drop log.")
        as_range(self._mapped(np.array(self.range)).tolist())
        if self.missing is not None and not low <= self.missing <= high:
            raise InputError(f"missing: got {self.missing:g}; it needs a number within the range, {low:g} to {high:g}.")
        return self

    def feature_names(self, name: str) -> list[str]:
        """What the numbers that it makes of an entry are called."""
        return [name]

    def encode(self, table: ColumnTable, name: str) -> Array:
        """Shape (n, 1); InputError of a text that is no number, and of a missing value with nothing to stand for it."""
        return self.scale(table.numbers(name) if table.is_number(name) else self._parsed(table, name), table, name)

    def scale(self, numbers: Array, table: ColumnTable, name: str) -> Array:
        """Numbers of a column, NaN where one is missing, shape (n,), as features, shape (n, 1); InputError as `encode`."""
        infinite, absent = np.isinf(numbers), np.isnan(numbers)
        if infinite.any():
            remedy = "correct the value, or drop the row."
            raise bad_entry(table.file, int(np.argmax(infinite)), name, "the value is not finite", remedy)
        if absent.any():
            if self.missing is None:
                what = "the value is missing, and nothing is stated to stand for it"
                remedy = "state missing: VALUE, known without looking at the records, or drop such rows."
                raise bad_entry(table.file, int(np.argmax(absent)), name, what, remedy)
            numbers = np.where(absent, self.missing, numbers)
        numbers = self._mapped(np.clip(numbers, *self.range)) if self.log else numbers
        low, high = self._mapped(np.array(self.range)).tolist()
        # In the order of PublicScaler, so that both give the same bits.
        middle, half = (low + high) / 2.0, (high - low) / 2.0
        scaled: Array = np.clip(numbers - middle, -half, half) / half
        return scaled[:, None]

    def _mapped(self, numbers: Array) -> Array:
        if not self.log:
            return numbers
        return np.log(numbers) if self.range[0] > 0.0 else np.log1p(numbers)

    @staticmethod
    def _parsed(table: ColumnTable, name: str) -> Array:
        numbers = np.empty(len(texts := table.texts(name)))
        for row, text in enumerate(texts):
            number = math.nan if text is None or is_missing(text) else as_number(text)
            if number is None:
                remedy = "correct it, or state categories: [...] if the column holds words."
                raise bad_entry(table.file, row, name, "the entry is no finite number", remedy)
            numbers[row] = number
        return numbers

    def describe(self) -> str:
        """What is taken as public, in a clause."""
        log = ", by the logarithm" if self.log else ""
        return f"{self.range[0]:g} to {self.range[1]:g}{log}" + (
            "" if self.missing is None else f", {self.missing:g} where there is no value"
        )


class DateColumn(_Column):
    """Days from a first one to a last one, both public, mapped to [-1, 1] as numbers are; the time of a day is left out.

    Args:
        dates: (first, last), ISO 8601.
        missing: the day that stands for a missing one, public and within them; None or "refuse": a missing day is refused.
    """

    dates: Annotated[tuple[str, str], BeforeValidator(_as_dates)]
    missing: Annotated[str | None, BeforeValidator(lambda value: None if value is None or value == REFUSE else _as_date(value))] = None

    @model_validator(mode="after")
    def _fill_within(self) -> DateColumn:
        if self.missing is not None and not self._days[0] <= self._days[2] <= self._days[1]:
            raise InputError(f"missing: got {self.missing}; it needs a day from {self.dates[0]} to {self.dates[1]}.")
        return self

    @property
    def _days(self) -> tuple[int, int, int]:
        """The first, the last, and what stands for a missing one, or 0."""
        first, last, fill = (as_day(text or "") or 0 for text in (*self.dates, self.missing))
        return first, last, fill

    def feature_names(self, name: str) -> list[str]:
        """What the numbers that it makes of an entry are called."""
        return [name]

    def encode(self, table: ColumnTable, name: str) -> Array:
        """Shape (n, 1); InputError of a text that is no date, and of a missing one with nothing to stand for it."""
        days = np.empty(len(texts := table.texts(name)))
        for row, text in enumerate(texts):
            day = math.nan if text is None or is_missing(text) else as_day(text)
            if day is None:
                raise bad_entry(table.file, row, name, "the entry is no date", "write it as year, month and day, such as 2026-11-29.")
            days[row] = day
        first, last, fill = self._days
        return NumberColumn(range=(first, last), missing=fill or None).scale(days, table, name)

    def describe(self) -> str:
        """What is taken as public, in a clause."""
        return f"{self.dates[0]} to {self.dates[1]}" + ("" if self.missing is None else f", {self.missing} where there is no date")


class WordColumn(_Column):
    """Answers from a public list, one 0/1 column each; an answer that is not listed, or none, becomes zeros.

    Args:
        categories: the answers that could occur, each once.
        missing: the category that stands for a missing answer; None: zeros.
    """

    categories: Annotated[tuple[str, ...], BeforeValidator(_as_words)]
    missing: Annotated[str | None, BeforeValidator(lambda value: None if value is None else _as_word(value))] = None

    @model_validator(mode="after")
    def _fill_listed(self) -> WordColumn:
        if self.missing is not None and self.missing not in self.categories:
            raise InputError(f"missing: got {self.missing!r}; it needs one of the categories.")
        return self

    def feature_names(self, name: str) -> list[str]:
        """What the numbers that it makes of an entry are called."""
        return [f"{name}={word}" for word in self.categories]

    def encode(self, table: ColumnTable, name: str) -> Array:
        """Shape (n, categories); an entry is compared without spaces at its ends. A word for a missing answer may itself be listed."""
        texts = table.texts(name)
        encoded = np.zeros((len(texts), len(self.categories)))
        for row, text in enumerate(texts):
            word = None if text is None else text.strip()
            word = self.missing if word not in self.categories and is_missing(word) else word
            if word in self.categories:
                encoded[row, self.categories.index(word)] = 1.0
        return encoded

    def describe(self) -> str:
        """What is taken as public, in a clause."""
        return ", ".join(self.categories) + ("" if self.missing is None else f"; {self.missing} where there is no answer")


Column = NumberColumn | DateColumn | WordColumn
_KINDS: dict[str, type[Column]] = {"range": NumberColumn, "dates": DateColumn, "categories": WordColumn}


def _as_column(value: Any) -> Column | None:
    """A column's entry of a configuration, by which key it has; None: the column is dropped."""
    if value == DROP:
        return None
    kinds = [key for key in _KINDS if isinstance(value, Mapping) and key in value]
    if len(kinds) != 1:
        needed = f"it needs range: [low, high] for numbers, dates: [first, last], categories: [...] for words, or {DROP}."
        raise InputError(f"got {quoted(value)}; {needed}", remedy="state one of them.")
    return _KINDS[kinds[0]](**{str(key): entry for key, entry in value.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicColumns:
    """An encoding that learns nothing from rows: each is encoded by itself, with what was `stated` of columns; None: one is dropped."""

    stated: Mapping[str, Column | None]

    @classmethod
    def parse(cls, value: Any) -> PublicColumns:
        """From {name: {range: [low, high]}, name: {categories: [...]}, name: drop}; InputError of anything else."""
        if isinstance(value, PublicColumns):
            return value
        if not isinstance(value, Mapping):
            raise InputError(f"got {quoted(value)}; it needs a mapping from the names of columns to what is known of each.")
        stated: dict[str, Column | None] = {}
        for name, entry in value.items():
            try:
                stated[str(name)] = _as_column(entry)
            except InputError as error:
                raise InputError(f"column {str(name)!r}: {error.what}", remedy=error.remedy) from error
        return cls(stated=stated)

    @property
    def used(self) -> dict[str, Column]:
        """The columns that are used, in the order in which they were stated."""
        return {name: column for name, column in self.stated.items() if column is not None}

    @property
    def feature_names(self) -> list[str]:
        """Of all features."""
        return [feature for name, column in self.used.items() for feature in column.feature_names(name)]

    @property
    def longest(self) -> float:
        r"""$\sqrt k$ of k columns used: no row is longer, since every column makes a vector of norm at most 1."""
        return math.sqrt(len(self.used))

    def describe(self) -> list[str]:
        """What is taken as public, a line a column."""
        return [f"{name}: {'not used' if column is None else column.describe()}" for name, column in self.stated.items()]

    def to_document(self) -> dict[str, Any]:
        """As plain data that `parse` takes."""
        return {name: DROP if column is None else column.to_document() for name, column in self.stated.items()}

    def encode(self, table: ColumnTable, target: str | None) -> Array:
        """Features, shape (n, d), of a table with every column that was stated, and no others but the target; None: or any, to predict it.

        Raises:
            InputError: a column that is not stated, not there, or is the target; or an entry that cannot be used, by row and column.
        """
        source = str(table.file)
        if target is not None and target in self.stated:
            remedy = "leave it out of columns."
            raise InputError(f"columns: {target!r} is the target; it cannot be a feature.", source=source, remedy=remedy)
        if absent := [name for name in self.used if name not in table.names]:
            what = f"columns: there is no column {absent[0]!r} in the file; it has {', '.join(table.names)}."
            raise InputError(what, source=source, remedy="correct the name, or leave it out.")
        if target is not None:
            self._require_all(table, target)
        return np.hstack([column.encode(table, name) for name, column in self.used.items()])

    def _require_all(self, table: ColumnTable, target: str) -> None:
        if unstated := [name for name in table.names if name != target and name not in self.stated]:
            lines = [
                f"column {name!r} holds {table.type_of(name)} and is not stated: it needs "
                f"{'a range' if table.is_number(name) else 'dates' if table.is_date(name) else 'categories'}."
                for name in unstated
            ]
            raise InputError(
                "columns: " + "\n".join(lines),
                source=str(table.file),
                remedy=f"state each without a look at the records, or {DROP}; `lethe init --data {table.file.name} --target {target}` "
                "asks for them.",
            )
        if not self.used:
            raise InputError("columns: all of them are dropped; there are no features.", source=str(table.file))


StatedColumns = Annotated[
    InstanceOf[PublicColumns] | None, BeforeValidator(lambda value: None if value is None else PublicColumns.parse(value))
]
"""A field of a configuration or of a model; None: nothing is stated."""
