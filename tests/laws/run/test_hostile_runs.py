"""Runs at the ends of what can be written: every answer comes soon, in little memory, and is a number or a clear error."""

from __future__ import annotations

import pytest
from dp_accounting.privacy_accountant import NeighboringRelation, UnsupportedEventError
from helpers import SIZED_DESIGNS, batches, make_run

import lethe
from lethe.calculus.guarantees import GDPMixture
from lethe.integrations.dp_accounting import LastIterateDpEvent, LetheAccountant
from lethe.theorems import requirements
from lethe.theorems.shuffled import positions
from lethe.theorems.shuffled.reshuffled import reshuffled

CONVEX = {"kind": "convex", "smoothness": 1.0}


@pytest.mark.sampled(10)
@pytest.mark.parametrize("records", [10**8, 10**9, 10**15])
@pytest.mark.parametrize("design", SIZED_DESIGNS)
@pytest.mark.parametrize("noise_at", ["every_step", "pass_ends"])
def test_only_the_slots_that_the_steps_reach_cost_anything(records: int, design: str, noise_at: str, few_megabytes: None) -> None:
    run = make_run(
        records=records, batches=batches(design, 1), steps=10, loss=CONVEX, clip_norm=1.0, noise_multiplier=1.0, noise_at=noise_at
    )
    assert lethe.compare(run, 1e-16).certificate.epsilon >= 0


@pytest.fixture
def few_megabytes() -> object:
    """Memory that arrays take stays below 500 MB."""
    import tracemalloc

    tracemalloc.start()
    yield None
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 500e6


@pytest.mark.parametrize("design", ["shuffled_once", "shuffled", "balls_in_bins"])
def test_slots_that_no_step_reaches_keep_their_share(design: str) -> None:
    """A pass of 40 slots, 10 steps of it: every slot in its place by the functions for whole passes, unreached ones at 0."""
    run = make_run(records=400, batches=batches(design, 10), steps=10, loss=CONVEX, clip_norm=1.0, noise_multiplier=1.0)
    mus = [positions.every_step([1.0] * 10, [1.0 if step == slot else 0.0 for step in range(10)], [0.5] * 10) for slot in range(10)]
    exact = GDPMixture(mus=(*mus, *[0.0] * 30), weights=(1 / 40,) * 40).epsilon(1e-6)
    if design != "balls_in_bins":  # whose batches vary in size, so that steps may expand
        constant = positions.shuffled_once([1.0] * 10, [1.0] * 10, [0.5] * 10, 40)
        again = reshuffled([1.0] * 10, [1.0] * 10, [0.5] * 10, 40)
        assert GDPMixture(mus=tuple(constant[0]), weights=tuple(constant[1])).epsilon(1e-6) == pytest.approx(exact, rel=1e-9)
        assert GDPMixture(mus=tuple(again[0]), weights=tuple(again[1])).epsilon(1e-6) == pytest.approx(exact, rel=1e-9)
    if design == "shuffled":  # composed as if in the worst slot
        return
    composed = lethe.certify(run.replace(release="all", loss={"kind": "unknown"}), 1e-6, theorems="composition")
    everything = GDPMixture(mus=(*[2.0] * 10, *[0.0] * 30), weights=(1 / 40,) * 40).epsilon(1e-6)
    assert composed.epsilon == pytest.approx(everything, rel=1e-9)


def test_an_overspent_budget_is_refused_by_the_ledger_and_by_certify() -> None:
    run = make_run(clip_norm=1.0, noise_multiplier=1.0, noise_budget=0.1, release="all")
    with pytest.raises(lethe.HypothesisError, match=r"the recorded steps spend 10 \(budget-filter\)"):
        lethe.certify(run, 1e-5)
    ledger = LetheAccountant(NeighboringRelation.REPLACE_ONE)
    with pytest.raises(UnsupportedEventError, match="the recorded steps spend 10"):
        ledger.compose(LastIterateDpEvent(run, "one"))
    assert ledger.get_epsilon(1e-5) == 0.0  # nothing was added


def test_a_run_too_long_to_solve_is_composed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert requirements._MOST_SHIFTED_STEPS == 5_000_000
    monkeypatch.setattr(requirements, "_MOST_SHIFTED_STEPS", 5000)
    run = make_run(records=1000, batches={"design": "cyclic", "size": 1}, steps=5001, clip_norm=1.0, noise_multiplier=10.0)
    certificate = lethe.certify(run, 1e-9)
    assert certificate.theorem == "composition"
    assert "the shift is solved for up to 5000 steps" in certificate.explain(every=True)
    assert "the shift is solved" not in lethe.certify(run.replace(steps=5000), 1e-9).explain(every=True)


def test_a_step_without_noise_has_none_whatever_the_clip_norm() -> None:
    """0 times an infinite quotient of clip norm and gradient bound was no number."""
    loss = {"kind": "convex", "smoothness": 1.0, "gradient_bound": 1e-200}
    run = make_run(loss=loss, clip_norm=1e150, noise_multiplier=0.0)
    assert run.record_noise.tolist() == [0.0] * run.total_steps
    assert lethe.certify(run, 1e-5).epsilon == float("inf")
