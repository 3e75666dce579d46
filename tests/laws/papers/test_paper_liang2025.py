"""Liang et al. 2025 (arXiv:2502.17772): bounds as stated, two that are false, and what their argument does prove, against exact laws."""

import math
import random

import numpy as np
import pytest
from helpers import make_run
from oracles import ProjectedChain
from scipy import special, stats
from theorem_bounds import curve_of, rho_of, sampled_gaussian_renyi

import lethe
from lethe.calculus.guarantees import WithSlack
from lethe.calculus.sampled.order import largest_order, order_allowed, smallest_noise
from lethe.theorems.base import Theorem
from lethe.theorems.literature.liang_2025 import (
    Liang2025Bounded,
    Liang2025BoundedRestricted,
    Liang2025Corrected,
    Liang2025Unbounded,
    Liang2025UnboundedRestricted,
)

THEOREMS = (Liang2025Unbounded(), Liang2025UnboundedRestricted(), Liang2025Bounded(), Liang2025BoundedRestricted(), Liang2025Corrected())
LINEAR = {"kind": "convex", "smoothness": 0.0, "gradient_bound": 1.0}
SMOOTH = {"kind": "smooth", "smoothness": 0.4, "gradient_bound": 1.0}
# b sigma / C is the noise multiplier, so b sigma / (2C) = 6; step 0.5: tau = 0.5 * 12 / 10.
BASE: dict[str, object] = {
    "batches": {"design": "poisson", "size": 10},
    "neighbours": "add_or_remove",
    "noise_multiplier": 12.0,
    "loss": SMOOTH,
    "regulariser": {"kind": "ball", "radius": 0.03},
}


def liang_run(**changes: object) -> lethe.Run:
    return make_run(**(BASE | changes))


def test_the_formulas_of_the_paper() -> None:
    """(12) to (15) in the paper's letters: C = 1, n = 100, b = 10, sigma = 1.2, eta = 0.5, L = 0.4, D = 0.06, T = 50."""
    n, b, sigma, eta, smoothness, diameter, steps = 100, 10, 1.2, 0.5, 0.4, 0.06, 50
    shift = (1 + eta * smoothness) ** 2 * diameter**2 / (2 * eta**2 * sigma**2)
    shares = np.linspace(1e-6, 1 - 1e-6, 1_000_001)
    first, second = 2 / (n * b * sigma**2), 8 / (n**2 * sigma**2)
    guarantees = [theorem.bound(liang_run()).guarantee for theorem in (THEOREMS[0], THEOREMS[2])]
    expected = [first * steps, float(np.min(first / shares + shift / (1 - shares)))]  # beta -> 1, and over a grid
    assert [getattr(guarantee, "rho", None) for guarantee in guarantees] == pytest.approx(expected, rel=1e-8)

    orders, values = curve_of(THEOREMS[1], liang_run())
    assert values == pytest.approx(second * steps * orders, rel=1e-12)
    assert orders.max() == pytest.approx(largest_order(0.1, b * sigma / 2), rel=1e-12)

    for order in (1.5, 4.0, 6.0, 9.0):
        orders, values = curve_of(THEOREMS[3], liang_run())
        place = int(np.abs(orders - order).argmin())
        allowed = (np.sqrt(shares) * b * sigma / 2 > 4) & order_allowed(b / n, np.sqrt(shares) * b * sigma / 2, orders[place])
        on_the_grid = float(np.min((second / shares + shift / (1 - shares))[allowed])) * orders[place]
        assert values[place] == pytest.approx(on_the_grid, rel=1e-4)  # the grid's step, at the edge of what is allowed
        assert values[place] <= on_the_grid * (1 + 1e-13)
    assert math.isinf(values[int(np.abs(orders - 30.0).argmin())])  # beyond alpha*


def test_the_largest_order() -> None:
    """Values of the two conditions of Mironov, Talwar & Zhang, and the conditions themselves on both sides of the order."""
    cases = [(0.2, 4.0, 4.0), (0.1, 4.0, 6.0), (0.01, 4.0, 14.3), (0.001, 4.0, 26.7), (0.01, 10.0, 50.6)]
    for q, z, expected in cases:
        highest = largest_order(q, z)
        assert highest == pytest.approx(expected, abs=0.05)  # one decimal is printed
        for order, good in ((highest * (1 - 1e-9), True), (highest * (1 + 1e-9), False)):
            k = math.log(1 + 1 / (q * (order - 1)))
            first = k * z**2 / 2 - 2 * math.log(z)
            second = (k**2 * z**2 / 2 - math.log(5) - 2 * math.log(z)) / (k + math.log(q * order) + 1 / (2 * z**2))
            assert (order <= min(first, second)) == good
        assert smallest_noise(q, [highest])[0] == pytest.approx(z, rel=1e-9)
    assert 1e60 < largest_order(0.2, 1e300) < math.inf
    assert largest_order(0.21, 10.0) == 1.0
    assert largest_order(0.1, 3.99) == 1.0


def test_the_allowed_orders_and_noises_are_intervals() -> None:
    """What bisection rests on."""
    orders, noises = 1 + np.geomspace(1e-6, 1e6, 400), np.geomspace(4.0, 1e4, 300)
    for q in (1e-9, 1e-4, 0.03, 0.2):
        table = order_allowed(q, noises[:, None], orders[None, :])
        assert np.all(np.diff(table.astype(int), axis=1) <= 0)
        assert np.all(np.diff(table.astype(int), axis=0) >= 0)


def _other_direction(probability: float, noise: float, order: int) -> float:
    """D of N(0, z^2) from the mixture, by quadrature on a grid."""
    x = np.linspace(-40 * noise, 40 * noise, 20_001)
    log_ratio = np.logaddexp(math.log1p(-probability), math.log(probability) + (2 * x - 1) / (2 * noise**2))
    logs = stats.norm.logpdf(x, scale=noise) + (1 - order) * log_ratio
    return float(special.logsumexp(logs) + math.log(x[1] - x[0])) / (order - 1)


def test_equation_12_is_false() -> None:
    """One step, n = 50000, b = 100, sigma b / C = 1, order 16: it claims 0.064. The record pushes, no other does: the output is exactly the
    sampled Gaussian. The last term of the exact sum alone, q^16 e^120, makes 1.371."""
    run = liang_run(
        records=50_000, batches={"design": "poisson", "size": 100}, steps=1, noise_multiplier=1.0, loss=LINEAR, regulariser=None
    )
    rho = rho_of(Liang2025Unbounded(), run)
    assert 16 * rho == pytest.approx(0.064, rel=1e-12)
    assert (16 * math.log(0.002) + 120) / 15 == pytest.approx(1.371, abs=1e-3)
    assert sampled_gaussian_renyi(0.002, 1.0, 16) >= 1.371 > 20 * 16 * rho


def test_equation_14_is_false() -> None:
    """One step, order 16, on an interval [0, D] so small that the last iterate is at one of its ends. All other records push down by
    1.6e-5 each, about 16 noises in all; the record pushes up by 1. The divergence of the two laws of "at the upper end" bounds the true
    one from below: a sum over how many others were drawn, exact but for 1e-30 of their law."""
    records, size = 500_000_000, 1_000_000
    ball = {"kind": "ball", "radius": 0.5e-4 / size}  # D is 1e-4 of the noise: step 1, tau = 1 / b
    one_step = {"records": records, "batches": {"design": "poisson", "size": size}, "steps": 1, "step_size": 1.0}
    run = liang_run(**one_step, noise_multiplier=1.0, loss=LINEAR, regulariser=ball)
    q, order, end = size / records, 16, 1e-4
    drawn = np.arange(size - 12_000, size + 12_000)
    law = stats.binom.logpmf(drawn, records - 1, q)
    without = special.logsumexp(law + special.log_ndtr(-1.6e-5 * drawn - end))
    touched = special.logsumexp(law + special.log_ndtr(1 - 1.6e-5 * drawn - end))
    with_record = np.logaddexp(math.log1p(-q) + without, math.log(q) + touched)
    at_least = (order * with_record - (order - 1) * without) / (order - 1)
    assert at_least > 1.0
    assert order * rho_of(Liang2025Bounded(), run) < 0.07


def test_equation_15_has_a_gap_where_losses_are_curved() -> None:
    """Lemma 3.2 is false for Poisson batches divided by b. All losses -x^2 L/2, the same data twice, laws of a point at 0 and at z: it says
    that a shift of (1 + eta L) z leaves a divergence of 8 alpha C^2/(beta n^2 sigma^2). A batch of K takes z to (1 + eta L K/b) z, and
    half of all batches hold more than b. With L z = 2C (gradients from -C to C) that is far: any law within the shift of N(0, noise^2)
    stays below (1 + eta L) z + 8 noises but for 1e-15, where the other law is only half of the time."""
    run = liang_run(records=1_000_000, batches={"design": "poisson", "size": 10_000}, noise_multiplier=12.0, step_size=1.0)
    theorem = Liang2025BoundedRestricted()
    assert theorem.standing_on(run).soundness == "proof-gap"
    n, b, order, share = 1_000_000, 10_000, 2, 0.9
    sigma, smoothness = 12.0 / b, 0.4
    assert math.sqrt(share) * b * sigma / 2 > 4
    assert largest_order(b / n, math.sqrt(share) * b * sigma / 2) > order
    claimed = 8 * order / (share * n**2 * sigma**2)
    noise, apart = math.sqrt(share) * sigma, 2.0 / smoothness
    below = 8 * noise + (1 + smoothness) * apart
    drawn = np.arange(b - 1_500, b + 1_500)
    law = stats.binom.pmf(drawn, n, b / n)
    other = float(law @ special.ndtr((below - (1 + smoothness * drawn / b) * apart) / noise)) + (1 - law.sum())
    at_least = -math.log(other) + order / (order - 1) * math.log1p(-1e-15)
    assert at_least > 0.35
    assert claimed < 1e-4


def test_standings() -> None:
    for theorem in (Liang2025Unbounded(), Liang2025Bounded()):
        assert theorem.standing_on(liang_run()).soundness == "refuted"
        assert not theorem.standing.usable
    assert Liang2025UnboundedRestricted().standing_on(liang_run()).usable
    assert Liang2025BoundedRestricted().standing_on(liang_run(loss=LINEAR)).soundness == "sound"
    assert Liang2025Corrected().standing_on(liang_run()).soundness == "sound"


def test_equation_13_is_never_below_composed_steps() -> None:
    """Both directions of every step, by the binomial sum and by quadrature, with the paper's own noise relative to 2C and its factor 2:
    it may be loose by no more than 4 / (1 - error), which a wrong power of q, of T or of the noise would not leave."""
    draw = random.Random(5)
    for _ in range(25):
        size = draw.choice([1, 5, 10, 20])
        run = liang_run(
            batches={"design": "poisson", "size": size}, steps=draw.randint(1, 300), noise_multiplier=draw.uniform(8.1, 80.0), loss=LINEAR
        )
        orders, values = curve_of(Liang2025UnboundedRestricted(), run)
        q, z = size / 100, run.noise_multipliers[0] / 2
        for order in (2, 3, 4, 6, 10):
            if order > orders.max():
                continue
            exact = run.total_steps * max(sampled_gaussian_renyi(q, z, order), _other_direction(q, z, order))
            value = float(np.interp(order, orders, values))
            assert exact <= value <= 5 * exact


def _projected_laws(run: lethe.Run, factor: float, touched: float, other: float) -> tuple[np.ndarray, np.ndarray]:
    """Laws of the last iterate of x -> clip(factor x + (with chance q: shift) + noise), x from the middle, for the two shifts."""
    q, middle = run.batch_size / run.records, run.diameter / 2
    chain = ProjectedChain(run.diameter, middle)
    drifts = [[[(1 - q, 0.0), (q, shift)]] * run.total_steps for shift in (touched, other)]
    one, two = (chain.law(run.noise_stds, drift, lambda x: middle + factor * (x - middle)) for drift in drifts)
    return one, two


def _never_below(theorem: Theorem, run: lethe.Run, laws: tuple[np.ndarray, np.ndarray]) -> None:
    guarantee = theorem.bound(run).guarantee
    orders, values = curve_of(theorem, run)
    for one, two in (laws, laws[::-1]):
        for epsilon in (0.0, 0.1, 0.5, 1.0):
            assert guarantee.delta(epsilon) >= float(np.maximum(one - math.exp(epsilon) * two, 0.0).sum()) - 2e-6
        for order in (2.0, 4.0, 8.0):
            exact = math.log(float(np.sum(one**order * two ** (1 - order)))) / (order - 1)
            assert float(np.interp(order, orders, values)) >= exact - 1e-6


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(6))
def test_equation_15_and_the_corrected_form_are_never_below_a_projected_chain_of_linear_losses(seed: int) -> None:
    """The record pushes by C when drawn, all others rest; the law of the last iterate by exact transitions between cells."""
    draw = random.Random(seed)
    for noise in (draw.uniform(0.4, 2.0), draw.uniform(8.5, 15.0)):
        run = liang_run(
            records=50,
            steps=draw.randint(1, 30),
            noise_multiplier=noise,
            loss=LINEAR,
            neighbours="zero_out",
            regulariser={"kind": "ball", "radius": draw.uniform(0.05, 1.0) * 0.5 * noise / 10},
        )
        laws = _projected_laws(run, 1.0, float(run.sensitivities[0]), 0.0)
        _never_below(Liang2025Corrected(), run, laws)
        if noise > 8.0:
            _never_below(Liang2025BoundedRestricted(), run, laws)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(4))
def test_the_corrected_form_is_never_below_a_projected_chain_that_expands(seed: int) -> None:
    """Losses -x^2 M/2 for all, the record's with a slope of +g or -g; batches of exactly b records, so a step expands by 1 + lambda M."""
    draw = random.Random(seed)
    smoothness, radius = 0.8, draw.uniform(0.02, 0.3)
    slope = 1.0 - smoothness * radius  # gradients up to 1
    run = liang_run(
        records=50,
        batches={"design": "without_replacement", "size": 10},
        neighbours="replace_one",
        steps=draw.randint(1, 20),
        noise_multiplier=draw.uniform(0.5, 3.0),
        loss={"kind": "smooth", "smoothness": smoothness, "gradient_bound": 1.0},
        regulariser={"kind": "ball", "radius": radius},
    )
    push = 0.5 * slope / 10
    _never_below(Liang2025Corrected(), run, _projected_laws(run, 1 + 0.5 * smoothness, push, -push))


def test_the_corrected_form_by_hand() -> None:
    """At whole orders with Poisson batches, S is the binomial sum; over a grid of shares of its own. With curved losses the Poisson step
    counts on the largest batch that the slack allows."""
    run = liang_run(neighbours="zero_out", noise_multiplier=3.0)
    orders, values = curve_of(Liang2025Corrected(), run)
    guarantee = Liang2025Corrected().bound(run).guarantee
    assert isinstance(guarantee, WithSlack)
    assert 0 < guarantee.slack <= 1e-18
    largest = next(k for k in range(101) if stats.binom.sf(k, 99, 0.1) * 50 <= 1e-18) + 1  # 99 others, and the record
    shift = (1 + 0.5 * 0.4 * largest / 10) ** 2 * 0.06**2 / (2 * 0.15**2)
    shares = np.linspace(0.002, 0.998, 500)
    for order in (2, 5, 20):
        by_hand = min(sampled_gaussian_renyi(0.1, 3.0 * math.sqrt(share), order) + order * shift / (1 - share) for share in shares)
        value = float(values[int(np.abs(orders - order).argmin())])
        assert by_hand * 0.999 <= value <= by_hand * 1.005  # two grids of shares, and one or two records in `largest`
