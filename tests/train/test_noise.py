import pytest
import torch
from scipy import stats

from lethe.errors import InputError
from lethe.train.core.generators import fresh_generator, seeded_generators

CPU = torch.device("cpu")


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
