"""Participation: the facts of a batch design from which everything else is derived; and neighbouring relations, and their unit.

Theorems, samplers, planners and reports read them off `run.batches`. A slot is a record's place in a pass.

A design is used by what it states, never by its name. Whoever reads these facts matches all of them and refuses the rest by name:

    match run.batches.participation:
        case Participation.EVERY_STEP | Participation.INDEPENDENT_DRAW: ...
        case Participation.PUBLIC_SLOT: ...
        case Participation.SECRET_SLOT | Participation.FRESH_SECRET_SLOT: ...
    raise unknown_participation(run.batches.design, run.batches.participation)

The cases return. The type checker refuses a `match` that leaves one out: the argument would not be Never.
"""

from enum import Enum
from typing import Any, Literal, Never

from pydantic import ValidationInfo

from lethe.errors import InputError


class Participation(Enum):
    """Which steps a record may take part in; a pass is $\\ell$ = floor(records / nominal size) steps, each of them one slot.

    In all of them the record's steps are independent of the data, and a batch's sum is divided by the nominal size.
    """

    EVERY_STEP = "every step"
    """All records in every batch."""
    PUBLIC_SLOT = "a public slot"
    """At most one slot, the same in every pass, which anybody may know."""
    SECRET_SLOT = "a secret slot, kept"
    """At most one slot, drawn before training, each slot as likely as any other, and the same in every pass."""
    FRESH_SECRET_SLOT = "a fresh secret slot"
    """At most one slot in each pass, drawn anew for each, each slot as likely as any other."""
    INDEPENDENT_DRAW = "an independent draw"
    """In the batch of each step with probability nominal size / records, independently of all other steps."""
    DRAW_IN_PUBLIC_GROUP = "an independent draw at the steps of a public group"
    """Of g public groups, step t (from 0) draws from group t mod g alone: each of its records with probability g x nominal size / records,
    independently of all other steps. g divides the steps of a pass."""


class BatchSizes(Enum):
    """How many records a batch holds."""

    EXACT = "exact"
    """Exactly the nominal size, always."""
    BINOMIAL = "binomial"
    """Each record is drawn, or thrown into its slot, independently of all other records."""
    UNKNOWN = "unknown"
    """Any number: nothing that depends on the records of a batch can be bounded."""


KNOWN_SIZES = frozenset({BatchSizes.EXACT, BatchSizes.BINOMIAL})


def unknown_participation(design: str, participation: Never) -> InputError:
    """The error for a participation that a `match` does not know."""
    return InputError(
        f"batches.design: got {design}, whose participation {said(participation)} is not known here.",
        source=f"batches.design = {design}",
        remedy="take a design whose participation is known, or teach this code the new one.",
    )


def unknown_sizes(design: str, sizes: object) -> InputError:
    """The error for batch sizes of which something must be known."""
    return InputError(
        f"batches.design: got {design}, whose batch sizes are {said(sizes)}; how many records a batch may hold must be known here.",
        source=f"batches.design = {design}",
        remedy="take a design with batches of exact size, or one that draws each record by itself.",
    )


def said(fact: object) -> str:
    """A fact of a design in words."""
    return repr(fact.value) if isinstance(fact, Enum) else repr(fact)


Neighbours = Literal["replace_one", "zero_out", "add_or_remove"]
"""replace_one and zero_out change one record, into another or into one without gradient; add_or_remove changes their number by one."""

OF_ONE_NUMBER: frozenset[Neighbours] = frozenset({"replace_one", "zero_out"})
"""The relations of a design in which a removed record would move others into other batches: the number of records stays."""

ANY_NUMBER: frozenset[Neighbours] = frozenset({"replace_one", "zero_out", "add_or_remove"})
"""The relations of a design in which a removed record leaves all other records' batches as they were."""

Unit = Literal["record", "user"]
"""What is clipped once, is drawn into batches, and enters or leaves as a whole. record: each record by itself. user: all records of one
user together; `records` of the Run then counts users."""

NOUNS: dict[Unit, tuple[str, str]] = {"record": ("record", "records"), "user": ("user", "users")}
"""A unit in words: one, and several."""


def usual(relation: Any, info: ValidationInfo) -> Any:
    """The `neighbours` of a run, of which the batches are known by now. None, as Opacus and TensorFlow Privacy count: one record added or
    removed; where a removed record would move others, its contribution set to zero."""
    batches = info.data.get("batches")
    if relation is not None or batches is None:  # batches that cannot be read are refused by themselves
        return relation
    return "add_or_remove" if "add_or_remove" in batches.neighbours else "zero_out"


def apart(neighbours: Neighbours) -> float:
    """How many gradient bounds apart one record's contributions to neighbouring data sets can be."""
    match neighbours:
        case "replace_one":
            return 2.0
        case "zero_out" | "add_or_remove":
            return 1.0
    raise _unknown(neighbours)


def _unknown(neighbours: Never) -> InputError:
    return InputError(f"neighbours: got {neighbours!r}; it needs replace_one, zero_out or add_or_remove.", source="neighbours")
