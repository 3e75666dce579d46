r"""Images that a seeded generator draws: no picture was looked at for them.

Dead leaves: discs that cover one another, of radii r with a density $\propto r^{-3}$ and of random brightness, on a random background; some
cut by a line, so that there are straight edges too. They have edges, flat parts and a spectrum that falls like that of photographs, at all
scales: enough for the moments of edge filters.
"""

from __future__ import annotations

import numpy as np

from lethe.calculus.domains import require_count
from lethe.estimators.features.images import Pixels, shape_of

_DISCS = 30
_SMALLEST, _LARGEST = 1.0, 0.4  # radii: pixels, and of the shorter side


def synthetic_images(image_shape: tuple[int, ...], *, images: int = 1000, seed: int = 0) -> Pixels:
    """Dead leaves with entries from 0 to 1, float32.

    Args:
        image_shape: (rows, columns) or (channels, rows, columns).
        images: n, at least 2.
        seed: of the generator: the same one gives the same images.
    Returns:
        Shape (n, channels, rows, columns).
    Raises:
        InputError: an argument is out of its range.
    Reference: Lee, Mumford, Huang 2001, Occlusion models for natural images, IJCV 41.
    """
    channels, rows, columns = shape_of(image_shape)
    generator = np.random.default_rng(require_count("seed", seed, low=0, high=2**63 - 1))
    count = require_count("images", images, low=2, high=10**7)
    down, across = np.mgrid[0.5 : rows + 0.5, 0.5 : columns + 0.5]
    found = np.empty((count, channels, rows, columns), dtype=np.float32)
    largest = max(_LARGEST * min(rows, columns), 2.0 * _SMALLEST)
    for image in found:
        image[:] = generator.random((channels, 1, 1))
        for _ in range(_DISCS):
            # The inverse of the distribution function of a density r^-3 between two ends.
            radius = (_SMALLEST**-2 - generator.random() * (_SMALLEST**-2 - largest**-2)) ** -0.5
            y, x = down - rows * generator.random(), across - columns * generator.random()
            angle, cut = 2.0 * np.pi * generator.random(), generator.uniform(-1.0, 2.0)
            leaf = (np.square(y) + np.square(x) <= radius**2) & (np.cos(angle) * x + np.sin(angle) * y <= cut * radius)
            image[:, leaf] = generator.random((channels, 1))
    return found
