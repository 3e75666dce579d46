"""Kaissis et al. 2021: the sensitivity index, which is Gaussian composition under another name.

Kept to compare: `lethe.compare` shows it beside Lethe's own bounds, and `certify` tries it only if asked by name. A touch is a step whose
batch holds the record.
"""

from typing import ClassVar

from lethe.calculus.composition import compose_gdp
from lethe.calculus.guarantees import GDP
from lethe.certificates.findings import Finding
from lethe.certificates.parts import Citation
from lethe.run.participation import BatchSizes, Participation, unknown_participation
from lethe.run.run import Run
from lethe.theorems.base import Bound, Covers, Standing, Theorem
from lethe.theorems.citations import cite
from lethe.theorems.composition import slot_mus, touch_mus, worst_of_each_pass
from lethe.theorems.requirements import gradient_bound


def composed_index(run: Run) -> float:
    r"""$\psi = \sqrt{\sum_t \psi_t^2}$, $\psi_t = s_t/\tau_t$, over the steps that touch the record, rounded up; infinite where one has no
    noise.

    Fixed batches touch a record once a pass, in the worst slot (of every pass, when the order is drawn afresh each time); full and random
    batches count as touching it at every step, or at each of its public group.
    """
    steps, slots = touch_mus(run), run.steps_per_pass
    match run.batches.participation:
        case Participation.EVERY_STEP | Participation.INDEPENDENT_DRAW:
            return compose_gdp(steps)
        case Participation.DRAW_IN_PUBLIC_GROUP:
            return float(slot_mus(steps, run.batches.groups_of_records).max())
        case Participation.PUBLIC_SLOT | Participation.SECRET_SLOT:
            return float(slot_mus(steps, slots).max())
        case Participation.FRESH_SECRET_SLOT:
            return worst_of_each_pass(steps, slots)
    raise unknown_participation(run.batches.design, run.batches.participation)


class Kaissis2021(Theorem):
    r"""The run as a sequence of Gaussian mechanisms, each described by its sensitivity index.

    $$\mu = \psi = \sqrt{\sum_t \psi_t^2},\qquad \psi_t = s_t/\tau_t$$

    over the steps that touch the record. The index is the $\mu$ of Gaussian differential privacy, so this is Gaussian composition; unlike
    `composition` it takes the worst slot of batches in a secret order, and not their average.
    """

    name: ClassVar[str] = "kaissis-2021"
    statement: ClassVar[str] = "Sensitivity indices of the steps that touch a record, composed; holds whatever is released."
    formula: ClassVar[str] = r"\psi^2 = \sum_{t \in A} s_t^2/\tau_t^2"
    needs: ClassVar[str] = "a bounded gradient"
    covers: ClassVar[Covers] = "all"
    sizes: ClassVar[frozenset[BatchSizes]] = frozenset(BatchSizes)
    record_groups: ClassVar[bool] = True
    citations: ClassVar[tuple[Citation, ...]] = (cite("kaissis-2021"),)
    standing: ClassVar[Standing] = Standing(soundness="dominated", why="it is Gaussian composition under another name")

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        return (gradient_bound(run),)

    def _bound(self, run: Run) -> Bound:
        return Bound(guarantee=GDP(composed_index(run)))
