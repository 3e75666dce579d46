"""The joint optimum in cyclic batches: against the engine, the closed forms, any other noise, and its own lower bound."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cyclic_instances import gap, instance, mu_of, rising, solved

from lethe.noise_allocation.joint.energy import DualVariables, cost_of_noise, energies, feasible, gap_noise, lower_bound, transferred
from lethe.noise_allocation.joint.gaps import gaps_of
from lethe.noise_allocation.joint.interior import Interior
from lethe.noise_allocation.joint.position import joint_schedule, joint_schedule_reset
from lethe.noise_allocation.joint.program import program_of
from lethe.theorems.shuffled import positions


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(36))
def test_private_within_the_constraints_and_nearly_optimal(seed: int) -> None:
    run, options = instance(seed)
    found = solved(*run, **options)
    assert mu_of(run, found.noise_stds) <= options["mu"]
    assert found.value == pytest.approx(float(run[0] @ found.noise_stds**2), rel=1e-12)
    assert 0.0 <= gap(found) <= 1e-6
    noisy, floor = options.get("noisy", np.ones(run[0].size, dtype=bool)), options.get("floor", 0.0)
    assert (found.noise_stds[~noisy] == 0.0).all()
    assert (found.noise_stds**2 >= np.where(noisy, floor, 0.0)).all()


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(16))
def test_no_other_noise_costs_less_than_the_lower_bound(seed: int) -> None:
    # Judged by the engine alone: any noise, scaled until it is private, is feasible, those next to the optimum too.
    run, options = instance(3 * seed)  # with and without masks; floors are left out, which scaling would not respect
    options.pop("floor", None)
    found = solved(*run, **options)
    generator = np.random.default_rng(seed)
    noisy = options.get("noisy", np.ones(run[0].size, dtype=bool))
    for spread in (1.0, 0.1, 0.01):
        for _ in range(10):
            other = (found.noise_stds + 0.1 * spread * found.noise_stds.max()) * generator.lognormal(0, spread, run[0].size) * noisy
            other *= mu_of(run, other) / options["mu"]
            assert run[0] @ other**2 >= found.lower_bound * (1 - 1e-12)


@pytest.mark.sampled(8)
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


@pytest.mark.sampled(8)
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


@pytest.mark.sampled(6)
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
    best = solved(weights, factors, touches, size, noisy=noisy, floor=floor).value
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


@pytest.mark.sampled(6)
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
    assert solved(*run).value == pytest.approx(value, abs=0.05)
    assert mu_of(run, np.ones(20)) ** 2 * run[0].sum() == pytest.approx(uniform, abs=0.05)


@pytest.mark.parametrize(("floor", "value"), [(0.0, 98.97), (0.5, 101.31), (2.0, 108.34), (10.0, 145.83)])
def test_floors(floor: float, value: float) -> None:
    found = solved(rising(0.9, 50), np.full(50, 0.9), np.ones(50), 1, floor=floor)
    assert found.value == pytest.approx(value, abs=5e-3)
    assert gap(found) <= 1e-7


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(15))
def test_one_batch_a_pass_is_the_closed_form(seed: int) -> None:
    (weights, factors, touches, _), options = instance(seed)
    value = joint_schedule(weights, touches, factors, options["mu"] ** 2).value / options["mu"] ** 2
    assert solved(weights, factors, touches, 1, mu=options["mu"]).value == pytest.approx(value, rel=1e-6)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("seed", range(8))
def test_one_batch_a_pass_in_a_bounded_domain_is_the_closed_form(seed: int) -> None:
    generator = np.random.default_rng(seed)
    steps = int(generator.integers(2, 30))
    run = generator.uniform(0.5, 1, steps), generator.uniform(0.9, 1.1, steps), generator.uniform(0.2, 1, steps), 1
    diameter = float(generator.uniform(0.3, 3))
    found = solved(*run, diameter=diameter)
    assert found.value == pytest.approx(joint_schedule_reset(run[0], run[2], run[1], diameter).value, rel=1e-6)
    assert mu_of(run, found.noise_stds, diameter) <= 1.0


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(9))
def test_a_bounded_domain_is_never_worse_and_the_engine_agrees(seed: int) -> None:
    generator = np.random.default_rng(seed)
    steps, size = int(generator.integers(5, 40)), int(generator.integers(2, 7))
    factors = generator.uniform(0.9, 1.0, steps) if seed % 2 else generator.uniform(0.95, 1.1, steps)
    run = rising(0.97, steps), factors, generator.uniform(0.2, 1, steps), size
    diameter = generator.uniform(0.3, 1.5) if seed % 3 else generator.uniform(0.3, 1.5, steps)
    found = solved(*run, diameter=diameter)
    assert mu_of(run, found.noise_stds, diameter) <= 1.0
    assert found.value <= solved(*run).value * (1 + 1e-6)
