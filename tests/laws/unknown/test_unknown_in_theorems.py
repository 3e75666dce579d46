"""Theorems refuse by name what they do not know, and take a made-up design by the participation that it states."""

from __future__ import annotations

import math

import pytest
from made_up_runs import DELTA, OF_UNKNOWN_SIZES, UNKNOWN, Elsewhere, MadeUp, PublicSlots, of_design, refused, said_by, stating

import lethe
from lethe.certificates.findings import first_failure
from lethe.run.neighbours import OF_ONE_NUMBER
from lethe.run.participation import BatchSizes, Participation
from lethe.theorems.base import Theorem
from lethe.theorems.composition import GaussianComposition, spent_budgets
from lethe.theorems.registry import ALL, OURS
from lethe.theorems.steps import batch_sizes, largest_batch, step_constants
from lethe.theorems.truncation import truncation_slack


@pytest.mark.parametrize("name", UNKNOWN)
@pytest.mark.parametrize("theorem", ALL, ids=lambda theorem: theorem.name)
def test_no_theorem_takes_a_word_that_it_does_not_know(theorem: Theorem, name: str) -> None:
    run = UNKNOWN[name]()
    (finding,) = theorem.examine(run)
    assert finding.status == "fails"
    assert name in finding.detail
    refused(name, lambda: theorem.bound(run))


@pytest.mark.parametrize("release", ["last", "all"])
@pytest.mark.parametrize("theorem", ALL, ids=lambda theorem: theorem.name)
def test_a_public_slot_of_exact_size_is_one_whatever_it_is_called(theorem: Theorem, release: str) -> None:
    """A published theorem may ask for cyclic batches by name, and then refuses by name; none takes it for another design."""
    run = of_design(PublicSlots, release=release)
    said, known = said_by(theorem, run), said_by(theorem, of_design("cyclic", release=release))
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
    guarantee = GaussianComposition().bound(of_design(design, release="all")).guarantee
    assert guarantee.epsilon(DELTA) == pytest.approx(lethe.guarantees.GDP(mu).epsilon(DELTA), rel=1e-9)


@pytest.mark.parametrize("release", ["last", "all"])
@pytest.mark.parametrize("design", ["shuffled_once", "balls_in_bins", "secret_heaps"])
def test_a_secret_slot_costs_less_than_a_public_one(design: str, release: str) -> None:
    """A made-up public slot was given the average over slots when it fell to the last branch."""
    theorem = ("composition",) if release == "all" or design == "secret_heaps" else ("optimal-shift",)
    secret, public = (lethe.certify(of_design(one, release=release), DELTA, theorems=theorem).epsilon for one in (design, PublicSlots))
    assert secret < 0.96 * public


@pytest.mark.parametrize(("design", "same"), OF_UNKNOWN_SIZES)
@pytest.mark.parametrize("theorem", ALL, ids=lambda theorem: theorem.name)
def test_batches_of_unknown_size_are_composed_or_refused(theorem: Theorem, design: type[MadeUp], same: str) -> None:
    for release in ("last", "all"):
        run = of_design(design, release=release)
        failure = first_failure(theorem.examine(run))
        if failure is None:
            assert theorem.name in ("composition", "kaissis-2021", "budget-filter")
            assert theorem.bound(run).guarantee == theorem.bound(of_design(same, release=release)).guarantee
        elif theorem.name not in ("budget-filter", "correlated-noise"):
            assert design.design in failure.detail


@pytest.mark.parametrize(("design", "same"), OF_UNKNOWN_SIZES)
def test_no_size_is_made_up_for_batches_of_unknown_size(design: type[MadeUp], same: str) -> None:
    run = of_design(design)
    for ask in (largest_batch, batch_sizes, step_constants):
        refused(design.design, lambda ask=ask: ask(run))
    certificate, known = lethe.certify(run, DELTA), lethe.certify(of_design(same, release="all"), DELTA, theorems=("composition",))
    assert certificate.theorem == "composition"
    assert certificate.epsilon == known.epsilon
    assert not run.batches.whole(10)


def test_a_cap_on_batches_of_unknown_size_has_no_price() -> None:
    said = {"participation": Participation.PUBLIC_SLOT, "sizes": BatchSizes.UNKNOWN, "secret": "", "neighbours": OF_ONE_NUMBER}
    capped = stating(design="capped_heaps", cap=property(lambda batches: 12), **said)
    run = of_design("cyclic", release="all")
    vars(run)["batches"] = capped(size=10)
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
