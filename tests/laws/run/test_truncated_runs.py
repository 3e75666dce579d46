"""Batches that are cut: every verb charges for them, and no attack on the cap or on clipping in blocks gets through."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers import make_run
from how_many import by_night
from hypothesis import given, settings
from hypothesis import strategies as st

import lethe
from lethe.accounting.certify import cumulative_privacy
from lethe.accounting.recheck import recheck
from lethe.calculus.any_guarantee import guarantee_from_dict, noise_scaled, together
from lethe.calculus.guarantees import GDP, ZCDP, RDPCurve, WithSlack
from lethe.calculus.sampled.truncated import TruncatedPoisson
from lethe.calculus.upward_formatting import shown
from lethe.errors import InputError
from lethe.theorems.lipschitz import clipped_step
from lethe.theorems.truncation import truncation_slack

DELTA = 1e-5


def make_cut_run(cap: int | None = 32, design: Any = lethe.batches.BallsInBins, **changes: Any) -> lethe.Run:
    """1000 records, 10 a step, 50 steps: a cap of 32 costs some 1e-6, one of 20 some 0.1, where it is charged to delta."""
    fields: dict[str, Any] = {"batches": design(10, truncate_at=cap), "steps": 50, "step_size": 0.1, "noise_multiplier": 2.0}
    facts = {"loss": {"kind": "unknown"}, "clip_norm": 1.0, "release": "all", "neighbours": "zero_out"}
    return make_run(**{"records": 1000, **fields, **facts, **changes})


def uncut(run: lethe.Run) -> lethe.Run:
    return run.replace(batches=run.batches.model_copy(update={"truncate_at": None}))


def test_a_certificate_is_that_of_delta_without_the_slack() -> None:
    run = make_cut_run()
    slack = truncation_slack(run)
    assert 1e-7 < slack < DELTA / 2
    certificate, whole = lethe.certify(run, DELTA), lethe.certify(uncut(run), DELTA)
    assert certificate.epsilon == pytest.approx(whole.epsilon_at(DELTA - slack), rel=1e-9)
    assert certificate.epsilon > whole.epsilon * 1.001
    assert certificate.delta_at(1.0) == pytest.approx(whole.delta_at(1.0) + slack, rel=1e-9)
    assert certificate.epsilon_at(slack * 0.999) == float("inf")
    assert isinstance(certificate.guarantee, WithSlack)
    assert f"batches cut at 32 records, which costs {shown(slack)} in delta" in certificate.explain()
    assert "cut" not in whole.explain()
    assert "costs nothing: they never hold more" in lethe.certify(make_cut_run(1000), DELTA).explain()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "verb",
    [
        lambda run: lethe.certify(run, DELTA),
        lambda run: lethe.plan(run, epsilon=1.0, delta=DELTA),
        lambda run: lethe.compare(run, DELTA),
        lambda run: cumulative_privacy(run, DELTA, points=2),
    ],
    ids=["certify", "plan", "compare", "cumulative"],
)
def test_no_epsilon_where_the_cap_alone_costs_delta(verb: Any) -> None:
    with pytest.raises(InputError, match="the cap of 20 records on a batch alone costs 0") as caught:
        verb(make_cut_run(20))
    assert "truncate_at" in str(caught.value)


@settings(max_examples=6)
@given(cap=st.integers(14, 60), more=st.integers(1, 20), release=st.sampled_from(["all", "last"]))
def test_a_cap_never_makes_a_release_more_private_than_a_larger_one(cap: int, more: int, release: Any) -> None:
    runs = [make_cut_run(at, lethe.batches.Poisson, steps=5, release=release) for at in (cap, cap + more, None)]
    tight, wide, never = (lethe.certify(run, DELTA).epsilon for run in runs)
    rounding = 1.0 - 1e-9  # where a cut hardly ever happens, its bound differs from that without in the twelfth digit
    assert tight >= wide * rounding
    assert wide >= never * rounding


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("neighbours", "most"), [("zero_out", 2.6073), ("replace_one", 4.2094), ("add_or_remove", 2.6362)])
def test_a_cap_that_everybody_sets_is_counted_within_each_step(neighbours: Any, most: float) -> None:
    """dp_accounting's event of such batches: 2.637 and 4.2094; it has none where a record is added or removed."""
    fields: dict[str, Any] = {"records": 60_000, "neighbours": neighbours, "noise_multiplier": 1.0, "steps": None, "passes": 20}
    certificate = lethe.certify(make_cut_run(batches=lethe.batches.Poisson(600, truncate_at=700), **fields), DELTA, allow_large_delta=True)
    assert most - 1e-3 < certificate.epsilon < most
    assert "batches cut uniformly at 700 records, counted within each step" in certificate.explain()
    recheck(certificate)
    assert isinstance(certificate.guarantee, TruncatedPoisson)
    assert lethe.Certificate.from_dict(certificate.to_dict()) == certificate
    whole = certificate.guarantee.steps
    with pytest.raises(InputError):
        recheck(replace(certificate, guarantee=whole, epsilon=whole.epsilon(DELTA)))
    wide = make_cut_run(batches=lethe.batches.Poisson(600, truncate_at=900), **fields)
    assert lethe.certify(wide, DELTA, allow_large_delta=True).epsilon == pytest.approx(whole.epsilon(DELTA), rel=1e-9)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("neighbours", "most"), [("zero_out", 2.5283), ("replace_one", 4.2266), ("add_or_remove", 2.5152)])
def test_random_allocation_counts_a_cap_within_each_pass(neighbours: Any, most: float) -> None:
    fields: dict[str, Any] = {"records": 60_000, "neighbours": neighbours, "noise_multiplier": 1.0, "steps": None, "passes": 20}
    run = make_cut_run(batches=lethe.batches.RandomAllocation(600, truncate_at=700), **fields)
    certificate = lethe.certify(run, DELTA, allow_large_delta=True)
    assert most - 2e-3 < certificate.epsilon < most
    assert certificate.theorem == "random-allocation"
    assert lethe.Certificate.from_dict(certificate.to_dict()) == certificate
    assert noise_scaled(certificate.guarantee, 2.0).epsilon(DELTA) < certificate.epsilon / 2


def test_many_releases_of_cut_poisson_batches_compose_step_by_step() -> None:
    guarantee = lethe.certify(make_cut_run(20, lethe.batches.Poisson, neighbours="replace_one"), DELTA).guarantee
    longer = lethe.certify(make_cut_run(20, lethe.batches.Poisson, steps=150, neighbours="replace_one"), DELTA).guarantee
    assert together([(guarantee, 3)]).epsilon(DELTA) == pytest.approx(longer.epsilon(DELTA), rel=1e-3)
    assert noise_scaled(guarantee, 1.5).epsilon(DELTA) < guarantee.epsilon(DELTA)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("batches", [lethe.batches.Poisson(10, truncate_at=20), lethe.batches.BallsInBins(10, truncate_at=35)])
@pytest.mark.parametrize("release", ["all", "last"])
def test_the_planner_meets_its_target_with_the_slack_included(
    batches: lethe.batches.Poisson | lethe.batches.BallsInBins, release: Any
) -> None:
    run = make_cut_run(batches=batches, release=release, loss={"kind": "convex", "smoothness": 1.0}, clip_norm=1.0)
    found = lethe.plan(run, epsilon=0.7, delta=DELTA)
    assert lethe.certify(found, DELTA).epsilon <= 0.7
    without = lethe.plan(uncut(run), epsilon=0.7, delta=DELTA)
    if release == "all":
        assert found.noise_multipliers[0] > without.noise_multipliers[0]
        assert lethe.certify(run.replace(noise_multiplier=without.noise_multiplier), DELTA).epsilon > 0.7


@pytest.mark.parametrize("target", [GDP(1.0), ZCDP(0.5), RDPCurve((2.0, 4.0), (1.0, 2.0))])
def test_a_target_without_a_delta_is_refused(target: lethe.guarantees.GDP) -> None:
    with pytest.raises(InputError, match="which no such target has"):
        lethe.plan(make_cut_run(60), target=target)
    if isinstance(target, RDPCurve):
        assert lethe.plan(make_cut_run(20, lethe.batches.Poisson), target=target).noise_multipliers[0] > 0
    assert lethe.plan(make_cut_run(1000), target=target).noise_multipliers[0] > 0  # nothing is ever cut


def test_compositions_keep_every_slack() -> None:
    run = make_cut_run()
    guarantee, slack = lethe.certify(run, DELTA).guarantee, truncation_slack(run)
    both = together([(guarantee, 2)])
    assert both.delta(40.0) >= 1.0 - (1.0 - slack) ** 2
    assert both.epsilon(1.9 * slack) == float("inf")
    assert both.epsilon(1e-4) >= guarantee.epsilon(1e-4)


def test_a_certificate_that_leaves_the_slack_out_is_found() -> None:
    certificate = lethe.certify(make_cut_run(), DELTA)
    recheck(certificate)
    assert isinstance(certificate.guarantee, WithSlack)
    inner = certificate.guarantee.guarantee
    for forged in (inner, WithSlack(inner, 0.0)):
        with pytest.raises(InputError):
            recheck(replace(certificate, guarantee=forged, epsilon=forged.epsilon(DELTA)))
    fewer = tuple(finding for finding in certificate.findings if finding.name != "cap")
    with pytest.raises(InputError, match="hypotheses"):
        recheck(replace(certificate, findings=fewer))


def test_files_keep_the_cap_and_runs_without_one_are_written_as_before() -> None:
    for batches in (lethe.batches.Poisson(10, truncate_at=30), lethe.batches.BallsInBins(10, truncate_at=30)):
        run = make_cut_run(batches=batches)
        assert lethe.Run.from_document(run.to_document()) == run
        assert run.to_document()["batches"] == {"design": batches.design, "size": 10, "truncate_at": 30}
        assert uncut(run).to_document()["batches"] == {"design": batches.design, "size": 10}
        assert run.run_id != uncut(run).run_id
    certificate = lethe.certify(make_cut_run(), DELTA)
    assert lethe.Certificate.from_dict(certificate.to_dict()) == certificate


LARGE = 1e-2


def hostile_run(**changes: Any) -> lethe.Run:
    return make_cut_run(**{"steps": 20, "release": "last", "neighbours": "replace_one", **changes})


LOSSES: dict[str, dict[str, Any]] = {
    "small domain": {"loss": {"kind": "convex", "smoothness": 1.0}, "regulariser": {"kind": "ball", "radius": 0.01}},
    "ridge": {"loss": {"kind": "convex", "smoothness": 1.0}, "regulariser": {"kind": "ridge", "strength": 1.0}},
    "groups": {"loss": {"kind": "convex", "smoothness": 1.0}, "clip_groups": [0.6, 0.8]},
    "normalised": {"clip_method": "normalise"},
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("facts", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("release", ["all", "last"])
@pytest.mark.parametrize("design", ["poisson", "balls_in_bins"])
def test_no_number_leaves_the_cost_of_the_cap_out(design: str, release: str, facts: dict[str, Any]) -> None:
    run = hostile_run(batches={"design": design, "size": 50, "truncate_at": 80}, release=release, **facts)
    slack, certificate = truncation_slack(run), lethe.certify(run, LARGE, allow_large_delta=True)
    assert 1e-5 < slack < LARGE
    for guarantee in (certificate.guarantee, guarantee_from_dict(certificate.guarantee.to_dict())):
        if isinstance(guarantee, TruncatedPoisson):
            assert lethe.certify(uncut(run), LARGE, allow_large_delta=True).epsilon < certificate.epsilon
        else:
            assert guarantee.delta(1e6) >= slack
            assert guarantee.epsilon(slack) == float("inf")


def clipped_in_blocks(gradient: np.ndarray[Any, Any], blocks: list[np.ndarray[Any, Any]], norms: list[float]) -> np.ndarray[Any, Any]:
    clipped = gradient.copy()
    for block, norm in zip(blocks, norms, strict=True):
        clipped[block] *= min(1.0, norm / np.linalg.norm(gradient[block]))
    return clipped


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("weak_convexity", "smoothness", "step"), [(0.0, 1.0, 1.0), (0.0, 1.0, 3.0), (0.3, 1.0, 1.0), (-0.2, 1.0, 1.0)])
def test_no_pair_of_steps_with_blocks_clipped_by_themselves_is_found_to_expand_more_than_the_constant(
    weak_convexity: float, smoothness: float, step: float
) -> None:
    """A random search over quadratics, blocks, norms and pairs; it comes near the constant, which is attained by one block."""
    constant, drawn, most = clipped_step(step, weak_convexity, smoothness), np.random.default_rng(0), 0.0
    for _ in range(4000 if by_night() else 2000):
        dimension = int(drawn.integers(2, 5))
        label = drawn.integers(0, drawn.integers(1, dimension + 1), dimension)
        blocks = [np.flatnonzero(label == one) for one in np.unique(label)]
        axes = np.linalg.qr(drawn.normal(size=(dimension, dimension)))[0]
        curvature = axes @ np.diag(drawn.choice([-weak_convexity, smoothness], size=dimension)) @ axes.T
        norms = [float(10.0 ** drawn.uniform(-3, 1)) for _ in blocks]
        gradient = drawn.normal(size=dimension)
        apart = drawn.normal(size=dimension) * 10.0 ** drawn.uniform(-4, 1)
        turned = clipped_in_blocks(gradient + curvature @ apart, blocks, norms) - clipped_in_blocks(gradient, blocks, norms)
        most = max(most, float(np.linalg.norm(apart - step * turned) / np.linalg.norm(apart)))
    assert 0.97 * constant < most <= constant * (1 + 1e-9)
