"""Random runs of any length, the same for the same seed."""

from __future__ import annotations

import numpy as np


def random_run(seed: int, longest: int = 12) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    steps = int(generator.integers(1, longest + 1))
    touched = generator.random(steps) < 0.7
    return generator.uniform(0.3, 1.8, steps), generator.uniform(0, 1, steps) * touched, generator.uniform(0.2, 2, steps)
