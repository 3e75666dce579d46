"""The section `ledger:` of a training configuration: which data set pays for the training."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from lethe.documents.specification import Specification
from lethe.jobs.configuration import as_mapping


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
        """What `ledger=` of a training takes.

        Raises:
            InputError, LedgerError, MissingExtraError: the ledger cannot be used.
        """
        from lethe.ledger import Ledger, Spending  # needs SQLAlchemy, which is optional

        return Spending(Ledger.open(self.place), self.data_set, by=self.by, why=self.why, slack=self.slack)


def as_ledger(value: Any) -> LedgerSection | None:
    """The section that a mapping describes.

    Raises:
        InputError: it describes none.
    """
    return value if value is None or isinstance(value, LedgerSection) else LedgerSection(**as_mapping(value))
