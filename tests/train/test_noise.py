import pytest
import torch
from scipy import stats

from lethe.errors import InputError
from lethe.train.core.generators import fresh_generator, seeded_generators
from lethe.train.linear.loop import GaussianNoise

CPU = torch.device("cpu")


@pytest.mark.slow
def test_noise_has_the_standard_deviation_asked_for() -> None:
    """A chi-square interval that a true Gaussian leaves with probability 1e-9; at a million samples it is 0.9 % wide in all."""
    samples = 1_000_000
    noise = GaussianNoise(torch.Size((1000, 1000)), torch.Generator().manual_seed(5)).draw(0.37)
    assert isinstance(noise, torch.Tensor)
    values = noise.numpy().ravel() / 0.37
    low, high = stats.chi2.interval(1 - 1e-9, samples)
    assert low < float(values @ values) < high
    assert high / samples < 1.01**2  # so noise 1 % too small or too large is caught
    assert low / samples > 0.99**2
    assert stats.kstest(values, "norm").pvalue > 1e-9


def test_no_noise_draws_nothing() -> None:
    generator = torch.Generator().manual_seed(5)
    before = generator.get_state()
    assert GaussianNoise(torch.Size((3, 2)), generator).draw(0.0) == 0.0
    assert torch.equal(before, generator.get_state())


def test_draws_are_fresh() -> None:
    noise = GaussianNoise(torch.Size((3, 2)), torch.Generator().manual_seed(5))
    assert not torch.equal(torch.as_tensor(noise.draw(1.0)), torch.as_tensor(noise.draw(1.0)))


@pytest.mark.parametrize("seed", [-1, 1.5, "1", True])
def test_bad_seeds_are_refused(seed: object) -> None:
    with pytest.raises(InputError, match="seed: got"):
        seeded_generators(seed, (CPU,))  # pyright: ignore[reportArgumentType]


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
