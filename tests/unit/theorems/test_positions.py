"""Positions of a record in a pass, and passes that end at an average: the engine on each path, exact linear runs; budgets of slots."""

import itertools
import math

import numpy as np
import pytest
from helpers import DESIGNS, EXACT_SLOT_DESIGNS, batches, make_run
from hypothesis import given
from hypothesis import strategies as st
from random_steps import random_passes

import lethe
from lethe.certificates.findings import first_failure
from lethe.theorems.composition import spent_budgets
from lethe.theorems.registry import ALL
from lethe.theorems.shift import engine as shift
from lethe.theorems.shuffled import positions
from lethe.theorems.shuffled.positions import averaged_mus


def one_by_one(
    factors: np.ndarray, touches: np.ndarray, noise: np.ndarray, size: int, diameter: np.ndarray | float | None = None
) -> list[float]:
    turn = np.arange(factors.size) % size
    return [shift.solve(factors, np.where(turn == j, touches, 0.0), noise, diameter).mu for j in range(size)]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(150))
def test_each_position_is_the_engine_on_its_own_path(seed: int) -> None:
    factors, touches, noise, size = random_passes(seed)
    none = positions.position_mus(factors, touches, noise, size)
    assert none == pytest.approx(one_by_one(factors, touches, noise, size), rel=1e-12)  # 25 roundings, taken in another order
    # With a diameter all starts are found where no step expands; otherwise never below the best start, and never above no start.
    generator = np.random.default_rng(seed)
    shrinking = np.minimum(factors, 1.0), touches, noise, size, float(generator.uniform(0.1, 2.0))
    assert positions.position_mus(*shrinking) == pytest.approx(one_by_one(*shrinking), rel=1e-12)
    bounded = factors, touches, noise, size, generator.uniform(0.1, 3.0, factors.size)
    found = positions.position_mus(*bounded)
    assert (found >= np.array(one_by_one(*bounded)) * (1 - 1e-12)).all()
    assert (found <= none).all()


SLOTS, PASSES = 4, 3
QUADRATIC = {"kind": "strongly_convex", "strong_convexity": 0.4, "smoothness": 0.4, "gradient_bound": 1.0}
CONCAVE = {"kind": "weakly_convex", "weak_convexity": 0.4, "smoothness": 0.4, "gradient_bound": 1.0}


def averaged_run(weights, **changes):
    fields = {"records": 40, "batches": batches("cyclic", 10), "passes": PASSES, "noise_at": "pass_ends", "pass_weights": weights}
    return make_run(**{**fields, **changes})


def exact_mu(run: lethe.Run, factor: float, slot: int) -> float:
    """Maps x -> factor x, all differences in one direction, carried out step by step: displacement and noise of the end."""
    weights = run.pass_averages
    assert weights is not None
    moved, variance = 0.0, 0.0
    for first in range(0, run.total_steps, SLOTS):
        inner_moved, inner_scale, mean_moved, mean_scale = moved, 1.0, 0.0, 0.0
        for k in range(SLOTS):
            inner_moved = factor * inner_moved + (run.sensitivities[first + k] if k == slot else 0.0)
            inner_scale *= factor
            mean_moved += weights[k] * inner_moved
            mean_scale += weights[k] * inner_scale
        moved = mean_moved
        variance = mean_scale**2 * variance + run.noise_stds[first + SLOTS - 1] ** 2
    return moved / math.sqrt(variance)


@pytest.mark.parametrize("weights", [1.0, [0.0, 1.0, 0.0, 3.0], [1.0, 0.0, 0.0, 0.0]])
@pytest.mark.parametrize(("loss", "factor"), [(QUADRATIC, 0.8), (CONCAVE, 1.2)])
def test_never_below_an_exact_linear_run(weights, loss, factor) -> None:
    run = averaged_run(weights, loss=loss)
    certified = lethe.certify(run, 1e-5)
    assert certified.theorem == "optimal-shift"
    assert isinstance(certified.guarantee, lethe.guarantees.GDP)
    exact = max(exact_mu(run, factor, slot) for slot in range(SLOTS))
    assert certified.guarantee.mu >= exact
    if factor < 1:  # all merges, and the bound is the truth
        assert certified.guarantee.mu == pytest.approx(exact, rel=1e-12)


@given(
    st.lists(st.floats(0, 1.5), min_size=12, max_size=12),
    st.lists(st.floats(0, 2), min_size=12, max_size=12),
    st.lists(st.floats(0.1, 2), min_size=3, max_size=3),
    st.one_of(st.none(), st.floats(0.1, 5)),
)
def test_all_weight_on_the_last_iterate_is_the_plain_engine(lipschitz, sensitivity, noise, diameter) -> None:
    noise_std = np.zeros(12)
    noise_std[3::4] = noise
    last = np.array([0.0, 0.0, 0.0, 1.0])
    averaged = averaged_mus(lipschitz, sensitivity, noise_std, last, diameter)
    plain = positions.position_mus(lipschitz, sensitivity, noise_std, 4, diameter)
    # With a diameter the plain engine may also start inside a pass, which can only lower it.
    if diameter is None:
        assert averaged == pytest.approx(plain, rel=1e-9, abs=1e-12)
    assert (averaged >= plain * (1 - 1e-9) - 1e-150).all()  # both round up where squares leave the range of doubles


def test_one_secret_order_is_no_worse_than_a_known_one_and_a_fresh_one_each_pass_no_worse_than_the_worst() -> None:
    known, once, fresh = (lethe.certify(averaged_run(1.0, batches=batches(design, 10)), 1e-5).epsilon for design in EXACT_SLOT_DESIGNS)
    assert once < known
    assert fresh == pytest.approx(known)


def test_a_small_domain_bounds_the_last_pass_alone() -> None:
    """D + 2 C times the average step size of the last pass, over its noise: no smoothness is needed."""
    ball = {"kind": "ball", "radius": 0.01}
    steps = [0.5, 0.4, 0.3, 0.2] * 60
    run = averaged_run(1.0, regulariser=ball, loss={"kind": "unknown"}, clip_norm=1.0, passes=60, step_size=steps)
    guarantee = lethe.certify(run, 1e-5).guarantee
    assert isinstance(guarantee, lethe.guarantees.GDP)
    assert guarantee.mu == pytest.approx((0.02 + 2 * 0.35) / run.noise_stds[-1], rel=1e-12)


def filtered_run(**changes):
    return make_run(**{"release": "all", "noise_budget": 0.8, **changes})


def test_the_budget_is_certified_and_not_what_was_spent() -> None:
    run = filtered_run()  # 5 touches at 1/2 (2/5)^2 = 0.08
    assert spent_budgets(run) == pytest.approx(np.full(10, 0.4))
    certificate = lethe.certify(run, 1e-5)
    assert certificate.theorem == "budget-filter"
    assert certificate.epsilon == pytest.approx(lethe.guarantees.ZCDP(0.8).epsilon(1e-5), rel=1e-6)
    assert certificate.epsilon >= lethe.guarantees.ZCDP(0.8).epsilon(1e-5)
    assert [theorem.name for theorem in ALL if first_failure(theorem.examine(run)) is None] == ["budget-filter"]


def test_a_record_that_overspent_is_refused() -> None:
    with pytest.raises(lethe.HypothesisError):
        lethe.certify(filtered_run(noise_budget=0.39), 1e-5)
    assert lethe.certify(filtered_run(noise_budget=0.4), 1e-5).theorem == "budget-filter"  # spent exactly
    with pytest.raises(lethe.HypothesisError):
        lethe.certify(filtered_run(noise_multiplier=0.0), 1e-5)


def test_a_record_that_comes_once_a_pass_pays_for_the_dearest_step_of_each() -> None:
    """Every path of places, one a pass, the last pass cut, pays at most the account, and one pays it all."""
    noise = [9.0, 4.0, 7.0, 5.0, 8.0, 3.0, 6.0]
    run = filtered_run(
        records=15, batches=batches("random_allocation", 5), passes=None, steps=7, noise_multiplier=noise, noise_budget=100.0
    )
    costs = 0.5 * (2 / np.array(noise)) ** 2
    paths = [sum(path) for path in itertools.product(costs[:3], costs[3:6], costs[6:])]
    assert spent_budgets(run) == pytest.approx([max(paths)], rel=1e-12)


@pytest.mark.parametrize("design", DESIGNS)
def test_only_known_slots_have_accounts_of_their_own(design) -> None:
    run = filtered_run(batches=batches(design, 10), noise_budget=100.0)
    accounts = spent_budgets(run)
    touch = 0.5 * (2 / 5) ** 2
    if design in ("cyclic", "shuffled_once", "balls_in_bins"):
        assert accounts == pytest.approx(np.full(10, 5 * touch))
    elif design in ("shuffled", "random_allocation"):  # once a pass, wherever it is
        assert accounts == pytest.approx([5 * touch])
    else:
        assert accounts == pytest.approx([run.total_steps * touch])
    assert accounts.max() >= lethe.guarantees.GDP(5**0.5 * 2 / 5).mu ** 2 / 2 * (1 - 1e-12)
