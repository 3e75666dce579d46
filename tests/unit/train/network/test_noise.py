"""Normal noise, also on a grid, and the generators that it comes from: which streams are the same, and that every start has its own."""

from __future__ import annotations

import copy
import hashlib
import itertools
import math
import os
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from how_many import by_night
from hypothesis import given
from hypothesis import strategies as st
from networks import make_network_run
from scipy import special, stats

import lethe
from lethe.calculus.noise_generators import fresh_numpy_generator
from lethe.errors import InputError
from lethe.train.core.generators import fresh_generator, same_stream, seeded_generators, state_digest
from lethe.train.distributed.placement import Placement
from lethe.train.distributed.workers import Workers
from lethe.train.network.noise.gaussian import NetworkNoise
from lethe.train.network.noise.secure import RESOLUTION, SecureNoise, grid_noise_std, grid_spacing, rounded_normals
from lethe.train.network.noise.training_noise import TrainingNoise, sources_of
from lethe.train.network.steps import NoisySums
from lethe.train.options import TrainOptions


def shaped(dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """A network's worth of shapes: a piece and more, an empty tensor, a number, a transposed and a strided one."""
    return [
        torch.zeros(300, 120, dtype=dtype),
        torch.zeros(0, dtype=dtype),
        torch.zeros((), dtype=dtype),
        torch.zeros(70, 50, dtype=dtype).t(),
        torch.zeros(40, 6, dtype=dtype)[:, ::2],
    ]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("generator", [np.random.Generator(np.random.SFC64(3)), torch.Generator().manual_seed(3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_noise_is_gaussian_of_the_standard_deviation_asked_for(generator: Any, dtype: torch.dtype) -> None:
    tensors = [*shaped(dtype), torch.zeros(1000, 700, dtype=dtype)]
    NetworkNoise(generator).add_to(tensors, 0.37)
    values = torch.cat([tensor.reshape(-1) for tensor in tensors]).double().numpy() / 0.37
    low, high = stats.chi2.interval(1 - 1e-9, values.size)
    assert low < float(values @ values) < high
    assert 0.98 < low / values.size < high / values.size < 1.02
    assert stats.kstest(values, "norm").pvalue > 1e-9
    for lag in (1, 2, 2**14):  # a buffer used twice would show at the length of a piece
        assert abs(float(values[:-lag] @ values[lag:])) < 6.2 * np.sqrt(values.size - lag)  # six standard deviations, and a fifth


def test_noise_is_drawn_in_double_and_rounded_once() -> None:
    """A sum of float32 draws could not pass: torch's have 24 random bits, so no more than 5.77 standard deviations."""
    tensor = torch.zeros(1000)
    NetworkNoise(torch.Generator().manual_seed(9)).add_to([tensor], 0.3)
    wide = 0.3 * torch.empty(1000, dtype=torch.float64).normal_(generator=torch.Generator().manual_seed(9))
    assert torch.equal(tensor, wide.float())


def test_numbers_are_box_and_mullers_of_the_generators_own() -> None:
    """Cut into tensors of any shapes, none is left out or used twice."""
    generator, pairs = np.random.Generator(np.random.SFC64(4)), 2**16
    tensors = [torch.zeros(count, dtype=torch.float64) for count in (1, 0, 100_000, 3, 150_000)]
    NetworkNoise(generator).add_to(tensors, 1.0)
    again, made = np.random.Generator(np.random.SFC64(4)), []
    for _ in range(2):
        first, second = again.random((2, pairs))
        radii, angles = np.sqrt(-2.0 * np.log(1.0 - first)), 2.0 * np.pi * second
        made += [radii * np.sin(angles), radii * np.cos(angles)]
    assert np.allclose(torch.cat(tensors).numpy(), np.concatenate(made)[:250_004], rtol=0.0, atol=1e-13)


def test_the_largest_numbers_are_those_of_53_bits() -> None:
    class Extreme(np.random.Generator):
        def random(self, *, out: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
            out[:] = 0.0
            out[0, :2] = 1.0 - 2.0**-53, 0.0

    tensor = torch.zeros(2**17, dtype=torch.float64)
    NetworkNoise(Extreme(np.random.SFC64(1))).add_to([tensor], 1.0)
    assert tensor[2**16].item() == pytest.approx(np.sqrt(106.0 * np.log(2.0)))
    assert tensor.isfinite().all()
    assert int(tensor.count_nonzero()) == 1


def test_threads_that_share_it_never_get_the_same_numbers() -> None:
    noise, drawn = NetworkNoise(fresh_numpy_generator()), torch.zeros(40 if by_night() else 8, 200_000, dtype=torch.float64)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda tensor: noise.add_to([tensor], 1.0), drawn))
    assert drawn.isfinite().all()
    # Of 8 million float64 one pair is equal by chance one time in 1200, two pairs one in 3 million; a buffer used twice is 65 536 pairs.
    assert drawn.unique().numel() >= drawn.numel() - 1


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
@pytest.mark.parametrize("generator", [torch.Generator(), np.random.default_rng(5)])
def test_what_would_give_the_same_numbers_again_is_refused(copied: Callable[[Any], Any], generator: Any) -> None:
    with pytest.raises(InputError, match="copy would add the same numbers"):
        copied(NetworkNoise(generator))


def test_a_forked_process_does_not_add_its_parents_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    noise, tensor, here = NetworkNoise(fresh_numpy_generator()), torch.zeros(3), os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: here + 1)
    with pytest.raises(InputError, match="forked"):
        noise.add_to([tensor], 1.0)
    assert not tensor.any()


@pytest.mark.parametrize("generator", [torch.Generator().manual_seed(5), np.random.default_rng(5)])
def test_no_noise_draws_nothing_and_changes_nothing(generator: Any) -> None:
    def state() -> str:
        return repr(generator.get_state().tolist() if isinstance(generator, torch.Generator) else generator.bit_generator.state)

    before, tensors = state(), shaped()
    NetworkNoise(generator).add_to(tensors, 0.0)
    assert state() == before
    assert not any(bool(tensor.any()) for tensor in tensors)


CPU = torch.device("cpu")


def test_every_start_under_a_seed_has_streams_of_its_own() -> None:
    drawn = [
        tuple(torch.rand(4, generator=generator).tolist())
        for seed in (0, 1, 2)
        for start in range(5)
        for generator in seeded_generators(seed, (CPU, CPU), start=start)
    ]
    assert len(set(drawn)) == len(drawn)
    first, second = (torch.rand(4, generator=generator) for generator in seeded_generators(7, (CPU, CPU)))
    again = [torch.rand(4, generator=generator) for generator in seeded_generators(7, (CPU, CPU), start=0)]
    assert torch.equal(first, again[0])
    assert torch.equal(second, again[1])


def test_a_later_start_keeps_the_batches_and_changes_the_noise() -> None:
    model, drawn = torch.nn.Linear(5, 1, bias=False), []
    placement = Placement(model, dict(model.named_parameters()), Workers())
    for start in (0, 1, 2):
        batches, noise = sources_of(make_network_run(), TrainOptions(seed=3), placement, Workers(), start=start)
        tensor = torch.zeros(5)
        noise.add_to([tensor], 1.0)
        drawn.append((torch.rand(5, generator=batches), tensor))
    assert all(torch.equal(drawn[0][0], batches) for batches, _ in drawn)
    assert len({tuple(noise.tolist()) for _, noise in drawn}) == 3


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: torch.Generator().manual_seed(seed),
        np.random.default_rng,
        lambda seed: np.random.Generator(np.random.SFC64(seed)),
        lambda seed: np.random.Generator(np.random.MT19937(seed)),
        lambda seed: np.random.Generator(np.random.Philox(seed)),
    ],
)
def test_a_digest_tells_states_apart(make: Any) -> None:
    assert state_digest(make(1)) == state_digest(make(1))
    assert state_digest(make(1)) != state_digest(make(2))
    used = make(1)
    torch.rand(1, generator=used) if isinstance(used, torch.Generator) else used.random()
    assert state_digest(used) != state_digest(make(1))


def test_which_streams_are_the_same() -> None:
    one = torch.Generator().manual_seed(1)
    assert same_stream(one, one)
    assert same_stream(one, torch.Generator().manual_seed(1))
    assert not same_stream(one, torch.Generator().manual_seed(2))
    assert not same_stream(fresh_generator(CPU), fresh_generator(CPU))
    assert not same_stream(None, None)
    assert not same_stream(one, None)
    generator = np.random.default_rng(0)
    assert not same_stream(generator, generator)  # of batches it cannot be


def test_fresh_generators_have_more_than_a_seed_of_entropy() -> None:
    """manual_seed keeps 32 bits; the whole state of a fresh generator is random, so no seed repeats it."""
    truncated = [torch.rand(4, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1 + 2**32)]
    assert torch.equal(*truncated)  # the reason; if this fails, PyTorch has changed and fresh_generator can be simpler
    first, second = fresh_generator(CPU), fresh_generator(CPU)
    repeated = torch.Generator().manual_seed(first.initial_seed())
    drawn = [torch.rand(20, generator=generator, dtype=torch.float64) for generator in (first, second, repeated)]
    assert len({tuple(sample.tolist()) for sample in drawn}) == 3


def test_fresh_generators_are_uniform_and_normal() -> None:
    """The hand-made state is a valid one; false alarm 1e-9 (the only test here whose randomness is not fixed)."""
    generator = fresh_generator(CPU)
    assert stats.kstest(torch.rand(100_000, generator=generator, dtype=torch.float64).numpy(), "uniform").pvalue > 1e-9
    assert stats.kstest(torch.randn(100_000, generator=generator, dtype=torch.float64).numpy(), "norm").pvalue > 1e-9


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
