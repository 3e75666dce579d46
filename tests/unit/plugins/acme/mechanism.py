"""A mechanism: how many records have a mark."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.guarantees import Guarantee
from lethe.calculus.noise_generators import noise_generator
from lethe.certificates.findings import holds
from lethe.certificates.statement import Statement
from lethe.mechanisms.base import gaussian_guarantee, gaussian_noise_std


def noisy_count(marks: ArrayLike, target: Guarantee, generator: np.random.Generator | None = None) -> tuple[float, Statement]:
    """The number of True among `marks`, with Gaussian noise, and what it costs."""
    noise_std = gaussian_noise_std(1.0, target)
    count = float(np.count_nonzero(marks)) + noise_std * float(noise_generator(generator).standard_normal())
    statement = Statement(
        name="a count",
        guarantee=gaussian_guarantee(1.0, noise_std),
        neighbours="replace_one",
        findings=(holds("sensitivity", "one record moves the count by at most 1", evidence="enforced"),),
        citations=(),
        seeded=generator is not None,
    )
    return count, statement
