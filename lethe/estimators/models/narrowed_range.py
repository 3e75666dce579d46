r"""A range that was given for the targets, narrowed by their mean and second moment, which are released for a hundredth of the budget.

Noise is in proportion to the range, and a range that is known without looking at the targets is often several times as wide as they lie.
Of targets in units of half the range, about its middle, and truncated to [-1, 1], let m and s be the released mean and second moment, with
noise of $\sigma_m$ and $\sigma_s$, and $c = m\,(1 - \sigma_m^2/m^2)_+$, or 0 where the model has no intercept. Then

$$[c - b, c + b] \cap [-1, 1],\qquad b^2 = k^2\bigl((s - 2cm + c^2)_+ + \sqrt{\sigma_s^2 + 4c^2\sigma_m^2}\bigr),$$

takes the range's place where it is no wider than 0.7 of it: k times the targets' spread about c, with one standard deviation of its noise
for safety; b is at least $10^{-6}$, so that a range stays one when numbers are rounded. With $k = 2.5\max(1, 0.007/\sigma_s)^{0.3}$ a
hundredth of normal targets is left outside where noise is what matters, as `inputs.targets` has it, and fewer the less of it there is.
All of it follows from what was released and from public facts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from lethe.certificates.statement import Statement
from lethe.errors import InputError
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.inputs.targets import TargetRange
from lethe.estimators.inputs.validation import declared_switch
from lethe.estimators.partitioned.targets import Centred
from lethe.estimators.paying import planned_statement
from lethe.mechanisms.base import Array, gaussian_guarantee, gaussian_noise_std
from lethe.mechanisms.moments import channel_moments, channel_sensitivity
from lethe.run.run import Neighbours

NARROWING_SHARE = 0.01  # of the total squared mu
_NAME = "moments of the targets (their mean and second moment), by which the given range is narrowed"
# Of the mean beside the second moment: about where a range whose targets lie at one of its ends costs least.
_MEAN_WEIGHT = 0.35
# Chosen on generated targets (normal, bent, skewed, heavy tails) in ranges up to five times as wide, the exponent on hours, ages and rides.
_REACH, _TELLING, _WIDENING = 2.5, 0.007, 0.3  # k
_WIDEST = 0.7  # of the given range: what is left between it and 1 would not make up for targets cut off
_NARROWEST = 1e-6  # half of it, in units of half the given one
_MOST_NOISE = 0.05  # of the second moment: with more, no range could become narrow enough


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedNarrowing:
    """What is going to be released of the targets.

    Args:
        given: the range that is narrowed.
        cost: planned.
    """

    given: TargetRange
    cost: Statement


def planned_narrowing(
    narrow: bool | str,
    given: TargetRange | None,
    records: int,
    budget: PrivacyBudget,
    *,
    may_choose: bool,
    against: str | None,
    neighbours: Neighbours,
) -> PlannedNarrowing | None:
    """What is worth its price, by what was asked for and by public facts; None: nothing.

    Args:
        narrow: "auto", or whether it is asked for.
        given: the range; None: it is released by quantiles.
        records: n.
        budget: the total.
        may_choose: whether "auto" may.
        against: why this range cannot be narrowed; None: it can.
        neighbours: replace_one or zero_out.
    Raises:
        InputError: it is asked for and cannot be had.
    """
    asked = declared_switch("narrow_range", narrow)
    if asked is False:
        return None
    if given is None:
        against = 'target_bound = "auto": the range is released by quantiles, and is as narrow as it gets'
    if asked is None and (not may_choose or against is not None):
        return None
    if against is not None or given is None:
        raise InputError(
            f"narrow_range = True: {against}.", source="the option narrow_range", remedy='leave it at "auto", or set it to False'
        )
    sensitivity = channel_sensitivity(1.0, 1, neighbours, _MEAN_WEIGHT, channels=1)
    noise_std = gaussian_noise_std(sensitivity, budget.share(NARROWING_SHARE))
    if noise_std > _MOST_NOISE * records:
        return None
    return PlannedNarrowing(given=given, cost=planned_statement(_NAME, gaussian_guarantee(sensitivity, noise_std), neighbours=neighbours))


def narrowed_range(
    targets: Array,
    planned: PlannedNarrowing,
    budget: PrivacyBudget,
    *,
    centred: bool,
    neighbours: Neighbours,
    generator: np.random.Generator | None,
) -> TargetRange:
    """Release what was planned; the given range where it is not narrower by enough, at the same cost.

    Args:
        targets: shape (n,), n public; those outside of the given range are put at its ends.
        planned: what is released.
        budget: the total.
        centred: whether the model has an intercept, which can stand for a centre.
        neighbours: replace_one or zero_out.
        generator: None where privacy matters.
    """
    given = planned.given
    found = channel_moments(
        Centred(centre=given.centre, limit=given.half, unit=given.half)(targets)[:, None],
        channels=1,
        norm=1.0,
        target=budget.share(NARROWING_SHARE),
        neighbours=neighbours,
        records=len(targets),
        mean_weight=_MEAN_WEIGHT,
        generator=generator,
    )
    statement = replace(found.statement, name=_NAME)
    mean, square = float(found.mean[0]), float(found.second_moment[0, 0])
    middle = mean * max(1.0 - found.mean_noise_std**2 / max(mean * mean, 1e-300), 0.0) if centred else 0.0
    noise = math.hypot(found.noise_std, 2.0 * middle * found.mean_noise_std)
    wider = max(1.0, (_TELLING / found.noise_std) ** _WIDENING)
    reach = _REACH * wider * math.sqrt(max(square - 2.0 * middle * mean + middle**2, 0.0) + noise)
    reach = max(reach, _NARROWEST)
    low, high = max(middle - reach, -1.0), min(middle + reach, 1.0)
    if high - low > 2.0 * _WIDEST:
        return replace(given, statement=statement)
    return TargetRange(centre=given.centre + given.half * (low + high) / 2.0, half=given.half * (high - low) / 2.0, statement=statement)
