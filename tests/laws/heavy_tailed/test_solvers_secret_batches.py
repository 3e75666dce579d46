"""The noise of secret batches: against the exact price by integration and by convolution, never too little and hardly too much."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from lethe.calculus.sampled.gaussian import SampledGaussian
from lethe.heavy_tailed.localisation.sampled import sampled_noise

DELTA = 1e-5


def one_step_delta(rate: float, noise: float, epsilon: float) -> float:
    """Of (1-q)N(0, z^2) + qN(1, z^2) against (1-q)N(0, z^2) + qN(-1, z^2), by integration."""

    def excess(x: float) -> float:
        shared = (1 - rate) * norm.pdf(x, 0, noise)
        return max(shared + rate * norm.pdf(x, 1, noise) - math.exp(epsilon) * (shared + rate * norm.pdf(x, -1, noise)), 0.0)

    return quad(excess, 0.0, 1.0 + 40.0 * noise, limit=2000, points=[1.0, 4.0 * noise, 12.0 * noise])[0]


def composed_delta(rate: float, noise: float, steps: int, epsilon: float) -> float:
    """Of that many steps: the law on 200 000 points, losses rounded to the nearest of a grid of 1/4000, convolved.

    Rounding errs to both sides, by 1e-4 in the sum of 30 losses, and so delta by a thousandth of itself.
    """
    points = np.linspace(-1.0 - 9.0 * noise, 1.0 + 9.0 * noise, 200_000)
    shared, up, down = (
        (1 - rate) * norm.pdf(points, 0.0, noise),
        rate * norm.pdf(points, 1.0, noise),
        rate * norm.pdf(points, -1.0, noise),
    )
    places = np.rint(4000.0 * np.log((shared + up) / (shared + down))).astype(int)
    law = (shared + up) / (shared + up).sum()
    masses = np.bincount(places - places.min(), weights=law)
    length = 2 ** math.ceil(math.log2(steps * masses.size))
    together = np.fft.irfft(np.fft.rfft(masses, length) ** steps, length)
    losses = (np.arange(length) + steps * int(places.min())) / 4000.0
    return float((together * np.maximum(-np.expm1(epsilon - losses), 0.0)).sum())


def test_the_convolution_is_the_integral_for_one_step() -> None:
    assert composed_delta(0.125, 2.0, 1, 0.5) == pytest.approx(one_step_delta(0.125, 2.0, 0.5), rel=2e-3)


@pytest.mark.parametrize("epsilon", [0.5])
def test_the_noise_of_one_step_is_just_enough(epsilon: float) -> None:
    noise, spent = sampled_noise(0.125, 1, epsilon, DELTA)
    assert spent <= epsilon
    assert one_step_delta(0.125, noise, epsilon) <= DELTA * (1 + 1e-6)
    assert one_step_delta(0.125, 0.995 * noise, epsilon) > DELTA  # 0.1 % of the search, and what the discretisation adds


@pytest.mark.parametrize(("rate", "steps", "epsilon"), [(0.125, 30, 1.0), (0.05, 30, 0.5), (0.05, 100, 1.0)])
def test_the_noise_of_many_steps_is_just_enough(rate: float, steps: int, epsilon: float) -> None:
    """An independent price: at most the target, and above it with three thousandths less noise."""
    noise, spent = sampled_noise(rate, steps, epsilon, DELTA)
    assert spent <= epsilon
    assert composed_delta(rate, noise, steps, epsilon) <= DELTA * (1 + 2e-3)
    assert composed_delta(rate, 0.997 * noise, steps, epsilon) > DELTA * (1 + 2e-3)


def test_where_the_search_starts_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """From far below and far above, and a price that is not smooth: at most the target, and above it a thousandth further down."""
    asked = list[float]()

    def price(self: SampledGaussian, delta: float) -> float:
        asked.append(self.noise[0])
        return math.ceil(50.0 / self.noise[0] ** 1.3) / 20.0

    monkeypatch.setattr(SampledGaussian, "epsilon", price)
    for start in (0.01, 1.0, 7.0, 300.0):
        monkeypatch.setattr("lethe.heavy_tailed.localisation.sampled.normal_limit", lambda *_, start=start: start)
        for target in (0.06, 0.5, 1.0):
            asked.clear()
            noise, spent = sampled_noise.__wrapped__(0.1, 10, target, DELTA)
            assert noise in asked
            assert spent == math.ceil(50.0 / noise**1.3) / 20.0 <= target
            assert math.ceil(50.0 / (noise / 1.0011) ** 1.3) / 20.0 > target
            assert len(asked) < 40


def test_it_never_goes_below_the_least_noise_that_is_priced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SampledGaussian, "epsilon", lambda self, delta: 0.1 / self.noise[0])
    for target in (0.3, 5.0, 100.0):
        noise, spent = sampled_noise.__wrapped__(0.1, 10, target, DELTA)
        assert noise == pytest.approx(0.4, rel=1e-15)
        assert spent == pytest.approx(0.25)


def test_few_prices_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes up to seconds; bisection asked for fifteen."""
    asked, plain = list[float](), SampledGaussian.epsilon

    def price(self: SampledGaussian, delta: float) -> float:
        asked.append(self.noise[0])
        return plain(self, delta)

    monkeypatch.setattr(SampledGaussian, "epsilon", price)
    for rate, steps, epsilon in ((1 / 32, 500, 1.0), (1 / 8, 1000, 1.5), (1 / 64, 10_000, 1.0)):
        asked.clear()
        sampled_noise.__wrapped__(rate, steps, epsilon, DELTA)
        assert len(asked) <= 6
