r"""Random allocation whose batches are cut to K records, chosen uniformly: one pass, with the record in one secret batch of it.

`theorems.sampling` uses it for the design `random_allocation` with `truncate_at`: a cut batch hides some records, and this counts that
within the divergence in place of adding to $\delta$.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lethe.calculus.balls_in_bins.profile import BallsInBinsGaussian, Relation
from lethe.calculus.domains import FloatArray, outside, require_nonnegative, require_probability
from lethe.calculus.guarantees import Profile, freeze
from lethe.calculus.rounding import above
from lethe.calculus.upward_formatting import shown

# So many full batches, at the most, are told apart from all of them; more count as a failure, with a chance of at most this.
_MOST_FULL, _FAILURE = 64, 1e-18


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncatedAllocation(Profile):
    r"""A record in one of $\ell$ secret batches of a pass, each cut to K of its records, chosen uniformly, if it holds more.

    With $h_a(\epsilon)$ for the profile of bins of which a cost twice the largest $\mu_j$ and all others the largest that are left, p for
    the chance that the other records fill a batch, and A for a number of full batches that is next to never exceeded,

    $$\delta(\epsilon) = h(\epsilon) + \ell p\,h_1(\epsilon) + \frac{(\ell p)^2}2h_A(\epsilon) + \frac{(\ell p)^{A+1}}{(A+1)!}$$

    in each direction, h being that of `bins`, and $h_a$ those of replace one unless a record is added or removed.

    Formal guarantee: as of `BallsInBinsGaussian`; all records are thrown independently of each other, and each one's part has norm at most
    the bound that $\mu_j$ is relative to. `full` is p in (0, 1], at least the true chance, for batches that are alike likely. Proof:
    docs/theory.md, Theorem 7e.
    """

    bins: BallsInBinsGaussian
    full: float
    kind: ClassVar[str] = "truncated_allocation"

    def __post_init__(self) -> None:
        if not isinstance(self.bins, BallsInBinsGaussian):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise outside("bins", self.bins, "a BallsInBinsGaussian")
        freeze(self, full=require_probability("full", self.full))

    def delta(self, epsilon: float) -> float:
        r"""The larger of both directions at $\epsilon$, rounded up."""
        return float(self.deltas(np.array([require_nonnegative("epsilon", epsilon)]))[0])

    def deltas(self, epsilons: FloatArray) -> FloatArray:
        """The larger of both directions, `directed_deltas`."""
        return np.max(self.directed_deltas(epsilons), axis=0)

    def directed_deltas(self, epsilons: FloatArray) -> tuple[FloatArray, ...]:
        """As of `BallsInBinsGaussian`."""
        chances = [self._chance(count) for count in range(1, _MOST_FULL + 2)]
        most_full = next((count for count, chance in enumerate(chances) if chance <= _FAILURE), _MOST_FULL)
        parts = [(1.0, self.bins.directed_deltas(epsilons))]
        parts += [(chances[0], self._with_full(1).directed_deltas(epsilons))] if most_full > 0 else []
        parts += [(chances[1], self._with_full(most_full).directed_deltas(epsilons))] if most_full > 1 else []
        ways = range(max(len(deltas) for _, deltas in parts))
        sums = [sum(weight * deltas[way % len(deltas)] for weight, deltas in parts) + chances[most_full] for way in ways]
        return tuple(np.minimum(above(deltas, 1e-15), 1.0) for deltas in sums)

    def describe(self) -> str:
        """The bins, and how often others fill one."""
        return f"{self.bins.describe()}, cut where the others fill it, with chance {shown(self.full)}"

    def _chance(self, count: int) -> float:
        """A bound on the chance that others fill `count` batches or more."""
        bins = sum(self.bins.counts)
        mean = bins * self.full
        return 0.0 if count > bins else 1.0 if mean >= 1.0 else mean**count / math.factorial(count) * (1.0 + 1e-12) + 1e-300

    def _with_full(self, count: int) -> BallsInBinsGaussian:
        """So many bins at twice the largest cost in the place of the cheapest ones."""
        remaining, costs = min(count, sum(self.bins.counts)), dict[float, int]()
        doubled = remaining
        for mu, bins in sorted(zip(self.bins.mus, self.bins.counts, strict=True)):
            gone = min(remaining, bins)
            remaining -= gone
            if bins > gone:
                costs[mu] = bins - gone
        largest = 2.0 * max(self.bins.mus)
        costs[largest] = costs.get(largest, 0) + doubled
        relation: Relation = "add_or_remove" if self.bins.relation == "add_or_remove" else "replace_one"
        return BallsInBinsGaussian(mus=tuple(costs), counts=tuple(costs.values()), relation=relation)
