"""How records meet steps: seven designs, each a different mechanism, never accounted as one another.

Fixed designs take batches of exactly `size` records, `floor(records / size)` of them a pass; records left over by
the division are not used in that pass. Designs with batches of random size divide by the nominal `size` too, whatever a batch holds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from pydantic import Field

from lethe.documents.specification import MOST_WHOLE, Noun, from_tagged

MOST_RECORDS = MOST_WHOLE
"""More records than that are nobody's."""


class Batches(Noun, ABC):
    """A batch design.

    Class attributes:
        design: the name in a Run document.
        fixed: every pass uses each batch slot once; only the order may be secret.
        removable: removing a record leaves all other records' batches as they were, so add-or-remove neighbours make sense.
        exact_size: every batch holds exactly the nominal number of records.
        secret: what nobody may learn, if anything, for the design's own guarantee to hold.
    """

    fixed: ClassVar[bool]
    removable: ClassVar[bool]
    exact_size: ClassVar[bool] = True
    secret: ClassVar[str] = ""
    design: ClassVar[str]

    @abstractmethod
    def nominal_size(self, records: int) -> int:
        """The public divisor $b$ of the gradient sum."""

    @property
    def cap(self) -> int | None:
        """The most records a batch keeps of those that were drawn; None: all."""
        return None

    def whole(self, records: int) -> bool:
        """Whether every batch holds every record, so that nothing is drawn and nothing is cut, not even with one record more."""
        return self.nominal_size(records) == records and (self.cap is None or self.cap > records)

    def per_pass(self, records: int) -> int:
        r"""Steps in one pass, $\ell = \lfloor n/b \rfloor$."""
        return records // self.nominal_size(records)

    def to_document(self) -> dict[str, Any]:
        """{design: name, size: ...}."""
        return {"design": self.design, **self.model_dump()}


class Full(Batches):
    """Every record at every step."""

    fixed: ClassVar[bool] = True
    removable: ClassVar[bool] = True
    design: ClassVar[str] = "full"

    def nominal_size(self, records: int) -> int:
        """All of them."""
        return records


class _Sized(Batches):
    """A design with a batch size."""

    size: int = Field(ge=1, le=MOST_RECORDS)

    def nominal_size(self, records: int) -> int:
        """`size`."""
        return self.size


class _Varying(_Sized):
    """A design whose batches hold as many records as chance has it, unless they are cut.

    Args:
        truncate_at: the most records a batch keeps, the others being dropped at random; None: all. It is paid for in delta
            (`lethe.theorems.truncation.truncation_slack`).
    """

    exact_size: ClassVar[bool] = False
    truncate_at: int | None = Field(default=None, ge=1, le=MOST_RECORDS)

    @property
    def cap(self) -> int | None:
        """`truncate_at`."""
        return self.truncate_at

    def to_document(self) -> dict[str, Any]:
        """{design: name, size: ...}, and truncate_at where there is one."""
        return {name: value for name, value in super().to_document().items() if name != "truncate_at" or value is not None}


class Cyclic(_Sized):
    """Disjoint batches in one public order, the same every pass."""

    fixed: ClassVar[bool] = True
    removable: ClassVar[bool] = False
    design: ClassVar[str] = "cyclic"


class ShuffledOnce(_Sized):
    """One secret uniform permutation before training, then as cyclic."""

    fixed: ClassVar[bool] = True
    removable: ClassVar[bool] = False
    secret: ClassVar[str] = "the permutation drawn before training"
    design: ClassVar[str] = "shuffled_once"


class Shuffled(_Sized):
    """A fresh secret uniform permutation every pass."""

    fixed: ClassVar[bool] = True
    removable: ClassVar[bool] = False
    secret: ClassVar[str] = "every pass's permutation"
    design: ClassVar[str] = "shuffled"


class Poisson(_Varying):
    """Each record joins each step independently with probability size / records."""

    fixed: ClassVar[bool] = False
    removable: ClassVar[bool] = True
    secret: ClassVar[str] = "which records each step draws"
    design: ClassVar[str] = "poisson"


class WithoutReplacement(_Sized):
    """A fresh uniform batch of exactly `size` distinct records at each step."""

    fixed: ClassVar[bool] = False
    removable: ClassVar[bool] = False
    secret: ClassVar[str] = "which records each step draws"
    design: ClassVar[str] = "without_replacement"


class BallsInBins(_Varying):
    """Each record is thrown once into one of floor(records / size) bins, independently; the bins are visited in order every pass.

    Reference: Chua et al. 2024, arXiv:2412.16802.
    """

    fixed: ClassVar[bool] = True
    removable: ClassVar[bool] = True
    secret: ClassVar[str] = "the bin of each record"
    design: ClassVar[str] = "balls_in_bins"


DESIGNS: dict[str, type[Batches]] = {
    "full": Full,
    "cyclic": Cyclic,
    "shuffled_once": ShuffledOnce,
    "shuffled": Shuffled,
    "poisson": Poisson,
    "without_replacement": WithoutReplacement,
    "balls_in_bins": BallsInBins,
}


def parse_batches(value: object) -> Batches:
    """Read {design: name, size: ..., truncate_at: ...}.

    Raises:
        InputError: an unknown design, a size or a cap that is not a positive integer, or a cap on batches of one size.
    """
    return from_tagged(value, tag="design", classes=DESIGNS)
