"""The mean itself: not private, for comparison."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lethe.calculus.guarantees import NotPrivate
from lethe.heavy_tailed.inputs import Array
from lethe.heavy_tailed.oracles.base import MeanOracle, finite_rows, require_rows
from lethe.heavy_tailed.solution import Release


@dataclass(frozen=True, slots=True)
class ExactMean(MeanOracle):
    """No clipping, no noise, no privacy."""

    def mean(self, rows: Array, generator: np.random.Generator) -> Array:
        """The mean of the rows."""
        return finite_rows(require_rows(rows)).mean(axis=0)

    def release(self, size: int, dimension: int) -> Release:
        """No guarantee: the mean is released without noise."""
        return Release(guarantee=NotPrivate(), sensitivity=None, noise_std=0.0)

    def shared(self, touches: int) -> ExactMean:
        """Itself."""
        return self
