r"""The area under the ROC curve (AUC), from noisy counts of two classes in halves of halves of a public range of scores.

`private_score` calls `rank_counts` with labels and scores of a classifier of two classes. P and Q are the positives and negatives, p and q
their counts in cells, z the quantile of the interval's level.

$AUC = U/(PQ)$, U the pairs of a positive with a lower negative, ties half. What one record can do to it depends on P and Q, which are
private: next to P = 1 it is 1. So counts are released in its place. Level l divides the range into $2^l$ cells; a cell is divided further
where the noisy counts of its level say that it holds pairs. Of the children of cells divided one class is counted left and right:

$$\sum_c p^R_c q^L_c \le U \le PQ - \sum_c p^L_c q^R_c.$$

Each record is in at most one counted cell a level: L levels of noise $\tau$ cost $\Delta\sqrt L/\tau$-GDP (docs/theory.md, section 16).

At the true a, $\sum p^Rq^L - aPQ \le 0$, a form M bilinear in counts with independent noise: its estimate has no bias, and a variance of at
most $\tau^2(\|M\hat q\|^2 + \|M^\top\hat p\|^2)$ on average (the cross term is counted twice). The interval holds the a at which neither
sum is beyond z of its deviations (Fieller). Of drawn records U/(PQ) is the mean over matchings of means of $\min(P, Q)$ independent numbers
in [0, 1], so its variance is at most $a(1-a)/\min(P, Q)$.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from lethe.calculus.noise_generators import noise_generator
from lethe.certificates.findings import holds
from lethe.certificates.statement import Statement
from lethe.mechanisms.base import Array, gaussian_statement
from lethe.mechanisms.quantiles.located_quantiles import histogram_sensitivity
from lethe.run.run import Neighbours

LEVELS = 12
_HELD = 4.0  # times the squared noise: pairs in a cell from which it is divided
_GRID = np.linspace(0.0, 1.0, 10_001)


def accepted(lowest: Array, highest: Array, reach_low: Array, reach_high: Array) -> tuple[float, float]:
    """From where in [0, 1] one statistic is at most its reach to where the other is last at least minus its own, outward on a grid."""
    above, below = np.flatnonzero(lowest <= reach_low), np.flatnonzero(highest >= -reach_high)
    low = float(_GRID[max(above[0] - 1, 0)]) if above.size else 0.0
    high = float(_GRID[min(below[-1] + 1, _GRID.size - 1)]) if below.size else 1.0
    return min(low, high), max(low, high)


def z_of(level: float) -> float:
    """How many standard deviations a two-sided interval of a level has on each side."""
    return float(ndtri(0.5 + 0.5 * level))


def share_interval(hits: float, misses: float, noise_std: float, level: float, *, population: bool) -> tuple[float, float]:
    """An interval of the share hits / (hits + others) of two noisy counts, by Fieller; of a population also for which records there are."""
    drawn = max(hits + misses, 0.0) * _GRID * (1.0 - _GRID) if population else 0.0
    statistic = (1.0 - _GRID) * hits - _GRID * misses
    reach = z_of(level) * np.sqrt(noise_std**2 * ((1.0 - _GRID) ** 2 + _GRID**2) + drawn)
    return accepted(statistic, statistic, reach, reach)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankCounts:
    """Noisy counts of the children of cells that were divided, shape (cells, 2), left and right; the first cell is the whole range."""

    positives: Array
    negatives: Array
    noise_std: float
    statement: Statement

    @property
    def value(self) -> float:
        """The AUC, pairs within a cell counted half; one half where there is nothing to divide by."""
        pairs = self.positives[0].sum() * self.negatives[0].sum()
        right, wrong = self._ordered(1), self._ordered(0)
        return float(np.clip(0.5 + 0.5 * (right - wrong) / pairs, 0.0, 1.0)) if min(self.positives[0].sum(), pairs) > 0.0 else 0.5

    def _ordered(self, side: int) -> float:
        """Pairs of a positive on this side and a negative on the other."""
        return float((self.positives[:, side] * self.negatives[:, 1 - side]).sum())

    def interval(self, level: float, *, population: bool) -> tuple[float, float]:
        """An interval of the AUC, of a population also for which records there are.

        Fieller: those a for which $U - a PQ$ can be 0. For drawn records by the largest variance that an AUC has, a (1 - a) / min(P, Q).
        """
        p, q = self.positives[0].sum(), self.negatives[0].sum()
        if min(p, q) <= 0.0:
            return 0.0, 1.0
        drawn = (p * q) ** 2 * _GRID * (1.0 - _GRID) / min(p, q) if population else 0.0
        reach = [z_of(level) * np.sqrt(self._variance(side, weight) + drawn) for side, weight in ((1, _GRID), (0, 1.0 - _GRID))]
        return accepted(self._ordered(1) - _GRID * p * q, (1.0 - _GRID) * p * q - self._ordered(0), *reach)

    def _variance(self, side: int, weight: Array) -> Array:
        """Of pairs ordered so, less all pairs times the weight: squared coefficients of the noise, as they are seen; on average no less."""
        total = np.zeros_like(weight)
        for counts, side_index in ((self.positives, 1 - side), (self.negatives, side)):  # the coefficients of the other class
            cell = counts[:, side_index]
            total += float(np.square(cell[1:]).sum())
            total += np.square(cell[0] - weight * counts[0].sum()) + np.square(weight * counts[0].sum())
        return self.noise_std**2 * total


def rank_counts(
    scores: Array,
    positive: Array,
    *,
    noise_std: float,
    neighbours: Neighbours,
    generator: np.random.Generator | None = None,
) -> RankCounts:
    r"""Release them, of scores and of whether each record is positive, shape (n,); $x/(1 + |x|)$ takes scores to [-1, 1], NaN to 0."""
    sensitivity, source = histogram_sensitivity(LEVELS, neighbours), noise_generator(generator)
    finite = np.where(np.isnan(scores), 0.0, np.clip(scores, -1e300, 1e300))
    unit_values = (1.0 + finite / (1.0 + np.abs(finite))) / 2.0
    parents, levels = np.zeros(1, dtype=np.int64), list[tuple[Array, Array]]()
    for level in range(1, LEVELS + 1):
        cells = np.searchsorted(np.arange(1, 2**level) / 2**level, unit_values, side="right")
        children = np.stack([2 * parents, 2 * parents + 1], axis=1)
        exact = (np.bincount(cells[positive == label], minlength=2**level)[children] for label in (True, False))
        positives, negatives = (counts + noise_std * source.standard_normal(children.shape) for counts in exact)
        levels.append((positives, negatives))
        pairs = positives * negatives
        parents = children[(np.minimum(positives, negatives) > 0.0) & (pairs > _HELD * noise_std**2)]
    statement = gaussian_statement(
        "area under the ROC curve",
        "histograms",
        sensitivity=sensitivity,
        noise_std=noise_std,
        neighbours=neighbours,
        records=len(scores),
        generator=generator,
        findings=(
            holds("values in bins", f"a record is in one of those of its class at most, at each of {LEVELS} levels", evidence="enforced"),
            holds("sensitivity", f"one record moves the counts of all levels by at most {sensitivity:.6g}", evidence="enforced"),
        ),
        columns=LEVELS,
    )
    positives, negatives = (np.concatenate(arrays) for arrays in zip(*levels, strict=True))
    return RankCounts(positives=positives, negatives=negatives, noise_std=noise_std, statement=statement)
