"""Random generators for noise in NumPy.

Mechanisms on tables (sums, quantiles, minimisers) take theirs from here: fresh and unrepeatable unless a test hands one in.
"""

import os

import numpy as np

from lethe.errors import InputError


def fresh_numpy_generator() -> np.random.Generator:
    """A statistical generator that nobody can repeat, from 256 bits of the operating system's entropy; the fastest for noise on a CPU.

    It is not a cryptographic generator; see `lethe.train.network.SecureNoise` for that.
    """
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(int.from_bytes(os.urandom(32), "little"))))


def noise_generator(generator: np.random.Generator | None) -> np.random.Generator:
    """The generator given, for tests and benchmarks; with None a fresh one.

    What is released with a given one must say so (`seeded`): nobody can tell how it was seeded, or who could make its numbers again. Its
    normal numbers are floating-point numbers: their spacing depends on what they are added to, and an adversary who sees every digit of
    a release can use that. This, and that the generator is not cryptographic, is outside of what a guarantee says.
    """
    if generator is None:
        return fresh_numpy_generator()
    if not isinstance(generator, np.random.Generator):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(
            f"generator = {generator!r}; it needs a numpy.random.Generator, or None.",
            source="the argument generator",
            remedy="leave it out where privacy matters; for a test give numpy.random.default_rng(seed)",
        )
    return generator
