"""Factors, touches and noise of random runs of any length, the same for the same seed."""

import numpy as np


def random_run(seed: int, longest: int = 12) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    steps = int(generator.integers(1, longest + 1))
    touched = generator.random(steps) < 0.7
    return generator.uniform(0.3, 1.8, steps), generator.uniform(0, 1, steps) * touched, generator.uniform(0.2, 2, steps)


def random_passes(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Any lengths, partial last passes, zeros among constants, sensitivities and noise."""
    generator = np.random.default_rng(seed)
    steps, size = int(generator.integers(1, 25)), int(generator.integers(1, 9))
    factors = generator.choice([0.0, 0.5, 0.9, 1.0, 1.1, 2.0], steps) if seed % 2 else generator.uniform(0.5, 1.6, steps)
    touches = generator.uniform(0, 1, steps) * (generator.random(steps) < 0.8)
    noise = generator.uniform(0.3, 2, steps) * (generator.random(steps) < 0.8)
    return factors, touches, noise, size
