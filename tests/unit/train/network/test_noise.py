"""Normal noise and the generators that it comes from: which streams are the same, and that every start has its own."""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from how_many import by_night
from networks import make_network_run
from scipy import stats

from lethe.calculus.noise_generators import fresh_numpy_generator
from lethe.errors import InputError
from lethe.train.core.generators import fresh_generator, same_stream, seeded_generators, state_digest
from lethe.train.distributed.placement import Placement
from lethe.train.distributed.workers import Workers
from lethe.train.network.noise.gaussian import NetworkNoise
from lethe.train.network.noise.training_noise import sources_of
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
