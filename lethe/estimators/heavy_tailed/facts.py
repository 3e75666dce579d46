r"""Constants of a heavy-tailed problem, released from records set aside for that, so that none is read off the data unpaid.

The records are a fixed part of a public order. Whatever is released from them costs together as much as the solver does on the others;
a record is in one of the two parts, so the whole costs the larger of the two and not their sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from lethe.calculus.guarantees import GDP
from lethe.calculus.noise_generators import noise_generator
from lethe.calculus.rounding import round_down
from lethe.certificates.derivation import derivation
from lethe.certificates.findings import holds
from lethe.certificates.statement import Statement
from lethe.estimators.heavy_tailed.linear import clipped_to
from lethe.estimators.inputs.norms import released_norm
from lethe.estimators.inputs.ranges import private_ranges
from lethe.mechanisms.base import Array, gaussian_guarantee, gaussian_noise_std
from lethe.mechanisms.quantiles.located import CountedColumns
from lethe.run.run import Neighbours

_LEAST, _MOST = 0.1, 1.0 / 3.0  # of the records are set aside
_ENOUGH = 200.0  # records set aside, times mu: with fewer the quantiles are lost in their noise
_QUANTILE = 0.75  # of the norms, where rows are clipped
_TAIL = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A released constant.

    Args:
        value: a number > 0, or a point.
        statements: what it cost, part by part.
        why: a line on how it was found.
    """

    value: Any
    statements: tuple[Statement, ...]
    why: str


class MomentsInBlocks(Protocol):
    """Rows of a table in blocks."""

    @property
    def shape(self) -> tuple[int, int]:
        """m and d."""
        ...

    def clipped_moments(self, longest: float) -> Array:
        """The sum of the products of the rows, clipped to that norm, shape (d, d)."""
        ...


def set_aside(records: int, whole: GDP) -> int:
    r"""How many of n records constants are released from: $200/\mu$, but at least a tenth and at most a third; 1 and n - 1 at the ends."""
    wanted = min(max(math.ceil(_LEAST * records), math.ceil(_ENOUGH / whole.mu)), round(_MOST * records))
    return min(max(1, wanted), records - 1)


def part_of(whole: GDP, parts: int) -> GDP:
    r"""$\mu/\sqrt m$, rounded down: m of them make the whole."""
    return GDP(round_down(whole.mu / math.sqrt(parts), 4e-14))


def released_curvature(
    features: Array | MomentsInBlocks,
    norms: Array | CountedColumns,
    share: GDP,
    *,
    neighbours: Neighbours,
    generator: np.random.Generator | None,
) -> Fact:
    r"""The largest eigenvalue of the second moments of rows that are clipped at a released quantile c of their norms.

    $$\hat\lambda = \lambda_{\max}\Big(\frac1m\sum_i\Pi_c(x_i)\Pi_c(x_i)^\top\Big) + N(0, \sigma^2),\qquad \sigma = \frac{c^2}{m\mu}$$

    Sensitivity: replacing a row changes the matrix by $(aa^\top - bb^\top)/m$ with $\|a\|, \|b\| \le c$, whose eigenvalues lie within
    $\pm c^2/m$, and by Weyl's inequality the largest eigenvalue moves by no more. What is returned is $\hat\lambda + 2\sigma$, kept
    within $\sigma$ and $c^2$, which is post-processing: a value too large makes steps short, one too small makes them diverge.

    Args:
        features: shape (m, d); or records in blocks, that give the sum of products of clipped rows.
        norms: at least the norms of the rows, shape (m,), > 0.
        share: what both may cost together.
        neighbours: replace_one or zero_out.
        generator: None where privacy matters.
    """
    count = features.shape[0]
    half = part_of(share, 2)
    longest, first = released_norm(norms, quantile=_QUANTILE, share=half, neighbours=neighbours, generator=generator)
    if isinstance(features, np.ndarray):
        assert isinstance(norms, np.ndarray)
        clipped = clipped_to(features, norms, longest)
        products = clipped.T @ clipped
    else:
        products = features.clipped_moments(longest)
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
    r"""A point in the middle of the columns, shape (d,), halfway between two released quantiles of each.

    Args:
        table: shape (m, d).
        share: what it may cost.
        neighbours: replace_one or zero_out.
        generator: None where privacy matters.
    """
    name = f"middle of the columns (their {_TAIL:g} and {1.0 - _TAIL:g} quantiles)"
    found = private_ranges(table, tail=_TAIL, share=share, name=name, give="centre", neighbours=neighbours, generator=generator)
    why = f"centre: {name}, released from {table.shape[0]} records"
    return Fact(value=(found.low + found.high) / 2.0, statements=(found.statement,), why=why)


def released_size(
    sizes: Array | CountedColumns, quantile: float, share: GDP, *, neighbours: Neighbours, generator: np.random.Generator | None
) -> Fact:
    """A quantile of the records' sizes: where to clip in practice. A moment would follow the outliers that clipping is to stop.

    Args:
        sizes: >= 0, shape (m,).
        quantile: in (0, 1).
        share: what it may cost.
        neighbours: replace_one or zero_out.
        generator: None where privacy matters.
    """
    what, give = "the gradients' norms at the start", "moment"
    value, statement = released_norm(
        sizes, quantile=quantile, share=share, neighbours=neighbours, generator=generator, what=what, give=give
    )
    name = f"the {quantile:g} quantile of {what}"
    why = f"{name}: {value:.4g}, released from {sizes.shape[0]} records"
    return Fact(value=value, statements=(replace(statement, name=name),), why=why)
