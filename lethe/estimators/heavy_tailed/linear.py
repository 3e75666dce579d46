"""Gradients of a linear model as slopes times rows, clipped and averaged without a table of gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from lethe.estimators.inputs.records import row_norms
from lethe.heavy_tailed import Problem
from lethe.heavy_tailed.oracles import ClippedMean
from lethe.heavy_tailed.problem import Gradient, RecordsInBlocks
from lethe.mechanisms.base import Array

_SHORTEST = 1e-150  # squares of shorter rows underflow; a norm may be taken too large, never too small

Slope = Callable[[Array, Array], Array]
"""(scores, targets), shape (s,) each -> the derivatives of the losses in the scores, shape (s,)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScoreGradients:
    """The gradients $l'_ix_i$ of some records.

    Args:
        features: $x_i$, shape (s, d).
        norms: at least their norms, shape (s,), > 0.
        slopes: $l'_i$, shape (s,); one that is not finite makes its record count 0.
    """

    features: Array
    norms: Array
    slopes: Array

    @property
    def shape(self) -> tuple[int, int]:
        """(s, d)."""
        return self.features.shape  # pyright: ignore[reportReturnType]

    def clipped_sum(self, clip_norm: float) -> Array:
        """The sum of the gradients, each clipped, shape (d,)."""
        reach = clip_norm * (1.0 - (self.shape[1] + 16) * 2.0**-52) / self.norms
        return np.clip(np.where(np.isfinite(self.slopes), self.slopes, 0.0), -reach, reach) @ self.features


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearScoreProblem(Problem):
    """A problem whose loss depends on the parameters through one score; its records are what `linear_records` gives.

    Args:
        slope: of the loss in the score.
    """

    slope: Slope

    def gradients(self, parameters: Array, records: Any) -> Any:
        """As `ScoreGradients`, for `ClippedLinearMean`."""
        if isinstance(records, RecordsInBlocks):
            return records.gradients(self, parameters)
        features, targets, norms = records
        with np.errstate(over="ignore", invalid="ignore"):
            slopes = self.slope(features @ parameters, targets)
        return ScoreGradients(features=features, norms=norms, slopes=slopes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClippedLinearMean(ClippedMean):
    r"""`ClippedMean` of `ScoreGradients`, or of what else has a `clipped_sum`, such as gradients in blocks.

    $|l'_i|\,\|x_i\|$ is the norm of a gradient, so clipping is of the slopes, at $\pm C/\|x_i\|$.
    The same sensitivity $2C/s$ and the same noise.
    """

    def mean(self, rows: Any, generator: np.random.Generator) -> Array:
        """See `ClippedMean`."""
        count, columns = rows.shape
        return rows.clipped_sum(self.clip_norm) / count + self.release(count, columns).noise_std * generator.standard_normal(columns)


def linear_records(features: Array, targets: Array) -> tuple[Array, Array, Array]:
    """Features, targets and norms of the features."""
    return features, targets, np.maximum(row_norms(features), _SHORTEST)


@lru_cache
def gradient_rows(slope: Slope) -> Gradient:
    """The same gradients as a table, for solvers that clip for themselves."""

    def rows(parameters: Array, records: Any) -> Array:
        features, targets, _ = records
        with np.errstate(over="ignore", invalid="ignore"):
            return slope(features @ parameters, targets)[:, None] * features

    return rows


def clipped_to(features: Array, norms: Array, longest: float) -> Array:
    """Rows clipped to a norm, rounded inward, shape (m, d).

    Args:
        features: shape (m, d).
        norms: at least the norms of the rows, shape (m,), > 0.
        longest: > 0.
    """
    return features * np.minimum(1.0, longest * (1.0 - (features.shape[1] + 16) * 2.0**-52) / norms)[:, None]
