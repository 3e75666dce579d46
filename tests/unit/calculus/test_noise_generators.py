"""Noise is fresh unless a generator is given."""

import numpy as np
import pytest

from lethe.calculus.noise_generators import fresh_numpy_generator, noise_generator
from lethe.errors import InputError


def test_fresh_generators_differ() -> None:
    assert fresh_numpy_generator().random() != fresh_numpy_generator().random()
    assert noise_generator(None).random() != noise_generator(None).random()


def test_a_given_one_is_used_and_a_seed_is_refused() -> None:
    given = np.random.default_rng(1)
    assert noise_generator(given) is given
    for bad in (3, np.random.RandomState(1), "seed"):
        with pytest.raises(InputError, match=r"numpy\.random\.Generator"):
            noise_generator(bad)  # pyright: ignore[reportArgumentType]
