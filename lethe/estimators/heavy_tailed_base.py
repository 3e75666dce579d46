"""HeavyTailedEstimator: the budget, the public order, the split and the statement of an estimator built on `lethe.solvers`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.utils import Tags

from lethe.calculus.domains import require_positive
from lethe.calculus.guarantees import GDP
from lethe.calculus.normal import round_down
from lethe.certificate import Citation
from lethe.estimators.budget import Budget
from lethe.estimators.heavy_tailed_facts import Fact
from lethe.estimators.inputs import declared_delta
from lethe.estimators.joining import joint_statement
from lethe.estimators.randomness import Randomness, randomness, repeatable
from lethe.estimators.report import privacy_report
from lethe.hypotheses import holds
from lethe.mechanisms.base import Statement, require_swap
from lethe.solvers import Solution
from lethe.solvers.solution import beside as worst_of

PRIVATE = "private"
_PAPER = Citation(
    key="lowy-razaviyayn-2023",
    text="Lowy, Razaviyayn 2023, Private stochastic optimization with large worst-case Lipschitz parameter, arXiv:2209.07403",
)


class HeavyTailedEstimator(BaseEstimator):
    r"""What the estimators for heavy-tailed data share.

    Formal guarantee: for every two data sets that are neighbours, the laws of everything `fit` keeps satisfy the guarantee of
    `certificate_`, which is that of the solver's `Solution` and, where constants were released from records set aside, the larger of the
    two: a record is in one of the parts. The number of records, the columns and the parameters are public.

    Args:
        epsilon: the target, > 0, for everything that fit releases together.
        delta: in (0, 1); None: the smaller of 1e-5 and 1/(10 n).
        solver: "auto" or a name.
        parameters: "practical", "theory" or "optimised": see `lethe.solvers`.
        moment: a public bound $r_k$ on the moments of the gradients, or "private": released from a tenth to a third of
            the records, set aside.
        order: k >= 2 of the moment.
        neighbours: "replace_one", or "zero_out", which is the replacement by a record that counts 0 and has the same guarantee.
        random_state: for the public order of the records only; noise comes from fresh entropy.
        seed_noise: True: noise is repeatable from random_state too. Never where privacy matters.
    Attributes: `certificate_` and `statement_` (the same Statement), `epsilon_` and `delta_` as certified, `run_` (the solver's recursion
    on the records not set aside, for multi_pass; None for the others), `phases_` (of the solver, with the noise of each), `plan_`
    (settings with their risk bound; None without), `solver_`, `moment_`, `n_iter_` (noisy means taken), `privacy_report_`,
    `n_features_in_`, `feature_names_in_`.
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float | None = None,
        solver: str = "auto",
        parameters: str = "practical",
        moment: float | str = PRIVATE,
        order: float = 2.0,
        neighbours: str = "replace_one",
        random_state: Any = None,
        seed_noise: bool = False,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.solver = solver
        self.parameters = parameters
        self.moment = moment
        self.order = order
        self.neighbours = neighbours
        self.random_state = random_state
        self.seed_noise = seed_noise

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = not self.seed_noise
        return tags

    def _budget(self, records: int) -> Budget:
        require_swap(self.neighbours)
        return Budget(epsilon=self.epsilon, delta=declared_delta(self.delta, records))

    def _randomness(self, records: int) -> Randomness:
        return randomness(self.random_state, self.seed_noise, records)

    def _state(
        self,
        solution: Solution,
        facts: Sequence[Fact],
        budget: Budget,
        *,
        first: int,
        records: int,
        why: Sequence[str],
        public: Sequence[str],
    ) -> None:
        """Set what says how private the result is.

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
        total = solved if not released else beside(joint_statement(released, name="constants"), solved, first=first, records=records)
        if self.seed_noise:
            total = replace(total, findings=repeatable(total.findings))
        self.run_ = solution.run
        self.phases_ = solution.phases
        self.n_iter_ = sum(phase.steps for phase in solution.phases)
        self.statement_: Statement = total
        self.certificate_ = total
        self.delta_ = budget.delta
        self.epsilon_ = total.epsilon(budget.delta)
        lines = [*why, *(fact.why for fact in facts)]
        self.privacy_report_ = privacy_report(total, (*released, solved), delta=budget.delta, records=records, why=lines, public=public)


def whole_cost(budget: Budget) -> GDP:
    r"""The largest $\mu$ that meets the target, with room for the rounding of what is made from it."""
    return GDP(round_down(budget.total_mu, 1e-11))


def declared(name: str, value: Any) -> float | None:
    """A public constant, or None where it is to be released.

    Raises:
        InputError: neither a number > 0 nor "private".
    """
    return None if isinstance(value, str) and value == PRIVATE else require_positive(name, value)


def statement_of(solution: Solution, neighbours: Any) -> Statement:
    """What a solution proves of itself, no more.

    Its relation is the replacement of one record by any other. A record that is zeroed out, n as it was, adds the vector 0 to every mean
    where it had added one of norm at most C: the mean moves by C/s at most, half of what the guarantee is for.
    """
    return Statement(
        name=solution.method,
        guarantee=solution.guarantee,
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
        guarantee=worst_of([aside.guarantee, solved.guarantee]),
        neighbours=solved.neighbours,
        findings=(
            holds("disjoint parts", f"{first} records for constants, {records - first} others for the solver", evidence="enforced"),
            *dict.fromkeys((*aside.findings, *solved.findings)),
        ),
        citations=tuple(dict.fromkeys((*aside.citations, *solved.citations))),
    )
