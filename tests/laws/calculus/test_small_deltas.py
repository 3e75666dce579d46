"""Sampled Gaussian steps at deltas down to 1e-15 and far below: never below the truth, smooth, and no worse than dp_accounting."""

import math
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from exact_losses import Way, exact_delta
from scipy import special, stats

from lethe.calculus.guarantees import GDP
from lethe.calculus.privacy_losses.distributions import compose_losses
from lethe.calculus.sampled.gaussian import SampledGaussian, _counted, ever, sampled_factors
from lethe.calculus.sampled.renyi import Design, Relation

RELATIONS: list[tuple[Relation, Design]] = [
    ("zero_out", "poisson"),
    ("replace_one", "poisson"),
    ("zero_out", "without_replacement"),
    ("replace_one", "without_replacement"),
]


def steps(q: float, noise: dict[float, int], relation: Relation = "zero_out", design: Design = "poisson") -> SampledGaussian:
    return SampledGaussian(sampling_probability=q, noise=tuple(noise), counts=tuple(noise.values()), relation=relation, design=design)


@pytest.mark.parametrize(
    ("q", "z", "count", "delta", "least", "most"),
    [
        # A million records, 1/n^2: .4388, .4524 (dp_accounting's losses .110439 at 1e-12), .176 and .5886 in version 0.2.
        (1e-3, 2.0, 1000, 2e-12, 0.107, 0.109),
        (1e-3, 2.0, 1000, 1e-12, 0.110, 0.1104),
        (250 / 750_000, 4.0, 10_000, 1e-12, 0.0515, 0.0518),
        (1e-9, 1.0, 1000, 1e-12, 1e-7, 2e-4),
    ],
)
def test_a_tiny_delta_costs_what_it_should(q: float, z: float, count: int, delta: float, least: float, most: float) -> None:
    assert least <= steps(q, {z: count}).epsilon(delta) <= most


@pytest.mark.parametrize(("relation", "design"), RELATIONS)
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-15])
def test_with_less_noise_than_a_grid_can_hold_the_drawn_batches_are_counted(relation: Relation, design: Design, delta: float) -> None:
    mechanism, distance = steps(0.01, {0.02: 1000}, relation, design), 2.0 if relation == "replace_one" else 1.0
    # Of a thousand batches k or more hold the record with more than delta: then the loss is about k d^2 / (2 z^2), and as much less as
    # the chance of any k batches; and with less than half of delta they are one more.
    most = int(stats.binom.isf(delta / 2, 1000, 0.01)) + 1
    least = int(stats.binom.isf(delta * 2, 1000, 0.01)) - 1
    epsilon = mechanism.epsilon(delta)
    assert epsilon <= GDP(distance * math.sqrt(most) / 0.02).epsilon(delta / 2)
    assert epsilon >= 0.5 * least * (distance / 0.02) ** 2 - 1000 * math.log(100)


@pytest.mark.parametrize(("relation", "design"), RELATIONS)
@pytest.mark.sampled(6)
@pytest.mark.parametrize(("q", "z", "count"), [(0.01, 1.0, 500), (1e-3, 2.0, 1000), (0.3, 5.0, 50), (1e-5, 0.7, 10**5)])
def test_epsilon_grows_smoothly_as_delta_falls(q: float, z: float, count: int, relation: Relation, design: Design) -> None:
    mechanism = steps(q, {z: count}, relation, design)
    epsilons = np.array([mechanism.epsilon(delta) for delta in np.geomspace(1e-3, 1e-15, 121).tolist()])
    grown = np.diff(epsilons)
    assert (grown >= 0.0).all()
    positive = grown[1:][epsilons[1:-1] > 0.0]
    # By a tenth of a decade each: no step is half as large again as the one before it, nor half as large.
    assert (positive[1:] <= 1.5 * positive[:-1]).all()
    assert (positive[1:] >= 0.5 * positive[:-1]).all()


WAYS: dict[Relation, tuple[Way, ...]] = {"zero_out": ("removed", "added"), "replace_one": ("replaced",)}


@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
@pytest.mark.parametrize(("q", "z"), [(0.02, 1.0), (1e-3, 0.5), (0.4, 3.0), (1e-9, 1.0), (0.01, 0.1)])
def test_one_step_is_never_below_its_exact_profile_and_hardly_above(q: float, z: float, relation: Relation) -> None:
    mechanism = steps(q, {z: 1}, relation)
    with mpmath.workdps(60):
        for delta in (q / 3, q / 100, *(q * 10.0**-power for power in (4, 6, 9, 12, 15, 25, 40))):
            epsilon = mechanism.epsilon(delta)
            exact = max(exact_delta(way, q, z, mpmath.mpf(epsilon)) for way in WAYS[relation])
            assert exact <= delta
            if epsilon > 0.0 and q > 1e-6 and delta >= 1e-40:  # the grid is coarser than the losses of a record in a billion
                assert exact >= delta * 0.97


@pytest.mark.parametrize(("relation", "distance"), [("zero_out", 1.0), ("replace_one", 2.0)])
@pytest.mark.parametrize("steps", [7, 1000])
def test_counted_batches_are_their_exact_mixture(relation: Relation, distance: float, steps: int) -> None:
    """Of weights of the binomial law, the mass at k or more; k batches cost the distance times the root of k over the noise."""
    far = _counted(1e-5, 0.5, 10**6, relation, 0.0)  # more batches than are counted one by one are all batches
    assert far.mus[-1] >= 2000.0
    assert 0.0 < far.weights[-1] < 1e-300
    mixture = _counted(0.01, 0.5, steps, relation, 0.0)
    assert math.fsum(mixture.weights) >= 1.0
    counts = np.round((np.array(mixture.mus) * 0.5 / distance) ** 2)
    np.testing.assert_allclose(mixture.mus, distance * np.sqrt(counts) / 0.5, rtol=1e-14, atol=1e-300)
    assert counts[-1] == steps
    with mpmath.workdps(40):
        weights = [mpmath.binomial(steps, k) * mpmath.mpf(0.01) ** k * (1 - mpmath.mpf(0.01)) ** (steps - k) for k in range(steps + 1)]
        for place, count in enumerate(counts[:-1]):
            exact, stated = mpmath.fsum(weights[int(count) + 1 :]), math.fsum(mixture.weights[place + 1 :])
            assert exact - mpmath.mpf("1e-300") <= stated <= exact * (1 + mpmath.mpf("1e-9")) + mpmath.mpf("1e-300")


@pytest.mark.parametrize(("q", "count"), [(1e-9, 1), (1e-9, 1000), (0.01, 2), (0.3, 40), (1e-300, 10**7)])
def test_a_record_that_is_never_drawn_is_not_seen(q: float, count: int) -> None:
    with mpmath.workdps(400):
        exact = 1 - (1 - mpmath.mpf(q)) ** count
        assert exact <= ever(q, count) <= exact * (1 + mpmath.mpf("1e-14"))


Mixture = tuple[tuple[float, float], ...]
"""Weights and means of normal laws."""

PAIRS: dict[tuple[Relation, Design], Callable[[float], tuple[Mixture, Mixture]]] = {
    ("zero_out", "poisson"): lambda q: (((1 - q, 0.0), (q, 1.0)), ((1.0, 0.0),)),
    ("replace_one", "poisson"): lambda q: (((1 - q, 0.0), (q, 1.0)), ((1 - q, 0.0), (q, -1.0))),
    ("zero_out", "without_replacement"): lambda q: (((1 - q, -1.0), (q, 1.0)), ((1 - q, -1.0), (q, 0.0))),
    ("replace_one", "without_replacement"): lambda q: (((1 - q, -1.0), (q, 1.0)), ((1.0, -1.0),)),
}


def rounded_down(one: Mixture, other: Mixture, z: float, interval: float) -> tuple[int, np.ndarray]:
    """The privacy losses of one step rounded down to a grid, but for what is rarer than 1e-30: the first place, and the masses."""
    edges = np.linspace(-2.0 - 26.0 * z, 2.0 + 26.0 * z, 100_001)
    masses = np.zeros(edges.size - 1)
    for weight, mean in one:
        units = (edges - mean) / z
        masses += weight * np.where(units[:-1] > 0.0, -np.diff(special.ndtr(-units)), np.diff(special.ndtr(units)))
    logs = [special.logsumexp([math.log(w) - 0.5 * ((edges - m) / z) ** 2 for w, m in law], axis=0) for law in (one, other)]
    losses = logs[0] - logs[1]
    places = np.floor((np.minimum(losses[:-1], losses[1:]) - 1e-12) / interval).astype(int)
    return cut(int(places.min()), np.bincount(places - places.min(), weights=masses))


def cut(first: int, masses: np.ndarray) -> tuple[int, np.ndarray]:
    seen = np.flatnonzero(masses > 1e-30)
    return first + int(seen[0]), masses[seen[0] : seen[-1] + 1]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("relation", "design"), RELATIONS)
@pytest.mark.parametrize(
    ("q", "noise", "interval"),
    [(0.02, {1.0: 10, 0.7: 5, 2.0: 20}, 3e-3), (0.3, {5.0: 60}, 1e-3), (1e-3, {0.3: 5}, 1e-2), (0.9, {3.0: 9}, 2e-3)],
)
def test_no_direction_is_below_losses_that_are_convolved_one_by_one(
    q: float, noise: dict[float, int], interval: float, relation: Relation, design: Design
) -> None:
    """Sums of positive numbers, which lose no digits, of losses that are rounded down: less than the truth in either direction."""
    factors = sampled_factors(steps(q, noise, relation, design))
    assert factors is not None
    profile = compose_losses(factors)
    assert profile is not None
    one, other = PAIRS[relation, design](q)
    found = profile._at(1)
    assert len(found) == (2 if (relation, design) == ("zero_out", "poisson") else 1)
    for way, laws in enumerate(((one, other), (other, one))):
        first, masses = 0, np.ones(1)
        for z, count in noise.items():
            start, step = rounded_down(*laws, z, interval)
            for _ in range(count):
                first, masses = cut(first + start, np.convolve(masses, step) * (1 - 1e-13))
        losses = (first + np.arange(masses.size)) * interval
        for delta in (1e-3, 1e-6, 1e-10, 1e-12, 1e-14, 1e-16):
            epsilon = profile.epsilon(delta)
            least = float(masses[losses > epsilon] @ -np.expm1(epsilon - losses[losses > epsilon]))
            assert least <= delta
            assert least <= found[way % len(found)].delta(epsilon)
