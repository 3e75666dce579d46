"""Lognormal sums and one of several secret bins: closed forms, many digits, quadrature, close lower bounds, adaptive adversaries."""

import math
from typing import Any, get_args

import numpy as np
import pytest
from binned_oracles import Direction, Floats, at_least, contracted, in_the_plane, two_bins
from exact_numbers import Exact
from how_many import by_night
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

import lethe
from lethe.calculus.any_guarantee import noise_scaled
from lethe.calculus.balls_in_bins.lognormal_sums import Term, log_mean_excess, mean_excess
from lethe.calculus.balls_in_bins.profile import BallsInBinsGaussian
from lethe.calculus.composition import renyi_curve
from lethe.calculus.privacy_losses.dominating import dominating_losses


def _exact_mean_excess(term: Term, level: float) -> Exact:
    """To many digits, because the root of the quadratic loses some."""
    mu, up, down, k = (mpf(value) for value in (term.mu, term.up, term.down, level))
    root = (k + mp.sqrt(k * k + 4 * up * down * mp.exp(-mu * mu))) / (2 * up) if up > 0 else -down * mp.exp(-mu * mu) / k
    g = (mp.log(root) + mu * mu / 2) / mu

    def normal(x: Exact) -> Exact:
        return mp.erfc(-x / mp.sqrt(2)) / 2

    return up * normal(mu - g) - down * normal(-mu - g) - k * normal(-g)


def test_a_mean_excess_is_off_by_less_than_half_of_what_it_says() -> None:
    generator, seen = np.random.default_rng(1), 0
    with mp.workdps(120):
        for case in range(150):
            mu, epsilon, g = 10 ** generator.uniform(-4, 1.39), 10 ** generator.uniform(-4, 1.8), generator.uniform(-9, 36)
            up, down = ((math.exp(-epsilon), 0.0), (0.0, 1.0), (math.exp(-epsilon), 1.0))[case % 3]
            level = up * math.exp(mu * g - mu * mu / 2) - down * math.exp(-mu * g - mu * mu / 2)
            exact = _exact_mean_excess(Term(mu, 1, up, down), level)
            if exact < 1e-290:
                continue
            with np.errstate(divide="ignore", invalid="ignore"):
                found, error = mean_excess(Term(mu, 1, up, down), np.array([level]), abs(level))
            assert abs(mpf(float(found[0])) - exact) <= mpf(float(error[0])) / 2
            seen += 1
    assert seen > 100


@pytest.mark.parametrize("intervals", [2**8, 2**10, 2**13])
@pytest.mark.parametrize(
    ("mu", "up", "down", "threshold"), [(1.0, 0.5, 0.0, 2.0), (0.2, 1.0, 0.0, 1.3), (1.5, 0.0, 1.0, -0.1), (1.0, 0.5, 1.0, 0.3)]
)
def test_one_term_is_its_mean_excess(mu: float, up: float, down: float, threshold: float, intervals: int) -> None:
    term = Term(mu, 1, up, down)
    exact = float(_exact_mean_excess(term, threshold))
    found = math.exp(log_mean_excess((term,), threshold, intervals))
    assert exact <= found <= exact * (1 + 40 / intervals)


@pytest.mark.parametrize("threshold", [math.inf, -math.inf, math.nan, 1e308])
def test_what_floating_point_cannot_carry_is_no_small_number(threshold: float) -> None:
    for term in (Term(1.0, 10, 0.5, 0.0), Term(1.0, 10, 0.0, 1.0), Term(1.0, 10, 0.5, 1.0)):
        found = log_mean_excess((term,), threshold, 2**10)
        assert not math.isnan(found)
        if not threshold > 0.0:
            assert found == math.inf
    assert log_mean_excess((Term(1.0, 10, 0.0, 1.0),), 0.5, 2**10) < -600  # every term is below 0: next to nothing exceeds the threshold


RELATIONS: dict[str, Any] = {"P against Q": "zero_out", "Q against P": "zero_out", "replaced": "replace_one"}
NAMES: dict[Direction, Any] = {
    "P against Q": "with against without",
    "Q against P": "without against with",
    "replaced": "one against the other",
}


def bins(mu: float, count: int, relation: Any = "zero_out") -> BallsInBinsGaussian:
    return BallsInBinsGaussian(mus=(mu,), counts=(count,), relation=relation)


def one_way(direction: Direction, epsilon: float, guarantee: BallsInBinsGaussian) -> float:
    """The bound on one direction, which `delta` takes the larger of."""
    return math.exp(guarantee._log(NAMES[direction], epsilon, guarantee._intervals[0]))  # pyright: ignore[reportPrivateUsage]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("direction", get_args(Direction))
@pytest.mark.parametrize("mus", [(0.2, 0.2), (1.0, 1.0), (0.5, 1.5)])
@pytest.mark.parametrize("epsilon", [0.1, 0.7, 2.0])
def test_two_bins_are_exact(direction: Direction, mus: tuple[float, float], epsilon: float) -> None:
    exact = two_bins(direction, epsilon, mus)
    levels = {mu: mus.count(mu) for mu in mus}
    guarantee = BallsInBinsGaussian(mus=tuple(levels), counts=tuple(levels.values()), relation=RELATIONS[direction])
    if exact > 1e-9:  # quadrature ends 9 standard deviations out, and is off by some millionths
        assert exact * (1 - 2e-5) <= one_way(direction, epsilon, guarantee) <= exact * (1 + 2e-4)


@pytest.mark.parametrize(
    ("direction", "epsilon", "mu", "doublings", "interval", "most"),
    [
        ("P against Q", 2.0, 1.0, 3, 0.2, 600.0),
        ("P against Q", 0.22, 0.5, 6, 0.03, 120.0),
        ("P against Q", 0.05, 0.1, 4, 0.002, 30.0),
        ("Q against P", 0.5, 1.0, 6, 0.03, 70.0),
        ("Q against P", 2.0, 2.0, 4, 0.01, 18.0),
        ("replaced", 0.4, 0.5, 6, 0.06, 100.0),
        ("replaced", 2.5, 1.0, 3, 0.2, 200.0),
    ],
)
def test_less_by_one_per_cent_would_be_too_small(
    direction: Direction, epsilon: float, mu: float, doublings: int, interval: float, most: float
) -> None:
    """Deltas from 1e-2 to 1e-5, between this bound and one from below by a contraction in the convex order."""
    least = contracted(direction, epsilon, mu, doublings, interval, most)
    found = one_way(direction, epsilon, bins(mu, 2**doublings, RELATIONS[direction]))
    assert least <= found
    assert 0.99 * found < least


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("direction", "epsilon", "mu", "count", "draws", "tight"),
    [
        ("P against Q", 6.0, 3.0, 30, 100_000, 0.99),
        ("P against Q", 3.0, 2.0, 100, 200_000, 0.94),
        ("Q against P", 1.0, 2.0, 10, 600_000, 0.985),
        ("replaced", 3.0, 2.0, 100, 100_000, 0.9),
    ],
)
def test_monte_carlo_finds_no_more(direction: Direction, epsilon: float, mu: float, count: int, draws: int, tight: float) -> None:
    """With long tails, where a grid from below would be large; odds of a false alarm 1e-6."""
    least = at_least(direction, epsilon, mu, count, draws, seed=0)
    found = one_way(direction, epsilon, bins(mu, count, RELATIONS[direction]))
    assert least <= found
    assert tight * found < least


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("direction", get_args(Direction))
def test_no_adaptive_adversary_beats_the_pair(direction: Direction, seed: int) -> None:
    """Two visits: what is contributed at the second is a function of what the first released, in sign and size."""
    generator, epsilon, mu = np.random.default_rng(seed), 0.5, 1.2
    cuts, sizes = (
        np.sort(generator.normal(size=6)),
        generator.choice([0.0, 0.4, 1.0], size=(2, 7)) * generator.choice([-1.0, 1.0], size=(2, 7)),
    )

    def means(first: Floats, second: Floats) -> tuple[Floats, Floats]:
        with_record, replaced = (mu * part[np.searchsorted(cuts, first)] for part in sizes)
        plus = 0.5 * (np.exp(mu * first - mu * mu / 2) + np.exp(with_record * second - with_record**2 / 2))
        return plus, 0.5 * (np.exp(-mu * first - mu * mu / 2) + np.exp(replaced * second - replaced**2 / 2))

    attained = in_the_plane(direction, epsilon, means, mu, nodes=1201)
    assert 0.0 < attained <= one_way(direction, epsilon, bins(mu, 2, RELATIONS[direction]))


def test_bins_that_are_never_visited_reveal_nothing() -> None:
    """One visited bin of two: the mean of X and 1 exceeds e^epsilon as X exceeds 2 e^epsilon - 1, which is a Gaussian pair."""
    half = BallsInBinsGaussian(mus=(0.0, 1.0), counts=(1, 1), relation="zero_out")
    for epsilon in (0.1, 1.0):
        order = 2 * math.exp(epsilon) - 1
        exact = 0.5 * lethe.guarantees.GDP(1.0).delta(math.log(order))
        assert exact * (1 - 1e-9) <= half.delta(epsilon) <= exact * (1 + 1e-4)
    assert BallsInBinsGaussian(mus=(0.0,), counts=(7,), relation="replace_one").epsilon(1e-5) == 0.0


@given(mu=st.floats(1e-3, 2.0), count=st.integers(2, 300), relation=st.sampled_from(["zero_out", "replace_one"]), order=st.floats(0.2, 3.0))
@settings(max_examples=25 if by_night() else 5, deadline=None)
def test_never_more_than_for_who_knows_the_bin_and_monotone(mu: float, count: int, relation: Any, order: float) -> None:
    """As truth is; the bound may be larger than truth by a hundredth of delta here (by more where delta is close to 1)."""
    epsilon = order * mu
    delta = bins(mu, count, relation).delta(epsilon)
    assert 0.0 <= delta <= lethe.guarantees.GDP(mu * (2 if relation == "replace_one" else 1)).delta(epsilon) * (1 + 1e-12)
    if not 1e-13 < delta < 0.5:
        return
    assert delta <= bins(1.05 * mu, count, relation).delta(epsilon) * 1.01
    assert bins(mu, 2 * count, relation).delta(epsilon) <= delta * 1.01  # a mean of twice as many varies less
    assert bins(mu, count, relation).delta(1.05 * epsilon) <= delta * 1.01
    assert bins(mu, count, "zero_out").delta(epsilon) <= bins(mu, count, "replace_one").delta(epsilon) * 1.01


@pytest.mark.sampled(3)
@pytest.mark.parametrize("relation", ["zero_out", "add_or_remove", "replace_one"])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-12])
def test_epsilon_is_where_delta_is_met(relation: Any, delta: float) -> None:
    for guarantee in (bins(0.3, 50, relation), BallsInBinsGaussian(mus=(0.0, 0.5, 2.0), counts=(3, 40, 2), relation=relation)):
        epsilon = guarantee.epsilon(delta)
        assert guarantee.delta(epsilon) <= delta
        assert epsilon == 0.0 or guarantee.delta(epsilon * (1 - 1e-5)) > delta
        assert guarantee.epsilon(delta) == epsilon


def test_it_scales_with_the_noise() -> None:
    guarantee = BallsInBinsGaussian(mus=(0.5, 2.0), counts=(40, 2), relation="replace_one")
    assert noise_scaled(guarantee, 2.0) == BallsInBinsGaussian(mus=(0.25, 1.0), counts=(40, 2), relation="replace_one")
    # Two levels that rounding makes one.
    merged = noise_scaled(BallsInBinsGaussian(mus=(1e-323, 1.5e-323), counts=(1, 2), relation="zero_out"), 1e10)
    assert merged == BallsInBinsGaussian(mus=(5e-324,), counts=(3,), relation="zero_out")


def test_it_composes() -> None:
    """By privacy losses that dominate it at every order, and by a Rényi curve."""
    guarantee = bins(1.0, 20)
    losses, _ = dominating_losses(guarantee, 0.05, 4.0)
    levels = 0.05 * (losses.lowest + np.arange(losses.masses.size))
    for epsilon in (0.0, 0.5, 2.0):
        delta = float(losses.masses @ np.maximum(1.0 - np.exp(epsilon - levels), 0.0)) + losses.infinite
        assert delta == pytest.approx(guarantee.delta(epsilon), rel=2e-3)  # both are above the truth, by other grids
    curve = renyi_curve({guarantee: 1})
    assert curve is not None
    assert guarantee.epsilon(1e-5) < curve.epsilon(1e-5) == pytest.approx(lethe.guarantees.ZCDP(0.5).epsilon(1e-5), rel=1e-4)


def test_epsilon_falls_as_noise_grows_where_far_levels_cannot_be_computed() -> None:
    """Between epsilon = .1 and .23 some divergences are beyond floating point; the search once ended there, at .34 and .22."""
    found = [
        BallsInBinsGaussian(mus=(10**0.5 / z,), counts=(20,), relation="replace_one").epsilon(1e-6)
        for z in ((50, 55, 60, 65) if by_night() else (50, 60))
    ]
    assert found == sorted(found, reverse=True)
    assert found[0] < 0.103
