"""Theorem correlated-sampled: correlated noise of few bands, and steps that draw from one public group of the records each."""

from __future__ import annotations

from typing import ClassVar, Literal

from lethe.calculus.correlated.sensitivity import band_count, column_norms
from lethe.calculus.rounding import above
from lethe.certificates.findings import Finding, fails, holds
from lethe.certificates.parts import Citation
from lethe.run.participation import Participation
from lethe.run.run import Run
from lethe.run.schedules.base import Array
from lethe.theorems.base import Bound, Theorem
from lethe.theorems.clip_methods import Clipping
from lethe.theorems.requirements import drawn_afresh, gradient_bound_when_drawn, other_batches, secrecy
from lethe.theorems.sampling import sampled

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
    covers: ClassVar[Literal["last", "all"]] = "all"
    correlated: ClassVar[bool] = True
    record_groups: ClassVar[bool] = True
    given_the_others: ClassVar[bool] = True
    clipping: ClassVar[Clipping] = "any"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            key="lethe", text="Lethe, docs/theory.md: correlated noise on cyclic Poisson batches (any columns, vectors, replaced records)."
        ),
        Citation(
            key="choquette-choo-2023-amplified",
            text="Choquette-Choo, Ganesh, McKenna, McMahan, Rush, Thakurta, Xu 2023, (Amplified) banded matrix factorization: a unified "
            "approach to private training, arXiv:2306.08153.",
        ),
    )

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        if run.batches.participation is not Participation.DRAW_IN_PUBLIC_GROUP:
            return (_no_groups(run),)
        return (drawn_afresh(run), secrecy(run), gradient_bound_when_drawn(run), _bands(run))

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
    needs = "it needs steps that draw from one public group of the records each"
    return other_batches(run, "random batches", needs, "draw batches by cyclic_poisson, in the training too, or use correlated-noise.")
