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
from scipy import stats

from lethe.calculus.noise_generators import fresh_numpy_generator
from lethe.errors import InputError
from lethe.train.network.noise.gaussian import NetworkNoise


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
@pytest.mark.slow
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


def test_a_seed_means_the_same_noise_with_any_number_of_threads() -> None:
    threads, drawn = torch.get_num_threads(), []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            tensors = [torch.zeros(500, 300, dtype=torch.float64), torch.zeros(7, dtype=torch.float64)]
            noise = NetworkNoise(np.random.default_rng(8))
            for _ in range(2):
                noise.add_to(tensors, 1.0)
            drawn.append(torch.cat([tensor.reshape(-1) for tensor in tensors]))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*drawn)


def test_two_sources_of_one_generator_never_give_the_same_numbers() -> None:
    generator = np.random.default_rng(8)
    both = NetworkNoise(generator), NetworkNoise(generator)
    drawn = torch.zeros(6, 70_000, dtype=torch.float64)
    for place, tensor in enumerate(drawn):
        both[place % 2].add_to([tensor], 1.0)
    assert drawn.unique().numel() == drawn.numel()


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


@pytest.mark.slow
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


def test_it_adds_and_does_not_replace() -> None:
    tensor = torch.full((400,), 1000.0, requires_grad=True)
    NetworkNoise(fresh_numpy_generator()).add_to([tensor], 0.1)
    assert 998 < float(tensor.detach().min()) < float(tensor.detach().max()) < 1002  # twenty standard deviations
    assert tensor.requires_grad
    assert tensor.is_leaf


@pytest.mark.parametrize("generator", [torch.Generator().manual_seed(5), np.random.default_rng(5)])
def test_no_noise_draws_nothing_and_changes_nothing(generator: Any) -> None:
    def state() -> str:
        return repr(generator.get_state().tolist() if isinstance(generator, torch.Generator) else generator.bit_generator.state)

    before, tensors = state(), shaped()
    NetworkNoise(generator).add_to(tensors, 0.0)
    assert state() == before
    assert not any(bool(tensor.any()) for tensor in tensors)


@pytest.mark.parametrize("noise_std", [-1.0, float("nan"), float("inf"), True, "1", None])
def test_a_standard_deviation_out_of_range_is_refused(noise_std: Any) -> None:
    tensor = torch.zeros(3)
    with pytest.raises(InputError, match="noise_std"):
        NetworkNoise(fresh_numpy_generator()).add_to([tensor], noise_std)
    assert not tensor.any()


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        ([torch.zeros(3, dtype=torch.bfloat16)], "bfloat16"),
        ([torch.zeros(3, dtype=torch.int64)], "int64"),
        ([torch.zeros(1).expand(4)], "share memory"),
        ([torch.zeros(3).to_sparse()], "not stored"),
    ],
)
def test_tensors_that_cannot_take_noise_are_refused(bad: Any, match: str) -> None:
    good = torch.zeros(3)
    with pytest.raises(InputError, match=match):
        NetworkNoise(fresh_numpy_generator()).add_to([good, *bad], 1.0)
    assert not good.any()
