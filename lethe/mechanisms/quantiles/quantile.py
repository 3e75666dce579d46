"""A private quantile of numbers in a public range, such as feature norms before a clip norm is chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.domains import outside
from lethe.calculus.guarantees import GDP, ApproxDP, Guarantee
from lethe.calculus.noise_generators import noise_generator
from lethe.calculus.targets import require_target
from lethe.certificates.derivation import derivation
from lethe.certificates.findings import holds
from lethe.certificates.parts import Citation
from lethe.certificates.statement import Statement
from lethe.documents.synonyms import in_other_words
from lethe.mechanisms.base import target_mu
from lethe.mechanisms.quantiles.exponential import quantile_law
from lethe.mechanisms.quantiles.ranks import Spacing, rank_sensitivity, ranked
from lethe.mechanisms.quantiles.searched import search_noise_std, search_quantile
from lethe.mechanisms.selection.bounded_range import guarantee_for, range_of_target
from lethe.mechanisms.tables import public_records
from lethe.run.run import Neighbours

QuantileMethod = Literal["exponential", "search"]

# Measured on log-normal values over six powers of ten: below this many noise units the exponential mechanism is lost in the wide outer
# intervals, and the search still finds the right cell.
_ENOUGH = 20.0

_CITATIONS = {
    "exponential": (
        Citation(key="smith-2011", text="Smith 2011, Privacy-preserving statistical estimation with optimal convergence rates"),
        Citation(
            key="dong-2020",
            text="Dong, Durfee, Rogers 2020, Optimal differential privacy composition for exponential mechanisms, arXiv:1909.13830",
        ),
    ),
    "search": (Citation(key="dong-2019", text="Dong, Roth, Su 2019, Gaussian differential privacy, arXiv:1905.02383, Corollary 3.3"),),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantile:
    """A released quantile.

    Args:
        value: within the public range.
        method: how it was found.
        statement: what it costs.
    """

    value: float
    method: QuantileMethod
    statement: Statement


def quantile_method(quantile: float, records: int, target: Guarantee) -> QuantileMethod:
    r"""The method for a public number of records: the exponential mechanism if $n\min(p, 1-p)\,\mu \ge 20$, else the search.

    At $\delta = 0$ only the exponential mechanism is private. Nothing here depends on the data.

    Args:
        quantile: p in (0, 1).
        records: n, public.
        target: the guarantee to meet.
    Raises:
        InputError: the target is none.
    """
    goal = require_target(target)
    if isinstance(goal, ApproxDP) and goal.delta_bound == 0.0:
        return "exponential"
    return "exponential" if records * min(quantile, 1.0 - quantile) * target_mu(target) >= _ENOUGH else "search"


def quantile_cost(quantile: float, records: int, target: Guarantee, method: Literal["auto"] | QuantileMethod = "auto") -> Guarantee:
    """The guarantee of `private_quantile`, known before a value is looked at.

    Args:
        quantile, records, target, method: as there.
    Raises:
        InputError: the target is none.
    """
    return _cost(quantile_method(quantile, records, target) if method == "auto" else method, target)


def _cost(used: QuantileMethod, target: Guarantee) -> Guarantee:
    return guarantee_for(range_of_target(target), target) if used == "exponential" else GDP(target_mu(target))


@in_other_words
def private_quantile(
    values: ArrayLike,
    *,
    quantile: float,
    low: float,
    high: float,
    target: Guarantee,
    neighbours: Neighbours = "replace_one",
    records: int | None = None,
    spacing: Spacing = "linear",
    method: Literal["auto"] | QuantileMethod = "auto",
    generator: np.random.Generator | None = None,
) -> Quantile:
    """Release one quantile.

    Args:
        values: one number a record, shape (m,); those outside the range are clipped to it.
        quantile: p in (0, 1).
        low: lower end of a range known without looking at the data.
        high: its upper end.
        target: the guarantee wanted: (epsilon, delta), mu-GDP, rho-zCDP or a Rényi curve.
        neighbours: "replace_one", or "zero_out": the record has no value in the list, n stays public.
        records: n, the public number of records; None: as many as there are values.
        spacing: "linear", or "logarithmic" for a range over several powers of ten.
        method: "exponential", "search", or "auto": see `quantile_method`.
        generator: for tests, and the statement is then `seeded`; None: fresh entropy.
    Returns:
        The value, the method, and a statement whose guarantee is of the target's kind where that loses nothing.
    Raises:
        InputError: an argument is outside its range.
    """
    ranks = ranked(values, quantile=quantile, low=low, high=high, neighbours=neighbours, spacing=spacing)
    count = public_records(records, ranks.points.size, neighbours)
    if method not in ("auto", "exponential", "search"):
        raise outside("method", method, "one of auto, exponential, search")
    used = quantile_method(quantile, count, target) if method == "auto" else method
    source = noise_generator(generator)
    if used == "exponential":
        coordinate = quantile_law(ranks, range_of_target(target)).draw(source)
    else:
        coordinate = search_quantile(ranks, target_mu(target), source)
    stated = _Stated(quantile=quantile, low=low, high=high, target=target, neighbours=neighbours, records=count)
    return Quantile(value=ranks.value(coordinate), method=used, statement=stated.statement(used, seeded=generator is not None))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stated:
    """What is public of a quantile."""

    quantile: float
    low: float
    high: float
    target: Guarantee
    neighbours: Neighbours
    records: int

    def statement(self, used: QuantileMethod, *, seeded: bool) -> Statement:
        """What it costs."""
        sensitivity = rank_sensitivity(self.quantile, self.neighbours)
        moved = f"one record moves a rank by at most {sensitivity:g}"
        if used == "exponential":
            epsilon = range_of_target(self.target)
            cost = f"{moved}; bounded range {epsilon:.6g}"
            numbers = derivation("quantile by the exponential mechanism", range=epsilon, target=self.target.to_dict())
        else:
            noise_std = search_noise_std(sensitivity, target_mu(self.target))
            cost = f"{moved}; 8 comparisons with Gaussian noise"
            numbers = derivation("quantile by noisy search", quantile=float(self.quantile), noise_std=noise_std)
        public = f"[{self.low:g}, {self.high:g}], declared to be chosen without looking at the data"
        return Statement(
            name=f"the {self.quantile:g} quantile",
            guarantee=_cost(used, self.target),
            neighbours=self.neighbours,
            findings=(
                holds("public range", public, evidence="declared"),
                holds("values within the range", "clipped to it", evidence="enforced"),
                holds("sensitivity", cost, evidence="enforced"),
            ),
            citations=_CITATIONS[used],
            seeded=seeded,
            derivation=numbers,
            records=self.records,
        )
