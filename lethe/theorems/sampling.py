"""Every iterate released, independent noise: amplification by batches drawn afresh at each step, and by the record's secret batch.

`certify` tries these for the random designs (`poisson`, `without_replacement`, `balls_in_bins`, `random_allocation`). A bin is a batch of a
pass that the record may be in, a touch a step whose batch holds it.
"""

from typing import ClassVar

import numpy as np

from lethe.calculus.any_guarantee import joined
from lethe.calculus.balls_in_bins.profile import BallsInBinsGaussian
from lethe.calculus.balls_in_bins.truncated import TruncatedAllocation
from lethe.calculus.guarantees import GDP, Guarantee
from lethe.calculus.rounding import above
from lethe.calculus.sampled.gaussian import SampledGaussian, sampled_gaussian
from lethe.calculus.sampled.truncated import TruncatedPoisson
from lethe.certificates.findings import Finding
from lethe.certificates.parts import Citation
from lethe.run.run import Run
from lethe.run.schedules.shapes import Array
from lethe.theorems import requirements as require
from lethe.theorems.base import Bound, Clipping, Covers, Theorem
from lethe.theorems.citations import cite
from lethe.theorems.composition import slot_mus
from lethe.theorems.truncation import full_batches, full_bins


class SampledGaussianMechanism(Theorem):
    """The sampled Gaussian mechanism, composed over steps numerically.

    `SampledGaussian` has the pairs of each design and relation (docs/theory.md, Lemma 6). Poisson batches of one of g public groups at each
    step: a record is drawn at one step in g, with g times the probability. Of each g steps in turn the one with the least noise counts.
    Poisson batches that are cut uniformly: `TruncatedPoisson` (Theorem 7d).
    """

    name: ClassVar[str] = "sampled-gaussian"
    statement: ClassVar[str] = "Numerical composition of the sampled Gaussian mechanism; holds whatever is released."
    formula: ClassVar[str] = r"(1-q)N(0, z_t^2) + qN(1, z_t^2) \text{ against } N(0, z_t^2), \text{ composed over } t"
    needs: ClassVar[str] = "Poisson batches or batches without replacement, secret"
    covers: ClassVar[Covers] = "all"
    given_the_others: ClassVar[bool] = True
    counts_cap: ClassVar[bool] = True
    record_groups: ClassVar[bool] = True
    clipping: ClassVar[Clipping] = "any"
    citations: ClassVar[tuple[Citation, ...]] = (
        cite("mironov-2019"),
        cite("dong-2022", ", Theorem 4.2 (batches without replacement)"),
        cite("dp-accounting"),
        cite("lethe", ", docs/theory.md: Poisson batches that are cut (Theorem 7d)"),
    )

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        return (require.drawn_afresh(run), require.secrecy(run), require.gradient_bound_when_drawn(run))

    def _bound(self, run: Run) -> Bound:
        steps, full = sampled(run, run.record_noise), full_batches(run)
        if full is None or not isinstance(steps, SampledGaussian):  # without noise nothing is private, cut or not
            return Bound(guarantee=steps)
        return Bound(guarantee=TruncatedPoisson(steps=steps, full=full[0], kept=full[1]))


def sampled(run: Run, noise: Array) -> Guarantee:
    """The guarantee of a record that is drawn afresh at each step, or at each of its group.

    The noise of each step, in units of the record's bound, has shape (T,).
    """
    groups = run.batches.groups_of_records
    turns = np.full(-(-noise.size // groups) * groups, np.inf)
    turns[: noise.size] = noise
    return sampled_gaussian(
        groups * run.batch_size / run.records, turns.reshape(-1, groups).min(axis=1), run.neighbours, require.drawn_by(run)
    )


# Distinct costs of a bin that are kept, and distinct passes, which take about a second each; more are rounded up. Of many distinct passes
# fewer costs are kept.
_MOST_LEVELS, _MOST_PASSES, _FEW_LEVELS = 16, 16, 4


class BallsInBinsTheorem(Theorem):
    r"""A record thrown into one of $\ell$ bins, which are visited in turn: the bin is kept for all passes, and nobody learns it.

    `BallsInBinsGaussian` has the pairs, with $\mu_j^2 = \sum_{t \in A_j} (G/\tau_t)^2$ over the visits $A_j$ of bin j. Gradients of full
    norm that no iterate changes attain them.
    """

    name: ClassVar[str] = "balls-in-bins"
    statement: ClassVar[str] = "Not knowing which bin holds the record hides it among the noise of all bins; holds whatever is released."
    formula: ClassVar[str] = (
        r"\delta(\epsilon) = \frac1\ell E\Big(\sum_j e^{\mu_jg_j - \mu_j^2/2} - \ell e^\epsilon\Big)_+ \text{ and the other direction;}\ "
        r"\mu_j^2 = \sum_{t \in A_j} G^2/\tau_t^2"
    )
    needs: ClassVar[str] = "balls-in-bins batches, secret; noise at every step"
    covers: ClassVar[Covers] = "all"
    given_the_others: ClassVar[bool] = True
    clipping: ClassVar[Clipping] = "any"
    citations: ClassVar[tuple[Citation, ...]] = (
        cite("lethe", ", docs/theory.md: balls in bins, every iterate released (the pairs, and the bound on them)"),
        cite("chua-2024-balls"),
    )

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        detail = "one secret bin for each record, kept for all passes"
        return (
            require.design(run, ("balls_in_bins",), detail),
            require.secrecy(run),
            require.each_gradient_bounded(run),
            require.noise_at_every_step(run),
        )

    def _bound(self, run: Run) -> Bound:
        return Bound(guarantee=_one_secret_bin(run, slot_mus(_record_touches(run), run.steps_per_pass)))


class RandomAllocationTheorem(Theorem):
    r"""A record thrown anew each pass into one of $\ell$ batches, and nobody learns into which: the passes compose.

    One pass is `BallsInBinsGaussian`, with $\mu_j = G/\tau_t$ at its j-th step, whatever the passes before it released. In a last pass that
    is cut short the batches that are not visited release nothing. Batches that are cut uniformly: `TruncatedAllocation` (Theorem 7e).
    """

    name: ClassVar[str] = "random-allocation"
    statement: ClassVar[str] = (
        "Not knowing which batch of a pass holds the record hides it, anew in every pass; holds whatever is released."
    )
    formula: ClassVar[str] = (
        r"\tfrac1\ell\sum_j N(\mu_je_j, I) \text{ against } N(0, I) \text{ or } \tfrac1\ell\sum_j N(-\mu_je_j, I),\ \mu_j = G/\tau_t,"
        r"\ \text{composed over the passes}"
    )
    needs: ClassVar[str] = "random-allocation batches, secret; noise at every step"
    covers: ClassVar[Covers] = "all"
    given_the_others: ClassVar[bool] = True
    counts_cap: ClassVar[bool] = True
    clipping: ClassVar[Clipping] = "any"
    citations: ClassVar[tuple[Citation, ...]] = (
        cite("lethe", ", docs/theory.md: random allocation (Theorems 7c and 7e), balls in bins (Theorem 7b, and the bound on its pairs)"),
        cite("feldman-shenfeld-2025"),
    )

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        return (
            require.design(run, ("random_allocation",), "one secret batch of each pass for each record"),
            require.secrecy(run),
            require.each_gradient_bounded(run),
            require.noise_at_every_step(run),
        )

    def _bound(self, run: Run) -> Bound:
        touches, size = _record_touches(run), run.steps_per_pass
        whole = touches.size // size
        passes = _alike(np.sort(touches[: whole * size].reshape(whole, size), axis=1))
        last_pass = [] if touches.size == whole * size else [(touches[whole * size :], 1)]
        levels = _MOST_LEVELS if len(passes) <= _FEW_LEVELS else _FEW_LEVELS
        bins = [(_one_secret_bin(run, mus, levels), count) for mus, count in (*passes, *last_pass)]
        if (full := full_bins(run)) is not None:
            bins = [
                (TruncatedAllocation(bins=allocation, full=full) if isinstance(allocation, BallsInBinsGaussian) else allocation, count)
                for allocation, count in bins
            ]
        return Bound(guarantee=joined(bins))


def _record_touches(run: Run) -> Array:
    """By how many deviations of its noise a record moves each step, rounded up, shape (T,)."""
    with np.errstate(over="ignore", divide="ignore"):
        return above(1.0 / run.record_noise, 2.0**-51)


def _alike(passes: Array) -> list[tuple[Array, int]]:
    """Costs of the bins of a pass, ascending, and how many passes have them; of too many different ones those that are close are raised.

    Passes have shape (E, l), each row ascending. A bin that costs more only reveals more.
    """
    if not len(passes):
        return []
    distinct, counts = np.unique(passes, axis=0, return_counts=True)
    if len(distinct) > _MOST_PASSES:
        sizes = np.log(np.maximum(distinct[:, -1], np.finfo(np.float64).tiny))
        cell = np.floor((_MOST_PASSES - 1) * (sizes - sizes.min()) / max(float(np.ptp(sizes)), np.finfo(np.float64).tiny))
        groups = [cell == cell_value for cell_value in np.unique(cell)]
        return [(distinct[group].max(axis=0), int(counts[group].sum())) for group in groups]
    return [(mus, int(count)) for mus, count in zip(distinct, counts, strict=True)]


def _one_secret_bin(run: Run, mus: Array, most_levels: int = _MOST_LEVELS) -> Guarantee:
    """The guarantee of a record in one of the bins of a pass, of which the first are visited and cost `mus`."""
    bins = run.steps_per_pass
    if bins == 1 or not np.all(np.isfinite(run.touch_factor * mus)):
        return GDP(run.touch_factor * float(mus.max()))
    levels, counts = cost_levels(mus, most_levels)
    if mus.size < bins:
        levels, counts = np.append(0.0, levels), np.append(bins - mus.size, counts)
    return BallsInBinsGaussian(mus=tuple(levels.tolist()), counts=tuple(counts.tolist()), relation=run.neighbours)


def cost_levels(mus: Array, max_levels: int = _MOST_LEVELS) -> tuple[Array, np.ndarray[tuple[int], np.dtype[np.intp]]]:
    """The distinct costs of bins and how many have each; if they are too many, each is raised to the largest of its interval."""
    levels, counts = np.unique(mus, return_counts=True)
    if levels.size <= max_levels:
        return levels, counts
    # Not quite as many intervals as levels: then evenly spaced costs do not lie on their ends, where rounding would decide.
    cells = np.floor((max_levels - 1.3) * (levels - levels[0]) / (levels[-1] - levels[0]) + 0.15)
    # Levels ascend, so the last of each interval is its largest.
    lasts = np.flatnonzero(np.diff(cells, append=np.inf))
    return levels[lasts], np.diff(np.cumsum(counts)[lasts], prepend=0)
