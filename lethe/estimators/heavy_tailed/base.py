r"""HeavyTailedEstimator: what the estimators built on `lethe.heavy_tailed` share: their constants, and the statement of what was released.

`PrivateMean` and the two heavy-tailed linear models derive from it; they clip where no public bound is known, so they need a scale (clip
norm, curvature, moment) first.

Constants that are not given are released from records set aside for that, a fixed part of a public order, so that none is read off the data
unpaid. Whatever is released from them costs together as much as the solver does on the others; a record is in one of the two parts, so the
whole costs the larger of the two and not their sum.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from lethe.accounting.heavy_tailed import phases_derivation
from lethe.calculus.domains import require_positive
from lethe.calculus.guarantees import GDP
from lethe.calculus.noise_generators import noise_generator
from lethe.calculus.rounding import round_down
from lethe.certificates.derivation import derivation
from lethe.certificates.findings import holds
from lethe.certificates.parts import Citation
from lethe.certificates.statement import Statement
from lethe.errors import InputError
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.heavy_tailed.linear import HeavyTailedBlocks, clipped_to
from lethe.estimators.inputs.ranges import private_ranges, released_norm
from lethe.estimators.partitioned.tables import many_records
from lethe.estimators.private_estimator import PrivateEstimator, with_constructor
from lethe.heavy_tailed.oracles import noise_for
from lethe.heavy_tailed.private_moments import COMPARISONS, blocks_for, private_moment
from lethe.heavy_tailed.solution import Solution, composed
from lethe.heavy_tailed.solution import parallel as worst_of
from lethe.mechanisms.base import Array, gaussian_guarantee, gaussian_noise_std, joint
from lethe.mechanisms.quantiles.located_quantiles import CountedColumns
from lethe.run.run import Neighbours

PRIVATE = "private"
_PAPER = Citation(
    key="lowy-razaviyayn-2023",
    text="Lowy, Razaviyayn 2023, Private stochastic optimization with large worst-case Lipschitz parameter, arXiv:2209.07403",
)
_SMALLEST_SHARE, _LARGEST_SHARE = 0.1, 1.0 / 3.0  # of the records are set aside
_ENOUGH = 200.0  # records set aside, times mu: with fewer the quantiles are lost in their noise
_QUANTILE = 0.75  # of the norms, where rows are clipped
_TAIL = 0.4
_FAILURES = (0.01, 0.03, 0.1, 0.3)
_AT_END = {
    None: "",
    "high": "; AT THE TOP of the public range: may be too small",
    "low": "; at the bottom of the public range: may be too large",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A released constant."""

    value: Any  # a number > 0, or a point
    statements: tuple[Statement, ...]  # what it cost, part by part
    why: str  # a line on how it was found


@with_constructor
class HeavyTailedEstimator(PrivateEstimator):
    """Base class of the estimators for heavy-tailed data.

    The guarantee of `statement_` is that of the solver's `Solution` and, where constants were released from records set aside, the larger
    of the two: a record is in one of the parts.

    Args:
        moment: a public bound $r_k$ on the moments of the gradients, or "private": released from a tenth to a third of
            the records, set aside.
        neighbours: "replace_one", or "zero_out", which is the replacement by a record that counts 0 and has the same guarantee.
        epsilon, delta, random_state, seed_noise, ledger, options: as of `PrivateEstimator`.
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
        """Set what the solver tells, and what says how private the result is."""
        solved = statement_of(solution, self.neighbours)
        released = [statement for fact in facts for statement in fact.statements]
        total = solved if not released else _parallel(joint(released, name="constants"), solved, first=first, records=records)
        lines = [*why, *(fact.why for fact in facts)]
        self._state([*released, solved], budget, records, why=lines, public=public, total=total)
        self.run_, self.phases_ = solution.run, solution.phases
        self.n_iter_ = sum(phase.steps for phase in solution.phases)


def whole_cost(budget: PrivacyBudget) -> GDP:
    r"""The largest $\mu$ that meets the target, with room for the rounding of what is made from it."""
    return GDP(round_down(budget.total_mu, 1e-11))


def declared(name: str, value: Any) -> float | None:
    """A public constant, a number > 0, or None where it is to be released: "private"."""
    return None if isinstance(value, str) and value == PRIVATE else require_positive(name, value)


def statement_of(solution: Solution, neighbours: Neighbours) -> Statement:
    """The statement that a solution proves of itself, for the replacement of one record by any other."""
    # A record that is zeroed out adds 0 to every mean where it had added a vector of norm at most C: half of what the guarantee is for.
    return Statement(
        name=solution.method,
        guarantee=composed(solution.fresh.phases),
        seeded=solution.seeded,
        neighbours=neighbours,
        findings=(
            holds("gradients", "each of its own record and of what was released before", evidence="enforced"),
            *dict.fromkeys(
                holds(
                    "sensitivity",
                    f"clipped to norm {phase.clip_norm:.6g}, so one record moves a mean of {phase.batch_size} by at most "
                    f"{phase.release.sensitivity:.6g}; noise of standard deviation {phase.release.noise_std:.6g}, "
                    + (f"{phase.touches} times a record" if phase.whole is None else f"in {phase.steps} batches drawn in secret"),
                    evidence="enforced",
                )
                for phase in solution.phases
            ),
        ),
        citations=(_PAPER,),
        derivation=phases_derivation(solution.phases),
    )


def _parallel(aside: Statement, solved: Statement, *, first: int, records: int) -> Statement:
    """Two statements on disjoint parts of the records as one: whichever part the record is in, the worse one covers both."""
    # Given what the first part released the solver's law depends on the second alone; a record of the first changes that release alone.
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


def set_aside(records: int, whole: GDP) -> int:
    r"""How many of n records constants are released from: $200/\mu$, but at least a tenth and at most a third; 1 and n - 1 at the ends."""
    count = min(max(math.ceil(_SMALLEST_SHARE * records), math.ceil(_ENOUGH / whole.mu)), round(_LARGEST_SHARE * records))
    return min(max(1, count), records - 1)


def part_of(whole: GDP, parts: int) -> GDP:
    r"""$\mu/\sqrt m$, rounded down: m of them make the whole."""
    return GDP(round_down(whole.mu / math.sqrt(parts), 4e-14))


def released_curvature(
    features: Array | HeavyTailedBlocks,
    norms: Array | CountedColumns,
    share: GDP,
    *,
    neighbours: Neighbours,
    generator: np.random.Generator | None,
) -> Fact:
    r"""The largest eigenvalue of the second moments of rows, shape (m, d), clipped at a released quantile c of their norms, shape (m,).

    $$\hat\lambda = \lambda_{\max}\Big(\frac1m\sum_i\Pi_c(x_i)\Pi_c(x_i)^\top\Big) + N(0, \sigma^2),\qquad \sigma = \frac{c^2}{m\mu}$$

    Sensitivity: replacing a row changes the matrix by $(aa^\top - bb^\top)/m$ with $\|a\|, \|b\| \le c$, whose eigenvalues lie within
    $\pm c^2/m$, and by Weyl's inequality the largest eigenvalue moves by no more. What is returned is $\hat\lambda + 2\sigma$, kept
    within $\sigma$ and $c^2$, which is post-processing: a value too large makes steps short, one too small makes them diverge.
    """
    count = features.shape[0]
    half = part_of(share, 2)
    longest, first = released_norm(norms, quantile=_QUANTILE, share=half, neighbours=neighbours, generator=generator)
    if isinstance(features, HeavyTailedBlocks):
        products = features.clipped_moments(longest)
    else:
        assert isinstance(norms, np.ndarray)
        clipped = clipped_to(features, norms, longest)
        products = clipped.T @ clipped
    sensitivity = longest * longest / count
    noise_std = gaussian_noise_std(sensitivity, half)
    top = float(np.linalg.eigvalsh(products / count)[-1])
    released = top + noise_std * float(noise_generator(generator).standard_normal())
    second = Statement(
        name="largest eigenvalue of the second moments of clipped rows",
        guarantee=gaussian_guarantee(sensitivity, noise_std),
        neighbours=neighbours,
        findings=(
            holds("rows", f"clipped to norm {longest:.6g}", evidence="enforced"),
            holds("sensitivity", f"c^2/m = {sensitivity:.6g}; Gaussian noise of standard deviation {noise_std:.6g}", evidence="enforced"),
        ),
        citations=(),
        seeded=generator is not None,
        derivation=derivation("largest eigenvalue", norm=longest, records=count, noise_std=noise_std),
        records=count,
    )
    value = min(max(released + 2.0 * noise_std, noise_std), longest * longest)
    return Fact(
        value=value, statements=(first, second), why=f"second moments of the rows at most {value:.4g}, released from {count} records"
    )


def released_centre(table: Array | CountedColumns, share: GDP, *, neighbours: Neighbours, generator: np.random.Generator | None) -> Fact:
    """A point in the middle of the columns of a table, shape (m, d): halfway between two released quantiles of each."""
    name = f"middle of the columns (their {_TAIL:g} and {1.0 - _TAIL:g} quantiles)"
    ranges = private_ranges(table, tail=_TAIL, share=share, name=name, give="centre", neighbours=neighbours, generator=generator)
    why = f"centre: {name}, released from {table.shape[0]} records"
    return Fact(value=(ranges.low + ranges.high) / 2.0, statements=(ranges.statement,), why=why)


def released_size(
    sizes: Array | CountedColumns, quantile: float, share: GDP, *, neighbours: Neighbours, generator: np.random.Generator | None
) -> Fact:
    """A quantile of the records' sizes, shape (m,): where to clip in practice, since a moment follows the outliers."""
    what, noise = "the gradients' norms at the start", {"neighbours": neighbours, "generator": generator}
    value, statement = released_norm(sizes, quantile=quantile, share=share, what=what, give="moment", **noise)
    name = f"the {quantile:g} quantile of {what}"
    why = f"{name}: {value:.4g}, released from {sizes.shape[0]} records"
    return Fact(value=value, statements=(replace(statement, name=name),), why=why)


def released_moment(
    sizes: Array | CountedColumns, order: float, share: GDP, *, neighbours: Neighbours, generator: np.random.Generator | None
) -> Fact:
    r"""A bound of $(E u^k)^{1/k}$, $u \ge 0$ of shape (m,), of the smallest of four failure probabilities that m, public, allows."""
    assert isinstance(sizes, np.ndarray)  # `refuse_many` has been asked
    rho = 0.5 * share.mu * share.mu
    noise_std = noise_for(1.0, rho / COMPARISONS)
    failure = next((chance for chance in _FAILURES if blocks_for(chance, noise_std) <= sizes.shape[0]), _FAILURES[-1])
    estimate = private_moment(sizes, order=order, rho=rho, failure=failure, generator=generator)
    name = f"moment of order {order:g} (median of {estimate.blocks} blocks)"
    detail = f"one record is in one block and moves a count by 1; {COMPARISONS} counts with noise of standard deviation {noise_std:.6g}"
    statement = Statement(
        name=name,
        guarantee=estimate.phase.with_fresh_noise,
        neighbours=neighbours,
        findings=(holds("sensitivity", detail, evidence="enforced"),),
        citations=(),
        seeded=generator is not None,
        derivation=phases_derivation([estimate.phase]),
        records=sizes.shape[0],
    )
    wrong = f"wrong with probability {estimate.failure:.2g} if sizes are not too heavy-tailed{_AT_END[estimate.end]}"
    return Fact(value=estimate.bound, statements=(statement,), why=f"{name} at most {estimate.bound:.4g}, {wrong}")


def refuse_many(records: int) -> None:
    """Refuse a moment of more records of a table in blocks than are gathered: a public fact, before anything is paid or read."""
    if many_records(records):
        raise InputError(
            f"moment: {records} records of a table in blocks are set aside; of so many its moment is not released.",
            source="the parameters moment and parameters",
            remedy='give the moment from public knowledge, or take parameters="practical"',
        )
