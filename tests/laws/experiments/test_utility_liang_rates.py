"""The rates of Liang et al. 2025 at one point computed by hand, and their mark."""

import math

import pytest

from lethe.errors import HypothesisError
from lethe_experiments.rates.liang_rates import (
    ClippedDescent,
    gradient_norm_rate,
    private_gradient_norm_rate,
    private_root_gap_rate,
    root_gap_rate,
)
from lethe_experiments.standing import ORDER

FIELDS = {
    "dimension": 4,
    "records": 1000,
    "batch_size": 100,
    "steps": 400,
    "step_size": 0.01,
    "clip_norm": 2.0,
    "smoothness": 4.0,
    "gradient_std": 3.0,
}
RUN = ClippedDescent(**FIELDS)  # pyright: ignore[reportArgumentType]


def test_lemma_3_7_at_one_point() -> None:
    """eta T = 4, eta L = .04, d L eta = .16, sigma = .5."""
    expected = 1 / 8 + 1 / 2 + min(3.0, 4.5) + 0.2 * 3 / 10 + 0.16 / 2 * 0.25 + 0.4 * 0.5
    assert gradient_norm_rate(RUN, noise_std=0.5).value == pytest.approx(expected, rel=1e-12)


def test_theorem_3_9_at_one_point() -> None:
    """sqrt L = 2, D = 3, mu = 1: L^(3/4) = 2 sqrt 2."""
    expected = 2 * 9 / 8 + 3 / 2 + min(2 * math.sqrt(2) * 3, math.sqrt(27 / 2)) + 0.1 * 3 / 10 + 0.04 * 2 / 2 * 0.25 + 0.2 * 0.5
    assert root_gap_rate(RUN, noise_std=0.5, diameter=3.0, strong_convexity=1.0).value == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("restricted", "divisor"), [(False, 1000 * 100), (True, 1000**2)])
def test_corollaries_3_11_and_3_12_insert_the_noise(restricted: bool, divisor: int) -> None:
    """alpha = 8, eps = 2. The last two terms as printed, with the noise written out."""
    free = gradient_norm_rate(RUN, noise_std=0.0).value
    printed = 4 * 8 * 2.0 * 4.0 * 0.01 * 400 / (2 * divisor) + math.sqrt(4 * 8 * 4.0 * 0.01 * 400) * 2.0 / math.sqrt(2 * divisor)
    claim = private_gradient_norm_rate(RUN, order_alpha=8.0, epsilon=2.0, restricted=restricted)
    assert claim.value == pytest.approx(free + printed, rel=1e-12)
    free = root_gap_rate(RUN, noise_std=0.0, diameter=3.0, strong_convexity=1.0).value
    noise = 1.04**2 * 9 / 0.01**2 + 4 / divisor
    printed = 4 * 8 * 0.01 * 2 / (2 * 2) * noise + math.sqrt(4 * 8 * 0.01 / 2 * noise)
    claim = private_root_gap_rate(RUN, order_alpha=8.0, epsilon=2.0, restricted=restricted, diameter=3.0, strong_convexity=1.0)
    assert claim.value == pytest.approx(free + printed, rel=1e-12)
    assert claim.standing is ORDER
    assert "not a guarantee" in str(claim)


def test_steps_beyond_those_stated_are_refused() -> None:
    long = ClippedDescent(**{**FIELDS, "step_size": 0.03})  # pyright: ignore[reportArgumentType]
    with pytest.raises(HypothesisError, match=r"1/\(9L\)"):
        gradient_norm_rate(long, noise_std=0.1)
    root_gap_rate(long, noise_std=0.1, diameter=1.0, strong_convexity=1.0)
    longer = ClippedDescent(**{**FIELDS, "step_size": 0.12})  # pyright: ignore[reportArgumentType]
    with pytest.raises(HypothesisError, match=r"9/\(20L\)"):
        root_gap_rate(longer, noise_std=0.1, diameter=1.0, strong_convexity=1.0)
