"""Batch designs: how records are assigned to steps. Each design is accounted as itself.

A Run holds one as `batches`; samplers draw by it, theorems and planners go by the facts it states about itself (`participation`). Fixed
designs take batches of exactly `size` records, `floor(records / size)` of them a pass; records left over by the division are not used in
that pass. Designs with batches of random size divide by the nominal `size` too, whatever a batch holds.

A design states facts about itself, and theorems, samplers and planners go by these (`lethe.run.participation`).
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from pydantic import Field

from lethe.documents.specification import MOST_WHOLE, Specification, from_tagged, names_itself
from lethe.errors import InputError
from lethe.run.participation import ANY_NUMBER, KNOWN_SIZES, OF_ONE_NUMBER, BatchSizes, Neighbours, Participation, unknown_participation

__all__ = [
    "BallsInBins",
    "Cyclic",
    "CyclicPoisson",
    "Full",
    "Poisson",
    "RandomAllocation",
    "Shuffled",
    "ShuffledOnce",
    "WithoutReplacement",
]

MOST_RECORDS = MOST_WHOLE
"""More records than that are nobody's."""

_FACTS = ("participation", "sizes", "secret", "neighbours")


class Batches(Specification, ABC):
    """A batch design. One with a name states all its facts itself, and nothing inherits from it.

    Class attributes:
        design: the name in a Run document.
        participation: which steps a record may take part in.
        sizes: how many records a batch holds.
        secret: what nobody may learn for the participation to be as stated; empty: nothing is secret.
        neighbours: the relations that it admits: add_or_remove only if removing a record leaves all other records' batches as they were.
    """

    design: ClassVar[str]
    participation: ClassVar[Participation]
    sizes: ClassVar[BatchSizes]
    secret: ClassVar[str]
    neighbours: ClassVar[frozenset[Neighbours]]

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Refuse a named design that leaves a fact out, that inherits from another, or whose facts contradict one another."""
        super().__pydantic_init_subclass__(**kwargs)
        if not names_itself(cls, "design"):
            return
        missing = [fact for fact in _FACTS if fact not in vars(cls)]
        if missing:
            raise InputError(
                f"batches: the design {cls.design} leaves out {', '.join(missing)}.", remedy="state each of them: no default is safe."
            )
        _refuse_contradictions(cls)

    @abstractmethod
    def nominal_size(self, records: int) -> int:
        """The public divisor $b$ of the gradient sum."""

    @property
    def cap(self) -> int | None:
        """The most records a batch keeps, chosen uniformly of those that were drawn; None: all."""
        return None

    @property
    def exact_size(self) -> bool:
        """Whether every batch holds exactly the nominal number of records."""
        return self.sizes is BatchSizes.EXACT

    @property
    def fixed(self) -> bool:
        """Whether a record is in at most one batch of a pass, or in all of them; else batches are drawn anew at each step."""
        match self.participation:
            case Participation.EVERY_STEP | Participation.PUBLIC_SLOT | Participation.SECRET_SLOT | Participation.FRESH_SECRET_SLOT:
                return True
            case Participation.INDEPENDENT_DRAW | Participation.DRAW_IN_PUBLIC_GROUP:
                return False
        raise unknown_participation(self.design, self.participation)

    @property
    def repeats(self) -> bool:
        """Whether all passes have the same batches in the same order."""
        return self.fixed and self.participation is not Participation.FRESH_SECRET_SLOT

    def period(self, records: int) -> int | None:
        """p, where a record meets no steps but j, j + p, j + 2p, ... for one j; None: it may meet any two steps."""
        match self.participation:
            case Participation.EVERY_STEP:
                return 1
            case Participation.PUBLIC_SLOT | Participation.SECRET_SLOT:
                return self.per_pass(records)
            case Participation.DRAW_IN_PUBLIC_GROUP:
                return self.groups_of_records
            case Participation.FRESH_SECRET_SLOT | Participation.INDEPENDENT_DRAW:
                return None
        raise unknown_participation(self.design, self.participation)

    @property
    def groups_of_records(self) -> int:
        """g, of a participation in public groups; 1 of all others."""
        return 1

    def whole(self, records: int) -> bool:
        """Whether every batch holds every record, so that nothing is drawn and nothing is cut, not even with one record more."""
        all_of_them = self.sizes in KNOWN_SIZES and self.nominal_size(records) == records
        return all_of_them and (self.cap is None or self.cap > records)

    def per_pass(self, records: int) -> int:
        r"""Steps in one pass, $\ell = \lfloor n/b \rfloor$; of random allocation $\lceil n/b \rceil$."""
        return records // self.nominal_size(records)

    def accounts(self, records: int) -> int:
        """Accounts of a budget filter: one for each slot, or group, where a record keeps it; else one.

        It pays at every step, or, where a record comes once a pass, for the dearest step of each pass.
        """
        match self.participation:
            case Participation.PUBLIC_SLOT | Participation.SECRET_SLOT:
                return self.per_pass(records)
            case Participation.DRAW_IN_PUBLIC_GROUP:
                return self.groups_of_records
            case Participation.EVERY_STEP | Participation.FRESH_SECRET_SLOT | Participation.INDEPENDENT_DRAW:
                return 1
        raise unknown_participation(self.design, self.participation)

    def to_document(self) -> dict[str, Any]:
        """{design: name, size: ...}."""
        return {"design": self.design, **self.model_dump()}


def _refuse_contradictions(design: type[Batches]) -> None:
    """Refuse a secret where there is nothing to hide or none where there is, and binomial sizes where no record is drawn by itself."""
    participation, sizes = design.participation, design.sizes
    hidden = participation not in (Participation.EVERY_STEP, Participation.PUBLIC_SLOT)
    is_participation = isinstance(participation, Participation)  # pyright: ignore[reportUnnecessaryIsInstance]  # whoever reads another refuses it
    if is_participation and hidden != bool(design.secret):
        needs = "must say what is secret" if hidden else "has nothing that could be secret"
        raise InputError(f"batches: the design {design.design} {needs}; its participation is {participation.value}.")
    if participation is Participation.DRAW_IN_PUBLIC_GROUP and "groups_of_records" not in vars(design):
        raise InputError(f"batches: the design {design.design} must say how many groups_of_records there are.")
    if (
        is_participation
        and participation is not Participation.DRAW_IN_PUBLIC_GROUP
        and design.groups_of_records is not Batches.groups_of_records
    ):
        raise InputError(
            f"batches: the design {design.design} says groups_of_records; with the participation {participation.value} there is one."
        )
    if participation is Participation.DRAW_IN_PUBLIC_GROUP and sizes is not BatchSizes.BINOMIAL:
        raise InputError(f"batches: the design {design.design} draws each record by itself, so that its sizes are binomial.")
    if is_participation and sizes is BatchSizes.BINOMIAL and not hidden:
        raise InputError(
            f"batches: the design {design.design} has binomial sizes; with the participation {participation.value} no record is drawn, or "
            "thrown into a slot, by itself."
        )


class Full(Batches):
    """Every record at every step.

    Examples:
        >>> lethe.batches.Full().design
        'full'
    """

    design: ClassVar[str] = "full"
    participation: ClassVar[Participation] = Participation.EVERY_STEP
    sizes: ClassVar[BatchSizes] = BatchSizes.EXACT
    secret: ClassVar[str] = ""
    neighbours: ClassVar[frozenset[Neighbours]] = ANY_NUMBER

    def nominal_size(self, records: int) -> int:
        """All of them."""
        return records


class _Sized(Batches):
    """A design with a batch size."""

    size: int = Field(ge=1, le=MOST_RECORDS, kw_only=False)

    def nominal_size(self, records: int) -> int:
        """`size`."""
        return self.size


class _Varying(_Sized):
    """A design whose batches hold as many records as chance has it, unless they are cut."""

    # The most records a batch keeps, chosen uniformly; None: all. What it costs: theorems.truncation.
    truncate_at: int | None = Field(default=None, ge=1, le=MOST_RECORDS)

    @property
    def cap(self) -> int | None:
        """`truncate_at`."""
        return self.truncate_at

    def to_document(self) -> dict[str, Any]:
        """{design: name, size: ...}, and truncate_at where there is one."""
        return {name: value for name, value in super().to_document().items() if name != "truncate_at" or value is not None}


class Cyclic(_Sized):
    """Disjoint batches in one public order, the same every pass.

    Examples:
        >>> lethe.batches.Cyclic(100).design
        'cyclic'
    """

    design: ClassVar[str] = "cyclic"
    participation: ClassVar[Participation] = Participation.PUBLIC_SLOT
    sizes: ClassVar[BatchSizes] = BatchSizes.EXACT
    secret: ClassVar[str] = ""
    neighbours: ClassVar[frozenset[Neighbours]] = OF_ONE_NUMBER


class ShuffledOnce(_Sized):
    """One secret uniform permutation before training, then as cyclic.

    Examples:
        >>> lethe.batches.ShuffledOnce(100).design
        'shuffled_once'
    """

    design: ClassVar[str] = "shuffled_once"
    participation: ClassVar[Participation] = Participation.SECRET_SLOT
    sizes: ClassVar[BatchSizes] = BatchSizes.EXACT
    secret: ClassVar[str] = "the permutation drawn before training"
    neighbours: ClassVar[frozenset[Neighbours]] = OF_ONE_NUMBER


class Shuffled(_Sized):
    """A fresh secret uniform permutation every pass.

    Examples:
        >>> lethe.batches.Shuffled(100).design
        'shuffled'
    """

    design: ClassVar[str] = "shuffled"
    participation: ClassVar[Participation] = Participation.FRESH_SECRET_SLOT
    sizes: ClassVar[BatchSizes] = BatchSizes.EXACT
    secret: ClassVar[str] = "every pass's permutation"
    neighbours: ClassVar[frozenset[Neighbours]] = OF_ONE_NUMBER


class Poisson(_Varying):
    """Each record joins each step independently with probability size / records.

    Examples:
        >>> lethe.batches.Poisson(100).design
        'poisson'
    """

    design: ClassVar[str] = "poisson"
    participation: ClassVar[Participation] = Participation.INDEPENDENT_DRAW
    sizes: ClassVar[BatchSizes] = BatchSizes.BINOMIAL
    secret: ClassVar[str] = "which records each step draws"
    neighbours: ClassVar[frozenset[Neighbours]] = ANY_NUMBER


class CyclicPoisson(_Sized):
    """Record i is of group i mod g; step t draws from group t mod g, each record independently with the same probability.

    g is `groups`, and the probability is g x size / records, so that a batch holds `size` records in the mean, and a record is drawn once
    a pass. For correlated noise of at most g bands, which is then amplified by the sampling. g divides the steps of a pass.

    Reference: Choquette-Choo et al. 2023, arXiv:2306.08153 (cyclic Poisson sampling).

    Examples:
        >>> lethe.batches.CyclicPoisson(100, groups=5).design
        'cyclic_poisson'
    """

    design: ClassVar[str] = "cyclic_poisson"
    participation: ClassVar[Participation] = Participation.DRAW_IN_PUBLIC_GROUP
    sizes: ClassVar[BatchSizes] = BatchSizes.BINOMIAL
    secret: ClassVar[str] = "which records of its group each step draws"
    neighbours: ClassVar[frozenset[Neighbours]] = OF_ONE_NUMBER

    groups: int = Field(ge=1, le=MOST_RECORDS)

    @property
    def groups_of_records(self) -> int:
        """`groups`."""
        return self.groups


class WithoutReplacement(_Sized):
    """A fresh uniform batch of exactly `size` distinct records at each step."""

    design: ClassVar[str] = "without_replacement"
    participation: ClassVar[Participation] = Participation.INDEPENDENT_DRAW
    sizes: ClassVar[BatchSizes] = BatchSizes.EXACT
    secret: ClassVar[str] = "which records each step draws"
    neighbours: ClassVar[frozenset[Neighbours]] = OF_ONE_NUMBER


class RandomAllocation(_Varying):
    """Each record is thrown anew every pass into one of its ceil(records / size) batches, independently of all others.

    An epoch of `DataLoader(shuffle=True)`, with as many batches, but for their sizes, which vary as those of Poisson batches do. What
    `fit`, `PrivacyEngine` and the trainers do without a run. Reference: Feldman & Shenfeld 2025, arXiv:2502.08202.

    Examples:
        >>> lethe.batches.RandomAllocation(100).design
        'random_allocation'
    """

    design: ClassVar[str] = "random_allocation"
    participation: ClassVar[Participation] = Participation.FRESH_SECRET_SLOT
    sizes: ClassVar[BatchSizes] = BatchSizes.BINOMIAL
    secret: ClassVar[str] = "which batch of each pass holds each record"
    neighbours: ClassVar[frozenset[Neighbours]] = ANY_NUMBER

    def per_pass(self, records: int) -> int:
        r"""$\lceil n/b \rceil$, as an epoch has: no record is left over."""
        return -(-records // self.size)


class BallsInBins(_Varying):
    """As random_allocation, but thrown once, before training: a record is in the same batch of every pass.

    Reference: Chua et al. 2024, arXiv:2412.16802.

    Examples:
        >>> lethe.batches.BallsInBins(100).design
        'balls_in_bins'
    """

    design: ClassVar[str] = "balls_in_bins"
    participation: ClassVar[Participation] = Participation.SECRET_SLOT
    sizes: ClassVar[BatchSizes] = BatchSizes.BINOMIAL
    secret: ClassVar[str] = "the bin of each record"
    neighbours: ClassVar[frozenset[Neighbours]] = ANY_NUMBER


DESIGNS: dict[str, type[Batches]] = {
    batches.design: batches
    for batches in (Full, Cyclic, ShuffledOnce, Shuffled, Poisson, CyclicPoisson, WithoutReplacement, RandomAllocation, BallsInBins)
}


def parse_batches(value: object) -> Batches:
    """Read {design: name, size: ..., truncate_at: ...}."""
    return from_tagged(value, tag="design", classes=DESIGNS)
