"""What everybody knows of one column: a range, or its categories, and what stands for a missing value."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, model_validator

from lethe.documents.specification import Specification
from lethe.errors import InputError, quoted

REFUSE = "refuse"
DROP = "drop"
_MISSING = frozenset({"", "?", "na", "n/a", "#n/a", "<na>", "nan", "null", "none"})
_TRUTH = {"true": 1.0, "false": 0.0}

Texts = Sequence[str | None]
Array = npt.NDArray[np.float64]


class BadEntry(Exception):
    """An entry of a column that cannot be used.

    Args:
        row: counted from 0.
        what: is wrong with it, in a clause.
        remedy: what to do.
    """

    def __init__(self, row: int, what: str, remedy: str) -> None:
        super().__init__(what)
        self.row, self.what, self.remedy = row, what, remedy


def is_missing(text: str | None) -> bool:
    """Whether an entry stands for none: nothing, or one of the usual words such as NA, null and ?."""
    return text is None or text.strip().casefold() in _MISSING


def as_number(text: str) -> float | None:
    """The finite number that a text is, true and false being 1 and 0; None: it is none."""
    stripped = text.strip()
    if stripped.casefold() in _TRUTH:
        return _TRUTH[stripped.casefold()]
    try:
        number = float(stripped) if "_" not in stripped else math.nan
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _finite(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        raise InputError(f"got {quoted(value)}; it needs a finite number.")
    return float(value)


def as_range(value: Any) -> tuple[float, float]:
    """Two finite numbers, the smaller one first.

    Raises:
        InputError: it is anything else.
    """
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise InputError(f"got {quoted(value)}; it needs [low, high], two finite numbers.")
    low, high = _finite(value[0]), _finite(value[1])
    if low >= high:
        raise InputError(f"got [{low:g}, {high:g}]; low must be below high.")
    if not (high - low) / 2.0 > 0.0:
        raise InputError(f"got [{low!r}, {high!r}]; it is too narrow for floating-point numbers.")
    return low, high


def _as_fill(value: Any) -> float | None:
    return None if value is None or value == REFUSE else _finite(value)


def _as_word(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InputError(
            f"got {quoted(value)}; a category is text, or a whole number.", remedy='write it in quotes, such as "true" or "1.5".'
        )
    word = str(value)
    if word != word.strip() or not word:
        raise InputError(f"got {quoted(value)}; a category has letters, and no spaces at its ends.", remedy="leave the spaces out.")
    return word


def _as_words(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not value:
        raise InputError(f"got {quoted(value)}; it needs the list of the answers that could occur.")
    words = tuple(map(_as_word, value))
    twice = [word for word in dict.fromkeys(words) if words.count(word) > 1]
    if twice:
        raise InputError(f"{twice[0]!r} is listed twice.", remedy="list every category once.")
    return words


def _as_filled_word(value: Any) -> str | None:
    return None if value is None else _as_word(value)


class NumberColumn(Specification):
    r"""Numbers in a public range, mapped to [-1, 1]; one beyond the range becomes its end.

    Args:
        range: (low, high), finite, low < high.
        missing: what stands for a missing value, public and within the range; None or "refuse": a missing value is refused.
    """

    range: Annotated[tuple[float, float], BeforeValidator(as_range)]
    missing: Annotated[float | None, BeforeValidator(_as_fill)] = None

    @model_validator(mode="after")
    def _fill_within(self) -> NumberColumn:
        low, high = self.range
        if self.missing is not None and not low <= self.missing <= high:
            raise InputError(f"missing: got {self.missing:g}; it needs a number within the range, {low:g} to {high:g}.")
        return self

    @property
    def width(self) -> int:
        """How many numbers it makes of an entry."""
        return 1

    def feature_names(self, name: str) -> list[str]:
        """What these are called."""
        return [name]

    def encode(self, entries: Texts | Array) -> Array:
        """Shape (n, 1).

        Args:
            entries: texts, or numbers with NaN where one is missing.
        Raises:
            BadEntry: a text that is no number, or a missing value with nothing to stand for it.
        """
        numbers = (
            entries.astype(np.float64) if isinstance(entries, np.ndarray) else np.array(list(map(_parsed, range(len(entries)), entries)))
        )
        if np.isinf(numbers).any():
            raise BadEntry(int(np.argmax(np.isinf(numbers))), "the value is not finite", "correct the value, or drop the row.")
        absent = np.isnan(numbers)
        if absent.any():
            if self.missing is None:
                raise BadEntry(
                    int(np.argmax(absent)),
                    "the value is missing, and nothing is stated to stand for it",
                    "state missing: NUMBER, known without looking at the records, or drop such rows.",
                )
            numbers = np.where(absent, self.missing, numbers)
        low, high = self.range
        # In the order of PublicScaler, so that both give the same bits.
        middle, half = (low + high) / 2.0, (high - low) / 2.0
        scaled: Array = np.clip(numbers - middle, -half, half) / half
        return scaled[:, None]

    def describe(self) -> str:
        """What is taken as public, in a clause."""
        return f"{self.range[0]:g} to {self.range[1]:g}" + ("" if self.missing is None else f", {self.missing:g} where there is no value")

    def to_document(self) -> dict[str, Any]:
        """As plain data."""
        return {"range": list(self.range), **({} if self.missing is None else {"missing": self.missing})}


class WordColumn(Specification):
    """Answers from a public list, one 0/1 column each; an answer that is not listed, or none, becomes zeros.

    Args:
        categories: the answers that could occur, each once.
        missing: the category that stands for a missing answer; None: zeros.
    """

    categories: Annotated[tuple[str, ...], BeforeValidator(_as_words)]
    missing: Annotated[str | None, BeforeValidator(_as_filled_word)] = None

    @model_validator(mode="after")
    def _fill_listed(self) -> WordColumn:
        if self.missing is not None and self.missing not in self.categories:
            raise InputError(f"missing: got {self.missing!r}; it needs one of the categories.")
        return self

    @property
    def width(self) -> int:
        """How many numbers it makes of an entry."""
        return len(self.categories)

    def feature_names(self, name: str) -> list[str]:
        """What these are called."""
        return [f"{name}={word}" for word in self.categories]

    def encode(self, entries: Texts) -> Array:
        """Shape (n, categories); an entry is compared without spaces at its ends."""
        places = {word: place for place, word in enumerate(self.categories)}
        fill = -1 if self.missing is None else places[self.missing]
        found = np.array([_place(places, entry, fill) for entry in entries], dtype=np.int64)
        encoded = np.zeros((len(found), self.width))
        rows = np.flatnonzero(found >= 0)
        encoded[rows, found[rows]] = 1.0
        return encoded

    def describe(self) -> str:
        """What is taken as public, in a clause."""
        return ", ".join(self.categories) + ("" if self.missing is None else f"; {self.missing} where there is no answer")

    def to_document(self) -> dict[str, Any]:
        """As plain data."""
        return {"categories": list(self.categories), **({} if self.missing is None else {"missing": self.missing})}


Column = NumberColumn | WordColumn


def as_column(value: Any) -> Column | None:
    """What {range: ...} or {categories: ...} states; None: the column is dropped.

    Raises:
        InputError: it states neither, or both.
    """
    if value == DROP:
        return None
    if isinstance(value, NumberColumn | WordColumn):
        return value
    if not isinstance(value, Mapping) or ("range" in value) == ("categories" in value):
        raise InputError(
            f"got {quoted(value)}; it needs range: [low, high] for numbers, categories: [...] for words, or {DROP}.",
            remedy="state one of them.",
        )
    fields = {str(key): entry for key, entry in value.items()}
    return NumberColumn(**fields) if "range" in fields else WordColumn(**fields)


def _parsed(row: int, text: str | None) -> float:
    if text is None or is_missing(text):
        return math.nan
    number = as_number(text)
    if number is None:
        raise BadEntry(row, "the entry is no finite number", "correct it, or state categories: [...] if the column holds words.")
    return number


def _place(places: Mapping[str, int], entry: str | None, fill: int) -> int:
    """The place of an answer; -1: nowhere. A word for a missing answer may itself be listed."""
    place = None if entry is None else places.get(entry.strip())
    if place is not None:
        return place
    return fill if is_missing(entry) else -1
