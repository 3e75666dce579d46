"""Runs that hold what no code knows: made-up designs, a loss, a regulariser, and words changed behind their backs; and whom to ask."""

from collections.abc import Callable
from enum import Enum
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from doors import fit_head, fit_linear
from helpers import make_run
from pydantic import Field
from torch import nn

import lethe
from lethe.certificates.findings import first_failure
from lethe.errors import LetheError
from lethe.influence import SyntheticData, adjoint_influence, quadratic_influence, retraining_influence
from lethe.noise_allocation.allocate import SCHEDULES, allocate
from lethe.noise_allocation.noise_shapes import influence_of_curvature, shaped
from lethe.run.batches import Batches
from lethe.run.losses.base import Loss
from lethe.run.noise.strategies import CorrelatedNoise
from lethe.run.participation import ANY_NUMBER, OF_ONE_NUMBER, BatchSizes, Participation
from lethe.run.regularisers import Regulariser
from lethe.theorems.base import Theorem
from lethe.theorems.registry import ALL
from lethe.train import PrivacyEngine, fit
from lethe.train.core.recorder import Recorder
from lethe.train.core.samplers import draw_batches
from lethe.utility import excess_risk_bound

DELTA = 1e-5
# Each slot of a pass has another noise, so that the worst one and the average of them differ.
NOISE = [4.0 + step % 10 for step in range(50)]


BY_THEOREM: Any = pytest.mark.parametrize("theorem", ALL, ids=lambda theorem: theorem.name)
BY_RELEASE: Any = pytest.mark.parametrize("release", ["last", "all"])


class MadeUp(Batches):
    size: int = Field(ge=1)

    def nominal_size(self, records: int) -> int:
        return self.size


def stating(**facts: Any) -> type[MadeUp]:
    """A design made of these facts."""
    hints = dict.fromkeys((name for name in facts if not isinstance(facts[name], property)), ClassVar[Any])
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


PUBLIC = SyntheticData(columns=3, classes=2, seed=0)
INFLUENCES: dict[str, Callable[[lethe.Run], Any]] = {
    "quadratic": lambda run: quadratic_influence(run, PUBLIC),
    "adjoint": lambda run: adjoint_influence(run, PUBLIC, repeats=2, seed=0),
    "retraining": lambda run: retraining_influence(run, PUBLIC, repeats=2, seed=0),
}
NOISE_PLANNERS: dict[str, Callable[[lethe.Run], Any]] = {
    **{f"allocate {schedule}": lambda run, schedule=schedule: allocate(run, 1.0, DELTA, schedule=schedule) for schedule in SCHEDULES},
    "shaped": lambda run: shaped(run, "influence", influence_of_curvature(make_run())),
    "excess risk": lambda run: excess_risk_bound(run, dimension=2, initial_gap=1.0),
    "recorder": lambda run: Recorder(run, seeded=False),
}


def data_of(run: lethe.Run) -> tuple[torch.Tensor, torch.Tensor]:
    random = np.random.default_rng(0)
    return torch.tensor(random.normal(size=(run.records, 3))), torch.tensor(random.integers(2, size=run.records))


def _engine(run: lethe.Run) -> Any:
    model = nn.Linear(3, 2).double()
    own = torch.optim.SGD(model.parameters(), lr=0.5)
    engine = PrivacyEngine(model, own, lambda batch: model(batch[0]).sum(1), data_of(run), run)
    loader = engine.batches()
    return next(iter(loader))


TRAINERS: dict[str, Callable[[lethe.Run], Any]] = {
    "draw_batches": lambda run: next(draw_batches(run, torch.Generator().manual_seed(0))),
    "fit_linear": lambda run: fit_linear(run, *(one.numpy() for one in data_of(run)), classes=2),
    "fit_head": lambda run: fit_head(nn.Identity(), nn.Linear(3, 2, bias=False).double(), data_of(run), run),
    "fit": lambda run: fit(nn.Linear(3, 2).double(), nn.CrossEntropyLoss(reduction="none"), data_of(run), run),
    "engine": _engine,
}
