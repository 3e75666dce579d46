"""The joint optimum in cyclic batches: against the engine, the closed forms, any other noise, and its own lower bound."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.errors import InputError
from lethe.noise_allocation.joint import joint_schedule, joint_schedule_reset
from lethe.noise_allocation.joint.cyclic import joint_cyclic
from lethe.noise_allocation.joint.energy import DualVariables, cost_of_noise, energies, feasible, gap_noise, lower_bound, transferred
from lethe.noise_allocation.joint.gaps import gaps_of
from lethe.noise_allocation.joint.interior import Interior
from lethe.noise_allocation.joint.program import program_of
from lethe.noise_allocation.joint.result import CyclicJoint
from lethe.theorems.shuffled import positions


def rising(rate: float, steps: int) -> np.ndarray:
    """q_t = rate^(T - t)."""
    return rate ** np.arange(steps)[::-1].astype(np.float64)


def instance(seed: int) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray, int], dict[str, Any]]:
    """Runs of every kind: expanding, contracting, forgetting, untouched steps, masks, floors, partial last passes."""
    generator = np.random.default_rng(seed)
    steps, size = int(generator.integers(1, 50)), int(generator.integers(1, 9))
    factors = generator.uniform(0.85, 1.1, steps) if seed % 2 else np.full(steps, generator.choice([0.9, 1.0, 1.05]))
    if seed % 6 == 0:
        factors[generator.integers(0, steps)] = 0.0
    touches = generator.uniform(0, 1, steps) * (generator.random(steps) < 0.85)
    weights = generator.uniform(0.1, 1, steps) if seed % 3 else generator.uniform(0.9, 1.02) ** np.arange(steps)
    options: dict[str, Any] = {"mu": float(generator.uniform(0.3, 3))}
    if seed % 4 in (1, 2):
        noisy = generator.random(steps) < 0.5 if seed % 4 == 1 else (np.arange(steps) + 1) % size == 0
        noisy[-1] = True
        options["noisy"] = noisy
    if seed % 5 > 2:
        options["floor"] = 10 ** generator.uniform(-3, -1, steps) if seed % 2 else float(10 ** generator.uniform(-3, -1))
    return (weights, factors, touches, size), options


def mu_of(run: tuple[np.ndarray, np.ndarray, np.ndarray, int], noise: np.ndarray, diameter: Any = None) -> float:
    _, factors, touches, size = run
    return positions.worst_position(factors, touches, noise, size, diameter)[0]


def gap(found: CyclicJoint) -> float:
    return 0.0 if found.value == 0.0 else 1.0 - found.lower_bound / found.value


@pytest.mark.parametrize("seed", range(36))
def test_private_within_the_constraints_and_nearly_optimal(seed: int) -> None:
    run, options = instance(seed)
    found = joint_cyclic(*run, **options)
    assert mu_of(run, found.noise_stds) <= options["mu"]
    assert found.value == pytest.approx(float(run[0] @ found.noise_stds**2), rel=1e-12)
    assert 0.0 <= gap(found) <= 1e-6
    noisy, floor = options.get("noisy", np.ones(run[0].size, dtype=bool)), options.get("floor", 0.0)
    assert (found.noise_stds[~noisy] == 0.0).all()
    assert (found.noise_stds**2 >= np.where(noisy, floor, 0.0)).all()


@pytest.mark.parametrize("seed", range(16))
def test_no_other_noise_costs_less_than_the_lower_bound(seed: int) -> None:
    # Judged by the engine alone: any noise, scaled until it is private, is feasible, those next to the optimum too.
    run, options = instance(3 * seed)  # with and without masks; floors are left out, which scaling would not respect
    options.pop("floor", None)
    found = joint_cyclic(*run, **options)
    generator = np.random.default_rng(seed)
    noisy = options.get("noisy", np.ones(run[0].size, dtype=bool))
    for spread in (1.0, 0.1, 0.01):
        for _ in range(10):
            other = (found.noise_stds + 0.1 * spread * found.noise_stds.max()) * generator.lognormal(0, spread, run[0].size) * noisy
            other *= mu_of(run, other) / options["mu"]
            assert run[0] @ other**2 >= found.lower_bound * (1 - 1e-12)


@pytest.mark.parametrize("seed", range(40))
def test_energies_are_those_of_the_engine(seed: int) -> None:
    (_, factors, touches, size), options = instance(seed)
    steps = factors.size
    noisy = options.get("noisy", np.ones(steps, dtype=bool))
    noise = np.random.default_rng(seed).uniform(0.1, 2, steps) * noisy
    gaps = gaps_of(factors, touches, size, noisy)
    expected = positions.position_mus(factors, touches, noise, size)[gaps.positions] ** 2
    assert energies(gaps, noise**2) == pytest.approx(expected, rel=1e-10)  # rounded up by 1e-11 and by 1e-13 here and there
    assert (energies(gaps, noise**2) >= expected).all()


@pytest.mark.parametrize("seed", range(40))
def test_the_sparse_form_has_the_noise_of_the_gaps(seed: int) -> None:
    (_, factors, touches, size), options = instance(seed)
    noisy = options.get("noisy", np.ones(factors.size, dtype=bool))
    gaps = gaps_of(factors, touches, size, noisy)
    program = program_of(gaps, size)
    noise = np.zeros(factors.size)
    noise[program.steps] = np.random.default_rng(seed).uniform(0.1, 2, program.steps.size)
    x = np.concatenate([program.arrived(noise[program.steps]), np.zeros(program.left.size)])
    assert program.variances @ x == pytest.approx(noise[program.steps], rel=1e-9)
    assert program.noise @ x == pytest.approx(gap_noise(gaps, noise), rel=1e-9)  # differences lose up to e^6 of 2^-52


@pytest.mark.parametrize("seed", range(16))
def test_any_multipliers_prove_a_bound_below_any_feasible_cost(seed: int) -> None:
    (weights, factors, touches, size), options = instance(seed)
    noisy = options.get("noisy", np.ones(factors.size, dtype=bool))
    floor = np.broadcast_to(options.get("floor", 0.0), weights.shape) * noisy
    gaps = gaps_of(factors, touches, size, noisy)
    generator = np.random.default_rng(seed)
    cheapest = math.inf
    for _ in range(20):
        start = feasible(gaps, floor, generator.lognormal(0, 2, weights.size) * noisy)
        assert energies(gaps, start).max() <= 1.0 + 1e-9
        cheapest = min(cheapest, float(weights @ start))
    best = joint_cyclic(weights, factors, touches, size, noisy=noisy, floor=floor).value
    assert best <= cheapest * (1 + 1e-7)
    for _ in range(20):
        duals = DualVariables(positions=generator.lognormal(0, 2, gaps.positions.size), prices=generator.lognormal(0, 2, gaps.count))
        assert lower_bound(gaps, weights, floor, duals) <= best


def test_the_cost_of_noise_is_its_definition() -> None:
    (_, factors, touches, size), _ = instance(7)
    noisy = np.ones(factors.size, dtype=bool)
    gaps = gaps_of(factors, touches, size, noisy)
    generator = np.random.default_rng(0)
    duals = DualVariables(positions=generator.uniform(0, 1, gaps.positions.size), prices=generator.uniform(0, 1, gaps.count))
    expected = np.zeros(factors.size)
    for k in range(gaps.count):
        first, last = int(gaps.first[k]), int(gaps.last[k])
        for t in range(first, last + 1):
            factor = float(np.prod(factors[t + 1 : last + 1])) * math.exp(-float(gaps.unit[k]))
            expected[t] += duals.positions[gaps.chain[k]] * (duals.prices[k] * factor) ** 2
    assert cost_of_noise(gaps, duals) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_prices_of_longer_gaps_prove_as_much_for_all(seed: int) -> None:
    generator = np.random.default_rng(seed)
    steps, size = 24, int(generator.integers(1, 6))
    factors, touches, weights = generator.uniform(0.9, 1.1, steps), generator.uniform(0.1, 1, steps), np.ones(steps)
    noisy = np.arange(steps) % 7 == steps % 7 - 1
    gaps = gaps_of(factors, touches, size, noisy)
    whole = gaps_of(factors, touches, size, np.ones(steps, dtype=bool))
    program = program_of(gaps, size)
    found = Interior(gaps, program, weights[program.steps], np.zeros(program.steps.size)).solve(1e-9, math.inf)
    assert found is not None
    there = transferred(found.duals, gaps, whole)
    # At the noisy steps both sets of dual variables charge alike, up to what is exactly the same sum in another order.
    assert cost_of_noise(whole, there)[noisy] == pytest.approx(cost_of_noise(gaps, found.duals)[noisy], rel=1e-9)
    gain = [float(np.sum(w.positions[g.chain] * g.rise * w.prices)) for g, w in ((gaps, found.duals), (whole, there))]
    assert gain[0] == pytest.approx(gain[1], rel=1e-9)


# schedules.md sections 11 and 12: five batches, four passes; floors; items 13 and 14. As many digits as are given there.
@pytest.mark.parametrize(("lipschitz", "value", "uniform"), [(1.0, 13.8, 26.6), (1.02, 15.2, 27.4)])
def test_five_batches_and_four_passes(lipschitz: float, value: float, uniform: float) -> None:
    run = rising(0.98, 20), np.full(20, lipschitz), np.ones(20), 5
    assert joint_cyclic(*run).value == pytest.approx(value, abs=0.05)
    assert mu_of(run, np.ones(20)) ** 2 * run[0].sum() == pytest.approx(uniform, abs=0.05)


@pytest.mark.parametrize(("floor", "value"), [(0.0, 98.97), (0.5, 101.31), (2.0, 108.34), (10.0, 145.83)])
def test_floors(floor: float, value: float) -> None:
    found = joint_cyclic(rising(0.9, 50), np.full(50, 0.9), np.ones(50), 1, floor=floor)
    assert found.value == pytest.approx(value, abs=5e-3)
    assert gap(found) <= 1e-7


@pytest.mark.parametrize(
    ("weights", "lipschitz", "value", "variances"),
    [
        (rising(0.9, 5), 0.9, 16.769844, [0, 0, 0, 0, 16.769844]),
        (rising(0.9, 5), 1.0, 20.362641, [5.570986, 5.285101, 5.013887, 4.756591, 4.512498]),
        (np.array([1, 0.2, 0.5, 0.3]), 0.9, 3.548016, [0, 0, 0, 3.548016 / 0.3]),
        (np.array([1, 0.2, 0.5, 0.3]), 1.2, 4.791106, [0, 10.767765, 0, 8.791843]),
    ],
)
def test_full_batches(weights: np.ndarray, lipschitz: float, value: float, variances: list[float]) -> None:
    found = joint_cyclic(weights, np.full(weights.size, lipschitz), np.ones(weights.size), 1)
    assert found.value == pytest.approx(value, rel=1e-6)
    assert found.noise_stds**2 == pytest.approx(variances, rel=2e-4)  # the value is flat: an error of 1e-8 moves the noise by 1e-4
    assert (found.noise_stds[np.array(variances) == 0] == 0.0).all()


@pytest.mark.parametrize(("diameter", "value", "window"), [(5.0, 36.0, 49), (20.0, 327.171, 0), (1e9, 327.171, 0)])
def test_a_bounded_domain(diameter: float, value: float, window: int) -> None:
    run = rising(0.9, 50), np.ones(50), np.ones(50), 1
    found = joint_cyclic(*run, diameter=diameter)
    assert found.value == pytest.approx(value, rel=2e-6)
    assert found.window == window
    assert (found.noise_stds[:window] == 0.0).all()
    assert mu_of(run, found.noise_stds, diameter) <= 1.0


@pytest.mark.parametrize("seed", range(15))
def test_one_batch_a_pass_is_the_closed_form(seed: int) -> None:
    (weights, factors, touches, _), options = instance(seed)
    value = joint_schedule(weights, touches, factors, options["mu"] ** 2).value / options["mu"] ** 2
    assert joint_cyclic(weights, factors, touches, 1, mu=options["mu"]).value == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_one_batch_a_pass_in_a_bounded_domain_is_the_closed_form(seed: int) -> None:
    generator = np.random.default_rng(seed)
    steps = int(generator.integers(2, 30))
    run = generator.uniform(0.5, 1, steps), generator.uniform(0.9, 1.1, steps), generator.uniform(0.2, 1, steps), 1
    diameter = float(generator.uniform(0.3, 3))
    found = joint_cyclic(*run, diameter=diameter)
    assert found.value == pytest.approx(joint_schedule_reset(run[0], run[2], run[1], diameter).value, rel=1e-6)
    assert mu_of(run, found.noise_stds, diameter) <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(9))
def test_a_bounded_domain_is_never_worse_and_the_engine_agrees(seed: int) -> None:
    generator = np.random.default_rng(seed)
    steps, size = int(generator.integers(5, 40)), int(generator.integers(2, 7))
    factors = generator.uniform(0.9, 1.0, steps) if seed % 2 else generator.uniform(0.95, 1.1, steps)
    run = rising(0.97, steps), factors, generator.uniform(0.2, 1, steps), size
    diameter = generator.uniform(0.3, 1.5) if seed % 3 else generator.uniform(0.3, 1.5, steps)
    found = joint_cyclic(*run, diameter=diameter)
    assert mu_of(run, found.noise_stds, diameter) <= 1.0
    assert found.value <= joint_cyclic(*run).value * (1 + 1e-6)


@pytest.mark.parametrize(("steps", "size", "rate"), [(60, 6, 0.98), (63, 5, 1.0), (200, 10, 0.99), (40, 40, 0.9)])
def test_noise_is_exactly_zero_inside_the_passes(steps: int, size: int, rate: float) -> None:
    found = joint_cyclic(rising(rate, steps), np.ones(steps), np.ones(steps), size)
    ends = ((np.arange(steps) + 1) % size == 0) | (np.arange(steps) == steps - 1)
    assert (found.noise_stds[~ends] == 0.0).all()
    assert gap(found) <= 2e-7


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 200),
    cost=st.floats(1e-6, 1e6),
    length=st.floats(1e-6, 1e6),
    mu=st.floats(1e-3, 1e3),
)
def test_units_do_not_matter(seed: int, cost: float, length: float, mu: float) -> None:
    generator = np.random.default_rng(seed)
    steps, size = int(generator.integers(2, 20)), int(generator.integers(1, 5))
    weights, factors, touches = generator.uniform(0.5, 1, steps), generator.uniform(0.9, 1.1, steps), generator.uniform(0.1, 1, steps)
    here = joint_cyclic(weights, factors, touches, size).value
    there = joint_cyclic(cost * weights, factors, length * touches, size, mu=mu).value
    assert there == pytest.approx(here * cost * (length / mu) ** 2, rel=1e-6)


def test_more_constraints_cost_more() -> None:
    (weights, factors, touches, size), _ = instance(11)
    free = joint_cyclic(weights, factors, touches, size).value
    ends = (np.arange(weights.size) % 3 == 0) | (np.arange(weights.size) == weights.size - 1)
    assert joint_cyclic(weights, factors, touches, size, noisy=ends).value >= free * (1 - 1e-7)
    assert joint_cyclic(weights, factors, touches, size, floor=0.5).value >= free * (1 - 1e-7)
    assert joint_cyclic(weights, factors, 1.1 * touches, size).value == pytest.approx(1.21 * free, rel=1e-6)


def test_noise_that_is_enough_already_is_the_floor() -> None:
    found = joint_cyclic(np.ones(6), np.ones(6), np.ones(6), 3, floor=100.0, noisy=np.array([True, False] * 2 + [True, True]))
    assert found.noise_stds**2 == pytest.approx([100, 0, 100, 0, 100, 100], rel=1e-15)
    assert found.lower_bound == pytest.approx(400.0, rel=1e-12)


def test_nothing_touched_needs_nothing() -> None:
    found = joint_cyclic(np.ones(4), np.ones(4), np.zeros(4), 2)
    assert (found.noise_stds == 0.0).all()
    assert (found.value, found.lower_bound, found.window) == (0.0, 0.0, 0)


def test_what_is_forgotten_needs_no_noise() -> None:
    # L_3 = 0 forgets steps 1 and 2; only the touch at step 3 counts, which costs least at the cheapest step after it.
    found = joint_cyclic([1.0, 1.0, 1.0, 0.25], [1.0, 1.0, 0.0, 1.0], [5.0, 5.0, 1.0, 0.0], 1)
    assert found.value == pytest.approx(0.25, rel=1e-7)
    assert found.noise_stds == pytest.approx([0, 0, 0, 1.0], rel=1e-7, abs=0)


def test_more_batches_than_steps() -> None:
    for size in (4, 5, 10**12):
        assert joint_cyclic(np.ones(4), np.ones(4), np.ones(4), size).value == pytest.approx(1.0, rel=1e-7)


def test_one_step() -> None:
    assert joint_cyclic([2.0], [3.0], [0.5], 1, mu=0.1).noise_stds == pytest.approx([5.0], rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("lipschitz", [0.5, 0.9, 1.05, 1.5])
def test_long_passes_that_expand_or_contract(lipschitz: float) -> None:
    # Products over a pass reach 1e-60 to 1e35, over the run the square of that and more.
    steps, size = 600, 200
    run = rising(0.999, steps), np.full(steps, lipschitz), np.ones(steps), size
    found = joint_cyclic(*run)
    assert mu_of(run, found.noise_stds) <= 1.0
    assert gap(found) <= 1e-6


@pytest.mark.slow
def test_weights_over_hundreds_of_orders_of_magnitude() -> None:
    run = rising(0.8, 2000), np.ones(2000), np.ones(2000), 20
    found = joint_cyclic(*run)
    assert mu_of(run, found.noise_stds) <= 1.0
    assert gap(found) <= 1e-6


def test_progress_is_reported() -> None:
    told: list[tuple[int, float]] = []
    found = joint_cyclic(np.ones(10), np.ones(10), np.ones(10), 2, progress=lambda iteration, left: told.append((iteration, left)))
    assert told[-1][0] == found.iterations > 0
    assert told[0][1] > told[-1][1]


GOOD: dict[str, Any] = {"weights": [1.0] * 4, "lipschitz": [1.0] * 4, "sensitivity": [1.0] * 4, "batches_per_pass": 2}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"weights": [1.0, 0.0, 1.0, 1.0]}, "weights[1]"),
        ({"weights": [1.0, math.nan, 1.0, 1.0]}, "weights[1]"),
        ({"weights": []}, "weights"),
        ({"lipschitz": [1.0] * 3}, "lipschitz 3"),
        ({"lipschitz": [1.0, -1.0, 1.0, 1.0]}, "lipschitz[1]"),
        ({"lipschitz": 1.0}, "lipschitz"),
        ({"sensitivity": [1.0, math.inf, 1.0, 1.0]}, "sensitivity[1]"),
        ({"sensitivity": [True] * 4}, "sensitivity"),
        ({"sensitivity": [[1.0] * 4]}, "sensitivity"),
        ({"batches_per_pass": 0}, "batches_per_pass"),
        ({"batches_per_pass": True}, "batches_per_pass"),
        ({"batches_per_pass": 2.0}, "batches_per_pass"),
        ({"mu": 0.0}, "mu"),
        ({"mu": math.inf}, "mu"),
        ({"mu": "1"}, "mu"),
        ({"mu": 1e-200}, "doubles"),
        ({"noisy": [1, 0, 1, 1]}, "noisy"),
        ({"noisy": [True] * 3}, "noisy"),
        ({"noisy": [[True], [True, False]]}, "noisy"),
        ({"noisy": [True, True, True, False]}, "step 4"),
        ({"noisy": [False] * 4}, "step 3"),
        ({"floor": -1.0}, "floor"),
        ({"floor": math.nan}, "floor"),
        ({"floor": math.inf}, "floor"),
        ({"floor": True}, "floor"),
        ({"floor": "much"}, "floor"),
        ({"floor": [1.0, 2.0]}, "floor"),
        ({"diameter": -1.0}, "diameter"),
        ({"diameter": math.nan}, "diameter"),
        ({"diameter": [1.0, 2.0]}, "diameter"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"tolerance": 0.5}, "tolerance"),
    ],
)
def test_bad_input_is_named(change: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as caught:
        joint_cyclic(**{**GOOD, **change})
    assert told in caught.value.what


def test_growth_beyond_doubles_is_refused() -> None:
    with pytest.raises(InputError, match="more than doubles hold"):
        joint_cyclic(np.ones(1000), np.full(1000, 3.0), np.ones(1000), 2, noisy=np.arange(1000) == 999)


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "size", "lipschitz"), [(10_000, 100, 0.999), (10_000, 100, 1.001), (2000, 10, 1.0), (3000, 1000, 1.0)])
def test_thousands_of_steps(steps: int, size: int, lipschitz: float) -> None:
    run = rising(0.9999, steps), np.full(steps, lipschitz), np.ones(steps), size
    found = joint_cyclic(*run)
    assert mu_of(run, found.noise_stds) <= 1.0
    assert gap(found) <= 1e-6
