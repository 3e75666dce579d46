r"""Private mean and scale of every column: two noisy moments, the second of which costs nothing beside the first.

`PrivateStandardScaler` calls `standardise` with its table and ranges; `lethe.accounting.derivations` recomputes the sensitivity.

With public bounds $[a_j, b_j]$, centre $c_j$ and half width $h_j$, every value becomes $u = (x - c_j)/h_j \in [-1, 1]$ after clipping, and
contributes $\varphi(u) = (u,\ \kappa(u^2 - 1))$ to its column. Released is $\sum_i \varphi(u_{ij}) + N(0, \sigma^2 I_2)$ of all columns.

The largest $\|\varphi(u) - \varphi(v)\|$ is 2 iff $\kappa^2 \le \phi^5/4 = 2.7725$, $\phi$ the golden ratio, and the largest
$\|\varphi(u)\|$ is 1 iff $\kappa \le 1$ (proof: docs/theory.md, section 16). A record has d columns, which may be extreme all at once: the
sensitivity is $2\sqrt d$, or $\sqrt d$ zeroed out, and it is attained. So the means have the noise that they would have alone.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.domains import outside, require_positive, require_vector
from lethe.calculus.guarantees import Guarantee
from lethe.calculus.noise_generators import noise_generator
from lethe.certificates.findings import holds
from lethe.certificates.statement import Statement
from lethe.errors.names import in_other_words
from lethe.mechanisms.base import Array, gaussian_noise_std, gaussian_statement, require_swap
from lethe.mechanisms.tables import as_table, one_a_column, public_records, sums_over
from lethe.partitions.table import ExaminedTable
from lethe.run.run import Neighbours

# sqrt(phi^5 / 4), rounded down; where a record is zeroed out, 1.
_KAPPA_REPLACED = math.sqrt(((1.0 + math.sqrt(5.0)) / 2.0) ** 5 / 4.0) * (1.0 - 1e-12)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Standardisation:
    r"""A released transformation $x \mapsto (\mathrm{clip}(x, a, b) - m)/s$, $a \le m \le b$, column by column: arrays of shape (d,)."""

    low: Array
    high: Array
    mean: Array
    scale: Array
    statement: Statement


def moment_weight(neighbours: object) -> float:
    r"""$\kappa$, the weight of the second moment, as large as is free."""
    return _KAPPA_REPLACED if require_swap(neighbours) == 2.0 else 1.0


def scaled_moments_sensitivity(columns: int, neighbours: object) -> float:
    r"""How far one record moves the sum of $\varphi$ over d columns, rounded up: $\sqrt d$, or twice that where it is replaced."""
    return require_swap(neighbours) * math.sqrt(columns) * (1.0 + 1e-14)


def contributions(rows: Array, low: Array, high: Array, neighbours: object) -> Array:
    r"""$\varphi$ of every record, shape (n, 2, d)."""
    centre, half = low + (high - low) / 2.0, (high - low) / 2.0
    scaled = np.clip((np.clip(rows, low, high) - centre) / half, -1.0, 1.0)
    return np.stack([scaled, moment_weight(neighbours) * (np.square(scaled) - 1.0)], axis=1)


def _sums(rows: Array, low: Array, high: Array, neighbours: object) -> tuple[Array]:
    return (contributions(rows, low, high, neighbours).sum(axis=0),)


@in_other_words
def standardise(
    rows: ArrayLike | ExaminedTable,
    *,
    low: ArrayLike,
    high: ArrayLike,
    target: Guarantee,
    neighbours: Neighbours = "replace_one",
    records: int | None = None,
    least_scale: float = 0.01,
    generator: np.random.Generator | None = None,
) -> Standardisation:
    r"""Release the mean and the standard deviation of every column.

    $$m_j = c_j + h_j\,\hat u_j,\qquad s_j = h_j\sqrt{\max(\hat q_j - \hat u_j^2,\ \text{least}^2)},$$

    $\hat u$ the noisy mean of u, cut to [-1, 1], and $\hat q$ the noisy mean of $u^2$, both over n. The rest is post-processing.

    Args:
        rows: shape (m, d), the records present; values outside the bounds are clipped. Or a table in blocks that was looked through.
        low: $a_j$, a number or one a column: known without looking at the data, or released and accounted before.
        high: $b_j > a_j$, a number or shape (d,).
        least_scale: floor on the standard deviation, in half widths of the bounds, in (0, 1].
        target, neighbours, records, generator: as `second_moment`.
    """
    table = as_table(rows)
    ends = one_a_column("low", low, table.shape[1]), one_a_column("high", high, table.shape[1])
    with np.errstate(over="ignore"):
        widths = ends[1] - ends[0]
    require_vector("high - low", widths, low=0.0, strict=True)
    floor = require_positive("least_scale", least_scale)
    if floor > 1.0:
        raise outside("least_scale", least_scale, "a number above 0 and at most 1")
    count = public_records(records, table.shape[0], neighbours)
    sensitivity = scaled_moments_sensitivity(table.shape[1], neighbours)
    noise_std = gaussian_noise_std(sensitivity, target)
    (sums,) = sums_over(table, _sums, *ends, neighbours)
    noisy = (sums + noise_std * noise_generator(generator).standard_normal(sums.shape)) / count
    mean, square = np.clip(noisy[0], -1.0, 1.0), noisy[1] / moment_weight(neighbours) + 1.0
    half = widths / 2.0
    statement = gaussian_statement(
        f"means and scales of {table.shape[1]} columns",
        "means and scales",
        sensitivity=sensitivity,
        noise_std=noise_std,
        neighbours=neighbours,
        records=count,
        generator=generator,
        findings=(
            holds("public bounds", "column bounds declared to be public, or released and accounted", evidence="declared"),
            holds("values within the bounds", "clipped to them", evidence="enforced"),
            holds("sensitivity", f"one record moves the scaled moments by at most {sensitivity:.6g}", evidence="enforced"),
        ),
        columns=table.shape[1],
    )
    # The rounding of c + h must not pull a mean outside its bounds.
    return Standardisation(
        low=ends[0],
        high=ends[1],
        mean=np.clip(ends[0] + half + half * mean, *ends),
        scale=half * np.sqrt(np.clip(square - np.square(mean), floor * floor, 1.0)),
        statement=statement,
    )
