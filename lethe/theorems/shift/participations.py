"""The shift engine for many paths of one run at once, each touched at its own steps: the optimal mu of each, bounded domain included.

`shuffled` calls it for all places that a record may have in a pass. A path is one such place, a touch a step whose batch holds the record.
"""

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from lethe.theorems.shift import engine as shift
from lethe.theorems.shift.engine import Path
from lethe.theorems.shift.pooling import Piece, WindowStart, best_start, outward, pieces, pool, squared_mus
from lethe.theorems.shift.segments import Floats, Integers, Scaled, Segments, Stretch, exclusive_prefix, single_steps

# Common starts to try when a step expands, spread geometrically: fewer when many paths would each have to try them all.
_COMMON_STARTS = 40
_FEWEST_COMMON_STARTS = 4
_STARTS_IN_ALL = 200_000
# Segments turned into Python numbers at a time, which bounds the memory that takes.
_PIECES_AT_ONCE = 2**16


@dataclass(frozen=True, slots=True, kw_only=True)
class Touches:
    """The touches of all paths, path by path, in time; at least one a path."""

    time: Integers
    """The step, from 0, of each touch."""
    size: Floats
    """How far it moves the iterate, finite."""
    gap: Stretch
    """The untouched steps up to the path's next touch, or to the end of the run."""
    path: Integers
    """The path of each touch: 0, 1, 2, ..., ascending."""


def optimal_mus(run: Path, touches: Touches, bound: Floats | None) -> Floats:
    """The optimal mu of each path, rounded up.

    With a bound on the distance after each step: the best start right after a touch, and, where the bound may bind between touches because
    a step expands faster than the bound grows, the best of at most 40 starts common to all paths. Touches are the steps in which each
    path's record takes part; the bound, on the distance after each step, has shape (T,), in parameter units.
    """
    step = single_steps(run.lipschitz[touches.time], run.noise_std[touches.time])
    segments = Segments(product=step.product, rise=Scaled.of(touches.size), run=step.run).then(touches.gap)
    paths = int(touches.path[-1]) + 1
    squared = squared_mus(pool(segments, touches.path), paths)
    if bound is not None:
        _improve_by_starts(squared, run, touches, segments, bound)
    return outward(squared, run.steps)


def _improve_by_starts(squared: Floats, run: Path, touches: Touches, segments: Segments, bound: Floats) -> None:
    paths = squared.size
    ends: list[int] = np.searchsorted(touches.path, np.arange(paths + 1)).tolist()
    factors, caps = run.lipschitz[touches.time], bound[touches.time]
    common = _common_starts(run, touches, ends, bound)
    at_once = max(1, _PIECES_AT_ONCE * paths // touches.time.size)
    for begin in range(0, paths, at_once):
        stop = min(begin + at_once, paths)
        part = slice(ends[begin], ends[stop])
        own_segments = pieces(segments.map(lambda a, part=part: a[part]))
        gaps = touches.gap.map(lambda a, part=part: a[part])
        gap_pieces, gap_factors = pieces(_without_rise(gaps)), gaps.product.to_float().tolist()
        rows = list(zip(factors[part].tolist(), touches.size[part].tolist(), caps[part].tolist(), gap_factors, gap_pieces, strict=True))
        for j in range(begin, stop):
            touch_rows = slice(ends[j] - ends[begin], ends[j + 1] - ends[begin])
            starts = sorted([*_starts_after_touches(rows[touch_rows]), *common[j]], key=lambda start: start.before)
            if starts:
                squared[j], _ = best_start(own_segments[touch_rows], starts, float(squared[j]))


def _starts_after_touches(rows: list[tuple[float, float, float, float, Piece]]) -> list[WindowStart]:
    """Starts right after each touch at which the bound binds; the touch's own noise is behind the start.

    These dominate all other starts unless the bound can bind first at an untouched step t + 1, which needs L_{t+1} D_t > D_{t+1}.
    """
    starts: list[WindowStart] = []
    distance, through = 0.0, 1.0
    for k, (factor, size, cap, gap_factor, gap) in enumerate(rows):
        # Bounds that bind between two touches are left out: a larger distance is sound.
        carried = through * factor
        distance = min(cap, (carried * distance if carried > 0.0 and distance > 0.0 else 0.0) + size)
        if distance == cap < float("inf"):
            starts.append(WindowStart(before=k + 1, piece=shift.carried(distance, gap), moment=k + 1))
        through = gap_factor
    return starts


def _common_starts(run: Path, touches: Touches, ends: list[int], bound: Floats) -> list[list[WindowStart]]:
    """For each path the starts, ascending, at T - R with R on a geometric grid from 1; none where touches alone are complete."""
    paths = len(ends) - 1
    starts: list[list[WindowStart]] = [[] for _ in range(paths)]
    with np.errstate(over="ignore", invalid="ignore"):  # 0 times infinity: that step forgets, and does not expand
        expands = run.lipschitz[1:] * bound[:-1] > bound[1:] * (1.0 + 1e-12)
    if not bool(expands.any()):
        return starts
    count = min(_COMMON_STARTS, max(_FEWEST_COMMON_STARTS, _STARTS_IN_ALL // paths))
    lengths = {round(float(length)) for length in np.geomspace(1, max(1, run.steps - 1), count)}
    times = touches.time.tolist()
    for length in sorted(lengths, reverse=True):
        moment = run.steps - length
        distance = float(bound[moment - 1]) if moment > 0 else np.inf
        if distance == np.inf:
            continue
        following = [bisect_left(times, moment, ends[j], ends[j + 1]) for j in range(paths)]
        gaps = [(times[k] if k < ends[j + 1] else run.steps) - moment for j, k in enumerate(following)]
        ahead = slice(moment, moment + max(gaps))
        # One more step, so that the exclusive prefix covers the longest gap.
        steps = single_steps(
            np.append(run.lipschitz[ahead], 1.0)[:, np.newaxis],
            np.append(run.noise_std[ahead], 0.0)[:, np.newaxis],
        )
        stretches = pieces(_without_rise(exclusive_prefix(steps)).map(lambda a: a[:, 0]))
        for j, (k, gap) in enumerate(zip(following, gaps, strict=True)):
            before = k - ends[j]
            starts[j].append(WindowStart(before=before, piece=shift.carried(distance, stretches[gap]), moment=before))
    return starts


def _without_rise(stretch: Stretch) -> Segments:
    return Segments(product=stretch.product, rise=Scaled.full(stretch.run.mantissa.shape, 0.0), run=stretch.run)
