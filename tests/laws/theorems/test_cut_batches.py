"""Balls in bins with every iterate released, and batches that are cut: the exact privacy of small cases, and what certificates say."""

import math
from fractions import Fraction
from itertools import product
from math import comb
from typing import Any

import numpy as np
import pytest
from cut_batches import EPSILONS, GRID, NOISE, RELATIONS, bins_law, cut_run, density, hockey_sticks, last_of, neighbours, poisson_law, tail
from how_many import examples
from hypothesis import given
from hypothesis import strategies as st

import lethe
from lethe.accounting.certify import evaluate_theorems
from lethe.calculus.balls_in_bins.profile import BallsInBinsGaussian
from lethe.calculus.balls_in_bins.truncated import TruncatedAllocation
from lethe.calculus.composition import renyi_at
from lethe.calculus.guarantees import WithSlack
from lethe.calculus.sampled.truncated import TruncatedPoisson
from lethe.certificates.certificate import Certificate
from lethe.errors import InputError
from lethe.run.run import Neighbours, Run
from lethe.theorems.sampling import BallsInBinsTheorem, RandomAllocationTheorem, SampledGaussianMechanism
from lethe.theorems.steps import largest_batch, step_constants
from lethe.theorems.truncation import full_batches, require_room, truncation_slack

SAMPLED = SampledGaussianMechanism()


def bins_run(**changes: Any) -> lethe.Run:
    """1000 records in 100 bins, one pass, every iterate released."""
    length = {} if "steps" in changes else {"passes": 1}
    return cut_run("balls_in_bins", **{"records": 1000, "size": 10, "neighbours": "zero_out", "noise_multiplier": 1.0, **length, **changes})


def pair(run: lethe.Run) -> BallsInBinsGaussian:
    guarantee = BallsInBinsTheorem().bound(run).guarantee
    assert isinstance(guarantee, BallsInBinsGaussian)
    return guarantee


@pytest.mark.sampled(2)
@pytest.mark.parametrize("release", ["all", "last"])
@pytest.mark.parametrize(("neighbours", "epsilon"), [("zero_out", 0.6210), ("add_or_remove", 0.6210), ("replace_one", 0.8255)])
def test_a_hundred_bins_are_certified(neighbours: str, epsilon: float, release: str) -> None:
    certificate = lethe.certify(bins_run(neighbours=neighbours, release=release), 1e-5)
    assert certificate.theorem == "balls-in-bins"
    assert certificate.epsilon == pytest.approx(epsilon, abs=1e-3)
    composed = next(other for other in certificate.others if other.theorem == "composition")
    assert composed.epsilon == pytest.approx(lethe.guarantees.GDP(2.0 if neighbours == "replace_one" else 1.0).epsilon(1e-5), rel=1e-9)
    assert "balls-in-bins" in certificate.explain()
    assert Certificate.from_dict(certificate.to_dict()).epsilon == certificate.epsilon


def test_what_a_bin_costs_is_the_root_of_the_sum_of_squares_over_its_visits() -> None:
    # Four bins; two whole passes and one bin more. G / C = 1/2 where the loss bounds the gradient below the clip norm.
    noises = [1.0, 2.0, 1.0, 2.0, 1.0, 1.0, 1.0, 2.0, 4.0]
    run = bins_run(records=40, steps=9, noise_multiplier=noises, clip_norm=2.0, loss={"kind": "unknown", "gradient_bound": 1.0})
    found = dict(zip(pair(run).mus, pair(run).counts, strict=True))
    expected = sorted(0.5 * math.sqrt(value) for value in (1 + 1 + 1 / 16, 1 / 4 + 1, 1 + 1, 1 / 4 + 1 / 4))
    assert list(found) == pytest.approx(expected, rel=1e-12)
    assert set(found.values()) == {1}
    replaced = pair(run.replace(neighbours="replace_one"))
    assert replaced.mus == pair(run).mus
    assert replaced.relation == "replace_one"
    never = pair(bins_run(records=40, steps=3))
    assert (never.mus, never.counts) == ((0.0, pytest.approx(1.0)), (1, 3))


def test_many_costs_are_rounded_up() -> None:
    noises = np.linspace(1.0, 2.0, 100)
    few = pair(bins_run(noise_multiplier=noises.tolist()))
    assert len(few.mus) <= 17
    assert sum(few.counts) == 100
    rounded = np.sort(np.repeat(few.mus, few.counts))
    assert np.all(rounded >= np.sort(1 / noises) * (1 - 1e-15))
    assert np.all(rounded <= np.sort(1 / noises) * 1.07)
    assert max(few.mus) == pytest.approx(1.0)


def test_one_bin_is_full_batches() -> None:
    for relation in RELATIONS:
        run = bins_run(records=10, passes=7, neighbours=relation)
        full = lethe.certify(run.replace(batches=lethe.batches.Full()), 1e-5).epsilon
        assert lethe.certify(run, 1e-5).epsilon == pytest.approx(full, rel=1e-12)
        assert BallsInBinsTheorem().bound(run).guarantee.epsilon(1e-5) == pytest.approx(full, rel=1e-12)


def test_a_step_without_noise_is_not_private() -> None:
    assert lethe.certify(bins_run(noise_multiplier=[1.0] * 99 + [0.0]), 1e-5).epsilon == math.inf
    assert lethe.certify(bins_run(noise_multiplier=0.0), 1e-5).epsilon == math.inf


def test_batches_that_are_cut_pay_for_it() -> None:
    cut = bins_run(cap=40)
    guarantee = BallsInBinsTheorem().bound(cut).guarantee
    assert isinstance(guarantee, WithSlack)
    assert 0.0 < guarantee.slack < 1e-8
    assert guarantee.guarantee == pair(bins_run())


@given(records=st.integers(1, 40), data=st.data())
def test_poisson_slack_is_the_exact_chance_rounded_up(records: int, data: st.DataObject) -> None:
    size, cap = data.draw(st.integers(1, records)), data.draw(st.integers(1, records + 2))
    steps, relation = data.draw(st.integers(1, 50)), data.draw(st.sampled_from(RELATIONS))
    run = cut_run(records=records, size=size, cap=cap, steps=steps, neighbours=relation)
    others = records if relation == "add_or_remove" else records - 1
    exact = 1 - (1 - tail(others, Fraction(size, records), cap)) ** steps
    slack = Fraction(truncation_slack(run))
    assert exact <= slack <= max(exact * (1 + Fraction(1, 10**7)), Fraction(1, 10**280) if exact else Fraction(0))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("records", "size"), [(6, 2), (7, 2), (5, 1), (6, 3), (4, 4)])
@pytest.mark.parametrize("steps", [1, 2, 9])
def test_balls_in_bins_slack_is_at_least_the_chance_of_a_full_bin(records: int, size: int, steps: int, relation: Neighbours) -> None:
    others, bins = records if relation == "add_or_remove" else records - 1, records // size
    for cap in range(1, records + 2):
        full = sum(
            max((thrown.count(place) for place in range(min(bins, steps))), default=0) >= cap
            for thrown in product(range(bins), repeat=others)
        )
        exact = Fraction(full, bins**others)
        slack = truncation_slack(cut_run("balls_in_bins", records=records, size=size, cap=cap, steps=steps, neighbours=relation))
        assert exact <= Fraction(slack)
        assert slack <= min(1.0, min(bins, steps) * float(tail(others, Fraction(1, bins), cap)) * (1 + 1e-7))


# others' numbers: they push against the record, where a cut hurts most, or are mixed
OTHERS = [[-1.0, -1.0, -1.0, -1.0], [-1.0, 1.0, -1.0, -1.0], [1.0, 1.0, 1.0, -1.0], [0.0, -1.0, -1.0, -1.0]]


def pairs(records: int, relation: Neighbours) -> list[tuple[list[float], list[float]]]:
    # add or remove: of the two, one has n and the other n + 1 records or n - 1; the larger number of others is the worse
    many = records if relation == "add_or_remove" else records - 1
    return [pair for others in OTHERS for pair in neighbours(others[:many], relation)]


def claims(run: Run) -> dict[str, list[float]]:
    """What each theorem that applies says delta is, at all EPSILONS."""
    bounds = {verdict.theorem.name: verdict.bound.guarantee for verdict in evaluate_theorems(run) if verdict.bound is not None}
    return {name: [guarantee.delta(epsilon) for epsilon in EPSILONS] for name, guarantee in bounds.items()}


def refuted(exact: list[float], claimed: dict[str, list[float]]) -> list[str]:
    return [name for name, deltas in claimed.items() if any(true > said + GRID for true, said in zip(exact, deltas, strict=True))]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    ("kind", "records", "steps", "cap"),
    [
        *(("released", *lengths) for lengths in ((4, 1, 1), (4, 1, 2), (3, 2, 1), (3, 2, 2))),
        *(("bins", 4, 2, cap) for cap in (1, 2, 3)),
        *(("last", 4, 2, cap) for cap in (1, 2)),
    ],
)
def test_cut_batches_are_as_private_as_every_theorem_says(relation: Neighbours, kind: str, records: int, steps: int, cap: int) -> None:
    """Of linear losses the last iterate tells the sum of the steps. Projection on a ball 40 deviations away moves nothing."""
    if kind == "bins":
        claimed = claims(cut_run("balls_in_bins", size=2, cap=cap, passes=1, neighbours=relation))
    else:
        run = cut_run(records=records, cap=cap, steps=steps, neighbours=relation, release="last" if kind == "last" else "all")
        if kind == "last":
            run = run.replace(loss={"kind": "convex", "smoothness": 1e-9}, regulariser={"kind": "ball", "radius": 50.0})
        claimed = claims(run)
        assert set(claimed) == {"sampled-gaussian", "composition"} | ({"optimal-shift", "windowed"} if kind == "last" else set())
    for pair in pairs(records, relation):
        laws = [bins_law(values, 2, cap) if kind == "bins" else poisson_law(values, 1 / records, cap, steps) for values in pair]
        exact = hockey_sticks(*map(last_of, laws), NOISE * steps**0.5) if kind == "last" else hockey_sticks(*laws)
        assert refuted(exact, claimed) == []


def one_step(run: Run) -> list[float]:
    """What `TruncatedPoisson` says of one step, the worse direction, at all EPSILONS: chords are exact at their ends."""
    guarantee = SAMPLED.bound(run).guarantee
    assert isinstance(guarantee, TruncatedPoisson)
    (factor,) = guarantee.factors() or []
    ways = factor.losses(0.5, 1e-12)
    worse = list[float]()
    for epsilon in EPSILONS:
        losses = [0.5 * (way.lowest + np.arange(way.masses.size)) for way in ways]
        deltas = [way.infinite - way.masses @ np.minimum(np.expm1(epsilon - at), 0.0) for way, at in zip(ways, losses, strict=True)]
        worse.append(float(max(deltas)))
    return worse


@pytest.mark.parametrize("relation", RELATIONS)
def test_no_gradients_tell_more_of_a_cut_poisson_batch_than_its_pair(relation: Neighbours) -> None:
    """Every draw and every cut of 2 to 5 records, whatever the others push; both directions, and both sizes of the larger data set."""
    rng = np.random.default_rng(RELATIONS.index(relation))
    for _ in range(examples(200)):
        records, cap = int(rng.integers(2, 6)), int(rng.integers(1, 3))
        size = int(rng.integers(1, records))
        run = cut_run(records=records, size=size, cap=cap, neighbours=relation)
        if full_batches(run) is None:  # never more than the cap
            continue
        many = records - int(relation != "add_or_remove" or rng.integers(2))
        pushes = [np.full(many, -1.0), rng.choice([-1.0, 0.0, 1.0], many), rng.uniform(-1.0, 1.0, many)]
        for pair in [pair for push in pushes for pair in neighbours(push.tolist(), relation)]:
            exact = hockey_sticks(*(poisson_law(values, size / records, cap, 1) for values in pair))
            assert refuted(exact, {"one step": one_step(run)}) == []


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_pair_of_a_cut_poisson_batch_is_attained(relation: Neighbours) -> None:
    """Nearly every draw fills the batch, and all others push against the record: a bound one per cent smaller is false."""
    run = cut_run(records=9, size=8, cap=1, neighbours=relation)
    laws = [[poisson_law(values, 8 / 9, 1, 1) for values in pair] for pair in neighbours([-1.0] * 8, relation)]
    exact = [max(deltas) for deltas in zip(*(hockey_sticks(*pair) for pair in laws), strict=True)]
    assert refuted([1.01 * delta for delta in exact], {"one step": one_step(run)}) == ["one step"]
    axis, step = np.linspace(-8.0, 8.0, 16_001, retstep=True)
    guarantee = SAMPLED.bound(run).guarantee
    for order in (1.5, 2.0):
        densities = [[density(law, axis, NOISE) for law in pair] for pair in laws]
        moments = [float((first**order * second ** (1.0 - order)).sum() * step) for first, second in densities]
        divergence = math.log(max(moments)) / (order - 1.0)
        said = renyi_at(guarantee, np.array([order]))
        assert said is not None
        assert divergence <= said[0] * (1.0 + 1e-6)
        assert said[0] <= divergence * (1.005 if relation == "add_or_remove" else 1.1)


@given(records=st.integers(2, 40), data=st.data())
def test_the_chances_of_a_full_batch_are_exact_and_rounded_outward(records: int, data: st.DataObject) -> None:
    size, cap = data.draw(st.integers(1, records - 1)), data.draw(st.integers(1, records + 1))
    relation = data.draw(st.sampled_from(RELATIONS))
    found = full_batches(cut_run(records=records, size=size, cap=cap, neighbours=relation))
    chance, least = Fraction(size, records), records - 1
    full = tail(least, chance, cap)
    counts = [least, records] if relation == "add_or_remove" else [least]
    kept = [
        sum(comb(m, k) * chance**k * (1 - chance) ** (m - k) * chance * Fraction(cap, k + 1) for k in range(cap, m + 1)) for m in counts
    ]
    if found is None:
        assert full < Fraction(1, 10**280) or max(kept) > full * (1 - Fraction(1, 10**7))
    else:
        assert full * (1 - Fraction(1, 10**7)) <= Fraction(found[0]) <= full
        assert max(kept) <= Fraction(found[0]) * Fraction(found[1]) <= max(kept) * (1 + Fraction(1, 10**7))


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("cap", [1, 2, 3])
def test_no_gradients_tell_more_of_a_cut_pass_than_its_bound(relation: Neighbours, cap: int) -> None:
    """Every throw of 2 to 4 records into two batches, and every cut; even where half of the passes or more have a full batch."""
    rng, levels = np.random.default_rng(cap), np.array(EPSILONS)
    for records in (2, 3, 4):
        run = cut_run("random_allocation", records=2 * (records // 2), size=records // 2, passes=1, neighbours=relation)
        bins = RandomAllocationTheorem().bound(run).guarantee
        assert isinstance(bins, BallsInBinsGaussian)
        others = records - 1
        full = max(float(tail(others, Fraction(1, 2), cap)), 1e-300)
        ways = TruncatedAllocation(bins=bins, full=full).directed_deltas(levels)
        said = np.max(ways, axis=0).tolist()
        for push in (np.full(others, -1.0), rng.uniform(-1.0, 1.0, others)):
            for pair in neighbours(push.tolist(), relation):
                exact = hockey_sticks(*(bins_law(values, 2, cap) for values in pair))
                assert refuted(exact, {"one pass": said}) == []


@pytest.mark.parametrize("relation", RELATIONS)
def test_no_gradients_tell_more_of_a_pass_with_a_full_batch(relation: Neighbours) -> None:
    """Of two batches the other record fills one, and stays there with a chance of a half, or of 0, the limit of large batches."""
    pair: Any = relation if relation == "add_or_remove" else "replace_one"
    bins = BallsInBinsGaussian(mus=(1 / NOISE, 2 / NOISE), counts=(1, 1), relation=pair)
    said, most = [bins.delta(epsilon) for epsilon in EPSILONS], 0.0
    for stays, other, pushed in product((0.5, 0.0), (-1.0, 0.0, 1.0), (1.0, -1.0)):
        still = {"replace_one": -pushed, "zero_out": 0.0, "add_or_remove": None}[relation]
        laws: list[dict[tuple[float, ...], float]] = []
        for value in (pushed, still):
            laws.append({(other, 0.0): 1.0} if value is None else {})
            for place, share in [] if value is None else [((value, 0.0), 1 - stays), ((other, 0.0), stays), ((other, value), 1.0)]:
                laws[-1][place] = laws[-1].get(place, 0.0) + 0.5 * share
        for first, second in (laws, laws[::-1]):
            exact = hockey_sticks(first, second)
            assert refuted(exact, {"full": [delta + GRID for delta in said]}) == []
            most = max(most, exact[2] / said[2])
    assert most > {"replace_one": 0.7, "zero_out": 0.4, "add_or_remove": 0.999}[relation]


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_bound_of_a_cut_pass_is_its_formula(relation: Neighbours) -> None:
    """With gradients that never change two bins, one of them full, are a law on the plane: what is added is not one per cent less."""
    bins, full, levels = BallsInBinsGaussian(mus=(1.0,), counts=(2,), relation=relation), 0.05, np.array(EPSILONS)
    cut = TruncatedAllocation(bins=bins, full=full)
    said, expected = (np.hstack([each.directed_deltas(levels[[at]]) for at in range(levels.size)]) for each in (cut, bins))  # alone: exact
    replaced = relation != "add_or_remove"
    for weight, costs in ((0.1, (1.0, 2.0)), (0.005, (2.0, 2.0))):
        moved = {(costs[0], 0.0): 0.5, (0.0, costs[1]): 0.5}
        still = {(-x, -y): share for (x, y), share in moved.items()} if replaced else {(0.0, 0.0): 1.0}
        ways = [hockey_sticks(moved, still, 1.0), hockey_sticks(still, moved, 1.0)]
        expected = expected + weight * np.array(ways[: 1 if relation == "replace_one" else 2])
    for found, exact in zip(said, expected, strict=True):
        assert found.tolist() == pytest.approx(exact.tolist(), rel=5e-3, abs=2e-6)
        assert np.all(found >= exact - GRID)


@pytest.mark.parametrize(("design", "size", "place"), [("poisson", 1, 3), ("balls_in_bins", 2, 5)])
def test_without_the_slack_the_certificate_would_be_false(design: str, size: int, place: int) -> None:
    """A cut batch that holds the record instead of its opposite moves by 2, not by 1: only the slack covers that."""
    length = {"steps": 1} if design == "poisson" else {"passes": 1}
    run = cut_run(design, size=size, cap=1, neighbours="add_or_remove", **length)
    others = [-1.0] * 4
    laws = [poisson_law(values, 0.25, 1, 1) if design == "poisson" else bins_law(values, 2, 1) for values in ([*others, 1.0], others)]
    exact = hockey_sticks(*laws)
    uncut = claims(run.replace(batches=run.batches.model_copy(update={"truncate_at": None})))
    assert refuted(exact, claims(run)) == []
    assert set(refuted(exact, uncut)) >= {"sampled-gaussian" if design == "poisson" else "composition"}
    assert exact[place] > 1.15 * min(deltas[place] for deltas in uncut.values())


def test_the_oracle_is_the_accountants_profile() -> None:
    """Without a cut the worst pair is the record on its own."""
    claimed = claims(cut_run(neighbours="add_or_remove"))["sampled-gaussian"]
    both = [hockey_sticks(*(poisson_law(values, 0.25, 9, 1) for values in pair)) for pair in neighbours([], "add_or_remove")]
    assert [max(pair) for pair in zip(*both, strict=True)][:4] == pytest.approx(claimed[:4], rel=2e-3)


def test_a_step_constant_may_count_with_the_cap_and_no_empty_batch_contracts() -> None:
    run = cut_run(
        records=1000,
        size=10,
        cap=12,
        steps=10,
        release="last",
        loss={"kind": "strongly_convex", "strong_convexity": 0.5, "smoothness": 1.0},
    )
    run = run.replace(clip_norm=None, loss=run.loss.model_copy(update={"gradient_bound": 1.0}))
    uncut = run.replace(batches=lethe.batches.Poisson(10))
    assert largest_batch(run) == (12, 0.0)
    assert largest_batch(uncut)[0] > 40
    assert largest_batch(run.replace(batches=lethe.batches.Poisson(10, truncate_at=900))) == largest_batch(uncut)
    for cap in (5, 10, 12):
        steps = step_constants(run.replace(batches=lethe.batches.Poisson(10, truncate_at=cap)))
        assert steps is not None
        assert steps.lipschitz.min() >= 1.0


def test_a_delta_that_the_cut_alone_costs_leaves_no_room() -> None:
    run = cut_run(records=6, size=2, cap=3, neighbours="zero_out")
    slack = truncation_slack(run)
    assert slack > 0.0
    with pytest.raises(InputError, match="records on a batch alone costs"):
        require_room(run, slack)
    require_room(run, slack * (1 + 1e-9))
