import hashlib
import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

import lethe
from lethe.train.network.noise.secure import RESOLUTION, SecureNoise, grid_noise_std, grid_spacing, rounded_normals
from lethe.train.network.noise.training_noise import TrainingNoise
from lethe.train.network.steps import NoisySums


def seeded(seed: int) -> Callable[[int], bytes]:
    calls = itertools.count()
    return lambda count: hashlib.shake_256(f"{seed}/{next(calls)}".encode()).digest(count)


def grid_sensitivity(sensitivity: float, noise_std: float, dimension: int) -> float:
    """What a change of this norm can become once both neighbours are rounded to the grid; rounded up."""
    return (sensitivity + grid_spacing(noise_std) * math.sqrt(dimension)) * (1 + 2.0**-50)


def scripted(first: int, more: bytes) -> Callable[[int], bytes]:
    """One 64-bit word, then the same eight bytes for ever."""
    words = itertools.chain([first.to_bytes(8, "little")], itertools.repeat(more))
    return lambda count: next(words)


def test_against_the_exact_probabilities() -> None:
    """At a scale of 2.3 the rounding is coarse enough to see: chi-square over the cells, with the exact cell probabilities."""
    scale, count = 2.3, 400_000
    drawn = rounded_normals(count, scale, seeded(1))
    cells = np.arange(-8, 9)
    edges = (cells[:-1] + 0.5) / scale
    expected = np.diff(np.concatenate([[0.0], stats.norm.cdf(edges), [1.0]]))
    observed = np.bincount(np.clip(drawn, -8, 8) + 8, minlength=17)
    assert stats.chisquare(observed, expected * count).pvalue > 1e-6


@given(tail=st.one_of(st.integers(0, 2**63 - 1), st.floats(0, 63).map(lambda x: min(int(2**x), 2**63 - 1))), odd=st.booleans())
def test_each_draw_is_the_true_quantile_rounded(tail: int, odd: bool) -> None:
    """Against Newton's iteration at 400 bits, which uses no quantile of SciPy's but as a start."""
    scale = 2.0**RESOLUTION * 1.6
    (drawn,) = rounded_normals(1, scale, scripted(2 * tail + odd, bytes([0x55] * 8)))
    with mpmath.workprec(400):
        p = (mpmath.mpf(tail) + mpmath.mpf(1) / 3) / 2**64  # 0x5555... = 1/3
        x = mpmath.mpf(float(-special.ndtri(float(p))))
        for _ in range(8):
            x += (mpmath.erfc(x / mpmath.sqrt(2)) / 2 - p) * mpmath.sqrt(2 * mpmath.pi) * mpmath.exp(x * x / 2)
        expected = int(mpmath.nint(x * scale))
    assert drawn == (-expected if odd else expected)


@pytest.mark.parametrize("k", [0, 1, 10**8, 5 * 10**8, 10**9])
def test_lazy_bits_decide_at_a_border(k: int) -> None:
    """The word holds a border between k and k + 1 inside its interval: what comes after it must decide, and decide right."""
    scale = 2.0**RESOLUTION
    with mpmath.workprec(300):
        tail = int(mpmath.floor(mpmath.ldexp(mpmath.erfc(mpmath.mpf(k + 0.5) / scale / mpmath.sqrt(2)) / 2, 64)))
    assert rounded_normals(1, scale, scripted(2 * tail, bytes(8))).tolist() == [k + 1]  # a smaller tail is farther out
    assert rounded_normals(1, scale, scripted(2 * tail, b"\xff" * 8)).tolist() == [k]


def test_the_quantile_in_doubles_is_a_hundredth_of_the_margin() -> None:
    random = np.random.default_rng(4)
    allowed = 2.0**-44 - 2.0**-46
    for tail in (2.0 ** random.uniform(48, 63, 300)).astype(np.int64).tolist():
        p = (float(tail) + 0.5) * 2.0**-64
        with mpmath.workprec(200):
            x = mpmath.mpf(float(special.ndtri(p)))
            newton = (mpmath.erfc(-x / mpmath.sqrt(2)) / 2 - mpmath.mpf(p)) * mpmath.sqrt(2 * mpmath.pi) * mpmath.exp(x * x / 2)
        assert abs(float(newton)) < allowed / 10


@pytest.mark.parametrize("noise_std", [0.3, 1.0, 1e-9, 7e20])
def test_the_result_is_the_rounded_value_plus_the_rounded_noise(noise_std: float) -> None:
    value = torch.linspace(-3, 5, 1001, dtype=torch.float64) * noise_std
    result = value.clone()
    SecureNoise(seeded(5)).add_to([result], noise_std)
    spacing = grid_spacing(noise_std)
    noise = rounded_normals(1001, noise_std / spacing, seeded(5))
    for before, after, steps in zip(value.tolist(), result.tolist(), noise.tolist(), strict=True):
        assert Fraction(after) == Fraction(spacing) * (round(Fraction(before) / Fraction(spacing)) + steps)


def test_float32_results_are_the_double_results_rounded() -> None:
    value = torch.randn(3000, generator=torch.Generator().manual_seed(1)).view(3, 1000).t()
    narrow, wide = value.clone(), value.double()
    SecureNoise(seeded(6)).add_to([narrow], 0.2)
    SecureNoise(seeded(6)).add_to([wide], 0.2)
    assert torch.equal(narrow, wide.float())
    assert stats.kstest((wide - value.double()).numpy().ravel() / 0.2, "norm").pvalue > 1e-6


@given(seed=st.integers(0, 999), noise_std=st.floats(1e-3, 10), size=st.floats(0, 2))
def test_rounding_moves_neighbours_apart_by_no_more_than_stated(seed: int, noise_std: float, size: float) -> None:
    random = np.random.default_rng(seed)
    first, change = random.standard_normal((2, 50)) * [[1.0], [size * noise_std * 2.0**-RESOLUTION]]
    spacing = grid_spacing(noise_std)
    apart = np.linalg.norm(np.rint(first / spacing) * spacing - np.rint((first + change) / spacing) * spacing)
    assert apart <= grid_sensitivity(float(np.linalg.norm(change)) * (1 + 1e-12), noise_std, 50)


@given(noise_std=st.floats(1e-3, 1e3), ratio=st.floats(1e-2, 1e3), dimension=st.integers(1, 10**8))
def test_wider_noise_pays_for_the_grid(noise_std: float, ratio: float, dimension: int) -> None:
    sensitivity = noise_std * ratio
    wider = grid_noise_std(noise_std, sensitivity, dimension)
    assert grid_sensitivity(sensitivity, wider, dimension) / wider <= sensitivity / noise_std
    assert wider <= noise_std * 1.01


def test_steps_are_widened_for_the_sensitivity_that_is_certified() -> None:
    """Where clipping at 1000 keeps what differs between two records at .1, the certificate counts .2, and so must the grid."""
    run = lethe.Run(
        records=1,
        batches={"design": "full"},
        steps=1,
        step_size=1.0,
        clip_norm=1000.0,
        noise_multiplier=0.01,
        loss={"kind": "strongly_convex", "strong_convexity": 1.0, "smoothness": 1.0, "gradient_bound": 0.1},
        release="all",
        neighbours="replace_one",
    )
    asked: list[float] = []

    class Noted(SecureNoise):
        def add_to(self, tensors: Any, noise_std: float) -> None:
            asked.append(noise_std)

    NoisySums(run, TrainingNoise(Noted()))(1, [torch.zeros(10**6)])
    certified = 1.0 / float(run.relative_noise[0])
    assert certified == pytest.approx(0.2 / 10.0)
    assert grid_sensitivity(0.2, asked[0], 10**6) / asked[0] <= certified
