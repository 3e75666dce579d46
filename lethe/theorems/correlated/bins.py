"""Theorem correlated-bins: correlated noise of few bands, and a record in one secret bin for all passes."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from lethe.calculus.balls_in_bins.profile import BallsInBinsGaussian
from lethe.calculus.correlated.sensitivity import band_count
from lethe.calculus.guarantees import GDP
from lethe.calculus.rounding import above
from lethe.certificates.findings import Finding, fails, holds
from lethe.certificates.parts import Citation
from lethe.run.run import Run
from lethe.run.schedules.base import Array
from lethe.theorems.balls_in_bins import cost_levels
from lethe.theorems.base import Bound, Theorem
from lethe.theorems.clip_methods import Clipping
from lethe.theorems.correlated.theorem import slot_sensitivities_of
from lethe.theorems.requirements import design, each_gradient_bounded, secrecy


class CorrelatedBinsTheorem(Theorem):
    r"""The banded matrix mechanism, amplified by the record's secret bin.

    Of $\ell$ bins and p bands, tell the adversary in which m of the bins the record may be, $m = \lfloor\ell/p\rfloor$ that are p steps or
    more apart, as the passes go round, turned by a uniform number of steps. Each row of $y = CG + z$ then holds the contribution of one of
    these bins alone, and the run is that of m bins with independent noise, of which bin j costs

    $$\mu_j = \frac{G}{\sigma}\,\Big(\sum_{s\in S_j}\|C_{\cdot s}\|^2\Big)^{1/2}.$$

    The largest costs that any turn meets count.
    """

    name: ClassVar[str] = "correlated-bins"
    statement: ClassVar[str] = "The banded matrix mechanism on balls in bins: correlated noise, amplified; holds whatever is released."
    formula: ClassVar[str] = (
        r"P = \frac1m\sum_{j=1}^mN(\mu_je_j, I),\ m = \lfloor\ell/p\rfloor,\ \mu_j^2 = \frac{G^2}{\sigma^2}\sum_{s\in S_j}\|C_{\cdot s}\|^2"
    )
    needs: ClassVar[str] = (
        "correlated noise of at most half as many bands as there are bins; balls-in-bins batches, secret; a bounded gradient"
    )
    covers: ClassVar[Literal["last", "all"]] = "all"
    correlated: ClassVar[bool] = True
    given_the_others: ClassVar[bool] = True
    clipping: ClassVar[Clipping] = "any"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(key="lethe", text="Lethe, docs/theory.md: correlated noise on balls in bins (any columns, vectors, replaced records)."),
        Citation(
            key="choquette-choo-2024-near-exact",
            text="Choquette-Choo, Ganesh, Haque, Steinke, Thakurta 2024, Near exact privacy amplification for matrix mechanisms, "
            "arXiv:2410.06266 (the pair of all bins, by Monte Carlo).",
        ),
    )

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        batches = design(run, ("balls_in_bins",), "one secret bin for each record, kept for all passes")
        return (batches, secrecy(run), each_gradient_bounded(run), _bands(run))

    def _bound(self, run: Run) -> Bound:
        with np.errstate(over="ignore", divide="ignore"):
            touch = float(above(1.0 / run.uncorrelated.record_noise, 2.0**-51).max())
            mus = above(slot_sensitivities_of(run) * touch, 2.0**-51)
        if not np.all(np.isfinite(mus)):
            return Bound(guarantee=GDP(np.inf))
        levels, counts = bins_apart(mus, run.steps_per_pass, _bins(run))
        return Bound(guarantee=BallsInBinsGaussian(mus=levels, counts=counts, relation=run.neighbours))


def bins_apart(mus: Array, slots: int, bins: int) -> tuple[tuple[float, ...], tuple[int, ...]]:
    r"""Costs of m bins that, by rank, no m bins exceed that lie $\lfloor\ell/m\rfloor$ slots or more apart.

    Args:
        mus: of each slot that some step reaches, shape (min(l, T),).
        slots: l.
        bins: m.
    Returns:
        Distinct costs, and how many bins have each.
    """
    gap = slots // bins
    every = np.zeros(slots)
    every[: mus.size] = mus
    levels = cost_levels(every)[0][::-1]  # the largest first
    below = [*levels[1:], -1.0]
    counts, before = list[int](), 0
    for under in below:
        # Of a run of so many slots in a row that cost more than the next level, no more bins than that can lie in it.
        costly = np.concatenate([[False], every > under, [False]])
        edges = np.flatnonzero(costly[1:] != costly[:-1])
        most = min(bins, int(np.sum(-(-(edges[1::2] - edges[::2]) // gap))))
        counts.append(max(most, before) - before)
        before = max(most, before)
    kept = [(level, count) for level, count in zip(levels.tolist(), counts, strict=True) if count]
    return tuple(level for level, _ in kept), tuple(count for _, count in kept)


def _bins(run: Run) -> int:
    assert run.noise is not None
    return run.steps_per_pass // band_count(run.noise.strategy(run.total_steps))


def _bands(run: Run) -> Finding:
    assert run.noise is not None
    slots, bins = run.steps_per_pass, _bins(run)
    bands = band_count(run.noise.strategy(run.total_steps))
    if bins >= 2:
        return holds("strategy", f"{run.noise.summary}: {bands} bands: no row holds two of {bins} bins spread evenly over {slots}")
    return fails(
        "strategy",
        f"it needs at most half as many bands as there are bins, {slots}; the strategy has {bands}",
        source="noise, batches.size",
        remedy=f"take a strategy of fewer bands: lethe.correlate(run, bands={max(1, slots // 4)}), or smaller batches.",
    )
