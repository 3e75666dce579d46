"""Normal noise, also on a grid, and the generators that it comes from: which streams are the same, and that every start has its own."""

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
from torch import nn

from lethe.calculus.noise_generators import fresh_numpy_generator
from lethe.errors import InputError
from lethe.train.core.generators import fresh_generator, same_stream, state_digest
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
    tensors, before = [*shaped(dtype), torch.zeros(1000, 700, dtype=dtype)], state_digest(generator)
    NetworkNoise(generator).add_to(tensors, 0.0)  # draws nothing and changes nothing
    assert state_digest(generator) == before
    assert not any(bool(tensor.any()) for tensor in tensors)
    NetworkNoise(generator).add_to(tensors, 0.37)
    values = torch.cat([tensor.reshape(-1) for tensor in tensors]).double().numpy() / 0.37
    low, high = stats.chi2.interval(1 - 1e-9, values.size)
    assert low < float(values @ values) < high
    assert 0.98 < low / values.size < high / values.size < 1.02
    assert stats.kstest(values, "norm").pvalue > 1e-9
    for lag in (1, 2, 2**14):  # a buffer used twice would show at the length of a piece
        assert abs(float(values[:-lag] @ values[lag:])) < 6.2 * np.sqrt(values.size - lag)  # six standard deviations, and a fifth


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


def test_noise_is_drawn_in_double_and_rounded_once_and_the_largest_numbers_are_those_of_53_bits() -> None:
    """A sum of float32 draws could not pass: torch's have 24 random bits, so no more than 5.77 standard deviations."""
    narrow = torch.zeros(1000)
    NetworkNoise(torch.Generator().manual_seed(9)).add_to([narrow], 0.3)
    wide = 0.3 * torch.empty(1000, dtype=torch.float64).normal_(generator=torch.Generator().manual_seed(9))
    assert torch.equal(narrow, wide.float())

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
def test_what_would_give_the_same_numbers_again_is_refused(copied: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for generator in (torch.Generator(), np.random.default_rng(5)):
        with pytest.raises(InputError, match="copy would add the same numbers"):
            copied(NetworkNoise(generator))
    noise, tensor, here = NetworkNoise(fresh_numpy_generator()), torch.zeros(3), os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: here + 1)
    with pytest.raises(InputError, match="forked"):
        noise.add_to([tensor], 1.0)
    with pytest.raises(InputError, match="forked"):
        noise.key()
    assert not tensor.any()


CPU = torch.device("cpu")


def test_a_later_start_keeps_the_batches_and_changes_the_noise() -> None:
    model, batches, noises = torch.nn.Linear(5, 1, bias=False), [], []
    placement = Placement(model, dict(model.named_parameters()), Workers())
    for seed, start in itertools.product((3, 4), (0, 1, 2)):
        generator, noise = sources_of(make_network_run(), TrainOptions(seed=seed), placement, Workers(), start=start)
        tensor = torch.zeros(5)
        noise.add_to([tensor], 1.0)
        batches.append(tuple(torch.rand(5, generator=generator).tolist()))
        noises.append(tuple(tensor.tolist()))
    assert batches == [batches[0]] * 3 + [batches[3]] * 3
    assert len({*batches, *noises}) == 2 + 6


@pytest.mark.parametrize(
    "make",
    [lambda seed: torch.Generator().manual_seed(seed), np.random.default_rng, lambda seed: np.random.Generator(np.random.MT19937(seed))],
)
def test_a_digest_tells_states_apart_and_which_streams_are_the_same(make: Any) -> None:
    assert state_digest(make(1)) == state_digest(make(1))
    used = make(1)
    torch.rand(1, generator=used) if isinstance(used, torch.Generator) else used.random()
    assert len({state_digest(one) for one in (make(1), make(2), used)}) == 3
    own = isinstance(used, torch.Generator)  # of batches no other can be
    assert same_stream(used, used) == same_stream(make(1), make(1)) == own
    others = [(make(1), make(2)), (make(1), used), (fresh_generator(CPU), fresh_generator(CPU)), (None, None), (make(1), None)]
    assert not any(same_stream(*pair) for pair in others)


def test_fresh_generators_have_more_than_a_seed_of_entropy_and_are_uniform_and_normal() -> None:
    """manual_seed keeps 32 bits; the whole state of a fresh generator is random, so no seed repeats it. False alarm 1e-9."""
    first, second = fresh_generator(CPU), fresh_generator(CPU)
    repeated = torch.Generator().manual_seed(first.initial_seed())
    drawn = [torch.rand(20, generator=generator, dtype=torch.float64) for generator in (first, second, repeated)]
    assert len({tuple(sample.tolist()) for sample in drawn}) == 3
    assert stats.kstest(torch.rand(100_000, generator=first, dtype=torch.float64).numpy(), "uniform").pvalue > 1e-9
    assert stats.kstest(torch.randn(100_000, generator=first, dtype=torch.float64).numpy(), "norm").pvalue > 1e-9


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
    narrow, result = value.float(), value.float().double()
    SecureNoise(seeded(5)).add_to([narrow], noise_std)
    SecureNoise(seeded(5)).add_to([result], noise_std)
    spacing = grid_spacing(noise_std)
    noise = rounded_normals(1001, noise_std / spacing, seeded(5))
    for before, after, steps in zip(value.float().tolist(), result.tolist(), noise.tolist(), strict=True):
        assert Fraction(after) == Fraction(spacing) * (round(Fraction(before) / Fraction(spacing)) + steps)
    assert torch.equal(narrow, result.float())


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


class Asked(SecureNoise):
    """It notes which standard deviations were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.noise_stds: list[float] = []

    def add_to(self, tensors: Any, noise_std: float) -> None:
        self.noise_stds.append(noise_std)


def test_steps_are_widened_for_the_sensitivity_that_is_certified() -> None:
    """Where clipping at 1000 keeps what differs between two records at .1, the certificate counts .2, and so must the grid."""
    loss = {"kind": "strongly_convex", "strong_convexity": 1.0, "smoothness": 1.0, "gradient_bound": 0.1}
    run = make_network_run(
        "full", records=1, steps=1, step_size=1.0, clip_norm=1000.0, noise_multiplier=0.01, loss=loss, neighbours="replace_one"
    )
    asked = Asked()
    NoisySums(run, TrainingNoise(asked))(1, {nn.Parameter(torch.zeros(0)): torch.zeros(10**6)})
    certified = 1.0 / float(run.relative_noise[0])
    assert certified == pytest.approx(0.2 / 10.0)
    assert grid_sensitivity(0.2, asked.noise_stds[0], 10**6) / asked.noise_stds[0] <= certified


def test_the_grid_of_secure_noise_counts_the_numbers_of_all_processes() -> None:
    """A shard has few; what rounding to the grid may add to a change of all of them grows with their number."""
    asked, run = Asked(), make_network_run(noise_multiplier=1.0)
    noise = TrainingNoise(asked, shards=asked, parts=[True, False], dimension=10**12)
    NoisySums(run, noise)(1, {nn.Parameter(torch.zeros(0)): torch.zeros(numbers) for numbers in (5, 3)})
    assert set(asked.noise_stds) == {grid_noise_std(0.4, run.touch_factor * run.record_bound, 10**12)}
    assert asked.noise_stds[0] > 1.003 * 0.4
