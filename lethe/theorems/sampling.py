"""Every iterate released, batches drawn afresh at each step: amplification by sampling."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from lethe.calculus.guarantees import Guarantee
from lethe.calculus.sampled.gaussian import sampled_gaussian
from lethe.certificates.findings import Finding
from lethe.certificates.parts import Citation
from lethe.run.run import Run
from lethe.run.schedules.base import Array
from lethe.theorems.base import Bound, Theorem
from lethe.theorems.clip_methods import Clipping
from lethe.theorems.requirements import drawn_afresh, drawn_by, gradient_bound_when_drawn, secrecy


class SampledGaussianMechanism(Theorem):
    """The sampled Gaussian mechanism, composed over steps numerically.

    Poisson batches: the privacy loss of $(1-q)N(0, z^2) + qN(1, z^2)$ against $N(0, z^2)$, both directions; replace one: against
    $(1-q)N(0, z^2) + qN(-1, z^2)$. Batches without replacement, where a batch without the record holds another one in its place: for
    replace_one the trade-off function $C_q(f)$ of Dong, Roth and Su; for zero_out the pair $(1-q)N(-1, z^2) + qN(1, z^2)$ against
    $(1-q)N(-1, z^2) + qN(0, z^2)$ (docs/theory.md, Lemma 6). Beside each loss distribution stands the Rényi curve that follows from the
    same pairs: it reaches every delta.

    Poisson batches of one of g public groups at each step: a record is drawn at one step in g, with g times the probability. Of each g
    steps in turn the one with the least noise counts.
    """

    name: ClassVar[str] = "sampled-gaussian"
    statement: ClassVar[str] = "Numerical composition of the sampled Gaussian mechanism; holds whatever is released."
    formula: ClassVar[str] = r"(1-q)N(0, z_t^2) + qN(1, z_t^2) \text{ against } N(0, z_t^2), \text{ composed over } t"
    needs: ClassVar[str] = "Poisson batches or batches without replacement, secret"
    covers: ClassVar[Literal["last", "all"]] = "all"
    given_the_others: ClassVar[bool] = True
    record_groups: ClassVar[bool] = True
    clipping: ClassVar[Clipping] = "any"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            key="mironov-2019",
            text="Mironov, Talwar, Zhang 2019, Renyi differential privacy of the sampled Gaussian mechanism, arXiv:1908.10530.",
        ),
        Citation(
            key="dong-2022",
            text="Dong, Roth, Su 2022, Gaussian differential privacy, arXiv:1905.02383v3, Theorem 4.2 (batches without replacement).",
        ),
        Citation(key="dp-accounting", text="Google, dp_accounting: RDP and privacy-loss-distribution accountants."),
    )

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        """Batches must be drawn afresh and secretly at each step."""
        return (drawn_afresh(run), secrecy(run), gradient_bound_when_drawn(run))

    def _bound(self, run: Run) -> Bound:
        return Bound(guarantee=sampled(run, run.record_noise))


def sampled(run: Run, noise: Array) -> Guarantee:
    """The guarantee of a record that is drawn afresh at each step, or at each of its group.

    Args:
        run: whose batches are `drawn_afresh`.
        noise: of each step, in units of the record's bound, shape (T,).
    """
    groups = run.batches.groups_of_records
    turns = np.full(-(-noise.size // groups) * groups, np.inf)
    turns[: noise.size] = noise
    return sampled_gaussian(groups * run.batch_size / run.records, turns.reshape(-1, groups).min(axis=1), run.neighbours, drawn_by(run))
