"""Theorem correlated-noise: noise correlated over the steps of a fixed order, every iterate released."""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np

from lethe.calculus.correlated.sensitivity import slot_sensitivities
from lethe.calculus.guarantees import GDP, Guarantee
from lethe.calculus.rounding import above
from lethe.certificates.findings import Finding, holds
from lethe.certificates.parts import Citation
from lethe.run.noise.base import CorrelatedNoise
from lethe.run.participation import BatchSizes, Participation, unknown_participation
from lethe.run.run import Run
from lethe.run.schedules.base import Array
from lethe.theorems.base import Bound, Theorem
from lethe.theorems.clip_methods import Clipping
from lethe.theorems.composition import averaged_over_slots, touch_mus
from lethe.theorems.requirements import gradient_bound, other_batches, secrecy

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
    covers: ClassVar[Literal["last", "all"]] = "all"
    correlated: ClassVar[bool] = True
    record_groups: ClassVar[bool] = True
    sizes: ClassVar[frozenset[BatchSizes]] = frozenset(BatchSizes)
    given_the_others: ClassVar[bool] = True
    clipping: ClassVar[Clipping] = "any"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(key="lethe", text="Lethe, docs/theory.md: correlated noise in a fixed order (adaptive inputs, vectors, secret slots)."),
        Citation(
            key="denisov-2022",
            text="Denisov, McMahan, Rush, Smith, Thakurta 2022, Improved differential privacy for SGD via optimal private linear operators "
            "on adaptive streams, arXiv:2202.08312, Theorem 2.1 (adaptive inputs).",
        ),
        Citation(
            key="choquette-choo-2023",
            text="Choquette-Choo, McMahan, Rush, Thakurta 2023, Multi-epoch matrix factorization mechanisms for private machine learning, "
            "arXiv:2211.06530 (sensitivity of several participations, of vectors).",
        ),
    )

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        also = () if run.release == "all" else (holds("last iterate", _LAST),)
        match run.batches.participation:
            case Participation.EVERY_STEP:
                return (gradient_bound(run), holds("order", "every record is in every batch"), _strategy(run), *also)
            case Participation.PUBLIC_SLOT:
                order = f"one slot of {run.steps_per_pass}, the same in every pass"
                return (gradient_bound(run), holds("order", order), _strategy(run), *also)
            case Participation.DRAW_IN_PUBLIC_GROUP:
                order = f"steps of one group of {run.batches.groups_of_records}; no credit for the sampling"
                return (gradient_bound(run), holds("order", order), _strategy(run), *also)
            case Participation.SECRET_SLOT:
                order = f"one slot of {run.steps_per_pass}, drawn once, the same in every pass"
                return (gradient_bound(run), holds("order", order), secrecy(run), _strategy(run), *also)
            case Participation.FRESH_SECRET_SLOT | Participation.INDEPENDENT_DRAW:
                return (gradient_bound(run), _no_order(run))
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
    """Asked several times of one run, and of all that differ in the amount of noise alone."""
    found = slot_sensitivities(noise.strategy(steps), slots)
    found.flags.writeable = False
    return found


def _guarantee(run: Run) -> Guarantee:
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
    assert run.noise is not None
    largest = float(slot_sensitivities_of(run).max())
    passes = -(-run.total_steps // _period(run))
    return holds("strategy", f"{run.noise.summary}: one record moves it by at most {largest:.6g} clip norms in {passes} participations")


def _no_order(run: Run) -> Finding:
    needs = "it needs that a record keeps its slot in every pass, or takes part in every step"
    return other_batches(run, "order", needs, "train in a fixed order (cyclic), or shuffle once before training (shuffled_once).")
