r"""The greatest convex minorant of many paths at once, by pooling neighbours whose slopes do not increase.

The cheapest payments of the shift engine follow this minorant: $\mu^2$ is the sum over its segments of rise squared over run. `engine`
calls it for one path, `participations` for many. D is the bound on the distance of two runs, L and s a step's Lipschitz constant and
sensitivity.

A vertex on or above the chord of its neighbours is no vertex of the minorant, and removing it does not change the minorant.
So the order of removal is free: each round removes every second vertex of every chain of such vertices, in all paths together.
When a round removes little, plain loops from left to right do the rest, so the cost is O(T) whatever the input.

**Bounded domains:** the best step after which the shift is reset to the largest possible distance.

Where two runs are never further apart than $D_\tau$ after step $\tau$, the shift may be set to $z_\tau = \min(D_\tau, f_\tau)$ there,
$f_t = \min(D_t, L_t f_{t-1} + s_t)$, and all that happened before is forgotten. A start at a $\tau$ where the bound does not bind is
never better than the start at the last $\tau_0 < \tau$ where it did (or at 0): paying nothing from $\tau_0$ to $\tau$ leads to the same
$z_\tau$. So only the binding moments are candidates.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import frexp, ldexp
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lethe.calculus.rounding import root_above
from lethe.theorems.shift.segments import NEGLIGIBLE_BITS, Floats, Integers, Scaled, Segments

# A vectorised round costs about this fraction of what the plain loop costs for the same number of segments.
_WORTHWHILE = 1 / 8

# One rounding is 2^-53 = eps / 2. A path of n steps, joined in any order, has at most 3n of them in a rise and 5n in a run, hence
# (2 * 3n + 5n) / 2 / 2 = 2.75 n eps in sqrt(rise^2 / run); summing n segments adds n eps / 4, and a pooling decision that
# rounding turned the wrong way costs the square of that. The constant 8 covers the last few operations.
_ROUNDINGS_PER_STEP = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Minorant:
    """The segments of each path's minorant, left to right, path by path."""

    segments: Segments
    path: Integers
    first: Integers
    """Index, in the input, of the first segment pooled into this one."""


def pool(segments: Segments, path: Integers) -> Minorant:
    """Pool the segments of each path (equal, adjacent values of `path`) into its greatest convex minorant."""
    first = np.arange(path.size)
    while path.size > 1:
        earlier, right = segments.map(lambda a: a[:-1]), segments.map(lambda a: a[1:])
        pools = earlier.pools_with(right) & (path[:-1] == path[1:])
        if not pools.any():
            break
        chosen = np.flatnonzero(_every_second(pools))
        if chosen.size < _WORTHWHILE * path.size:
            starts_pool, segments = _pool_one_by_one(segments, path, pools)
            first, path = first[starts_pool], path[starts_pool]
            break
        joined = earlier.map(lambda a, i=chosen: a[i]).join(right.map(lambda a, i=chosen: a[i]))
        starts_pool = np.ones(path.size, dtype=np.bool_)
        starts_pool[chosen + 1] = False
        into = chosen - np.arange(chosen.size)
        segments = segments.map(lambda a, k=starts_pool: a[k])
        for target, values in ((segments.product, joined.product), (segments.rise, joined.rise), (segments.run, joined.run)):
            target.mantissa[into] = values.mantissa
            target.exponent[into] = values.exponent
        first, path = first[starts_pool], path[starts_pool]
    return Minorant(segments=segments, path=path, first=first)


def squared_mus(minorant: Minorant, paths: int) -> Floats:
    r"""$\sum R^2 / V$ over each path's segments, for paths 0..paths-1; inf where a rise has no noise left to pay it."""
    energies = energy(minorant.segments)
    present, start = np.unique(minorant.path, return_index=True)
    totals = np.zeros(paths)
    with np.errstate(over="ignore"):
        totals[present] = np.add.reduceat(energies, start)
    return totals


def energy(segments: Segments) -> Floats:
    """rise^2 / run of each segment: 0 without a rise, inf without noise, never rounded down below the range of doubles."""
    rise, run = segments.rise, segments.run
    with np.errstate(divide="ignore", invalid="ignore"):
        mantissa = rise.mantissa**2 / run.mantissa
    ratio = Scaled(mantissa=mantissa, exponent=2 * rise.exponent - run.exponent).to_float()
    ratio = np.where(ratio < 1e-290, ratio + np.finfo(np.float64).smallest_subnormal, ratio)
    return np.where(rise.mantissa == 0.0, 0.0, np.where(run.mantissa == 0.0, np.inf, ratio))


def outward(squared: NDArray[np.float64], steps: int) -> Floats:
    """The square root, raised by what rounding may have taken from a path of that many steps: exact 0 and inf stay; nan is inf."""
    return root_above(squared, _ROUNDINGS_PER_STEP * float(np.finfo(np.float64).eps) * (steps + 8))


# One segment in plain Python numbers, for the loops that numpy cannot do: mantissa and exponent of the product, the rise and the run.
Piece = tuple[float, int, float, int, float, int]


def pieces(segments: Segments) -> list[Piece]:
    """The segments of a one-dimensional array, one by one."""
    product, rise, run = segments.product, segments.rise, segments.run
    return list(
        zip(
            product.mantissa.tolist(),
            product.exponent.tolist(),
            rise.mantissa.tolist(),
            rise.exponent.tolist(),
            run.mantissa.tolist(),
            run.exponent.tolist(),
            strict=True,
        )
    )


def join_pieces(first_piece: Piece, right: Piece) -> Piece:
    """`Segments.join` for two pieces."""
    p, pe, r, re, v, ve = first_piece
    q, qe, s, se, w, we = right
    bits = qe + re - se
    if bits > 0:
        r, carry = frexp(q * r + ldexp(s, -bits if bits < NEGLIGIBLE_BITS else -NEGLIGIBLE_BITS))
        re += qe + carry
    else:
        r, carry = frexp(ldexp(q * r, bits if bits > -NEGLIGIBLE_BITS else -NEGLIGIBLE_BITS) + s)
        re = se + carry
    bits = 2 * qe + ve - we
    if bits > 0:
        v, carry = frexp(q * q * v + ldexp(w, -bits if bits < NEGLIGIBLE_BITS else -NEGLIGIBLE_BITS))
        ve += 2 * qe + carry
    else:
        v, carry = frexp(ldexp(q * q * v, bits if bits > -NEGLIGIBLE_BITS else -NEGLIGIBLE_BITS) + w)
        ve = we + carry
    p, carry = frexp(p * q)
    return p, pe + qe + carry, r, re, v, ve


def pieces_pool(first_piece: Piece, right: Piece) -> bool:
    """`Segments.pools_with` for two pieces."""
    _, _, r, re, v, ve = first_piece
    q, qe, s, se, w, we = right
    bits = re + we - se - ve - qe
    # Both sides are products of at most three numbers in [1/2, 1): four bits of exponent settle the order.
    return ldexp(r * w, 4 if bits > 4 else bits if bits > -4 else -4) >= s * v * q


def piece_energy(piece: Piece) -> float:
    """`energy` for one piece."""
    _, _, rise, rise_exponent, run, run_exponent = piece
    if rise == 0.0:
        return 0.0
    exponent = 2 * rise_exponent - run_exponent
    if run == 0.0 or exponent > NEGLIGIBLE_BITS:
        return float("inf")
    value = ldexp(rise * rise / run, max(exponent, -5000))
    return value if value >= 1e-290 else value + 5e-324


def _every_second(chain: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """In each run of True keep the first, third, fifth ..."""
    index = np.arange(chain.size)
    before_run = np.maximum.accumulate(np.where(chain, -1, index))
    return chain & ((index - before_run) % 2 == 1)


def _pool_one_by_one(segments: Segments, path: Integers, pools: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], Segments]:
    """From left to right, looking only at the neighbours of what has changed: the segments that stay, and their new values."""
    product, product_exponent = segments.product.mantissa.data, segments.product.exponent.data
    rise, rise_exponent = segments.rise.mantissa.data, segments.rise.exponent.data
    run, run_exponent = segments.run.mantissa.data, segments.run.exponent.data
    paths = path.data
    last = path.size - 1
    blocks: list[tuple[int, int, Piece]] = []  # first and last index of what was pooled, left to right

    def segment(i: int) -> Piece:
        return product[i], product_exponent[i], rise[i], rise_exponent[i], run[i], run_exponent[i]

    for i in np.flatnonzero(pools).tolist():
        if blocks and i <= blocks[-1][1]:
            continue  # already pooled, or already compared with its pooled neighbour
        first = end = i + 1
        segment_path, piece = paths[i], segment(i + 1)
        growing = True
        while growing:
            while first > 0 and paths[first - 1] == segment_path:
                pooled_before = bool(blocks) and blocks[-1][1] == first - 1
                before = blocks[-1][2] if pooled_before else segment(first - 1)
                if not pieces_pool(before, piece):
                    break
                piece = join_pieces(before, piece)
                first = blocks.pop()[0] if pooled_before else first - 1
            growing = end < last and paths[end + 1] == segment_path and pieces_pool(piece, segment(end + 1))
            if growing:
                end += 1
                piece = join_pieces(piece, segment(end))
        blocks.append((first, end, piece))
    starts_pool = np.ones(path.size, dtype=np.bool_)
    for first, end, _ in blocks:
        starts_pool[first + 1 : end + 1] = False
    pooled = segments.map(lambda a: a[starts_pool])
    into = np.cumsum(starts_pool)[[first for first, _, _ in blocks]] - 1
    columns = list(zip(*[piece for _, _, piece in blocks], strict=True))
    for c, part in enumerate((pooled.product, pooled.rise, pooled.run)):
        part.mantissa[into] = columns[2 * c]
        part.exponent[into] = columns[2 * c + 1]
    return starts_pool, pooled


class WindowStart(NamedTuple):
    """A moment to start from: the piece that carries the shift up to the next segment of the path."""

    before: int
    """Index of the first segment of the path that still follows; the number of segments if none does."""
    piece: Piece
    moment: int
    """What the caller wants back if this start wins."""


def best_start(path: Sequence[Piece], starts: Sequence[WindowStart], squared_mu: float) -> tuple[float, int | None]:
    """The smallest squared mu over the starts, and its moment; the given value and None if no start beats it.

    From right to left, the minorant of what follows is kept on a stack; a start is joined to the part of it that pools. Two lower bounds
    save work: the chord to the end of the path, and the path without any shift at the start, which only grows as the start moves back. The
    path has its segments in time, and the starts ascend in `before`.
    """
    best, winner = squared_mu, None
    stack: list[Piece] = []
    tails = [0.0]  # tails[i]: energy of stack[:i], the part of the minorant right of the next piece on the stack
    whole: Piece | None = None
    pending = len(starts) - 1
    for k in range(len(path), -1, -1):
        while pending >= 0 and starts[pending].before == k:
            piece, moment = starts[pending].piece, starts[pending].moment
            pending -= 1
            if whole is not None and piece_energy(join_pieces(piece, whole)) >= best:
                continue
            depth = len(stack)
            while depth and pieces_pool(piece, stack[depth - 1]):
                depth -= 1
                piece = join_pieces(piece, stack[depth])
            value = piece_energy(piece) + tails[depth]
            if value < best:
                best, winner = value, moment
        if k == 0 or pending < 0:
            break
        piece = path[k - 1]
        whole = piece if whole is None else join_pieces(piece, whole)
        while stack and pieces_pool(piece, stack[-1]):
            piece = join_pieces(piece, stack.pop())
            tails.pop()
        stack.append(piece)
        tails.append(piece_energy(piece) + tails[-1])
        if tails[-1] >= best:
            break
    return best, winner
