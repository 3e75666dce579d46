"""Theorems refuse by name what they do not know; a made-up design, loss or regulariser is what it states, and nobody trains it."""

import math
from collections.abc import Callable
from typing import Any

import made_up_runs as runs
import numpy as np
import pytest
from helpers import batches as batches_of
from helpers import make_run
from made_up_runs import DELTA, refused

import lethe
from lethe.certificates.findings import first_failure
from lethe.errors import InputError
from lethe.heavy_tailed.proximal import require_pair
from lethe.heavy_tailed.sets import WholeSpace
from lethe.influence import quadratic_influence
from lethe.influence.quadratic import PublicCurvatures
from lethe.run.participation import OF_ONE_NUMBER, BatchSizes, Participation
from lethe.theorems.base import Theorem
from lethe.theorems.composition import GaussianComposition, spent_budgets
from lethe.theorems.registry import OURS
from lethe.theorems.steps import batch_sizes, largest_batch, step_constants
from lethe.theorems.truncation import truncation_slack
from lethe.utility import excess_risk_bound


@pytest.mark.parametrize("name", runs.UNKNOWN)
@runs.BY_THEOREM
def test_no_theorem_takes_a_word_that_it_does_not_know(theorem: Theorem, name: str) -> None:
    run = runs.UNKNOWN[name]()
    (finding,) = theorem.examine(run)
    assert finding.status == "fails"
    assert name in finding.detail
    refused(name, lambda: theorem.bound(run))


@runs.BY_RELEASE
@runs.BY_THEOREM
def test_a_public_slot_of_exact_size_is_one_whatever_it_is_called(theorem: Theorem, release: str) -> None:
    """A published theorem may ask for cyclic batches by name, and then refuses by name; none takes it for another design."""
    run = runs.of_design(runs.PublicSlots, release=release)
    said, known = runs.said_by(theorem, run), runs.said_by(theorem, runs.of_design("cyclic", release=release))
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
    guarantee = GaussianComposition().bound(runs.of_design(design, release="all")).guarantee
    assert guarantee.epsilon(DELTA) == pytest.approx(lethe.guarantees.GDP(mu).epsilon(DELTA), rel=1e-9)


@runs.BY_RELEASE
@pytest.mark.parametrize("design", ["shuffled_once", "balls_in_bins", "secret_heaps"])
def test_a_secret_slot_costs_less_than_a_public_one(design: str, release: str) -> None:
    """A made-up public slot was given the average over slots when it fell to the last branch."""
    theorem = ("composition",) if release == "all" or design == "secret_heaps" else ("optimal-shift",)
    secret, public = (
        lethe.certify(runs.of_design(one, release=release), DELTA, theorems=theorem).epsilon for one in (design, runs.PublicSlots)
    )
    assert secret < 0.96 * public


@pytest.mark.parametrize(("design", "same"), runs.OF_UNKNOWN_SIZES)
@runs.BY_THEOREM
def test_batches_of_unknown_size_are_composed_or_refused(theorem: Theorem, design: type[runs.MadeUp], same: str) -> None:
    for release in ("last", "all"):
        run = runs.of_design(design, release=release)
        failure = first_failure(theorem.examine(run))
        if failure is None:
            assert theorem.name in ("composition", "kaissis-2021", "budget-filter")
            assert theorem.bound(run).guarantee == theorem.bound(runs.of_design(same, release=release)).guarantee
        elif theorem.name not in ("budget-filter", "correlated-noise"):
            assert design.design in failure.detail


@pytest.mark.parametrize(("design", "same"), runs.OF_UNKNOWN_SIZES)
def test_no_size_is_made_up_for_batches_of_unknown_size(design: type[runs.MadeUp], same: str) -> None:
    run = runs.of_design(design)
    for ask in (largest_batch, batch_sizes, step_constants):
        refused(design.design, lambda ask=ask: ask(run))
    certificate, known = lethe.certify(run, DELTA), lethe.certify(runs.of_design(same, release="all"), DELTA, theorems=("composition",))
    assert certificate.theorem == "composition"
    assert certificate.epsilon == known.epsilon
    assert not run.batches.whole(10)


def test_a_cap_on_batches_of_unknown_size_has_no_price() -> None:
    said = {"participation": Participation.PUBLIC_SLOT, "sizes": BatchSizes.UNKNOWN, "secret": "", "neighbours": OF_ONE_NUMBER}
    capped = runs.stating(design="capped_heaps", cap=property(lambda batches: 12), **said)
    run = runs.of_design("cyclic", release="all")
    vars(run)["batches"] = capped(size=10)
    refused("capped_heaps", lambda: truncation_slack(run))
    refused("capped_heaps", lambda: lethe.certify(run, DELTA))


@pytest.mark.parametrize(("design", "accounts"), [("public_slots", 10), ("public_heaps", 10), ("secret_heaps", 10), ("fresh_heaps", 1)])
def test_a_budget_is_kept_for_each_slot_that_a_record_keeps(design: str, accounts: int) -> None:
    """And one that pays for the dearest step of each pass where the slot is new."""
    run = runs.of_design(design, release="all", noise_budget=1e6)
    budgets = spent_budgets(run)
    assert budgets.size == accounts
    costs = 0.5 / run.relative_noise**2
    assert budgets.sum() == pytest.approx(costs.sum() if accounts > 1 else costs.reshape(-1, 10).max(1).sum(), rel=1e-12)
    refused("elsewhere", lambda: spent_budgets(runs.of_design(runs.Elsewhere, release="all", noise_budget=1e6)))


@runs.BY_THEOREM
def test_a_made_up_loss_is_what_it_states_and_a_made_up_regulariser_proves_nothing(theorem: Theorem) -> None:
    for design in ("full", "cyclic", "poisson"):
        batches = batches_of(design, 10)
        for facts, same in (((0.0, 0.5), {"kind": "convex", "smoothness": 0.5}), (None, {"kind": "unknown"})):
            said, known = (make_run(loss=loss, batches=batches, clip_norm=1.0) for loss in (runs.MadeUpLoss(claimed=facts), same))
            assert runs.said_by(theorem, said) == runs.said_by(theorem, known)
        made_up = make_run(batches=batches, regulariser=runs.MadeUpRegulariser())
        assert runs.said_by(theorem, made_up) == runs.said_by(theorem, make_run(batches=batches))
        if theorem in OURS and theorem.covers == "last":  # it is not known how its step rounds
            exact = made_up.replace(precision={"dtype": "float64", "parameter_norm": 1.0})
            assert "arithmetic" in [finding.name for finding in theorem.examine(exact) if finding.status == "fails"]


@pytest.mark.parametrize("facts", [(math.nan, math.nan), (0.0, math.nan), (0.5, -1.0), (-1.0, 0.5)])
def test_a_loss_that_states_what_no_loss_has_is_refused(facts: tuple[float, float]) -> None:
    loss = runs.MadeUpLoss()
    vars(loss)["claimed"] = facts
    refused("made_up_loss", lambda: make_run(loss=loss, clip_norm=1.0))


@pytest.mark.parametrize(("fact", "value"), [("strong_convexity", -0.1), ("strong_convexity", math.nan), ("diameter", math.nan)])
def test_a_regulariser_that_states_what_no_convex_function_has_is_refused(fact: str, value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs.MadeUpRegulariser, fact, value)
    refused("made_up_regulariser", lambda: make_run(regulariser=runs.MadeUpRegulariser()))


DOERS: list[tuple[str, Callable[[lethe.Run], Any]]] = [
    *(("made_up_loss", doer) for doer in (runs.TRAINERS["fit_linear"], runs.TRAINERS["fit_head"], *runs.INFLUENCES.values())),
    *(("made_up_regulariser", runs.TRAINERS[name]) for name in ("fit_linear", "fit_head", "fit")),
    *(("made_up_regulariser", runs.INFLUENCES[name]) for name in ("adjoint", "retraining")),
]


@pytest.mark.parametrize(("name", "doer"), DOERS)
def test_nobody_trains_it_or_estimates_its_influence_or_takes_its_proximal_step(name: str, doer: Callable[[lethe.Run], Any]) -> None:
    changes = {"loss": runs.MadeUpLoss()} if name == "made_up_loss" else {"regulariser": runs.MadeUpRegulariser()}
    refused(name, lambda: doer(make_run(clip_norm=1.0, **changes)))


def test_a_made_up_regulariser_is_no_ridge() -> None:
    made_up = runs.MadeUpRegulariser()
    with pytest.raises(InputError, match="regulariser"):
        quadratic_influence(make_run(regulariser=made_up), PublicCurvatures(np.ones(1), statement="assumed"))
    with pytest.raises(InputError, match="regulariser"):
        require_pair(made_up, WholeSpace())
    run = make_run(batches={"design": "full"}, regulariser=made_up)
    refused("made_up_regulariser", lambda: excess_risk_bound(run, dimension=2, initial_gap=1.0, pl_constant=0.1))
