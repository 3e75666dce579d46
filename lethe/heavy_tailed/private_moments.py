"""Private bounds of the moments of gradients, from records set aside for it, where nothing public says how large gradients are. Solvers
need such a bound to set the clip norm. The estimators for heavy tails call `private_moment`; users of a `Problem` call `estimated_moments`.
u is a gradient's norm, k the moment's order, b the number of blocks of records.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom, norm

from lethe.calculus.domains import outside, require_count, require_positive
from lethe.calculus.noise_generators import noise_generator
from lethe.errors import InputError
from lethe.heavy_tailed.multi_pass import pieces
from lethe.heavy_tailed.oracles import noise_for, require_rho, scaled_rows
from lethe.heavy_tailed.problem import Moments, Problem, Records, count_records, require_problem, some_records
from lethe.heavy_tailed.sets import Array, require_point
from lethe.heavy_tailed.solution import Phase, Solution, gaussian_release, parallel

COMPARISONS = 8
_BAD = 0.125  # of one block, by Chebyshev's inequality where E u^2k <= (1 + q/32) (E u^k)^2
_MOST_BLOCKS = 10**9
_LARGEST_SIZE = 1e300

End = Literal["low", "high"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentEstimate:
    r"""A released bound of a moment.

    Args:
        order: k.
        bound: an estimate of $r_k$ from above: with the probability below, $r_k \le$ bound $\le 3^{1/k}\,c\,r_k$, c the ratio of the grid.
        end: "high": the search ended in the last cell of the public range, so $r_k$ may be beyond it and the bound says nothing; "low": in
            the first one, so the bound may be far too large; None: inside.
        blocks: b, of how many disjoint blocks the median is.
        block_size: q.
        failure: what the probability of a wrong bound is at most, if $E u^{2k} \le (1 + q/32)(E u^k)^2$ for the sizes u, if they are
            independent, and if $r_k$ is within the public range. Nothing here can check the first two.
        phase: the records it used and what they paid.
    """

    order: float
    bound: float
    end: End | None
    blocks: int
    block_size: int
    failure: float
    phase: Phase

    @property
    def moments(self) -> Moments:
        """For a `Problem`, kind "raw"; InputError where the search ended at the top of the range, so that there is no bound."""
        if self.end == "high":
            raise InputError(
                f"bound = {self.bound:g} is the top of the public range; the moment may be beyond it.",
                source="a private estimate of a moment",
                remedy="estimate again on other records with a larger high, or take bound as it is: clipping may then cost more bias",
            )
        return Moments(order=self.order, bound=self.bound)

    def others(self, records: Records) -> Records:
        """The records that were not used: those a solver may have; InputError where there are none."""
        count = count_records(records)
        if count <= self.phase.stop:
            raise InputError(f"{count} records, of which {self.phase.stop} were set aside; none is left.", source="the argument records")
        return some_records(records, slice(self.phase.stop, count))

    def joined(self, solution: Solution) -> Solution:
        r"""The solution of a solver that ran on `others`, with what the estimate cost in its phases and its guarantee.

        Formal guarantee: the records of the two are disjoint, so the whole costs the larger of the two: given what the estimate released, a
        record among the others takes part in the solver only; for one set aside all else is post-processing.
        """
        phases = (self.phase, *(phase.moved(self.phase.stop) for phase in solution.phases))
        facts = {"records_for_moments": self.phase.stop, "moment": self.bound, "moment_order": self.order, "moment_failure": self.failure}
        guarantee = parallel([self.phase.with_fresh_noise, solution.fresh.guarantee])  # taken back where either is seeded
        return replace(solution, phases=phases, guarantee=guarantee, diagnostics={**solution.diagnostics, **facts})


def private_moment(
    sizes: ArrayLike,
    *,
    order: float,
    rho: float,
    low: float = 1e-6,
    high: float = 1e9,
    failure: float = 0.01,
    generator: np.random.Generator | None = None,
) -> MomentEstimate:
    r"""Release a bound of $r_k = (E u^k)^{1/k}$ of sizes $u \ge 0$, one a record: the median of block moments, by noisy bisection.

    $$m_j = \Big(\frac1q\sum_{i \in B_j}u_i^k\Big)^{1/k},\qquad \hat r = 2^{1/k}\,(\text{right end of the median's cell})$$

    The grid is geometric, 256 cells from `low` to `high`. Each of 8 comparisons releases the number of $m_j$ at most a point of it, plus
    $N(0, \sigma^2)$.

    Formal guarantee: $\sqrt{2\rho}$-GDP for replacing one record, n public. Proof: the blocks are fixed and disjoint, so one record moves
    one $m_j$ and each count by at most 1; $\sigma = \sqrt8/\sqrt{2\rho}$, and the comparisons compose adaptively.

    Accuracy: see `MomentEstimate.failure`. It is a statement about the distribution and not about privacy: a wrong bound costs accuracy.
    Proof: by Chebyshev's inequality $m_j^k$ is outside of $[\frac12, \frac32]r_k^k$ with probability at most 1/8; if at most a of the b are
    and no noise reaches $b/2 - a$, every comparison below that interval goes up and every one above it goes down.

    Args:
        sizes: shape (n,); one that is not finite, or above 1e300, counts as 1e300, so that its block is above every range.
        order: k in [2, 100].
        rho: $\rho$.
        low, high: the public range of $r_k$, > 0, chosen without looking at the data.
        failure: wanted; it sets how many blocks there are.
        generator: of the noise; None: fresh entropy, as privacy needs: with another the phase is `seeded`.
    Raises:
        InputError: an argument is outside its range, or there are too few records for that failure probability.
    """
    values = _require_sizes(sizes)
    power = require_positive("order", order)
    if not 2.0 <= power <= 100.0:
        raise outside("order", order, "a number in [2, 100]")
    bottom, top = require_positive("low", low), require_positive("high", high)
    if not 1e-60 <= 4.0 * bottom < top <= 1e59:
        raise outside("low, high", (low, high), "a range within [1e-60, 1e59] whose top is at least four times its bottom")
    noise_std = noise_for(1.0, require_rho(rho) / COMPARISONS)
    blocks = blocks_for(require_positive("failure", failure), noise_std)
    if blocks > len(values):
        raise InputError(
            f"{len(values)} records; a failure probability of {failure:g} needs {blocks} blocks of at least one.",
            source="the arguments sizes, rho and failure",
            remedy="set more records aside, pay more for the estimate, or state the moment from public knowledge",
        )
    # Not cut at the top of the range: below it a moment may still be made of sizes beyond it.
    means = block_moments(np.minimum(values, _LARGEST_SIZE), power, blocks)
    cell, end, ratio = median_cell(means, bottom, top, noise_std, noise_generator(generator))
    size = len(values) // blocks
    return MomentEstimate(
        order=power,
        bound=2.0 ** (1.0 / power) * bottom * ratio ** (cell + 1),
        end=end,
        blocks=blocks,
        block_size=size,
        failure=failure_probability(blocks, noise_std),
        phase=Phase(
            first=0,
            stop=len(values),
            batch_size=len(values),
            steps=COMPARISONS,
            touches=COMPARISONS,
            release=gaussian_release(1.0, noise_std),
            clip_norm=None,
            seeded=generator is not None,
        ),
    )


def estimated_moments(
    problem: Problem,
    records: Records,
    *,
    order: float,
    rho: float,
    share: float = 0.1,
    points: Sequence[ArrayLike] | None = None,
    low: float = 1e-6,
    high: float = 1e9,
    failure: float = 0.01,
    generator: np.random.Generator | None = None,
) -> MomentEstimate:
    r"""`private_moment` of the gradients' norms on the first records, at public points; give a solver the `others` and join the two.

        estimate = estimated_moments(problem, records, order=2, rho=0.5)
        stated = dataclasses.replace(problem, moments=estimate.moments)
        oracle = practical_oracle(stated, rho=0.5)
        solution = estimate.joined(multi_pass(stated, estimate.others(records), oracle=oracle))

    The moment is that at the points, while the theory's is the largest over the domain: name those where gradients are large, such as far
    ends of it. A record's size is the largest of its gradients' norms at the points.

    Args:
        problem: its moments are not used.
        records: n of them, in an order that does not depend on their content.
        order: k.
        rho: $\rho$ of the estimate; the solver's own may be as large, since no record pays both.
        share: which part of the records is set aside, in (0, 1).
        points: where gradients are taken; None: 0, projected on the domain.
        low, high, failure, generator: as `private_moment`.
    Raises:
        InputError: an argument is outside its range, or too few records are set aside.
    """
    require_problem(problem)
    part = require_positive("share", share)
    if part >= 1.0:
        raise outside("share", share, "a number above 0 and below 1")
    aside = slice(0, max(math.floor(part * count_records(records)), 1))
    centres = [require_point("points", point, problem.dimension) for point in ([np.zeros(problem.dimension)] if points is None else points)]
    require_count("number of points", len(centres))
    norms = np.zeros(aside.stop)
    for centre in centres:
        point = problem.domain.project(centre)
        for piece in pieces(aside, problem.dimension):
            norms[piece] = np.maximum(norms[piece], _norms(problem.gradients(point, some_records(records, piece))))
    return private_moment(norms, order=order, rho=rho, low=low, high=high, failure=failure, generator=generator)


def _norms(rows: Array) -> Array:
    """Of rows that may hold anything: infinity where one is not finite, or too long for a float."""
    _, norms, divisors = scaled_rows(np.where(np.isfinite(rows), rows, 0.0))
    with np.errstate(over="ignore"):
        return np.where(np.isfinite(rows).all(axis=1), norms * divisors, np.inf)


def _require_sizes(sizes: ArrayLike) -> Array:
    """The sizes, those that are not finite as infinity."""
    try:
        values = np.asarray(sizes)
    except ValueError:
        raise outside("sizes", sizes, "one number >= 0 a record, in one row") from None
    if values.ndim != 1 or values.dtype.kind not in "iuf" or values.size == 0 or bool(np.any(values < 0)):
        raise outside("sizes", f"{values.dtype} of shape {values.shape}", "one number >= 0 a record, in one row")
    floats = values.astype(np.float64)
    return np.where(np.isnan(floats), np.inf, floats)


def block_moments(sizes: Array, order: float, blocks: int) -> Array:
    r"""$(\frac1q\sum_{i \in B_j}u_i^k)^{1/k}$ of b consecutive blocks of $q = \lfloor n/b\rfloor$ of n sizes; shape (b,)."""
    size = len(sizes) // blocks
    units, _, largest = scaled_rows(sizes[: blocks * size].reshape(blocks, size))  # no power overflows; one that underflows adds nothing
    with np.errstate(under="ignore"):
        return largest * np.mean(units**order, axis=1) ** (1.0 / order)


def median_cell(values: Array, low: float, high: float, noise_std: float, generator: np.random.Generator) -> tuple[int, End | None, float]:
    r"""The cell 0..255 of the grid $low\,c^i$, $c = (high/low)^{1/256}$, that 8 noisy comparisons lead to; whether it is an end; c.

    At the middle of the remaining grid: down if $\#\{j : v_j \le g\} + N(0, \sigma^2) \ge b/2$, else up. `values`: $v_j$, shape (b,).
    """
    ratio = (high / low) ** 2.0**-COMPARISONS
    low_cell, right = 0, 2**COMPARISONS
    for noise in (noise_std * generator.standard_normal(COMPARISONS)).tolist():
        middle = (low_cell + right) // 2
        if np.count_nonzero(values <= low * ratio**middle) + noise >= 0.5 * len(values):
            right = middle
        else:
            low_cell = middle
    end: End | None = "low" if low_cell == 0 else "high" if right == 2**COMPARISONS else None
    return low_cell, end, ratio


def failure_probability(blocks: int, noise_std: float) -> float:
    r"""$\min_a P(\mathrm{Bin}(b, \frac18) > a) + 8\,\Phi(-(b/2 - a)/\sigma)$, at most 1.

    Either more than a blocks stray, or a noise outweighs the others.
    """
    # The distribution is 1e-12 of its mass wide at most: past that, allowing more bad blocks only takes room from the noise.
    last = min(math.ceil(0.5 * blocks) - 1, int(binom.isf(1e-12, blocks, _BAD)) + 1)
    allowed = np.unique(np.linspace(math.floor(_BAD * blocks), max(last, 0), 512).astype(np.int64))
    room = 0.5 * blocks - allowed
    noisy = COMPARISONS * norm.sf(room / noise_std) if noise_std > 0.0 else np.zeros(len(allowed))
    wrong = np.where(room > 0.0, binom.sf(allowed, blocks, _BAD) + noisy, 1.0)
    return min(float(np.min(wrong)), 1.0)


@lru_cache(maxsize=256)
def blocks_for(failure: float, noise_std: float) -> int:
    """An odd number of blocks whose `failure_probability` is at most that: the smallest of a sequence that grows by an eighth."""
    target = require_positive("failure", failure)
    if target >= 1.0:
        raise outside("failure", failure, "a number above 0 and below 1")
    blocks = 1
    while blocks <= _MOST_BLOCKS:
        if failure_probability(blocks, noise_std) <= target:
            return blocks
        blocks += max(2, 2 * (blocks // 16))
    raise outside("rho", f"one with noise {noise_std:g} in a count", "a larger one: the noise outweighs a billion blocks")
