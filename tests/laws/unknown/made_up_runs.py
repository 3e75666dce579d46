"""Runs that hold what no code knows: made-up designs, a loss, a regulariser, and words changed behind their backs."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, ClassVar

import numpy as np
import pytest
from helpers import make_run
from pydantic import Field

import lethe
from lethe.certificates.findings import first_failure
from lethe.errors import LetheError
from lethe.run.batches import Batches
from lethe.run.losses.base import Loss
from lethe.run.neighbours import ANY_NUMBER, OF_ONE_NUMBER
from lethe.run.noise.base import CorrelatedNoise
from lethe.run.participation import BatchSizes, Participation
from lethe.run.regularisers import Regulariser
from lethe.theorems.base import Theorem

DELTA = 1e-5
# Each slot of a pass has another noise, so that the worst one and the average of them differ.
NOISE = [4.0 + step % 10 for step in range(50)]


class MadeUp(Batches):
    size: int = Field(ge=1)

    def nominal_size(self, records: int) -> int:
        return self.size


def stating(**facts: Any) -> type[MadeUp]:
    """A design made of these facts."""
    hints = dict.fromkeys((name for name in facts if name != "cap"), ClassVar[Any])
    return type("Stated", (MadeUp,), {**facts, "__module__": __name__, "__annotations__": hints})


def _stated(design: str, participation: Any, sizes: Any, secret: str = "", neighbours: Any = OF_ONE_NUMBER) -> type[MadeUp]:
    return stating(design=design, participation=participation, sizes=sizes, secret=secret, neighbours=neighbours)


class _Sometimes(Enum):
    SOMETIMES = "now and then"


# Cyclic batches by another name; then slots of which one may hold more records than another; then records that are drawn with a known
# probability, but not independently; and a participation, and a kind of batch sizes, that nobody has thought of.
PublicSlots = _stated("public_slots", Participation.PUBLIC_SLOT, BatchSizes.EXACT)
PublicHeaps = _stated("public_heaps", Participation.PUBLIC_SLOT, BatchSizes.UNKNOWN, neighbours=ANY_NUMBER)
SecretHeaps = _stated("secret_heaps", Participation.SECRET_SLOT, BatchSizes.UNKNOWN, "the slot of each record", ANY_NUMBER)
FreshHeaps = _stated("fresh_heaps", Participation.FRESH_SECRET_SLOT, BatchSizes.UNKNOWN, "the slots of each record", ANY_NUMBER)
DrawnTogether = _stated("drawn_together", Participation.INDEPENDENT_DRAW, BatchSizes.UNKNOWN, "which records each step draws")
Elsewhere = _stated("elsewhere", _Sometimes.SOMETIMES, BatchSizes.EXACT)
Swelling = _stated("swelling", Participation.PUBLIC_SLOT, _Sometimes.SOMETIMES)
MADE_UP = (PublicSlots, PublicHeaps, SecretHeaps, FreshHeaps, DrawnTogether, Elsewhere, Swelling)


# Of a known participation: what is known of it, under the name of the design that it is the same for where sizes do not matter.
OF_UNKNOWN_SIZES = (
    (PublicHeaps, "cyclic"),
    (SecretHeaps, "shuffled_once"),
    (FreshHeaps, "shuffled"),
    (DrawnTogether, "without_replacement"),
)


class MadeUpLoss(Loss):
    """A loss of which only its smoothness is stated."""

    summary: ClassVar[str] = "made-up loss"
    kind: ClassVar[str] = "made_up_loss"
    claimed: tuple[float, float] | None = (0.0, 0.5)

    @property
    def curvature(self) -> tuple[float, float] | None:
        return self.claimed


class MadeUpRegulariser(Regulariser):
    """A regulariser that states nothing but that it is convex."""

    kind: ClassVar[str] = "made_up_regulariser"


class MadeUpNoise(CorrelatedNoise):
    """Noise that claims to be correlated in a way nobody knows, with a strategy that would cost nothing."""

    kind: ClassVar[str] = "made_up_noise"
    summary: ClassVar[str] = "made-up noise"

    def strategy(self, steps: int) -> Any:
        return np.full(steps, 1e-9)

    def stream(self, *, product: bool = False) -> Any:
        raise NotImplementedError


def of_design(design: type[MadeUp] | str, **changes: Any) -> lethe.Run:
    name = design if isinstance(design, str) else design.design
    return make_run(batches={"design": name, "size": 10}, noise_multiplier=NOISE, **changes)


def forged(field: str, value: object, **changes: Any) -> lethe.Run:
    """A run whose field was changed behind its back, as by a later version that knows one more word."""
    run = make_run(loss={"kind": "convex", "smoothness": 0.5}, clip_norm=1.0, **changes)
    vars(run)[field] = value
    return run


def refused(name: str, doing: Callable[[], Any]) -> None:
    with pytest.raises(LetheError) as caught:
        doing()
    assert name in str(caught.value)


# What is refused, the name that it must be refused by.
UNKNOWN: dict[str, Callable[[], lethe.Run]] = {
    "elsewhere": lambda: of_design(Elsewhere),
    "swelling": lambda: of_design(Swelling),
    "best_iterate": lambda: forged("release", "best_iterate"),
    "squash": lambda: forged("clip_method", "squash"),
    "one_user": lambda: forged("neighbours", "one_user"),
    "now_and_then": lambda: forged("noise_at", "now_and_then"),
    "MadeUpNoise": lambda: forged("noise", MadeUpNoise()),
}


def said_by(theorem: Theorem, run: lethe.Run) -> Any:
    """Its guarantee, or the name of the hypothesis that fails."""
    failure = first_failure(theorem.examine(run))
    return theorem.bound(run).guarantee if failure is None else failure.name
