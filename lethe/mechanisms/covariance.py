r"""Analyze Gauss: the second-moment matrix of rows of bounded norm, with symmetric Gaussian noise, and its principal components.

The noise is $N(0, \sigma^2)$ in every coordinate of an orthonormal basis of the symmetric matrices in the Frobenius inner product: standard
deviation $\sigma$ on the diagonal, $\sigma/\sqrt2$ off it. Its sensitivity is then a Frobenius norm:

- one record zeroed out: $\|xx^\top\|_F = \|x\|^2 \le R^2$;
- one record replaced: $\|xx^\top - yy^\top\|_F^2 = \|x\|^4 + \|y\|^4 - 2(x^\top y)^2 \le 2R^4$, attained by orthogonal rows of norm R,
  which exist in two dimensions or more; in one dimension $|x^2 - y^2| \le R^2$.

Dwork et al. draw the upper triangle with one $\sigma$ and mirror it. Then the squared norm is
$\frac12(\|\Delta\|_F^2 + \|\mathrm{diag}\,\Delta\|^2)$, whose maximum is the same (at $x = e_1$, $y = e_2$): the larger noise off
the diagonal buys nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.domains import outside, require_positive
from lethe.calculus.guarantees import Guarantee
from lethe.calculus.noise_generators import noise_generator
from lethe.calculus.rounding import round_up, square_above
from lethe.certificates.derivation import derivation
from lethe.certificates.findings import holds
from lethe.certificates.parts import Citation
from lethe.certificates.statement import Statement
from lethe.documents.synonyms import in_other_words
from lethe.mechanisms.base import Array, gaussian_guarantee, gaussian_noise_std, require_swap
from lethe.mechanisms.rows import projected_rows
from lethe.mechanisms.tables import blocks, public_records, require_table
from lethe.partitions.block import Block
from lethe.partitions.table import ExaminedTable
from lethe.run.run import Neighbours

_CITATIONS = (Citation(key="dwork-2014", text="Dwork, Talwar, Thakurta, Zhang 2014, Analyze Gauss, STOC, Algorithm 1"),)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SecondMoment:
    r"""A released $\sum_i x_ix_i^\top$.

    Args:
        matrix: noisy sum over records, symmetric, shape (d, d); it may have negative eigenvalues.
        records: n, public.
        noise_std: of a diagonal entry.
        statement: what it costs.
    """

    matrix: Array
    records: int
    noise_std: float
    statement: Statement

    @property
    def positive(self) -> Array:
        """The nearest positive semidefinite matrix to it, per record: post-processing."""
        values, vectors = np.linalg.eigh(self.matrix)
        return (vectors * (np.maximum(values, 0.0) / self.records)) @ vectors.T

    def components(self, count: int) -> Array:
        """The principal components, strongest first, as orthonormal rows, shape (count, d): post-processing.

        Raises:
            InputError: not a whole number from 1 to d.
        """
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or not 1 <= count <= len(self.matrix):
            raise outside("count", count, f"a whole number from 1 to {len(self.matrix)}")
        return np.linalg.eigh(self.matrix)[1][:, ::-1][:, :count].T


@in_other_words
def moment_sensitivity(norm: float, columns: int, neighbours: object) -> float:
    r"""The sensitivity of $\sum_i x_ix_i^\top$ in the Frobenius norm: $R^2$, or $\sqrt2R^2$ where a record is replaced and d > 1.

    Args:
        norm: R > 0, the bound on the rows' norms.
        columns: d.
        neighbours: replace_one or zero_out.
    """
    radius = require_positive("norm", norm)
    # A square that underflows is not 0.
    square = float(square_above(radius))
    return round_up(square * (math.sqrt(2.0) if require_swap(neighbours) == 2.0 and columns > 1 else 1.0), 1e-14)


def symmetric_noise(columns: int, noise_std: float, generator: np.random.Generator) -> Array:
    """Gaussian noise, isotropic in the Frobenius norm, shape (d, d): (G + G^T)/2 for independent entries has exactly that law.

    Args:
        columns: d.
        noise_std: of an entry of the diagonal, >= 0.
        generator: of the noise.
    """
    full = generator.standard_normal((columns, columns))
    return noise_std * (full + full.T) / 2.0


def _products_of_block(block: Block, norm: float) -> tuple[Array]:
    sums = np.zeros((block.features.shape[1],) * 2)
    for part in blocks("rows", block.features):
        kept = projected_rows(part, feature_norm=norm)
        sums += kept.T @ kept
    return (sums,)


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
    Raises:
        InputError: an argument is outside its range.
    Reference: Dwork, Talwar, Thakurta, Zhang 2014, Analyze Gauss, STOC; the sensitivities are proved above.
    """
    table = rows if isinstance(rows, ExaminedTable) else require_table("rows", rows)
    columns = table.shape[1]
    count = public_records(records, table.shape[0], neighbours)
    sensitivity = moment_sensitivity(norm, columns, neighbours)
    noise_std = gaussian_noise_std(sensitivity, target)
    if isinstance(table, ExaminedTable):
        (sums,) = table.sum(_products_of_block, norm)
    else:
        kept = projected_rows(table, feature_norm=norm) if len(table) > 0 else table
        sums = kept.T @ kept
    noisy = sums + symmetric_noise(columns, noise_std, noise_generator(generator))
    return SecondMoment(
        matrix=(noisy + noisy.T) / 2.0,
        records=count,
        noise_std=noise_std,
        statement=Statement(
            name=f"second moments of {columns} columns",
            guarantee=gaussian_guarantee(sensitivity, noise_std),
            neighbours=neighbours,
            findings=(
                holds("row norm", f"projected on the ball of radius {norm:g}", evidence="enforced"),
                holds("sensitivity", f"one record moves the matrix by at most {sensitivity:.6g} in Frobenius norm", evidence="enforced"),
            ),
            citations=_CITATIONS,
            seeded=generator is not None,
            derivation=derivation("second moments", norm=float(norm), columns=columns, noise_std=noise_std),
            records=count,
        ),
    )
