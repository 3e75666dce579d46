r"""Bounded domains: the best step after which the shift is reset to the largest possible distance.

Where two runs are never further apart than $D_\tau$ after step $\tau$, the shift may be set to $z_\tau = \min(D_\tau, f_\tau)$ there,
$f_t = \min(D_t, L_t f_{t-1} + s_t)$, and all that happened before is forgotten. A start at a $\tau$ where the bound does not bind is
never better than the start at the last $\tau_0 < \tau$ where it did (or at 0): paying nothing from $\tau_0$ to $\tau$ leads to the same
$z_\tau$. So only the binding moments are candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lethe.theorems.shift.pooling import Piece, join_pieces, piece_energy, pieces_pool


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
    save work: the chord to the end of the path, and the path without any shift at the start, which only grows as the start moves back.

    Args:
        path: its segments, in time.
        starts: ascending in `before`.
        squared_mu: the value to beat.
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
