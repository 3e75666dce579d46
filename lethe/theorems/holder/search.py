"""The search for good tangents: whichever it finds, they give a bound."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from lethe.run.schedules.base import Array
from lethe.theorems.holder.paths import HolderPath, PassStretch, Touched
from lethe.theorems.shift import engine as shift

# Distances at which tangents are laid first, and how often they are laid anew along the best path found.
_FIRST_TANGENTS, _DESCENTS, _ROUNDS = 14, 4, 12
_STILL = 1e-6
# Stretches of a pass told apart: more where the run is short.
_MOST_STRETCHES, _STEPS_IN_ALL = 32, 20_000


class _Search:
    def __init__(self, path: HolderPath) -> None:
        self._path = path

    def best(self, touched: Touched | None) -> tuple[float, Array | None]:
        """The smallest mu of many tangents, and the distances at which they were laid; None if none bounds anything."""
        laid = [np.full(self._path.steps, at) for at in self._first()]
        tried = [(at, self._path.solve(at, touched)) for at in laid]
        tried.sort(key=lambda pair: pair[1].mu)
        # From several starts, because each descends to a stationary point of its own.
        found = [self._descended(at, solved, touched, _ROUNDS) for at, solved in tried[:_DESCENTS]]
        return min(found, key=lambda pair: pair[0])

    def _first(self) -> list[float]:
        widest, nearest = self._path.widest, self._path.nearest
        if self._path.straight:
            return [0.0, widest, np.inf]
        first = np.geomspace(nearest, 1.0, _FIRST_TANGENTS) * widest if nearest < 1.0 else np.array([widest])
        return [*(np.geomspace(1e-6, 1.0, _FIRST_TANGENTS) * widest).tolist(), *first.tolist(), np.inf]

    def near(self, starts: list[Array], touched: Touched) -> tuple[float, Array | None]:
        """As `best`, from tangents that were good for another place of the record."""
        tried = [(at, self._path.solve(at, touched)) for at in starts]
        at, solved = min(tried, key=lambda pair: pair[1].mu)
        return self._descended(at, solved, touched, _DESCENTS)

    def _descended(self, at: Array, best: shift.Shift, touched: Touched | None, rounds: int) -> tuple[float, Array | None]:
        for _ in range(rounds):
            if best.mu in (0.0, np.inf):
                break
            along = self._path.along(best)
            better = self._path.solve(along, touched)
            if not better.mu < best.mu * (1 - _STILL):
                break
            at, best = along, better
        return best.mu, None if best.mu == np.inf else at


def every_step_mu(path: HolderPath) -> float:
    r"""$\mu$ of a record that takes part in every step."""
    return _Search(path).best(None)[0]


def position_mus(path: HolderPath, *, afresh: bool) -> tuple[Array, Array]:
    r"""$\mu$ of a record that takes part once a pass: one for each stretch of positions, with the number of positions in it.

    Args:
        path: the run's last steps.
        afresh: whether each pass has an order of its own: then only the place in the last pass is told apart.
    """
    search = _Search(path)
    everywhere, at_every_step = search.best(None)
    stretches = _stretches(path)
    whole = PassStretch(0, path.batches - 1)
    places = [Touched(own=own, earlier=whole if afresh else own) for own in stretches]
    # The last place is the dearest where steps are alike; its tangents are tried for the others.
    dearest, good = search.best(places[-1])
    starts = [at for at in (good, at_every_step) if at is not None]
    mus = [search.near(starts, place)[0] if starts else dearest for place in places[:-1]]
    mus.append(min(dearest, search.near(starts, places[-1])[0]) if starts else dearest)
    return np.minimum(np.array(mus), everywhere), np.array([own.last - own.first + 1 for own in stretches], dtype=np.float64)


def _stretches(path: HolderPath) -> list[PassStretch]:
    count = min(path.batches, _MOST_STRETCHES, max(4, _STEPS_IN_ALL // path.steps))
    edges = [path.batches * part // count for part in range(count + 1)]
    return [PassStretch(low, high - 1) for low, high in pairwise(edges)]
