"""The shift engine against slow truths, published values and exact linear runs; what must hold of every run; pooling; bounded domains."""

from math import sqrt

import numpy as np
import pytest
from how_many import by_night, examples
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import (
    exact_shift,
    gaussian_delta,
    law_delta,
    linear_gaussian_mu_orthogonal,
    linear_gaussian_mu_same_direction,
    projected_chain_delta,
    projected_chain_laws,
)
from random_steps import random_run

from lethe.theorems.shift import engine as shift


@pytest.mark.parametrize("seed", range(30))
def test_never_below_the_exact_rational_optimum_and_hardly_above(seed: int) -> None:
    run = random_run(seed + 1000, longest=60)
    exact = exact_shift(*run)
    mu = shift.solve(*run).mu
    assert mu**2 >= float(exact) * (1 - 2**-51)  # two roundings of this comparison itself
    assert mu == pytest.approx(sqrt(exact), rel=16 * (run[0].size + 8) * 2.0**-53, abs=1e-160)  # the documented excess


@pytest.mark.parametrize("lipschitz", [10.0, 0.1])
def test_products_far_beyond_the_range_of_doubles(lipschitz: float) -> None:
    steps = 100_000  # L^T = 10^(+-100000)
    first = shift.solve(np.full(steps, lipschitz), np.eye(1, steps)[0], np.ones(steps)).mu
    # theta tends to 1 - L^-2 = .99 for L = 10; for L = .1 it is about 10^-199998: no double, and never rounded down to 0.
    assert first == pytest.approx(sqrt(0.99), rel=1e-9) if lipschitz > 1 else 0.0 < first < 1e-160
    every = shift.solve(np.full(steps, lipschitz), np.ones(steps), np.ones(steps)).mu
    assert every**2 == pytest.approx(steps if lipschitz > 1 else 1.1 / 0.9, rel=1e-9)


def test_steps_without_noise() -> None:
    # All noise at the end of a pass of three: three touches of 1 are one of 3, L = 1.
    assert shift.solve([1.0] * 3, [1.0] * 3, [0.0, 0.0, 2.0]).mu == pytest.approx(1.5, rel=1e-14)
    assert shift.solve([1.0] * 3, [1.0, 0.0, 0.0], [0.0, 3.0, 4.0]).mu == pytest.approx(0.2, rel=1e-14)  # 1 / sqrt(9 + 16)
    # No noise after the last touch, nothing to pay it with.
    assert shift.solve([1.0] * 3, [1.0, 0.0, 1.0], [1.0, 1.0, 0.0]).mu == np.inf
    assert shift.solve([1.0], [1.0], [0.0]).mu == np.inf


def test_what_is_not_touched_or_forgotten_costs_nothing() -> None:
    assert shift.solve([1.0] * 3, [0.0] * 3, [1.0] * 3).mu == 0.0
    assert shift.solve([1.0] * 3, [0.0] * 3, [0.0] * 3).mu == 0.0
    assert shift.solve([1.0, 0.0, 1.0], [5.0, 0.0, 0.0], [0.0, 0.0, 0.0]).mu == 0.0
    # After L = 0 only the later touch counts: 1 / 2 at the step that forgets.
    assert shift.solve([1.0, 0.0, 1.0], [5.0, 1.0, 0.0], [1.0, 2.0, 0.0]).mu == pytest.approx(0.5, rel=1e-14)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(90))
def test_payments_and_shifts_are_a_feasible_way_to_that_mu(seed: int) -> None:
    factors, touches, noise = random_run(seed + 300, longest=200)
    diameter = 0.4 if seed % 3 == 1 else np.inf
    if seed % 3 == 0:
        factors[factors.size // 2] = 0.0
    if seed % 4 == 0 and diameter == np.inf:
        noise[: factors.size // 2] *= np.arange(factors.size // 2) % 2
    solved = shift.solve(factors, touches, noise, None if diameter == np.inf else diameter)
    paid, left, start = solved.payments, solved.shifts, solved.window
    arrived = factors * np.concatenate(([0.0], left[:-1])) + touches
    assert (paid >= 0).all()
    assert (left >= 0).all()
    assert left[-1] == 0.0
    # Until the window the distance is tracked, cut at the diameter; after it each term carries the roundings of at most 200 steps.
    assert (paid[:start] == 0).all()
    assert left[:start] == pytest.approx(np.minimum(diameter, arrived)[:start], rel=1e-12)
    assert left[start:] == pytest.approx((arrived - paid)[start:], rel=1e-11, abs=1e-12)
    noisy = noise > 0
    assert (paid[~noisy] == 0).all()
    assert np.sum((paid[noisy] / noise[noisy]) ** 2) == pytest.approx(solved.mu**2, rel=1e-12)


@pytest.mark.parametrize("lipschitz", [1.5, 0.6])
def test_payments_of_a_long_run_keep_their_digits(lipschitz: float) -> None:
    # Forward recursion alone loses 1.5^1500, backward recursion alone .6^-1500: both far more than all digits.
    steps = 1500
    touches = np.where(np.arange(steps) % 300 == 0, 1.0, 0.0)
    solved = shift.solve([lipschitz] * steps, touches, [1.0] * steps)
    before = np.concatenate(([0.0], solved.shifts[:-1]))
    residual = lipschitz * before + touches - solved.payments - solved.shifts
    assert np.abs(residual).max() < 1e-13  # a few roundings of numbers of size 1
    assert solved.shifts.max() <= 1.0 + 1e-13


Step = tuple[float, float, float]

# Magnitudes over many orders, zeros included, noise sometimes missing.
factors = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0.01, 20.0))
touches = st.one_of(st.just(0.0), st.floats(1e-3, 1e3))
noises = st.one_of(st.just(0.0), st.floats(1e-2, 1e2))
runs = st.lists(st.tuples(factors, touches, noises), min_size=1, max_size=30)

# mu is rounded up by a relative 16 (T + 8) roundings at most; two runs may differ by twice that.
SLACK = 1 - 2 * 16 * 40 * 2.0**-53

often = settings(max_examples=examples(200))


def mu(run: list[Step]) -> float:
    return shift.solve(*zip(*run, strict=True)).mu


@often
@given(runs, st.data())
def test_more_noise_never_raises_mu_and_more_sensitivity_or_a_larger_constant_never_lowers_it(run: list[Step], data: st.DataObject) -> None:
    def more(place: int, most: float) -> float:
        return mu([(*step[:place], step[place] + data.draw(st.floats(0, most)), *step[place + 1 :]) for step in run])  # pyright: ignore[reportArgumentType]

    assert more(2, 10.0) * SLACK <= mu(run)
    assert more(1, 10.0) >= mu(run) * SLACK
    assert more(0, 2.0) >= mu(run) * SLACK


@often
@given(runs, st.floats(0.0, 20.0), noises)
def test_an_untouched_step_more_never_raises_mu(run: list[Step], factor: float, noise: float) -> None:
    assert mu([*run, (factor, 0.0, noise)]) * SLACK <= mu(run)


@often
@given(st.lists(st.tuples(st.floats(0.05, 3.0), touches, st.floats(0.05, 5.0)), min_size=1, max_size=30))
def test_never_better_than_the_exact_privacy_of_a_linear_run(run: list[Step]) -> None:
    arrays = [np.array(column) for column in zip(*run, strict=True)]
    assert mu(run) >= linear_gaussian_mu_same_direction(*arrays) * SLACK
    assert mu(run) >= linear_gaussian_mu_orthogonal(*arrays) * SLACK


@often
@given(runs, st.integers(1, 30))
def test_a_run_is_no_better_than_its_end_and_no_worse_than_composed_parts(run: list[Step], cut: int) -> None:
    first, last = run[:cut], run[cut:]
    assert mu(run) >= (mu(last) if last else 0.0) * SLACK
    assert mu(run) * SLACK <= np.hypot(mu(first), mu(last) if last else 0.0)


@often
@given(runs, st.floats(1e-6, 1e6))
def test_mu_scales_with_the_ratio_of_sensitivity_to_noise(run: list[Step], ratio: float) -> None:
    scaled = mu([(f, s * ratio, n) for f, s, n in run])
    # Half an eps in each product, more where it is denormal: the strategies stay away from there.
    assert scaled * SLACK <= mu(run) * ratio * (1 + 1e-15) + 1e-150
    assert scaled >= mu(run) * ratio * SLACK * (1 - 1e-15) - 1e-150


GENERATOR = np.random.default_rng(2024)

# Each makes pooling in rounds do little, so that the rest goes one by one.
HARD = {
    "slopes rise, one tiny last": np.append(np.linspace(1.0, 2.0, 299), 1e-9),
    "one huge first": np.append(300.0, np.linspace(1.0, 2.0, 299)),
    "slopes fall": np.linspace(2.0, 1.0, 300),
    "all equal": np.ones(300),
    "teeth": np.tile([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 0.5], 30),
    "rising teeth": np.tile(np.append(np.linspace(1, 2, 29), 0.9), 10) * np.repeat(np.linspace(1, 3, 10), 30),
    "falling teeth": np.tile(np.append(np.linspace(1, 2, 29), 0.9), 10) * np.repeat(np.linspace(3, 1, 10), 30),
    "rare touches": np.where(np.arange(300) % 37 == 5, GENERATOR.uniform(0, 1, 300), 0.0),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("lipschitz", [1.0, 1.0009765625, 0.9990234375])
def test_hard_patterns_against_rational_arithmetic(name: str, lipschitz: float) -> None:
    run = np.full(300, lipschitz), HARD[name], np.ones(300)
    exact, mu = sqrt(exact_shift(*run)), shift.solve(*run).mu
    assert exact * (1 - 2**-52) <= mu <= exact * (1 + 16 * 308 * 2.0**-53)  # the documented excess


@pytest.mark.parametrize("last", ["tiny", "noisy"])
def test_a_million_steps_of_the_hardest_pattern(last: str) -> None:
    steps = 10**6 if by_night() else 2 * 10**5
    touches, noise = np.linspace(1.0, 2.0, steps), np.ones(steps)
    touches[-1] = 1e-9 if last == "tiny" else 0.0
    noise[-1] = 1.0 if last == "tiny" else 1e6  # so much noise that all steps become one segment, one by one
    mu = shift.solve(np.ones(steps), touches, noise).mu  # quadratic pooling would take hours, or half an hour by day
    if last == "tiny":
        end = 10_000  # the last touch pools with some two thousand before it; slopes further left increase and stay apart
        short = shift.solve(np.ones(end), touches[-end:], noise[-end:]).mu
        assert mu == pytest.approx(sqrt(np.sum(touches[:-end] ** 2) + short**2), rel=1e-8)
    else:
        assert mu == pytest.approx(touches.sum() / sqrt(np.sum(noise**2)), rel=1e-8)


def test_the_caller_keeps_his_arrays() -> None:
    # Also where pooling goes one by one: one violation among many segments.
    mine = np.ones(64), np.linspace(1.0, 2.0, 64), np.ones(64)
    mine[1][-1] = 1e-9
    copies = [one.copy() for one in mine]
    solved = shift.solve(*mine, 3.0)
    _ = solved.payments, solved.shifts
    np.testing.assert_array_equal(mine, copies)


@pytest.mark.parametrize("seed", range(40))
def test_every_start_by_the_engine_itself(seed: int) -> None:
    factors, touches, noise = random_run(seed + 9000, longest=150 if seed % 4 == 0 else 12)
    generator = np.random.default_rng(seed)
    caps = np.full(factors.size, generator.uniform(0.05, 3.0)) if seed % 2 == 0 else generator.uniform(0.05, 2.0, factors.size)
    tracked, best = 0.0, np.inf
    for start in range(factors.size):
        if start:
            tracked = min(caps[start - 1], factors[start - 1] * tracked + touches[start - 1])
        after = touches[start:].copy()
        after[0] += factors[start] * tracked
        best = min(best, shift.solve(factors[start:], after, noise[start:]).mu)
    assert shift.solve(factors, touches, noise, caps[0] if seed % 2 == 0 else caps).mu == pytest.approx(best, rel=1e-12)  # a few roundings


def test_bounds_at_some_steps_only() -> None:
    caps = np.full(10, np.inf)
    caps[6] = 0.5
    # From 0.5 after step 7, three touches of 1 and three steps of noise 1: 3.5 / sqrt 3.
    assert shift.solve([1.0] * 10, [1.0] * 10, [1.0] * 10, caps).mu == pytest.approx(3.5 / np.sqrt(3), rel=1e-13)


@pytest.mark.parametrize(
    ("diameter", "noise", "first", "second"),
    [
        (1.0, 0.5, [0.3] * 6, [0.0] * 6),
        (1.0, 0.2, [0.05] * 100, [0.0] * 100),
        (1.0, 0.5, [0.15] * 8, [-0.15] * 8),
        (0.5, 1.0, [2.0] * 4, [-2.0] * 4),  # pushed into opposite corners: the two runs are a diameter apart
        (2.0, 0.7, [0.5, 0.0, 0.0, 0.5], [0.0, 0.0, 0.0, 0.0]),
        (24.0, 1.0, [0.2] * 5, [0.0] * 5),  # the domain does not matter: the certificate is exact there
    ],
)
def test_never_below_an_exact_projected_chain(diameter: float, noise: float, first: list[float], second: list[float]) -> None:
    apart = np.abs(np.subtract(first, second))
    mu = shift.solve(np.ones(apart.size), apart, np.full(apart.size, noise), diameter).mu
    laws = projected_chain_laws(diameter, noise, first, second)
    for epsilon in (0.0, 0.3, 1.0, 3.0):
        certified = gaussian_delta(mu, epsilon)[0]
        truth = law_delta(*laws, epsilon)
        assert truth <= certified + 2e-6  # the oracle's quadrature where the two densities cross
        if diameter == 24.0:
            assert truth >= 0.99 * certified - 2e-6  # so a bound too small by 1 % would fail


def test_corners_catch_a_bound_that_is_one_per_cent_too_small() -> None:
    # Pushed into opposite corners with little noise, then one noisy step: apart by exactly D, so mu = D / tau = .5.
    mu = shift.solve([1.0, 1.0], [4.0, 0.0], [0.1, 1.0], 0.5).mu
    assert mu == pytest.approx(0.5, rel=1e-14)
    truth = projected_chain_delta(0.5, [0.1, 1.0], [2.0, 0.0], [-2.0, 0.0], 0.05)
    assert gaussian_delta(0.99 * mu, 0.05)[0] < truth <= gaussian_delta(mu, 0.05)[0]
