"""HeavyTailedEstimator: the constants and the statement of an estimator built on `lethe.heavy_tailed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from lethe.accounting.heavy_tailed import phases_derivation
from lethe.calculus.domains import require_positive
from lethe.calculus.guarantees import GDP
from lethe.calculus.rounding import round_down
from lethe.certificates.derivation import derivation
from lethe.certificates.findings import holds
from lethe.certificates.parts import Citation
from lethe.certificates.statement import Statement
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.heavy_tailed.facts import Fact
from lethe.estimators.private_estimator import PrivateEstimator
from lethe.heavy_tailed.solution import Solution
from lethe.heavy_tailed.solution import beside as worst_of
from lethe.mechanisms.base import joint
from lethe.run.run import Neighbours

PRIVATE = "private"
_PAPER = Citation(
    key="lowy-razaviyayn-2023",
    text="Lowy, Razaviyayn 2023, Private stochastic optimization with large worst-case Lipschitz parameter, arXiv:2209.07403",
)


class HeavyTailedEstimator(PrivateEstimator):
    """Base class of the estimators for heavy-tailed data.

    The guarantee of `statement_` is that of the solver's `Solution` and, where constants were released from records set aside, the larger
    of the two: a record is in one of the parts.

    Args:
        moment: a public bound $r_k$ on the moments of the gradients, or "private": released from a tenth to a third of
            the records, set aside.
        neighbours: "replace_one", or "zero_out", which is the replacement by a record that counts 0 and has the same guarantee.
    Attributes: those of `PrivateEstimator`, and `run_` (the solver's recursion on the records not set aside, for multi_pass; None for the
    others), `phases_` (of the solver, with the noise of each), `plan_` (settings with their risk bound; None without), `mechanism_`
    (the solver), `moment_`, `n_iter_` (noisy means taken).
    """

    neighbours: Neighbours = "replace_one"
    moment: float | str = PRIVATE

    takes_options: ClassVar[frozenset[str]] = PrivateEstimator.takes_options | {"mechanism", "parameters", "order", "passes"}

    def _state_solved(
        self,
        solution: Solution,
        facts: Sequence[Fact],
        budget: PrivacyBudget,
        *,
        first: int,
        records: int,
        why: Sequence[str],
        public: Sequence[str],
    ) -> None:
        """Set what the solver tells, and what says how private the result is.

        Args:
            solution: on the records from `first` on.
            facts: released from the records before.
            budget: the target.
            first: how many records were set aside.
            records: n.
            why: lines on the solver.
            public: lines on what was taken as public.
        """
        solved = statement_of(solution, self.neighbours)
        released = [statement for fact in facts for statement in fact.statements]
        total = solved if not released else beside(joint(released, name="constants"), solved, first=first, records=records)
        lines = [*why, *(fact.why for fact in facts)]
        self._state([*released, solved], budget, records, why=lines, public=public, total=total)
        self.run_, self.phases_ = solution.run, solution.phases
        self.n_iter_ = sum(phase.steps for phase in solution.phases)


def whole_cost(budget: PrivacyBudget) -> GDP:
    r"""The largest $\mu$ that meets the target, with room for the rounding of what is made from it."""
    return GDP(round_down(budget.total_mu, 1e-11))


def declared(name: str, value: Any) -> float | None:
    """A public constant, or None where it is to be released.

    Raises:
        InputError: neither a number > 0 nor "private".
    """
    return None if isinstance(value, str) and value == PRIVATE else require_positive(name, value)


def statement_of(solution: Solution, neighbours: Neighbours) -> Statement:
    """The statement that a solution proves of itself.

    Its relation is the replacement of one record by any other. A record that is zeroed out, n as it was, adds the vector 0 to every mean
    where it had added one of norm at most C: the mean moves by C/s at most, half of what the guarantee is for.
    """
    return Statement(
        name=solution.method,
        guarantee=solution.fresh.guarantee,
        seeded=solution.seeded,
        neighbours=neighbours,
        findings=(
            holds("gradients", "each of its own record and of what was released before", evidence="enforced"),
            *dict.fromkeys(
                holds(
                    "sensitivity",
                    f"clipped to norm {phase.clip_norm:.6g}, so one record moves a mean of {phase.batch_size} by at most "
                    f"{phase.release.sensitivity:.6g}; noise of standard deviation {phase.release.noise_std:.6g}, "
                    f"{phase.touches} times a record",
                    evidence="enforced",
                )
                for phase in solution.phases
            ),
        ),
        citations=(_PAPER,),
        derivation=phases_derivation(solution.phases),
    )


def beside(aside: Statement, solved: Statement, *, first: int, records: int) -> Statement:
    r"""Two statements on disjoint parts of the records as one: whichever part the record is in, the worse one covers both.

    Given what the first part released the solver's law depends on the second part alone; a record of the first part changes what was
    released from it, and all else follows from that.

    Args:
        aside: on the first records.
        solved: on the others.
        first: how many the first part has.
        records: n.
    """
    return Statement(
        name=f"{aside.name}; {solved.name}",
        guarantee=worst_of([aside.planned, solved.planned]),
        seeded=aside.seeded or solved.seeded,
        neighbours=solved.neighbours,
        findings=(
            holds("disjoint parts", f"{first} records for constants, {records - first} others for the solver", evidence="enforced"),
            *dict.fromkeys((*aside.findings, *solved.findings)),
        ),
        citations=tuple(dict.fromkeys((*aside.citations, *solved.citations))),
        derivation=derivation("disjoint parts", aside, solved),
        records=records,
    )
