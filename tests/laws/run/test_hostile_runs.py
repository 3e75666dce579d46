"""Runs at the ends of what can be written: every answer comes soon, in little memory, and is a number or a clear error; whole batches."""

import tracemalloc
from typing import Any

import pytest
from dp_accounting.privacy_accountant import NeighboringRelation, UnsupportedEventError
from helpers import EXACT_DESIGNS, SIZED_DESIGNS, batches, make_run
from hypothesis import given
from hypothesis import strategies as st

import lethe
from lethe.accounting.certify import cumulative_privacy
from lethe.calculus.guarantees import GDPMixture
from lethe.integrations.dp_accounting import LastIterateDpEvent, LetheAccountant
from lethe.theorems import requirements
from lethe.theorems.shuffled import positions
from lethe.theorems.shuffled.reshuffled import reshuffled
from lethe.theorems.steps import step_constants

CONVEX = {"kind": "convex", "smoothness": 1.0}


@pytest.mark.sampled(10)
@pytest.mark.parametrize("records", [10**8, 10**9, 10**15])
@pytest.mark.parametrize("design", SIZED_DESIGNS)
@pytest.mark.parametrize("noise_at", ["every_step", "pass_ends"])
def test_only_the_slots_that_the_steps_reach_cost_anything(records: int, design: str, noise_at: str) -> None:
    facts: dict[str, Any] = {"steps": 10, "loss": CONVEX, "clip_norm": 1.0, "noise_multiplier": 1.0, "noise_at": noise_at}
    tracemalloc.start()
    assert lethe.compare(make_run(records=records, batches=batches(design, 1), **facts), 1e-16).certificate.epsilon >= 0
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 500e6  # of arrays


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


WEAK = {"kind": "weakly_convex", "weak_convexity": 0.05, "smoothness": 0.2, "gradient_bound": 1.0}
STRONG = {"kind": "strongly_convex", "strong_convexity": 0.1, "smoothness": 0.5, "gradient_bound": 1.0}
HOLDER = {"kind": "holder", "constant": 0.1, "exponent": 0.5, "gradient_bound": 1.0}
BALL, RIDGE = {"kind": "ball", "radius": 0.05}, {"kind": "ridge", "strength": 0.5}
FIXED = tuple(name for name in EXACT_DESIGNS if name in SIZED_DESIGNS)
CASES: tuple[dict[str, Any], ...] = (
    {},
    {"loss": STRONG, "regulariser": BALL},
    {"loss": WEAK, "regulariser": RIDGE},
    {"loss": HOLDER, "regulariser": BALL},
    {"clip_norm": 0.5, "regulariser": RIDGE},
    {"noise_multiplier": [9.0, 3.0, 5.0], "passes": 3},
    {"steps": 3, "release": "all"},
    {"passes": 3, "noise_at": "pass_ends", "noise_multiplier": [4.0, 0.0, 4.0]},
)


def _whole(design: str, changes: dict[str, Any], relation: str) -> lethe.Run:
    fields = {"records": 40, "noise_multiplier": 6.0, "neighbours": relation, **changes, "batches": batches(design, 40)}
    return make_run(**fields)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("changes", CASES)
@pytest.mark.parametrize("relation", ["replace_one", "zero_out", "add_or_remove"])
def test_batches_of_all_records_cost_what_full_batches_cost(changes: dict[str, Any], relation: str) -> None:
    full = lethe.certify(_whole("full", changes, relation), 1e-3)
    for design in ("poisson", "balls_in_bins", *(FIXED if relation != "add_or_remove" else ())):
        run = _whole(design, changes, relation)
        certificate = lethe.certify(run, 1e-3)
        assert (certificate.epsilon, certificate.theorem) == (full.epsilon, full.theorem)
        assert certificate.lipschitz == full.lipschitz
        assert certificate.run == run


def test_a_filter_counts_them_as_full_batches_too() -> None:
    changes = {"steps": 3, "release": "all", "noise_budget": 1.0}
    full = lethe.certify(_whole("full", changes, "zero_out"), 1e-3)
    assert lethe.certify(_whole("poisson", changes, "zero_out"), 1e-3).epsilon == full.epsilon


def test_plan_and_the_beginnings_of_a_run_agree() -> None:
    full, poisson = (_whole(design, {"regulariser": RIDGE}, "add_or_remove") for design in ("full", "poisson"))
    assert lethe.plan(poisson, 1.0, 1e-3).noise_multiplier == lethe.plan(full, 1.0, 1e-3).noise_multiplier
    told = [cumulative_privacy(run, 1e-3, points=3) for run in (full, poisson)]
    assert told[0] == told[1]


def test_a_cap_that_can_act_is_still_paid_for() -> None:
    def capped(cap: int) -> lethe.Run:
        batches = lethe.batches.Poisson(40, truncate_at=cap)
        return make_run(records=40, batches=batches, neighbours="add_or_remove", regulariser=RIDGE)

    full = _whole("full", {"noise_multiplier": 5.0, "regulariser": RIDGE}, "add_or_remove")
    assert lethe.certify(capped(41), 1e-3).epsilon == lethe.certify(full, 1e-3).epsilon
    with pytest.raises(lethe.InputError, match="cap of 40 records"):
        lethe.certify(capped(40), 1e-3)


def test_a_single_bin_holds_all_records_and_its_steps_may_contract() -> None:
    """floor(100 / 60) = 1 bin: every step is that of all 100 records, divided by 60."""
    run = make_run(batches={"design": "balls_in_bins", "size": 60}, loss=STRONG)
    steps = step_constants(run)
    assert steps is not None
    assert steps.slack == 0.0
    assert steps.constant.constant == pytest.approx(1 - 0.5 * 0.1 * 100 / 60, rel=1e-12)


positive = st.floats(min_value=1e-100, max_value=1e100)


@given(step=positive, noise=st.lists(positive, min_size=3, max_size=3), norm=st.floats(1e-3, 1e3))
def test_floats_survive_to_the_bit(tmp_path_factory: pytest.TempPathFactory, step: float, noise: list[float], norm: float) -> None:
    run = make_run(steps=3, step_size=step, noise_multiplier=noise, loss={"kind": "convex", "smoothness": norm, "gradient_bound": norm})
    folder = tmp_path_factory.mktemp("runs")
    for suffix in ("json", "yaml"):
        run.save(folder / f"run.{suffix}")
        again = lethe.Run.load(folder / f"run.{suffix}")
        assert again == run
        assert again.noise_stds.tobytes() == run.noise_stds.tobytes()
        assert again.run_id == run.run_id
