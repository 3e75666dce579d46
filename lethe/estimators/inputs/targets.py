r"""Targets of a regression: public bounds, or released ones, around which they are centred and at which they are truncated.

The regressors call `released_range` or `narrowed_range` in `fit` with the targets and a part of the budget, since the noise of a regression
is in proportion to the range of its targets; `Centred` then maps targets to units of it.

A range that was given may be narrowed by the targets' mean and second moment, which are released for a hundredth of the budget. Noise is
in proportion to the range, and a range that is known without looking at the targets is often several times as wide as they lie. Of targets
in units of half the range, about its middle, and truncated to [-1, 1], let m and s be the released mean and second moment, with noise of
$\sigma_m$ and $\sigma_s$, and $c = m\,(1 - \sigma_m^2/m^2)_+$, or 0 where the model has no intercept. Then

$$[c - b, c + b] \cap [-1, 1],\qquad b^2 = k^2\bigl((s - 2cm + c^2)_+ + \sqrt{\sigma_s^2 + 4c^2\sigma_m^2}\bigr),$$

takes the range's place where it is no wider than 0.7 of it: k times the targets' spread about c, with one standard deviation of its noise
for safety; b is at least $10^{-6}$, so that a range stays one when numbers are rounded. With $k = 2.5\max(1, 0.007/\sigma_s)^{0.3}$ a
hundredth of normal targets is left outside where noise is what matters, and fewer the less of it there is. All of it follows from what was
released and from public facts.

Counts and costs are skewed, and none is below 0: the upper end is twice their 0.98 quantile, found among sizes alone; that also narrows a
range that was given, however wide it is.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lethe.calculus.domains import as_number, outside
from lethe.certificates.statement import Statement
from lethe.errors import InputError
from lethe.estimators.budget import PrivacyBudget, planned_statement
from lethe.estimators.inputs.ranges import private_ranges
from lethe.estimators.inputs.tables import declared_switch
from lethe.mechanisms.base import Array, gaussian_guarantee, gaussian_noise_std
from lethe.mechanisms.moments import channel_moments, channel_sensitivity
from lethe.mechanisms.quantiles.located_quantiles import CountedColumns, located_cost
from lethe.partitions.block import Values

# Of the total squared mu: as much as makes n mu 50, within these bounds. A larger part is worth its price where records are few: a range
# that is twice too wide doubles all noise.
_RANGE_SHARE = {"units": 50.0, "smallest": 0.05, "largest": 0.3}
_TAIL = 0.05
_WIDER = 1.5  # than the range of the middle nine tenths: of normal targets a hundredth is truncated, of even ones none
# Of counts and costs: of an exponential law one in two thousand is truncated. Most may be 0, so that few tell of the others' size.
_TAIL_OF_COSTS, _WIDER_OF_COSTS = 0.02, 2.0
_RANGE_SHARE_OF_COSTS = {"units": 150.0, "smallest": 0.05, "largest": 0.3}
_ENOUGH_FOR_COSTS = 1000.0  # n mu of all, for a range that was given: of less the quantile may be missed
_NAME_OF_COSTS = "upper end of the targets (twice their 0.98 quantile)"
_NAME = "range of the targets (their 0.05 and 0.95 quantiles)"
_WIDEST, _NARROWEST = 1e100, 1e-300  # so that squares of targets do not overflow, and no part of a width vanishes
_NEEDED = (
    '"auto", a number B > 0 for targets within -B and B, or a pair (low, high) of numbers from -1e100 to 1e100, low the smaller one by '
    "at least 1e-300"
)
_NEEDED_OF_COSTS = '"auto", a number B > 0 for targets up to B, or a pair (low, high) of numbers up to 1e100, high > 0'

NARROWING_SHARE = 0.01  # of the total squared mu
_MOMENTS = "moments of the targets (their mean and second moment), by which the given range is narrowed"
# Of the mean beside the second moment: about where a range whose targets lie at one of its ends costs least.
_MEAN_WEIGHT = 0.35
# Chosen on generated targets (normal, bent, skewed, heavy tails) in ranges up to five times as wide, the exponent on hours, ages and rides.
_REACH, _TELLING, _WIDENING = 2.5, 0.007, 0.3  # k
_WIDEST_SHARE = 0.7  # of the given range: what is left between it and 1 would not make up for targets cut off
_NARROWEST_SHARE = 1e-6  # half of it, in units of half the given one
_MOST_NOISE = 0.05  # of the second moment: with more, no range could become narrow enough


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRange:
    """Where targets lie, as everybody may know."""

    centre: float  # what is taken off them
    half: float  # B > 0; what is left lies within plus and minus B, or is truncated
    statement: Statement | None = None  # what it cost to know; None: nothing

    @property
    def ends(self) -> tuple[float, float]:
        """Low and high."""
        return self.centre - self.half, self.centre + self.half


@dataclass(frozen=True, slots=True)
class Centred:
    """Targets minus a centre, truncated, in a unit."""

    centre: float  # is taken off
    limit: float  # at plus and minus which they are truncated
    unit: float  # > 0

    def __call__(self, values: Values) -> Array:
        """Shape (m,)."""
        return np.clip(values.astype(np.float64) - self.centre, -self.limit, self.limit) / self.unit


def declared_range(target_bound: Any, *, centred: bool, costs: bool = False) -> TargetRange | None:
    """The range given as public, "auto" (None), B or (low, high); not centred it is symmetric about 0, and of costs no part is below."""
    needed = _NEEDED_OF_COSTS if costs else _NEEDED
    if isinstance(target_bound, str):
        if target_bound != "auto":
            raise outside("target_bound", target_bound, needed)
        return None
    pair = tuple(target_bound) if isinstance(target_bound, tuple | list | np.ndarray) else (target_bound,)
    if not 1 <= len(pair) <= 2:
        raise outside("target_bound", target_bound, needed)
    numbers = [as_number("target_bound", number, needed) for number in pair]
    low, high = (-numbers[0], numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[-1])
    if costs:
        low = max(low, 0.0)
    if not (-_WIDEST <= low <= high <= _WIDEST and high - low >= _NARROWEST):
        raise outside("target_bound", target_bound, needed)
    return _around(low, high, centred=centred)


def range_cost(records: int, budget: PrivacyBudget, *, costs: bool = False) -> Statement:
    """What `released_range` of so many targets will cost, before it looks at one."""
    share = budget.planned_share(records, **(_RANGE_SHARE_OF_COSTS if costs else _RANGE_SHARE))
    name = _NAME_OF_COSTS if costs else _NAME
    return planned_statement(name, located_cost(1, share, budget.neighbours), neighbours=budget.neighbours)


def released_range(
    targets: Array | CountedColumns,
    budget: PrivacyBudget,
    *,
    centred: bool,
    generator: np.random.Generator | None,
    costs: bool = False,
    largest: float = math.inf,
) -> TargetRange:
    """1.5 times the range between the 0.05 and 0.95 quantiles, for 5 to 30 % of the budget (in squared mu); targets have shape (n,).

    Of costs up to twice the 0.98 quantile, or to `largest`, which is also the end where none was found.
    """
    ranges = private_ranges(
        targets,
        tail=_TAIL_OF_COSTS if costs else _TAIL,
        of_sizes=costs,
        share=budget.planned_share(targets.shape[0], **(_RANGE_SHARE_OF_COSTS if costs else _RANGE_SHARE)),
        name=_NAME_OF_COSTS if costs else _NAME,
        give="target_bound=(low, high)",
        of_target=True,
        neighbours=budget.neighbours,
        generator=generator,
    )
    if costs:
        unseen = largest < math.inf and bool(ranges.undetected[0] or ranges.tiny[0])
        high = largest if unseen else min(_WIDER_OF_COSTS * float(ranges.high[0]), largest)
        return _around(0.0, high, centred=False, statement=ranges.statement)
    middle, half = float(ranges.low[0] + ranges.high[0]) / 2.0, _WIDER * float(ranges.high[0] - ranges.low[0]) / 2.0
    return _around(middle - half, middle + half, centred=centred, statement=ranges.statement)


def _around(low: float, high: float, *, centred: bool, statement: Statement | None = None) -> TargetRange:
    if not centred:
        return TargetRange(centre=0.0, half=max(abs(low), abs(high)), statement=statement)
    return TargetRange(centre=low + (high - low) / 2.0, half=(high - low) / 2.0, statement=statement)


def narrowing_cost(
    narrow: bool | str,
    declared_range: TargetRange | None,
    records: int,
    budget: PrivacyBudget,
    *,
    may_choose: bool,
    against: str | None,
    costs: bool = False,
) -> Statement | None:
    """What `narrowed_range` will cost, if public facts say that it is worth that; None: nothing is released, and `against` may say why."""
    requested = declared_switch("narrow_range", narrow)
    if requested is False:
        return None
    if declared_range is None:
        against = 'target_bound = "auto": the range is released by quantiles, and is as narrow as it gets'
    if against is not None:
        if requested is None:
            return None
        raise InputError(
            f"narrow_range = True: {against}.", source="the option narrow_range", remedy='leave it at "auto", or set it to False'
        )
    sensitivity = channel_sensitivity(1.0, 1, budget.neighbours, _MEAN_WEIGHT, channels=1)
    noise_std = gaussian_noise_std(sensitivity, budget.share(NARROWING_SHARE))
    if (requested is None and not may_choose) or noise_std > _MOST_NOISE * records:
        return None
    if costs:
        return range_cost(records, budget, costs=True) if records * budget.total_mu >= _ENOUGH_FOR_COSTS else None
    return planned_statement(_MOMENTS, gaussian_guarantee(sensitivity, noise_std), neighbours=budget.neighbours)


def narrowed_range(
    targets: Array,
    declared_range: TargetRange,
    budget: PrivacyBudget,
    *,
    centred: bool,
    generator: np.random.Generator | None,
    costs: bool = False,
) -> TargetRange:
    """Release the moments of targets of shape (n,), truncated at the given range, which stays where they make it no narrower by enough; of
    costs a quantile.
    """
    if costs:
        return released_range(targets, budget, centred=False, generator=generator, costs=True, largest=declared_range.half)
    moments = channel_moments(
        Centred(centre=declared_range.centre, limit=declared_range.half, unit=declared_range.half)(targets)[:, None],
        channels=1,
        norm=1.0,
        target=budget.share(NARROWING_SHARE),
        neighbours=budget.neighbours,
        records=len(targets),
        mean_weight=_MEAN_WEIGHT,
        generator=generator,
    )
    statement = replace(moments.statement, name=_MOMENTS)
    mean, square = float(moments.mean[0]), float(moments.second_moment[0, 0])
    middle = mean * max(1.0 - moments.mean_noise_std**2 / max(mean * mean, 1e-300), 0.0) if centred else 0.0
    noise = math.hypot(moments.noise_std, 2.0 * middle * moments.mean_noise_std)
    wider = max(1.0, (_TELLING / moments.noise_std) ** _WIDENING)
    reach = _REACH * wider * math.sqrt(max(square - 2.0 * middle * mean + middle**2, 0.0) + noise)
    reach = max(reach, _NARROWEST_SHARE)
    low, high = max(middle - reach, -1.0), min(middle + reach, 1.0)
    if high - low > 2.0 * _WIDEST_SHARE:
        return replace(declared_range, statement=statement)
    return TargetRange(
        centre=declared_range.centre + declared_range.half * (low + high) / 2.0,
        half=declared_range.half * (high - low) / 2.0,
        statement=statement,
    )
