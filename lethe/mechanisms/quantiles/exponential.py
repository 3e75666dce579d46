"""A quantile by the exponential mechanism: a point of the range, the likelier the closer its rank is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lethe.calculus.domains import require_nonnegative
from lethe.calculus.rounding import round_down
from lethe.mechanisms.base import Array
from lethe.mechanisms.quantiles.ranks import RankedValues


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuantileLaw:
    """The exact law of the released point: constant density on each interval.

    Args:
        edges: ends of the intervals in the coordinate of the range, shape (m + 2,), sorted; equal neighbours where values tie.
        log_weights: logarithm of each interval's probability up to one constant, shape (m + 1,); minus infinity for an empty one.
    """

    edges: Array
    log_weights: Array

    @property
    def probabilities(self) -> Array:
        """The probability of each interval, shape (m + 1,)."""
        weights = np.exp(self.log_weights - self.log_weights.max())
        return weights / weights.sum()

    def draw(self, generator: np.random.Generator) -> float:
        """One point: an interval by the largest of log weights plus Gumbel noise, then uniform in it."""
        chosen = int(np.argmax(self.log_weights + generator.gumbel(size=self.log_weights.size)))
        left, right = self.edges[chosen : chosen + 2].tolist()
        return min(left + (right - left) * float(generator.random()), right)


def quantile_law(ranks: RankedValues, epsilon: float) -> QuantileLaw:
    r"""The exponential mechanism for the utility $u(r) = -|v(r)|$, v of `lethe.mechanisms.quantiles.ranks`:

    $$p(r) \propto \exp\left(-\frac{\epsilon}{2\Delta}\,|v(r)|\right),\qquad
      P(I_k) \propto |I_k|\,\exp\left(-\frac{\epsilon}{2\Delta}\,|k - pm|\right),\quad k = 0..m,$$

    $I_k$ the interval between the k-th and the next of the sorted values, the ends of the range added. Ties give intervals of length zero,
    which have probability zero. The coordinate (linear or logarithmic) is a base measure that does not depend on the data.

    Formal guarantee: $\epsilon$-BR, so $\epsilon$-DP, with $\Delta = 1$ (one record replaced) or $\max(p, 1-p)$ (zeroed out). Proof: one
    record moves $v(r)$, so $|v(r)|$, by at most $\Delta$ at every r. The logarithm of the ratio of the two densities at r is
    $\frac{\epsilon}{2\Delta}$ times that change plus a constant, so it stays within an interval of length $\epsilon$.
    It is exact: a record that crosses the quantile lowers $|v|$ by 1 on one side of it and raises it by 1 on the other.

    Args:
        ranks: the data.
        epsilon: $\ge 0$, finite.
    Raises:
        InputError: epsilon is outside its range.
    Reference: Smith 2011, Privacy-preserving statistical estimation with optimal convergence rates; Gillenwater, Joseph, Kulesza 2021,
        arXiv:2102.08244.
    """
    slope = round_down(require_nonnegative("epsilon", epsilon, allow_infinity=False) / (2.0 * ranks.sensitivity), 1e-15)
    edges = np.concatenate([[ranks.low], ranks.points, [ranks.high]])
    distances = np.abs(np.arange(edges.size - 1) - ranks.rank)
    with np.errstate(divide="ignore"):
        log_lengths = np.log(np.diff(edges))
    return QuantileLaw(edges=edges, log_weights=log_lengths - slope * distances)
