"""Every iterate released, noise correlated over the steps: in a fixed order; amplified by drawing from public groups of the records; and by
one secret bin for each record.

`certify` tries these for runs with `noise` (the matrix mechanism: $C^{-1}z$ on the sums of gradients, C the strategy, z fresh noise, so
that later noise partly cancels earlier). A slot is a place in a pass, a group the records that share it, a bin a secret slot.
"""

from functools import lru_cache
from typing import ClassVar

import numpy as np

from lethe.calculus.balls_in_bins.profile import BallsInBinsGaussian
from lethe.calculus.correlated.sensitivity import band_count, column_norms, slot_sensitivities
from lethe.calculus.guarantees import GDP, Guarantee
from lethe.calculus.rounding import above
from lethe.certificates.findings import Finding, fails, holds
from lethe.certificates.parts import Citation
from lethe.run.noise.strategies import CorrelatedNoise
from lethe.run.participation import BatchSizes, Participation, unknown_participation
from lethe.run.run import Run
from lethe.run.schedules.shapes import Array
from lethe.theorems import requirements as require
from lethe.theorems.base import Bound, Clipping, Covers, Theorem
from lethe.theorems.citations import cite
from lethe.theorems.composition import averaged_over_slots, touch_mus
from lethe.theorems.sampling import cost_levels, sampled

_LAST = "a function of all iterates, which are certified: it costs what release: all costs"


class CorrelatedNoiseTheorem(Theorem):
    r"""The matrix mechanism in a fixed order: a record takes part in one slot of every pass, and gradients may depend on all released.

    With $w = C^{-1}z$ on the sums of gradients, $z_t \sim N(0, z^2C_\mathrm{clip}^2I)$, all iterates together are $\mu$-GDP:

    $$\mu_j = \frac{s}{z}\,\mathrm{sens}_j(C), \qquad \mathrm{sens}_j(C)^2 \le \sum_{t,t'\in S_j}|(C^\top C)_{tt'}|,$$

    with s = 2 where a record is replaced, else 1 (times G over the clip norm), and $S_j$ the steps of slot j.

    - a public slot (cyclic): the worst one; every step (full): the one there is.
    - a secret slot that is kept (shuffled_once, balls_in_bins) is uniform, so
      $\delta(\varepsilon) \le \frac1\ell\sum_j\delta_{\mu_j}(\varepsilon)$; of balls in bins and few bands `correlated-bins` has less.
    - a public group from which each step of it draws (cyclic_poisson): the worst group, as if every draw took the record; no credit for the
      sampling, which `correlated-sampled` gives to strategies of few bands.
    - a fresh slot each pass, and independent draws: refused. Two participations may then lie as close as they like.
    """

    name: ClassVar[str] = "correlated-noise"
    statement: ClassVar[str] = "The matrix mechanism in a fixed order: correlated noise, any loss; holds whatever is released."
    formula: ClassVar[str] = r"\mu = \frac{s}{z}\max_j\Big(\sum_{t,t'\in S_j}|(C^\top C)_{tt'}|\Big)^{1/2}"
    needs: ClassVar[str] = "correlated noise; a bounded gradient; one slot of every pass for each record, or all steps"
    covers: ClassVar[Covers] = "all"
    correlated: ClassVar[bool] = True
    record_groups: ClassVar[bool] = True
    sizes: ClassVar[frozenset[BatchSizes]] = frozenset(BatchSizes)
    given_the_others: ClassVar[bool] = True
    clipping: ClassVar[Clipping] = "any"
    citations: ClassVar[tuple[Citation, ...]] = (
        cite("lethe", ", docs/theory.md: correlated noise in a fixed order (adaptive inputs, vectors, secret slots)"),
        cite("denisov-2022"),
        cite("choquette-choo-2023"),
    )

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        also = () if run.release == "all" else (holds("last iterate", _LAST),)
        match run.batches.participation:
            case Participation.EVERY_STEP:
                return (require.gradient_bound(run), holds("order", "every record is in every batch"), _strategy(run), *also)
            case Participation.PUBLIC_SLOT:
                order = f"one slot of {run.steps_per_pass}, the same in every pass"
                return (require.gradient_bound(run), holds("order", order), _strategy(run), *also)
            case Participation.DRAW_IN_PUBLIC_GROUP:
                order = f"steps of one group of {run.batches.groups_of_records}; no credit for the sampling"
                return (require.gradient_bound(run), holds("order", order), _strategy(run), *also)
            case Participation.SECRET_SLOT:
                order = f"one slot of {run.steps_per_pass}, drawn once, the same in every pass"
                return (require.gradient_bound(run), holds("order", order), require.secrecy(run), _strategy(run), *also)
            case Participation.FRESH_SECRET_SLOT | Participation.INDEPENDENT_DRAW:
                return (require.gradient_bound(run), _no_order(run))
        raise unknown_participation(run.batches.design, run.batches.participation)

    def _bound(self, run: Run) -> Bound:
        return Bound(guarantee=_guarantee(run))


def slot_mus(run: Run) -> Array:
    r"""$\mu_j$ of a record in each slot, or group, of a run with correlated noise, rounded up; infinity where it has no noise."""
    touch = touch_mus(run.uncorrelated).max()
    with np.errstate(over="ignore"):
        return above(slot_sensitivities_of(run) * touch, 2.0**-51)


def slot_sensitivities_of(run: Run) -> Array:
    """How far a record of each slot, or group, moves what is released, in clip norms; shape as `slot_sensitivities` has it."""
    assert run.noise is not None
    return _sensitivities_of(run.noise, run.total_steps, _period(run))


def _period(run: Run) -> int:
    period = run.batches.period(run.records)
    assert period is not None  # a Run has no correlated noise otherwise
    return period


@lru_cache(maxsize=8)
def _sensitivities_of(noise: CorrelatedNoise, steps: int, slots: int) -> Array:
    """`slot_sensitivities` of a strategy, cached: runs that differ in the amount of noise alone share them."""
    sensitivities = slot_sensitivities(noise.strategy(steps), slots)
    sensitivities.flags.writeable = False
    return sensitivities


def _guarantee(run: Run) -> Guarantee:
    """The bound by the design: the worst slot, or the mean over slots where the order is secret."""
    mus = slot_mus(run)
    match run.batches.participation:
        case Participation.EVERY_STEP | Participation.PUBLIC_SLOT | Participation.DRAW_IN_PUBLIC_GROUP:
            return GDP(float(mus.max()))
        case Participation.SECRET_SLOT:
            return averaged_over_slots(mus, run.steps_per_pass)
        case Participation.FRESH_SECRET_SLOT | Participation.INDEPENDENT_DRAW:
            return GDP(np.inf)  # _examine has refused it
    raise unknown_participation(run.batches.design, run.batches.participation)


def _strategy(run: Run) -> Finding:
    """The finding on C, and how far one record moves it."""
    assert run.noise is not None
    largest = float(slot_sensitivities_of(run).max())
    passes = -(-run.total_steps // _period(run))
    return holds("strategy", f"{run.noise.summary}: one record moves it by at most {largest:.6g} clip norms in {passes} participations")


def _no_order(run: Run) -> Finding:
    """The failing finding about a design without a fixed order."""
    needs = "it needs that a record keeps its slot in every pass, or takes part in every step"
    return require.other_batches(run, "order", needs, "train in a fixed order (cyclic), or shuffle once before training (shuffled_once).")


# Of dividing by a norm that was rounded up.
_UNIT = 2.0**-50


class CorrelatedSampledTheorem(Theorem):
    r"""The banded matrix mechanism, amplified by the sampling of cyclic Poisson batches.

    Of g groups, step t draws from group t mod g, each of its records by a coin of probability $q = gb/n$. With at most g bands in C, row t
    of $y = CG + z$ holds of one record the contribution of one step s alone, and g rows hold that: given y before row s and the coins of
    all others, they are $N(0, z^2I)$ against $(1-q)N(0, z^2I) + qN(C_{\cdot s}\Delta_s, z^2I)$. Such blocks do not overlap, so the run is
    at most the adaptive composition of sampled Gaussian mechanisms

    $$(1-q)N(0, z_s^2) + qN(1, z_s^2) \text{ against } N(0, z_s^2), \qquad z_s = z / \|C_{\cdot s}\|,\quad s = j, j+g, \ldots,$$

    of the worst group j. Of each g steps in turn the one with the longest column counts.
    """

    name: ClassVar[str] = "correlated-sampled"
    statement: ClassVar[str] = (
        "The banded matrix mechanism on cyclic Poisson batches: correlated noise, amplified; holds whatever is released."
    )
    formula: ClassVar[str] = r"(1-q)N(0, z_s^2) + qN(1, z_s^2) \text{ against } N(0, z_s^2),\ z_s = z/\|C_{\cdot s}\|,\ q = gb/n"
    needs: ClassVar[str] = (
        "correlated noise of at most as many bands as there are groups; cyclic Poisson batches, secret; a bounded gradient"
    )
    covers: ClassVar[Covers] = "all"
    correlated: ClassVar[bool] = True
    record_groups: ClassVar[bool] = True
    given_the_others: ClassVar[bool] = True
    clipping: ClassVar[Clipping] = "any"
    citations: ClassVar[tuple[Citation, ...]] = (
        cite("lethe", ", docs/theory.md: correlated noise on cyclic Poisson batches (any columns, vectors, replaced records)"),
        cite("choquette-choo-2023-amplified"),
    )

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        if run.batches.participation is not Participation.DRAW_IN_PUBLIC_GROUP:
            return (_no_groups(run),)
        return (require.drawn_afresh(run), require.secrecy(run), require.gradient_bound_when_drawn(run), _bands(run))

    def _bound(self, run: Run) -> Bound:
        return Bound(guarantee=sampled(run, _column_noise(run)))


def _column_noise(run: Run) -> Array:
    r"""$z / \|C_{\cdot s}\|$ of each step, rounded down, shape (T,)."""
    assert run.noise is not None
    return run.uncorrelated.record_noise / above(column_norms(run.noise.strategy(run.total_steps)), _UNIT)


def _bands(run: Run) -> Finding:
    assert run.noise is not None
    groups, bands = run.batches.groups_of_records, band_count(run.noise.strategy(run.total_steps))
    if bands <= groups:
        return holds("strategy", f"{run.noise.summary}: {bands} bands, and {groups} groups of records")
    return fails(
        "strategy",
        f"it needs at most as many bands as there are groups of records, {groups}; the strategy has {bands}",
        source="noise, batches.groups",
        remedy=f"take a strategy of {groups} bands: lethe.correlate(run, bands={groups}), or more groups.",
    )


def _no_groups(run: Run) -> Finding:
    """The failing finding about a design without public groups."""
    needs = "it needs steps that draw from one public group of the records each"
    return require.other_batches(
        run, "random batches", needs, "draw batches by cyclic_poisson, in the training too, or use correlated-noise."
    )


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
    covers: ClassVar[Covers] = "all"
    correlated: ClassVar[bool] = True
    given_the_others: ClassVar[bool] = True
    clipping: ClassVar[Clipping] = "any"
    citations: ClassVar[tuple[Citation, ...]] = (
        cite("lethe", ", docs/theory.md: correlated noise on balls in bins (any columns, vectors, replaced records)"),
        cite("choquette-choo-2024-near-exact"),
    )

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        batches = require.design(run, ("balls_in_bins",), "one secret bin for each record, kept for all passes")
        return (batches, require.secrecy(run), require.each_gradient_bounded(run), _bands_apart(run))

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

    `mus` are of each slot that some step reaches, shape (min(l, T),). Distinct costs, and how many bins have each.
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
        largest = min(bins, int(np.sum(-(-(edges[1::2] - edges[::2]) // gap))))
        counts.append(max(largest, before) - before)
        before = max(largest, before)
    positive = [(level, count) for level, count in zip(levels.tolist(), counts, strict=True) if count]
    return tuple(level for level, _ in positive), tuple(count for _, count in positive)


def _bins(run: Run) -> int:
    """How many bins can share a pass so that no row of C holds two of them: slots a pass over bands."""
    assert run.noise is not None
    return run.steps_per_pass // band_count(run.noise.strategy(run.total_steps))


def _bands_apart(run: Run) -> Finding:
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
