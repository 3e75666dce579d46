"""Mean oracles: how a batch of gradients becomes one noisy mean, and what that costs."""

from __future__ import annotations

from lethe.heavy_tailed.oracles.base import MeanOracle
from lethe.heavy_tailed.oracles.clipped import ClippedMean
from lethe.heavy_tailed.oracles.coordinate import CoordinateMedian
from lethe.heavy_tailed.oracles.exact import ExactMean
