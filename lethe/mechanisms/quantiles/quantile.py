r"""A private quantile of numbers in a public range, such as a median, by the exponential mechanism: the likelier the closer its rank is.

Called by users who know a range (`private_quantile`); `lethe.accounting.derivations` recomputes its sensitivity. p is the quantile's level,
$z_i$ the records' numbers.

Of a point r of the range the rank is off by

$$v(r) = \#\{i : z_i < r\} - p\,m,$$

with m the records that are present: one that is zeroed out is absent from the list (if its value became 0 instead, it would be replaced).
One record moves $v(r)$ by at most $\Delta = 1$, or $\max(p, 1-p)$ zeroed out, and the mechanism draws from

$$p(r) \propto \exp\left(-\frac{\epsilon}{2\Delta}\,|v(r)|\right),\qquad
  P(I_k) \propto |I_k|\,\exp\left(-\frac{\epsilon}{2\Delta}\,|k - pm|\right),\quad k = 0..m,$$

$I_k$ the interval between the k-th and the next of the sorted values, the ends of the range added. Ties give intervals of length zero,
which have probability zero. For a range over several powers of ten give logarithms of the values and of its ends.

It is $\epsilon$-BR (`lethe.mechanisms.bounded_range`), exactly. Proof: docs/theory.md, section 16.

Reference: Smith 2011, Privacy-preserving statistical estimation with optimal convergence rates; Gillenwater, Joseph, Kulesza 2021,
arXiv:2102.08244.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.domains import as_number, outside, require_nonnegative
from lethe.calculus.guarantees import Guarantee
from lethe.calculus.noise_generators import noise_generator
from lethe.calculus.rounding import round_down
from lethe.certificates.derivation import derivation
from lethe.certificates.findings import holds
from lethe.certificates.parts import Citation
from lethe.certificates.statement import Statement
from lethe.errors import InputError
from lethe.errors.names import in_other_words
from lethe.mechanisms.base import Array, require_swap
from lethe.mechanisms.bounded_range import guarantee_for, range_of_target
from lethe.mechanisms.tables import public_records
from lethe.run.run import Neighbours

_LEVEL = "a number above 0 and below 1"
_CITATIONS = (
    Citation(key="smith-2011", text="Smith 2011, Privacy-preserving statistical estimation with optimal convergence rates"),
    Citation(
        key="dong-2020",
        text="Dong, Durfee, Rogers 2020, Optimal differential privacy composition for exponential mechanisms, arXiv:1909.13830",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantile:
    """A released quantile within the public range, and what it costs."""

    value: float
    statement: Statement


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuantileLaw:
    """The exact law of the released point: constant density on each interval.

    `edges`, shape (m + 2,), are sorted, and equal where values tie; `log_weights`, shape (m + 1,), are those of the probabilities up to one
    constant, minus infinity for an empty interval.
    """

    edges: Array
    log_weights: Array

    @property
    def probabilities(self) -> Array:
        """The probability of each interval, shape (m + 1,)."""
        weights = np.exp(self.log_weights - self.log_weights.max())
        return weights / weights.sum()

    def draw(self, generator: np.random.Generator) -> float:
        """One point: an interval by the largest of log weights plus Gumbel noise, then uniform in it."""
        chosen = int(np.argmax(self.log_weights + generator.gumbel(size=self.log_weights.size)))
        lower, right = self.edges[chosen : chosen + 2].tolist()
        return min(lower + (right - lower) * float(generator.random()), right)


def rank_sensitivity(quantile: float, neighbours: object) -> float:
    """1 where a neighbour replaces one record, max(p, 1 - p) where it zeroes one out, for p in (0, 1)."""
    if not 0.0 < as_number("quantile", quantile, _LEVEL) < 1.0:
        raise outside("quantile", quantile, _LEVEL)
    return 1.0 if require_swap(neighbours) == 2.0 else max(quantile, 1.0 - quantile)


def quantile_law(points: Array, ends: tuple[float, float], *, quantile: float, epsilon: float, neighbours: object) -> QuantileLaw:
    """The law of the module's first lines, of values, shape (m,); those outside the ends of the range are clipped."""
    sensitivity = rank_sensitivity(quantile, neighbours)
    slope = round_down(require_nonnegative("epsilon", epsilon, allow_infinity=False) / (2.0 * sensitivity), 1e-15)
    edges = np.concatenate([[ends[0]], np.sort(np.clip(points, *ends)), [ends[1]]])
    distances = np.abs(np.arange(edges.size - 1) - quantile * points.size)
    with np.errstate(divide="ignore"):
        log_lengths = np.log(np.diff(edges))
    return QuantileLaw(edges=edges, log_weights=log_lengths - slope * distances)


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
    generator: np.random.Generator | None = None,
) -> Quantile:
    r"""Release one quantile.

    Where $n\min(p, 1-p)\,\mu$ is well below 20 the wide outer intervals win: take a narrow range.

    Args:
        values: one number a record, shape (m,); those outside the range are clipped to it.
        quantile: p in (0, 1).
        low, high: the ends of a range known without looking at the data.
        target: the guarantee wanted: (epsilon, delta), mu-GDP, rho-zCDP or a Rényi curve.
        neighbours: "replace_one", or "zero_out": the record has no value in the list, n stays public.
        records: n, the public number of records; None: as many as there are values.
        generator: for tests, and the statement is then `seeded`; None: fresh entropy.
    """
    sensitivity = rank_sensitivity(quantile, neighbours)
    points, ends = _list(values), _range(low, high)
    count, epsilon = public_records(records, points.size, neighbours), range_of_target(target)
    law = quantile_law(points, ends, quantile=float(quantile), epsilon=epsilon, neighbours=neighbours)
    value = law.draw(noise_generator(generator))
    statement = Statement(
        name=f"the {quantile:g} quantile",
        guarantee=guarantee_for(epsilon, target),
        neighbours=neighbours,
        findings=(
            holds("public range", f"[{low:g}, {high:g}], declared to be chosen without looking at the data", evidence="declared"),
            holds("values within the range", "clipped to it", evidence="enforced"),
            holds("sensitivity", f"one record moves a rank by at most {sensitivity:g}; bounded range {epsilon:.6g}", evidence="enforced"),
        ),
        citations=_CITATIONS,
        seeded=generator is not None,
        derivation=derivation("quantile by the exponential mechanism", range=epsilon, target=target.to_dict()),
        records=count,
    )
    return Quantile(value=min(max(value, ends[0]), ends[1]), statement=statement)


def _range(low: object, high: object) -> tuple[float, float]:
    ends = as_number("low", low, "a finite number below high"), as_number("high", high, "a finite number above low")
    if not (math.isfinite(ends[0]) and 0.0 < ends[1] - ends[0] < math.inf):
        raise InputError(
            f"low = {low!r}, high = {high!r}; the range needs two finite numbers, low below high.",
            source="the arguments low and high",
            remedy="give a range known without looking at the data",
        )
    return ends


def _list(values: ArrayLike) -> Array:
    needed = "a one-dimensional list of finite numbers"
    try:
        array = np.array(values)
    except (TypeError, ValueError):
        raise outside("values", type(values).__name__, needed) from None
    if array.ndim == 1 and array.size == 0:
        return np.zeros(0)
    if array.dtype.kind not in "iuf" or array.ndim != 1 or not np.isfinite(array).all():
        raise outside("values", f"array of shape {array.shape} and type {array.dtype}, or an entry that is not finite", needed)
    return array.astype(np.float64)
