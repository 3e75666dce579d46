r"""Means and second moments of rows of bounded norm, each released with Gaussian noise.

`PrivatePCA`, `PrivateWhitening`, the whitening of linear models and the narrowing of target ranges call it with rows clipped to norm R;
`lethe.accounting.derivations` recomputes its sensitivities.

Of second moments $\sum_i x_ix_i^\top$ the noise is $N(0, \sigma^2)$ in every coordinate of an orthonormal basis of the symmetric matrices
in the Frobenius inner product: $\sigma$ on the diagonal, $\sigma/\sqrt2$ off it (Dwork, Talwar, Thakurta, Zhang 2014, Analyze Gauss).

Of channels a record is $Z = (z_1, \dots, z_P)$, the values of C channels at each of P positions, with $\frac1P\sum_p\|z_p\|^2 \le R^2$:
its norm as one row of CP features is at most $R\sqrt P$. Released is $\sum_i\varphi(Z_i)$ with the same noise, for

$$\varphi(Z) = (a\,m,\ S),\qquad m = \tfrac1P\sum_pz_p,\quad S = \tfrac1P\sum_pz_pz_p^\top,\qquad a^2 = \theta R^2,\ 0 < \theta \le 2,$$

so that C + C(C+1)/2 numbers serve CP features. How far one record moves either, and why: docs/theory.md, section 16.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.domains import outside, require_count, require_positive
from lethe.calculus.guarantees import GDP, Guarantee
from lethe.calculus.noise_generators import noise_generator
from lethe.calculus.rounding import round_up, square_above
from lethe.certificates.findings import Finding, holds
from lethe.certificates.parts import Citation
from lethe.certificates.statement import Statement
from lethe.errors import InputError
from lethe.errors.names import in_other_words
from lethe.mechanisms.base import GAUSSIAN, Array, gaussian_noise_std, gaussian_statement, require_swap
from lethe.mechanisms.tables import as_table, projected, projected_rows, public_records, sums_over
from lethe.partitions.table import ExaminedTable
from lethe.run.run import Neighbours

_ANALYZE_GAUSS = Citation(key="dwork-2014", text="Dwork, Talwar, Thakurta, Zhang 2014, Analyze Gauss, STOC, Algorithm 1")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SecondMoment:
    r"""A released $\sum_i x_ix_i^\top$, shape (d, d), maybe with negative eigenvalues; the noise of a diagonal entry, and what it costs."""

    matrix: Array
    noise_std: float
    statement: Statement


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChannelMoments:
    r"""A released mean and second-moment matrix of channels, both over records and positions, and what they cost together.

    The mean, shape (C,), is $\frac1n\sum_im_i$ with noise, cut to the ball of radius R; the second moment, symmetric, shape (C, C), is
    $\frac1n\sum_iS_i$ with noise, `noise_std` on the diagonal and that over $\sqrt2$ off it: it may have negative eigenvalues.
    """

    mean: Array
    second_moment: Array
    noise_std: float
    mean_noise_std: float
    statement: Statement

    @property
    def covariance(self) -> Array:
        """The second moments less those of the mean, shape (C, C); it may have negative eigenvalues."""
        return self.second_moment - np.outer(self.mean, self.mean)


def noisy_mean(
    table: Any, *, norm: float, target: GDP, neighbours: Neighbours, generator: np.random.Generator | None
) -> tuple[Array, Statement]:
    r"""$\frac1n(\sum_i x_i + N(0, \sigma^2I))$ for rows projected on the ball of radius R, cut to that ball; and what it costs.

    One record moves the sum by at most 2R where it is replaced, and by R where it is zeroed out. Every record is present.
    """
    read = as_table(table)
    records, columns = read.shape
    sensitivity = require_swap(neighbours) * norm
    noise_std = gaussian_noise_std(sensitivity, target)
    (total,) = sums_over(read, _sum, norm)
    mean = (total + noise_std * noise_generator(generator).standard_normal(columns)) / records
    return _in_ball(mean, norm), gaussian_statement(
        f"mean of {columns} columns",
        "mean of rows",
        sensitivity=sensitivity,
        noise_std=noise_std,
        neighbours=neighbours,
        records=records,
        generator=generator,
        findings=(projected(norm), _moved("the sum", sensitivity)),
        norm=float(norm),
    )


@in_other_words
def moment_sensitivity(norm: float, columns: int, neighbours: object) -> float:
    r"""The sensitivity of $\sum_i x_ix_i^\top$ in the Frobenius norm: $R^2$, or $\sqrt2R^2$ where a record is replaced and d > 1."""
    # A square that underflows is not 0.
    square = float(square_above(require_positive("norm", norm)))
    return round_up(square * (math.sqrt(2.0) if require_swap(neighbours) == 2.0 and columns > 1 else 1.0), 1e-14)


def _symmetric_noise(columns: int, noise_std: float, generator: np.random.Generator) -> Array:
    """Isotropic in the Frobenius norm, shape (d, d): (G + G^T)/2 for independent entries has exactly that law."""
    full = generator.standard_normal((columns, columns))
    return noise_std * (full + full.T) / 2.0


@in_other_words
def second_moment(
    rows: ArrayLike | ExaminedTable,
    *,
    norm: float,
    target: Guarantee,
    neighbours: Neighbours = "replace_one",
    records: int | None = None,
    generator: np.random.Generator | None = None,
) -> SecondMoment:
    r"""Release $\sum_i x_ix_i^\top + E$, rows projected on the ball of radius R.

    Args:
        rows: shape (m, d), the records present. Or a table in blocks that was looked through.
        norm: R > 0, public.
        target: the guarantee wanted.
        neighbours: "replace_one", or "zero_out": the record is absent, or a row of zeros; n stays public.
        records: n; None: as many as there are rows, where one is replaced.
        generator: for tests, and the statement is then `seeded`; None: fresh entropy.
    """
    table = as_table(rows)
    columns = table.shape[1]
    count = public_records(records, table.shape[0], neighbours)
    sensitivity = moment_sensitivity(norm, columns, neighbours)
    noise_std = gaussian_noise_std(sensitivity, target)
    (sums,) = sums_over(table, _products, norm)
    noisy = sums + _symmetric_noise(columns, noise_std, noise_generator(generator))
    statement = gaussian_statement(
        f"second moments of {columns} columns",
        "second moments",
        sensitivity=sensitivity,
        noise_std=noise_std,
        neighbours=neighbours,
        records=count,
        generator=generator,
        findings=(projected(norm), _moved("the matrix", sensitivity)),
        citations=(_ANALYZE_GAUSS,),
        norm=float(norm),
        columns=columns,
    )
    return SecondMoment(matrix=(noisy + noisy.T) / 2.0, noise_std=noise_std, statement=statement)


def channel_sensitivity(norm: float, positions: int, neighbours: object, mean_weight: float, *, channels: int = 2) -> float:
    r"""How far one record moves $\sum_i\varphi(Z_i)$, rounded up: $R^2(2+\theta)/\sqrt2$ replaced, $R^2\sqrt{1+\theta}$ zeroed out.

    `norm` is $R\sqrt P$, `mean_weight` $\theta$; of one channel alone a record that is replaced moves them less far.
    """
    weight, square = _weight(mean_weight), float(square_above(require_positive("norm", norm)))
    single_channel = require_count("channels", channels) == 1
    if require_swap(neighbours) != 2.0:
        moved = math.sqrt(1.0 + weight)
    elif not single_channel:
        moved = (2.0 + weight) / math.sqrt(2.0)
    else:
        near = 0.5 + 0.5 * math.sqrt(max(1.0 - 2.0 * weight, 0.0))  # v
        moved = math.sqrt(max(4.0 * weight, (2.0 - near) ** 2 * (weight + near**2) if weight <= 0.5 else 0.0))
    return round_up(square / require_count("positions", positions) * moved, 1e-14)


@in_other_words
def channel_moments(
    rows: ArrayLike | ExaminedTable,
    *,
    channels: int,
    norm: float,
    target: Guarantee,
    neighbours: Neighbours = "replace_one",
    records: int | None = None,
    mean_weight: float = 0.5,
    generator: np.random.Generator | None = None,
) -> ChannelMoments:
    r"""Release mean and second moments of the channels, rows projected on the ball of radius `norm`.

    Args:
        rows: shape (m, C P), all positions of the first channel, then of the next; or a table in blocks that was looked through.
        channels: C; it divides the number of columns.
        norm: $R\sqrt P$ > 0, public.
        target, neighbours, records, generator: as `second_moment`.
        mean_weight: $\theta$ in (0, 2]: the mean's part of the noise; with 1/2 a covariance has about as much noise by the mean as by the
            second moments, where records lie far from 0.
    """
    table = as_table(rows)
    positions = positions_of(table.shape[1], channels)
    radius = require_positive("norm", norm) / math.sqrt(positions)
    count = public_records(records, table.shape[0], neighbours)
    weight = _weight(mean_weight)
    sensitivity = channel_sensitivity(norm, positions, neighbours, weight, channels=channels)
    scale = math.sqrt(weight) * radius  # a
    if scale < 1e-150 or not sensitivity < math.inf:
        raise outside("norm", norm, "a number whose square neither vanishes nor overflows")
    noise_std = gaussian_noise_std(sensitivity, target)
    sums, squares = sums_over(table, _channel_sums, channels, norm)
    drawn = noise_generator(generator)
    mean = (sums + noise_std / scale * drawn.standard_normal(channels)) / count
    noisy = (squares + _symmetric_noise(channels, noise_std, drawn)) / count
    what, how = ("columns", "") if positions == 1 else ("channels", f", averaged over its {positions} positions,")
    statement = gaussian_statement(
        f"mean and second moments of {channels} {what}",
        "channel moments",
        sensitivity=sensitivity,
        noise_std=noise_std,
        neighbours=neighbours,
        records=count,
        generator=generator,
        findings=(projected(norm), _moved("mean and second moments together", sensitivity, how)),
        citations=(GAUSSIAN, _ANALYZE_GAUSS),
        norm=float(norm),
        positions=positions,
        mean_weight=weight,
        **({"channels": 1} if channels == 1 else {}),
    )
    return ChannelMoments(
        mean=_in_ball(mean, radius),
        second_moment=(noisy + noisy.T) / 2.0,
        noise_std=noise_std / count,
        mean_noise_std=noise_std / scale / count,
        statement=statement,
    )


def positions_of(columns: int, channels: object) -> int:
    """P, the number of positions of records with so many columns, which the number of channels has to divide."""
    if isinstance(channels, bool | np.bool_) or not isinstance(channels, int | np.integer) or channels < 1 or columns % channels:
        raise InputError(
            f"channels = {channels!r}; it needs a whole number that divides the {columns} columns.",
            source="the parameter channels",
            remedy="give the number of channels of the step before, such as ScatteringFeatures().channels()",
        )
    return columns // int(channels)


def _sum(rows: Array, norm: float) -> tuple[Array]:
    return (projected_rows(rows, feature_norm=norm).sum(axis=0),)


def _products(rows: Array, norm: float) -> tuple[Array]:
    near = projected_rows(rows, feature_norm=norm)
    return (near.T @ near,)


def _channel_sums(rows: Array, channels: int, norm: float) -> tuple[Array, Array]:
    """Sums over records and positions of the channels and of their products, both over the number of positions P."""
    positions = rows.shape[1] // channels
    split = projected_rows(rows, feature_norm=norm).reshape(len(rows), channels, positions)
    flat = split.transpose(1, 0, 2).reshape(channels, -1)
    return split.sum(axis=(0, 2)) / positions, flat @ flat.T / positions


def _in_ball(mean: Array, radius: float) -> Array:
    return mean * min(1.0, radius / max(float(np.linalg.norm(mean)), 1e-300))


def _moved(what: str, sensitivity: float, how: str = "") -> Finding:
    """The finding that states the sensitivity."""
    return holds("sensitivity", f"one record{how} moves {what} by at most {sensitivity:.6g}", evidence="enforced")


def _weight(mean_weight: float) -> float:
    r"""$\theta$ of the head, checked."""
    weight = require_positive("mean_weight", mean_weight)
    if weight > 2.0:
        raise outside("mean_weight", mean_weight, "a number above 0 and at most 2")
    return weight
