"""The sections of a training configuration: data, privacy, ledger, and the questions in it that nobody has answered yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from lethe.documents.specification import Specification
from lethe.errors import InputError
from lethe.jobs.tables.columns import as_range

UNANSWERED = "???"
"""What `lethe init` writes where only a person may answer."""
FROM_DATA = "from_data"
AUTO = "auto"


def _as_classes(value: Any) -> tuple[str, ...] | None:
    if value is None or value == FROM_DATA:
        return () if value == FROM_DATA else None
    if isinstance(value, list | tuple) and value and all(isinstance(name, str | int) and not isinstance(name, bool) for name in value):
        return tuple(str(name) for name in value)
    raise InputError(f"got {value!r}; it needs a list of class names, or {FROM_DATA}.")


def _as_target_range(value: Any) -> tuple[float, float] | str | None:
    return value if value is None or value == AUTO else as_range(value)


class Privacy(Specification):
    """The target (epsilon, delta); with epsilon null the run's own noise is used and certified at delta.

    Args:
        delta: in (0, 1), and below 1/records.
        epsilon: > 0.
        allow_large_delta: whether a delta >= 1/records is meant; it is then shown with the number.
    """

    delta: float = Field(gt=0, lt=1)
    epsilon: float | None = Field(default=None, gt=0)
    allow_large_delta: bool = False


class Data(Specification):
    """Where the records are.

    Args:
        path: a .csv, .csv.gz, .parquet or .npz file; null: scikit-learn's digits.
        target: the column (or array) to predict.
        target_range: of a regression by a model: [low, high], public; others are truncated. "auto": released, and paid for.
        classes: the public list of classes, or "from_data", which says that the classes found there are public knowledge.
        test_fraction: of the rows, in [0, 1), kept for testing.
    """

    path: str | None = None
    target: str | None = None
    classes: Annotated[tuple[str, ...] | None, BeforeValidator(_as_classes)] = None
    target_range: Annotated[tuple[float, float] | str | None, BeforeValidator(_as_target_range)] = None
    test_fraction: float = Field(default=0.2, ge=0, lt=1)

    @model_validator(mode="after")
    def _complete(self) -> Data:
        if self.path is None and (self.target is not None or self.classes is not None):
            raise InputError("path: missing; a target or classes belong to a file of yours.", remedy="name the file, or drop both.")
        if self.path is not None and self.target is None:
            raise InputError("target: missing; name the column (or array) to predict.")
        return self

    def to_document(self) -> dict[str, Any]:
        """As plain data."""
        classes = None if self.classes is None else list(self.classes) or FROM_DATA
        return {**self.model_dump(mode="json"), "classes": classes}


class LedgerSection(Specification):
    """Which data set's budget pays.

    Args:
        place: of the ledger: a SQLite file, or a URL.
        data_set: its name in the ledger.
        by: who trains; null: the user of this process.
        why: what for.
        slack: the share of delta for a run without an exact price; 0: of an estimator, as `lethe.ledger.Spending` says.
    """

    place: str
    data_set: str
    by: str | None = None
    why: str = ""
    slack: float = Field(default=0.0, ge=0, lt=1)

    def spending(self) -> Any:
        """What `ledger=` of a training takes; an error where the ledger cannot be used."""
        from lethe.ledger import Ledger, Spending  # needs SQLAlchemy, which is optional

        return Spending(Ledger.open(self.place), self.data_set, by=self.by, why=self.why, slack=self.slack)


def refuse_unanswered(content: Mapping[str, Any]) -> None:
    """Refuse a configuration in which questions stand that `lethe init` asked, by the names of all of them."""
    if open_questions := list(_unanswered(content, "")):
        raise InputError(
            f"{', '.join(open_questions)}: not answered yet ({UNANSWERED}).",
            remedy="write what is known without looking at the records; the comment beside each says what is asked.",
        )


def _unanswered(value: Any, path: str) -> Iterator[str]:
    if value == UNANSWERED or (isinstance(value, list | tuple) and UNANSWERED in value):
        yield path
    elif isinstance(value, Mapping):
        for name, entry in value.items():
            yield from _unanswered(entry, f"{path}.{name}" if path else str(name))
