r"""Privacy profile of balls in bins with every iterate released: a Gaussian mechanism whose record is in one secret bin of several.

Theorems of batches drawn once or once a pass (`theorems.sampling`, `theorems.correlated_noise`) state their guarantee as this class. A bin
is a batch that the record may be in; a visit is a step with that batch.

The record is thrown into one of $\ell$ bins and kept there; all that its bin's visits release of it is together $\mu_j$-GDP if the bin
is j. The worst pairs are, in dimension $\ell$ (docs/theory.md, Theorem 7b),

$$P = \frac1\ell\sum_j N(\mu_je_j, I), \qquad Q = N(0, I) \ \text{(zero out, add or remove)}, \qquad
  Q = \frac1\ell\sum_j N(-\mu_je_j, I) \ \text{(replace one)}$$

Against $N(0, I)$ their densities are sums of independent terms, $X_j = e^{\mu_jg_j - \mu_j^2/2}$ and $X'_j = e^{-\mu_jg_j - \mu_j^2/2}$:

$$H_{e^\epsilon}(P\|Q) = \frac{1}{\ell}E\Big(\sum_j X_j - \ell e^\epsilon\Big)_+, \quad
  H_{e^\epsilon}(Q\|P) = \frac{1}{\ell}E\Big(\ell - e^\epsilon\sum_j X_j\Big)_+, \quad
  \text{replace one: } \frac{1}{\ell}E\Big(\sum_j X_j - e^\epsilon\sum_jX'_j\Big)_+$$
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

import numpy as np

from lethe.calculus.balls_in_bins.lognormal_sums import TOGETHER, Term, Terms, log_mean_excess, log_mean_excesses
from lethe.calculus.composition import renyi_curve
from lethe.calculus.crossing import crossing
from lethe.calculus.domains import FloatArray, outside, require_counted, require_delta, require_nonnegative, require_vector
from lethe.calculus.guarantees import GDP, GDPMixture, Profile, RDPCurve, freeze
from lethe.calculus.rounding import count_above, exp_above
from lethe.calculus.upward_formatting import shown

Relation = Literal["replace_one", "zero_out", "add_or_remove"]
_Direction = Literal["with against without", "without against with", "one against the other"]

_EPS = float(np.finfo(np.float64).eps)
# Sums of lognormal terms are computed for these; a smaller mu is raised to the least, which is sound.
_LEAST_MU, _LARGEST_MU, _LARGEST_EPSILON = 1e-4, 25.0, 600.0
# The spread of a sum has so many intervals that their square costs some 1e-4 of epsilon.
_INTERVALS_A_ROOT, _FEWEST, _MOST_ROOTS, _COARSER, _FEWEST_COARSE = 500.0, 14, 19, 8, 2**11
_MOST_KEPT, _SHRINKING, _MOST_SHRUNK = 1000, 0.8, 8
_GROWTH, _ABOUT, _AN_OCTAVE = 0.05, 0.01, 8.0
# How close to delta its logarithm is brought, and how close is enough.
_COARSELY, _FINELY, _CLOSE, _MOST_SECANTS = 1e-3, 1e-8, 1e-7, 12


@dataclass(frozen=True, slots=True, kw_only=True)
class BallsInBinsGaussian(Profile):
    r"""A record in one of $\ell$ bins, all alike likely and kept for all passes, whose visits release Gaussian outputs.

    Formal guarantee: the bin is kept secret, and a record in bin j moves what is released by $\mu_j$ noise standard deviations in all
    (root of the sum of squares over its visits), measured from what is released without it.

    Never more than the average over bins of $\delta_{\mu_j}(\epsilon)$ ($2\mu_j$ for replace one), which holds for whoever knows the bin.
    `mus` are distinct $\mu_j \ge 0$, finite; `counts` says how many bins have each, >= 1. Reference: Chua et al. 2024, arXiv:2412.16802
    (the pair of zero out); docs/theory.md.
    """

    mus: tuple[float, ...]
    counts: tuple[int, ...]
    relation: Relation
    _revealed: GDP | GDPMixture = field(init=False, repr=False, compare=False)
    _kept: dict[tuple[str, float, int], float] = field(
        init=False, repr=False, compare=False, default_factory=dict[tuple[str, float, int], float]
    )
    kind: ClassVar[str] = "balls_in_bins_gaussian"

    def __post_init__(self) -> None:
        mus = require_vector("mus", self.mus, low=0.0)
        counts = require_vector("counts", self.counts, low=1.0)
        require_counted("mus", mus, counts)
        if self.relation not in get_args(Relation):
            raise outside("relation", self.relation, "one of " + ", ".join(get_args(Relation)))
        distance = 2.0 if self.relation == "replace_one" else 1.0
        costs: tuple[float, ...] = tuple((distance * mus).tolist())
        revealed = GDP(costs[0]) if len(costs) == 1 else GDPMixture(costs, tuple((counts / counts.sum()).tolist()))
        freeze(self, mus=tuple(mus.tolist()), counts=tuple(int(count) for count in counts), _revealed=revealed)

    def delta(self, epsilon: float) -> float:
        r"""The larger of both directions at $\epsilon$, rounded up."""
        return self._delta(require_nonnegative("epsilon", epsilon))

    def deltas(self, epsilons: FloatArray) -> FloatArray:
        """The larger of both directions, `directed_deltas`."""
        return np.max(self.directed_deltas(epsilons), axis=0)

    def directed_deltas(self, epsilons: FloatArray) -> tuple[FloatArray, ...]:
        r"""$H(P\|Q)$ and $H(Q\|P)$, or one where they are the same, at many ascending $\epsilon \ge 0$: faster than by themselves."""
        directed = [self._revealed.deltas(epsilons) for _ in self._directions]
        computable = [level for level in epsilons.tolist() if self._computable(level)]
        for deltas, direction in zip(directed, self._directions, strict=True):
            problems = [self._problem(direction, level, computable[index - index % TOGETHER]) for index, level in enumerate(computable)]
            excesses = log_mean_excesses([(terms, threshold) for terms, threshold, _ in problems], self._intervals[0])
            bounds = [
                self._as_delta(excess, unit) if excess < math.inf else self._log(direction, level, self._intervals[1])
                for level, excess, (_, _, unit) in zip(computable, excesses, problems, strict=True)
            ]
            deltas[: len(computable)] = np.minimum(deltas[: len(computable)], exp_above(np.array(bounds)))
        return tuple(directed)

    def epsilon(self, delta: float) -> float:
        r"""The smallest $\epsilon$ at $\delta$, to about seven digits, rounded up: evaluated, so that it holds."""
        target = require_delta(delta)
        high = self._revealed.epsilon(target)
        if high == 0.0 or not self._computable(high):
            return high
        level = 0.0
        # A replaced record is no easier to hide than one that is zeroed out, whose epsilon says where to begin.
        first: tuple[_Direction, ...] = ("with against without",) if self.relation == "replace_one" else ()
        for direction in (*first, *self._directions):
            level = self._solved(direction, math.log(target), level, high)
        growth = _CLOSE
        while level < high and not self.delta(level) <= target:  # the last digits of a grid that changes with epsilon
            level, growth = min(high, level * (1.0 + growth)), 2.0 * growth
        return level

    def about(self, delta: float) -> float:
        r"""An $\epsilon$ at about $\delta$, in (0, 1), much quicker and no bound: of a few values, so that grids by it seldom change."""
        high = min(self._revealed.epsilon(delta), _LARGEST_EPSILON)
        if high == 0.0 or not self._computable(high):
            return high
        coarse, target = self._intervals[1], math.log(delta)
        crossing_epsilon = crossing(
            lambda level: max(self._log(way, level, coarse) for way in self._directions) - target, 0.0, high, resolution=_ABOUT * high
        )
        return min(high, float(np.exp2(np.ceil(_AN_OCTAVE * np.log2(crossing_epsilon)) / _AN_OCTAVE)))

    def describe(self) -> str:
        """How many bins, and the range of what they cost."""
        smallest_mu, largest_mu = min(self.mus), max(self.mus)
        costs = f"{shown(largest_mu)}-GDP" if smallest_mu == largest_mu else f"{shown(smallest_mu)}- to {shown(largest_mu)}-GDP"
        return f"one of {sum(self.counts)} secret bins, {costs} each, {self.relation.replace('_', ' ')}"

    def renyi_curve(self) -> RDPCurve:
        """The Rényi curve of the mean over bins, without credit for their secrecy."""
        curve = renyi_curve({self._revealed: 1})
        assert curve is not None  # every mixture has one
        return curve

    @property
    def _directions(self) -> tuple[_Direction, ...]:
        if self.relation == "replace_one":
            return ("one against the other",)  # which is its own mirror image
        return ("with against without", "without against with")

    @property
    def _intervals(self) -> tuple[int, int]:
        """How many intervals the full grid has, and a coarse one."""
        visited = sum(count for mu, count in zip(self.mus, self.counts, strict=True) if mu > 0.0)
        full = 2 ** max(int(count_above(math.log2(_INTERVALS_A_ROOT * math.sqrt(visited)), _MOST_ROOTS)), _FEWEST)
        return full, max(full // _COARSER, _FEWEST_COARSE)

    def _computable(self, level: float) -> bool:
        """Whether the level and costs are within floating point, so that secrecy of the bin is worth computing."""
        return sum(self.counts) > 1 and max(self.mus) <= _LARGEST_MU and level <= _LARGEST_EPSILON

    def _delta(self, level: float) -> float:
        revealed = self._revealed.delta(level)
        if revealed == 0.0 or not self._computable(level):
            return revealed
        logarithm, tried = math.inf, 0
        # Far out floating point may not carry it; what holds at a smaller epsilon holds there too.
        while not logarithm < math.log(revealed) and tried < _MOST_SHRUNK:
            logarithm = max(self._log(direction, level * _SHRINKING**tried, self._intervals[0]) for direction in self._directions)
            tried += 1
        return min(revealed, float(exp_above(logarithm)))

    def _log(self, direction: _Direction, level: float, intervals: int) -> float:
        """`_log_delta`, each level once; or, where floating point does not carry it, that at a smaller epsilon, which holds here too."""
        key = (direction, level, intervals)
        if key not in self._kept:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            tries = (self._log_delta(direction, level * _SHRINKING**tried, intervals) for tried in range(_MOST_SHRUNK))
            self._kept[key] = next((logarithm for logarithm in tries if logarithm < math.inf), math.inf)
        return self._kept[key]

    def _log_delta(self, direction: _Direction, level: float, intervals: int) -> float:
        """Logarithm of one hockey-stick divergence."""
        terms, threshold, unit = self._problem(direction, level, level)
        return self._as_delta(log_mean_excess(terms, threshold, intervals), unit)

    def _problem(self, direction: _Direction, level: float, near: float) -> tuple[Terms, float, float]:
        r"""Terms and a threshold: $\ell$ times one divergence is $e^u$ times the mean excess; and u, `near` or the level, so that nothing
        overflows. At levels close to each other `near` one of them, terms are the same, but for replace one.
        """
        bins, unit = sum(self.counts), near if direction == "with against without" else level
        # Rounded so that sums become larger and thresholds smaller.
        shrunk = math.exp(-unit) * (1.0 + 4.0 * _EPS)
        up, down, threshold = {
            "with against without": (shrunk, 0.0, bins * math.exp(level - unit)),
            "without against with": (0.0, 1.0, -bins * shrunk),
            "one against the other": (shrunk, 1.0, 0.0),
        }[direction]
        unvisited = sum(count for mu, count in zip(self.mus, self.counts, strict=True) if mu == 0.0)
        threshold -= unvisited * (up - down)
        threshold -= 8.0 * _EPS * (abs(threshold) + unvisited)
        terms = tuple(Term(max(mu, _LEAST_MU), count, up, down) for mu, count in zip(self.mus, self.counts, strict=True) if mu > 0.0)
        return terms, threshold, unit

    def _as_delta(self, excess: float, unit: float) -> float:
        """The logarithm of the divergence, rounded up."""
        if math.isinf(excess):
            return excess
        bins = sum(self.counts)
        return excess + (unit - math.log(bins)) + 8.0 * _EPS * (unit + math.log(bins) + 1.0 + abs(excess))

    def _solved(self, direction: _Direction, target: float, low: float, high: float) -> float:
        """The least epsilon in [low, high] for one direction; a coarse grid says where to look, and high is known to hold."""

        def coarse(level: float) -> float:
            return self._log(direction, level, self._intervals[1]) - target

        def fine(level: float) -> float:
            return self._log(direction, level, self._intervals[0]) - target

        if (low > 0.0 and fine(low) <= 0.0) or (low == 0.0 and coarse(low) <= 0.0):
            return low
        failing, passing = low, high
        if low > 0.0:
            passing, growth = low, _GROWTH
            while passing < high and coarse(passing) > 0.0:
                failing, growth = passing, 2.0 * growth
                passing = min(high, failing * (1.0 + growth))
        start = crossing(coarse, failing, passing, resolution=_COARSELY * passing)
        if start == high:
            return high
        lower_start = start * (1.0 - _COARSELY)
        return _polished(fine, start, (coarse(start) - coarse(lower_start)) / (start - lower_start), low, high)


def _polished(gap: Callable[[float], float], start: float, slope: float, low: float, high: float) -> float:
    """Where a falling gap was seen to be just below 0, by secants from `start`, then by narrowing their bracket; or `high`, which holds."""
    failing, passing, point = low, high, start
    gaps: dict[float, float] = {}
    for _ in range(_MOST_SECANTS):
        gaps[point] = gap(point)
        if gaps[point] <= 0.0:
            passing = min(passing, point)
        else:
            failing = max(failing, point)
        if -2.0 * _FINELY <= gaps[point] <= 0.0 or not failing < passing:
            break
        if len(gaps) > 1:
            first, second = sorted(gaps, key=lambda level: abs(gaps[level]))[:2]
            slope = (gaps[first] - gaps[second]) / (first - second)
        following = point - (gaps[point] + _FINELY) / slope if slope < 0.0 else math.nan
        point = following if failing < following < passing else 0.5 * (failing + passing)
        if point in gaps:
            break
    if passing in gaps and gaps[passing] >= -_CLOSE:
        return passing
    return crossing(gap, failing, passing, resolution=_CLOSE * passing)
