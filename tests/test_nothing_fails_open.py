"""What a piece of code does not know it refuses by name: a made-up design, loss, regulariser, clip method, release and relation.

A design that states a participation which is known is used by that, whatever it is called, and never as another one.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from dp_accounting.privacy_accountant import NeighboringRelation
from helpers import DESIGNS, make_run
from pydantic import Field
from torch import nn

import lethe
from lethe.accounting.certify import evaluate_theorems
from lethe.accounting.compare import compare
from lethe.accounting.cumulative import cumulative_privacy
from lethe.certificates.findings import first_failure
from lethe.errors import HypothesisError, InputError, LetheError
from lethe.heavy_tailed.composite import require_pair
from lethe.heavy_tailed.sets import WholeSpace
from lethe.influence import PublicCurvatures, SyntheticData, adjoint_influence, quadratic_influence, retraining_influence
from lethe.integrations.dp_accounting import LastIterateDpEvent, LetheAccountant, to_dp_event
from lethe.noise_allocation.allocate import allocate
from lethe.noise_allocation.noise_shapes import influence_of_curvature, shaped
from lethe.run.batches import DESIGNS as CLASSES
from lethe.run.batches import Batches
from lethe.run.losses import LOSSES, Loss
from lethe.run.neighbours import ANY_NUMBER, OF_ONE_NUMBER
from lethe.run.participation import BatchSizes, Participation
from lethe.run.regularisers import REGULARISERS, Regulariser, Ridge
from lethe.theorems.base import Theorem
from lethe.theorems.budget_filter import spent_budgets
from lethe.theorems.composition import Composition
from lethe.theorems.registry import ALL, OURS
from lethe.theorems.steps import batch_sizes, largest_batch, step_constants
from lethe.theorems.truncation import truncation_slack
from lethe.train import PrivacyEngine, fit, fit_head, fit_linear
from lethe.train.core.recorder import Recorder
from lethe.train.core.samplers import draw_batches
from lethe.utility.excess_risk import excess_risk_bound

DELTA = 1e-5
ROOT = Path(__file__).resolve().parent.parent / "lethe"
# Each slot of a pass has another noise, so that the worst one and the average of them differ.
NOISE = [4.0 + step % 10 for step in range(50)]


class _MadeUp(Batches):
    size: int = Field(ge=1)

    def nominal_size(self, records: int) -> int:
        return self.size


class PublicSlots(_MadeUp):
    """Cyclic batches by another name."""

    design: ClassVar[str] = "public_slots"
    participation: ClassVar[Participation] = Participation.PUBLIC_SLOT
    sizes: ClassVar[BatchSizes] = BatchSizes.EXACT
    secret: ClassVar[str] = ""
    neighbours: ClassVar[Any] = OF_ONE_NUMBER


class PublicHeaps(_MadeUp):
    """Public slots of which one may hold more records than another."""

    design: ClassVar[str] = "public_heaps"
    participation: ClassVar[Participation] = Participation.PUBLIC_SLOT
    sizes: ClassVar[BatchSizes] = BatchSizes.UNKNOWN
    secret: ClassVar[str] = ""
    neighbours: ClassVar[Any] = ANY_NUMBER


class SecretHeaps(_MadeUp):
    """Secret slots of which one may hold more records than another."""

    design: ClassVar[str] = "secret_heaps"
    participation: ClassVar[Participation] = Participation.SECRET_SLOT
    sizes: ClassVar[BatchSizes] = BatchSizes.UNKNOWN
    secret: ClassVar[str] = "the slot of each record"
    neighbours: ClassVar[Any] = ANY_NUMBER


class FreshHeaps(_MadeUp):
    """The same, drawn anew for each pass."""

    design: ClassVar[str] = "fresh_heaps"
    participation: ClassVar[Participation] = Participation.FRESH_SECRET_SLOT
    sizes: ClassVar[BatchSizes] = BatchSizes.UNKNOWN
    secret: ClassVar[str] = "the slots of each record"
    neighbours: ClassVar[Any] = ANY_NUMBER


class DrawnTogether(_MadeUp):
    """Each record is drawn with a known probability, but not independently of the others."""

    design: ClassVar[str] = "drawn_together"
    participation: ClassVar[Participation] = Participation.INDEPENDENT_DRAW
    sizes: ClassVar[BatchSizes] = BatchSizes.UNKNOWN
    secret: ClassVar[str] = "which records each step draws"
    neighbours: ClassVar[Any] = OF_ONE_NUMBER


class _Sometimes(Enum):
    SOMETIMES = "now and then"


class Elsewhere(_MadeUp):
    """A participation that nobody has thought of."""

    design: ClassVar[str] = "elsewhere"
    participation: ClassVar[Any] = _Sometimes.SOMETIMES
    sizes: ClassVar[BatchSizes] = BatchSizes.EXACT
    secret: ClassVar[str] = ""
    neighbours: ClassVar[Any] = OF_ONE_NUMBER


class Swelling(_MadeUp):
    """A kind of batch sizes that nobody has thought of."""

    design: ClassVar[str] = "swelling"
    participation: ClassVar[Participation] = Participation.PUBLIC_SLOT
    sizes: ClassVar[Any] = _Sometimes.SOMETIMES
    secret: ClassVar[str] = ""
    neighbours: ClassVar[Any] = OF_ONE_NUMBER


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


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for one in (PublicSlots, PublicHeaps, SecretHeaps, FreshHeaps, DrawnTogether, Elsewhere, Swelling):
        monkeypatch.setitem(CLASSES, one.design, one)
    monkeypatch.setitem(LOSSES, MadeUpLoss.kind, MadeUpLoss)
    monkeypatch.setitem(REGULARISERS, MadeUpRegulariser.kind, MadeUpRegulariser)


def of_design(design: type[_MadeUp] | str, **changes: Any) -> lethe.Run:
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
}


# Theorems.


@pytest.mark.parametrize("name", UNKNOWN)
@pytest.mark.parametrize("theorem", ALL, ids=lambda theorem: theorem.name)
def test_no_theorem_takes_a_word_that_it_does_not_know(theorem: Theorem, name: str) -> None:
    run = UNKNOWN[name]()
    (finding,) = theorem.examine(run)
    assert finding.status == "fails"
    assert name in finding.detail
    refused(name, lambda: theorem.bound(run))


def _says(theorem: Theorem, run: lethe.Run) -> Any:
    """Its guarantee, or the name of the hypothesis that fails."""
    failure = first_failure(theorem.examine(run))
    return theorem.bound(run).guarantee if failure is None else failure.name


@pytest.mark.parametrize("release", ["last", "all"])
@pytest.mark.parametrize("theorem", ALL, ids=lambda theorem: theorem.name)
def test_a_public_slot_of_exact_size_is_one_whatever_it_is_called(theorem: Theorem, release: str) -> None:
    """A published theorem may ask for cyclic batches by name, and then refuses by name; none takes it for another design."""
    run = of_design(PublicSlots, release=release)
    said, known = _says(theorem, run), _says(theorem, of_design("cyclic", release=release))
    if said != known:
        failure = first_failure(theorem.examine(run))
        assert failure is not None
        assert theorem not in OURS
        assert "public_slots" in failure.detail


# The noise of slot j is 4 + j in each of 5 passes, and replacing a record moves a sum by twice its bound.
WORST_SLOT, EVERY_STEP = 2.0 * math.sqrt(5.0) / 4.0, 2.0 * math.sqrt(sum(5.0 / (4.0 + slot) ** 2 for slot in range(10)))


@pytest.mark.parametrize(
    ("design", "mu"),
    [
        *((name, WORST_SLOT) for name in ("cyclic", "public_slots", "public_heaps", "shuffled", "fresh_heaps")),
        *((name, EVERY_STEP) for name in ("poisson", "without_replacement", "drawn_together")),
    ],
)
def test_composition_counts_the_steps_of_a_participation(design: str, mu: float) -> None:
    """Worked out by hand; the noise that falls with j makes slot 0 the worst, also of each pass alone."""
    guarantee = Composition().bound(of_design(design, release="all")).guarantee
    assert guarantee.epsilon(DELTA) == pytest.approx(lethe.GDP(mu).epsilon(DELTA), rel=1e-9)


@pytest.mark.parametrize("release", ["last", "all"])
@pytest.mark.parametrize("design", ["shuffled_once", "balls_in_bins", "secret_heaps"])
def test_a_secret_slot_costs_less_than_a_public_one(design: str, release: str) -> None:
    """A made-up public slot was given the average over slots when it fell to the last branch."""
    theorem = ("composition",) if release == "all" or design == "secret_heaps" else ("optimal-shift",)
    secret, public = (lethe.certify(of_design(one, release=release), DELTA, theorems=theorem).epsilon for one in (design, PublicSlots))
    assert secret < 0.96 * public


@pytest.mark.parametrize(("design", "same"), OF_UNKNOWN_SIZES)
@pytest.mark.parametrize("theorem", ALL, ids=lambda theorem: theorem.name)
def test_batches_of_unknown_size_are_composed_or_refused(theorem: Theorem, design: type[_MadeUp], same: str) -> None:
    for release in ("last", "all"):
        run = of_design(design, release=release)
        failure = first_failure(theorem.examine(run))
        if failure is None:
            assert theorem.name in ("composition", "kaissis-2021", "budget-filter")
            assert theorem.bound(run).guarantee == theorem.bound(of_design(same, release=release)).guarantee
        elif theorem.name != "budget-filter":
            assert design.design in failure.detail


@pytest.mark.parametrize(("design", "same"), OF_UNKNOWN_SIZES)
def test_no_size_is_made_up_for_batches_of_unknown_size(design: type[_MadeUp], same: str) -> None:
    run = of_design(design)
    for ask in (largest_batch, batch_sizes, step_constants):
        refused(design.design, lambda ask=ask: ask(run))
    certificate, known = lethe.certify(run, DELTA), lethe.certify(of_design(same, release="all"), DELTA, theorems=("composition",))
    assert certificate.theorem == "composition"
    assert certificate.epsilon == known.epsilon
    assert not run.batches.whole(10)


def test_a_cap_on_batches_of_unknown_size_has_no_price() -> None:
    class Capped(_MadeUp):
        design: ClassVar[str] = "capped_heaps"
        participation: ClassVar[Participation] = Participation.PUBLIC_SLOT
        sizes: ClassVar[BatchSizes] = BatchSizes.UNKNOWN
        secret: ClassVar[str] = ""
        neighbours: ClassVar[Any] = OF_ONE_NUMBER

        @property
        def cap(self) -> int | None:
            return 12

    run = of_design("cyclic", release="all")
    vars(run)["batches"] = Capped(size=10)
    refused("capped_heaps", lambda: truncation_slack(run))
    refused("capped_heaps", lambda: lethe.certify(run, DELTA))


@pytest.mark.parametrize(("design", "accounts"), [("public_slots", 10), ("public_heaps", 10), ("secret_heaps", 1), ("fresh_heaps", 1)])
def test_a_budget_is_kept_for_each_slot_that_a_record_keeps(design: str, accounts: int) -> None:
    """A slot of its own only where it cannot depend on what was released: public, or drawn for all records at once."""
    run = of_design(design, release="all", noise_budget=1e6)
    budgets = spent_budgets(run)
    assert budgets.size == accounts
    assert budgets.sum() == pytest.approx((0.5 / run.relative_noise**2).sum(), rel=1e-12)
    refused("elsewhere", lambda: spent_budgets(of_design(Elsewhere, release="all", noise_budget=1e6)))


# Planners, exporters and pages.


PLANNERS: dict[str, Callable[[lethe.Run], Any]] = {
    "evaluate_theorems": evaluate_theorems,
    "certify": lambda run: lethe.certify(run, DELTA),
    "compare": lambda run: compare(run, DELTA),
    "cumulative": lambda run: cumulative_privacy(run, DELTA, points=2),
    "plan": lambda run: lethe.plan(run, epsilon=1.0, delta=DELTA),
    **{
        f"allocate {schedule}": lambda run, schedule=schedule: allocate(run, 1.0, DELTA, schedule=schedule)
        for schedule in ("auto", "uniform", "exponential", "influence", "joint")
    },
    "shaped": lambda run: shaped(run, "influence", influence_of_curvature(of_design("cyclic"))),
    "excess risk": lambda run: excess_risk_bound(run, dimension=2, initial_gap=1.0),
}


@pytest.mark.parametrize("name", UNKNOWN)
@pytest.mark.parametrize("planner", PLANNERS)
def test_no_planner_takes_a_word_that_it_does_not_know(planner: str, name: str) -> None:
    refused(name, lambda: PLANNERS[planner](UNKNOWN[name]()))


@pytest.mark.parametrize("schedule", ["uniform", "influence", "joint"])
def test_a_public_slot_is_planned_as_one(schedule: Any) -> None:
    said, known = (allocate(of_design(one), 1.0, DELTA, schedule=schedule).run for one in (PublicSlots, "cyclic"))
    assert np.array_equal(said.noise_multipliers, known.noise_multipliers)


@pytest.mark.parametrize("design", [PublicHeaps, SecretHeaps, FreshHeaps])
def test_batches_of_unknown_size_have_no_joint_schedule(design: type[_MadeUp]) -> None:
    refused(design.design, lambda: allocate(of_design(design), 1.0, DELTA, schedule="joint"))


@pytest.mark.parametrize("name", UNKNOWN)
def test_no_exporter_takes_a_word_that_it_does_not_know(name: str) -> None:
    run, certificate = UNKNOWN[name](), lethe.certify(make_run(), DELTA)
    refused(name, lambda: replace(certificate, run=run))
    object.__setattr__(certificate, "run", run)
    refused(name, lambda: to_dp_event(certificate))
    accountant = LetheAccountant(NeighboringRelation.REPLACE_ONE)
    refused(name, lambda: accountant.compose(LastIterateDpEvent(run, "monday")))


# Trainers.


def _features(run: lethe.Run) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    random = np.random.default_rng(0)
    return random.normal(size=(run.records, 3)), random.integers(2, size=run.records)


def _fit(run: lethe.Run) -> Any:
    features, targets = _features(run)
    data = torch.tensor(features), torch.tensor(targets)
    return fit(nn.Linear(3, 2).double(), nn.CrossEntropyLoss(reduction="none"), data, run)


def _engine(run: lethe.Run) -> Any:
    features, targets = _features(run)
    model = nn.Linear(3, 2).double()
    data = torch.tensor(features), torch.tensor(targets)
    engine = PrivacyEngine(run)
    _, _, loader = engine.make_private(module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.5), data=data)
    return next(iter(loader))


TRAINERS: dict[str, Callable[[lethe.Run], Any]] = {
    "draw_batches": lambda run: next(draw_batches(run, torch.Generator().manual_seed(0))),
    "fit_linear": lambda run: fit_linear(run, *_features(run), classes=2),
    "fit_head": lambda run: fit_head(
        nn.Identity(), nn.Linear(3, 2, bias=False).double(), (torch.tensor(_features(run)[0]), torch.tensor(_features(run)[1])), run
    ),
    "fit": _fit,
    "engine": _engine,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", UNKNOWN)
@pytest.mark.parametrize("trainer", TRAINERS)
def test_no_trainer_takes_a_word_that_it_does_not_know(trainer: str, name: str) -> None:
    refused(name, lambda: TRAINERS[trainer](UNKNOWN[name]()))


@pytest.mark.parametrize("name", UNKNOWN)
def test_no_recorder_takes_a_word_that_it_does_not_know(name: str) -> None:
    refused(name, lambda: Recorder(UNKNOWN[name](), seeded=False))


@pytest.mark.parametrize("design", [PublicSlots, PublicHeaps, SecretHeaps, FreshHeaps, DrawnTogether])
@pytest.mark.parametrize("trainer", TRAINERS)
def test_nobody_draws_batches_of_a_design_without_a_sampler(trainer: str, design: type[_MadeUp]) -> None:
    """Batches of exact size whose order is public could be drawn in many ways: the design's own is not known."""
    clip = {} if trainer in ("fit_linear", "fit_head") else {"clip_norm": 1.0, "loss": {"kind": "unknown"}}
    refused(design.design, lambda: TRAINERS[trainer](of_design(design, release="all", **clip)))


def test_the_recorder_of_a_public_slot_holds_it_to_its_slots() -> None:
    def record(again: slice) -> lethe.Run:
        run = of_design(PublicSlots, loss={"kind": "unknown"}, clip_norm=1.0)
        recorder = Recorder(run, seeded=False)
        for step in range(run.total_steps):
            slot = step % 10
            batch = slice(10 * slot, 10 * slot + 10) if step != 10 else again
            recorder.note(step_size=0.5, noise_std=float(run.noise_stds[step]), clip_norm=1.0, divisor=10, batch=batch)
        return recorder.run(run, enforced=False)

    assert record(slice(0, 10)) == of_design(PublicSlots, loss={"kind": "unknown"}, clip_norm=1.0)
    with pytest.raises(HypothesisError, match="public_slots"):
        record(slice(10, 20))
    refused("public_heaps", lambda: Recorder(of_design(PublicHeaps), seeded=False))


# Losses and regularisers.


@pytest.mark.parametrize("theorem", ALL, ids=lambda theorem: theorem.name)
def test_a_made_up_loss_is_what_it_states(theorem: Theorem) -> None:
    for facts, same in (((0.0, 0.5), {"kind": "convex", "smoothness": 0.5}), (None, {"kind": "unknown"})):
        for design in ("full", "cyclic", "poisson"):
            changes = {"batches": {"design": design} if design == "full" else {"design": design, "size": 10}, "clip_norm": 1.0}
            said = _says(theorem, make_run(loss=MadeUpLoss(claimed=facts), **changes))
            assert said == _says(theorem, make_run(loss=same, **changes))


@pytest.mark.parametrize("facts", [(math.nan, math.nan), (0.0, math.nan), (0.5, -1.0), (-1.0, 0.5)])
def test_a_loss_that_states_what_no_loss_has_is_refused(facts: tuple[float, float]) -> None:
    loss = MadeUpLoss()
    vars(loss)["claimed"] = facts
    refused("made_up_loss", lambda: make_run(loss=loss, clip_norm=1.0))


@pytest.mark.parametrize("trainer", ["fit_linear", "fit_head"])
def test_a_made_up_loss_is_trained_by_nobody(trainer: str) -> None:
    refused("made_up_loss", lambda: TRAINERS[trainer](make_run(loss=MadeUpLoss(), clip_norm=1.0)))


PUBLIC = SyntheticData(columns=3, classes=2, seed=0)
INFLUENCES: dict[str, Callable[[lethe.Run], Any]] = {
    "quadratic": lambda run: quadratic_influence(run, PUBLIC),
    "adjoint": lambda run: adjoint_influence(run, PUBLIC, repeats=2, seed=0),
    "retraining": lambda run: retraining_influence(run, PUBLIC, repeats=2, seed=0),
}


@pytest.mark.parametrize("estimator", INFLUENCES)
def test_of_a_made_up_loss_no_influence_is_estimated(estimator: str) -> None:
    refused("made_up_loss", lambda: INFLUENCES[estimator](make_run(loss=MadeUpLoss(), clip_norm=1.0)))


@pytest.mark.parametrize("theorem", ALL, ids=lambda theorem: theorem.name)
def test_a_made_up_regulariser_proves_nothing(theorem: Theorem) -> None:
    for design in ("full", "cyclic", "poisson"):
        changes = {"batches": {"design": design} if design == "full" else {"design": design, "size": 10}}
        said = _says(theorem, make_run(regulariser=MadeUpRegulariser(), **changes))
        assert said == _says(theorem, make_run(**changes))


REGULARISED: dict[str, Callable[[lethe.Run], Any]] = {
    **{name: TRAINERS[name] for name in ("fit_linear", "fit_head", "fit")},
    **{name: INFLUENCES[name] for name in ("adjoint", "retraining")},
}


@pytest.mark.parametrize("doer", REGULARISED)
def test_a_made_up_regulariser_has_no_proximal_step(doer: str) -> None:
    refused("made_up_regulariser", lambda: REGULARISED[doer](make_run(regulariser=MadeUpRegulariser(), clip_norm=1.0)))


def test_a_made_up_regulariser_is_no_ridge() -> None:
    made_up = MadeUpRegulariser()
    with pytest.raises(InputError, match="regulariser"):
        quadratic_influence(make_run(regulariser=made_up), PublicCurvatures(np.ones(1), statement="assumed"))
    with pytest.raises(InputError, match="regulariser"):
        require_pair(made_up, WholeSpace())
    run = make_run(batches={"design": "full"}, regulariser=made_up)
    refused("made_up_regulariser", lambda: excess_risk_bound(run, dimension=2, initial_gap=1.0, pl_constant=0.1))


@pytest.mark.parametrize(("fact", "value"), [("strong_convexity", -0.1), ("strong_convexity", math.nan), ("diameter", math.nan)])
def test_a_regulariser_that_states_what_no_convex_function_has_is_refused(fact: str, value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MadeUpRegulariser, fact, value)
    refused("made_up_regulariser", lambda: make_run(regulariser=MadeUpRegulariser()))


# What a design must say of itself.


STATED: dict[str, Any] = {
    "participation": Participation.PUBLIC_SLOT,
    "sizes": BatchSizes.EXACT,
    "secret": "",
    "neighbours": OF_ONE_NUMBER,
}


def stating(facts: dict[str, Any]) -> Any:
    """A design made of these facts."""
    hints = dict.fromkeys(("design", *facts), ClassVar[Any])
    return type("Stated", (_MadeUp,), {"design": "stated", **facts, "__module__": __name__, "__annotations__": hints})


@pytest.mark.parametrize("fact", STATED)
def test_a_design_states_each_of_its_facts(fact: str) -> None:
    assert stating(STATED)(size=3).repeats
    with pytest.raises(InputError, match=f"stated leaves out {fact}"):
        stating({name: value for name, value in STATED.items() if name != fact})


def test_nothing_inherits_what_another_states() -> None:
    with pytest.raises(InputError, match="inherits from cyclic"):

        class Twice(lethe.Cyclic):  # pyright: ignore[reportUnusedClass]
            design: ClassVar[str] = "twice"

    with pytest.raises(InputError, match="inherits from cyclic"):

        class Nameless(lethe.Cyclic):  # pyright: ignore[reportUnusedClass]
            pass

    with pytest.raises(InputError, match="inherits from ridge"):

        class Steeper(Ridge):  # pyright: ignore[reportUnusedClass]
            kind: ClassVar[str] = "steeper"


@pytest.mark.parametrize(
    ("participation", "sizes", "secret"),
    [
        (Participation.PUBLIC_SLOT, BatchSizes.EXACT, "the order"),
        (Participation.SECRET_SLOT, BatchSizes.EXACT, ""),
        (Participation.FRESH_SECRET_SLOT, BatchSizes.EXACT, ""),
        (Participation.INDEPENDENT_DRAW, BatchSizes.BINOMIAL, ""),
        (Participation.EVERY_STEP, BatchSizes.BINOMIAL, ""),
        (Participation.PUBLIC_SLOT, BatchSizes.BINOMIAL, ""),
        (Participation.FRESH_SECRET_SLOT, BatchSizes.BINOMIAL, "the slots"),
    ],
)
def test_facts_that_contradict_one_another_are_refused(participation: Participation, sizes: BatchSizes, secret: str) -> None:
    with pytest.raises(InputError, match=f"the design stated .*{participation.value}"):
        stating({**STATED, "participation": participation, "sizes": sizes, "secret": secret})


@pytest.mark.parametrize("relation", ["replace_one", "zero_out", "add_or_remove"])
@pytest.mark.parametrize("design", [*DESIGNS, "public_slots", "public_heaps"])
def test_a_run_has_a_relation_that_its_design_admits(design: str, relation: Any) -> None:
    batches = {"design": design} if design == "full" else {"design": design, "size": 10}
    if relation in CLASSES[design].neighbours:
        assert make_run(batches=batches, neighbours=relation).neighbours == relation
    else:
        refused(design, lambda: make_run(batches=batches, neighbours=relation))


# Nobody asks what a design is called.


def _branches() -> Iterator[tuple[str, int, str]]:
    """Each comparison with, or look-up by, the name of a design, and each question of its class."""
    by_name, by_key = r"\bdesign (==|!=|in \(|not in )", r"(\[|\.get\()[\w.]*batches\.design"
    by_class = r"isinstance\([^()]*\bbatches\b,|type\([^()]*\bbatches\) (==|is)"
    asked = re.compile("|".join((by_name, by_key, by_class)))
    for path in sorted(ROOT.rglob("*.py")):
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            if asked.search(line):
                yield str(path.relative_to(ROOT)), number, line.strip()


def test_nobody_branches_on_the_name_of_a_design() -> None:
    """Guarantees of the calculus have a design of their own, a word of two that `require_design` has checked."""
    found = [
        f"{path}:{number}: {line}" for path, number, line in _branches() if not path.startswith(("calculus/", "integrations/dp_accounting"))
    ]
    assert found == []


def test_whoever_asks_for_a_participation_knows_all_of_them() -> None:
    """Every `match` on one names them all, and a refusal follows it."""
    asked = 0
    for path in sorted(ROOT.rglob("*.py")):
        text = path.read_text()
        if "participation:" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Match) and ast.unparse(node.subject).endswith("participation"):
                cases = " ".join(ast.unparse(case.pattern) for case in node.cases)
                assert {one for one in Participation if f"Participation.{one.name}" in cases} == set(Participation), f"{path}:{node.lineno}"
                asked += 1
    assert asked >= 8
