"""How well an attack tells members from others: areas and rates with intervals, and never an epsilon."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from lethe.audit.statistics.inputs import require_array, require_level
from lethe.audit.statistics.intervals import clopper_pearson_lower, clopper_pearson_upper
from lethe.calculus.domains import require_probability


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """The share of members found at one false-positive rate.

    Args:
        false_positive_rate: the share of others above the threshold, at most what was asked for.
        true_positive_rate: the share of members above it.
        low: lower end of its two-sided interval, for these models and this threshold.
        high: upper end.
    """

    false_positive_rate: float
    true_positive_rate: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """The success of an attack on one set of members and others. It says nothing about other attacks, models or records.

    Args:
        area: under the curve of true against false positives: the chance that a member's score is above another's, ties counted half.
        detections: one for each false-positive rate asked for.
    """

    area: float
    detections: tuple[Detection, ...]


def attack(out_scores: ArrayLike, in_scores: ArrayLike, *, rates: Sequence[float] = (0.1, 0.01, 0.001), level: float = 0.05) -> Attack:
    """Describe the scores of an attack.

    Args:
        out_scores: of records that are no members, shape (n0,).
        in_scores: of members, shape (n1,).
        rates: false-positive rates in [0, 1].
        level: the intervals are two-sided with this probability of error each.
    Raises:
        InputError: an argument is outside its range.
    """
    first, second = require_array("out_scores", out_scores, dimensions=1), require_array("in_scores", in_scores, dimensions=1)
    chance = require_level(level)
    ordered = np.sort(first)
    below, up_to = (int(np.searchsorted(ordered, second, side=side).sum()) for side in ("left", "right"))
    area = 0.5 * (below + up_to) / (first.size * second.size)
    return Attack(area=area, detections=tuple(_detect(ordered, second, rate, chance) for rate in rates))


def _detect(ordered: np.ndarray, members: np.ndarray, rate: float, level: float) -> Detection:
    allowed = int(require_probability("rates", rate) * ordered.size * (1.0 + 1e-12))
    # Above the largest score that may not be passed: ties with it stay below.
    threshold = -np.inf if allowed >= ordered.size else ordered[ordered.size - 1 - allowed]
    found = int(np.count_nonzero(members > threshold))
    return Detection(
        false_positive_rate=int(np.count_nonzero(ordered > threshold)) / ordered.size,
        true_positive_rate=found / members.size,
        low=clopper_pearson_lower(found, members.size, 0.5 * level),
        high=clopper_pearson_upper(found, members.size, 0.5 * level),
    )
