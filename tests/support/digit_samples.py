"""Pictures of digits in small, for the tests of a figure made from MNIST."""

import numpy as np

from lethe_experiments.hong.samples import Sample

PIXELS = 70


def _images(records: int, seed: int) -> Sample:
    """Noisy copies of one picture a digit."""
    pictures = np.random.default_rng(0).normal(size=(10, PIXELS))
    random = np.random.default_rng(seed)
    labels = random.integers(10, size=records)
    return Sample(features=pictures[labels] + 0.7 * random.normal(size=(records, PIXELS)), labels=labels)


TRAINING, TEST = _images(900, 1), _images(300, 2)
