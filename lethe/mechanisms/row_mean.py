"""The mean of rows, released with Gaussian noise."""

from __future__ import annotations

from typing import Any

import numpy as np

from lethe.calculus.guarantees import GDP
from lethe.calculus.noise_generators import noise_generator
from lethe.certificates.derivation import derivation
from lethe.certificates.findings import holds
from lethe.certificates.parts import Citation
from lethe.certificates.statement import Statement
from lethe.mechanisms.base import Array, gaussian_guarantee, gaussian_noise_std, require_swap
from lethe.mechanisms.rows import projected, projected_rows
from lethe.mechanisms.tables import blocks
from lethe.partitions.block import Block
from lethe.partitions.table import ExaminedTable
from lethe.run.run import Neighbours

_CITATION = Citation(key="dong-2019", text="Dong, Roth, Su 2019, Gaussian differential privacy, arXiv:1905.02383, Theorem 2.7")


def noisy_mean(
    table: Any, *, norm: float, target: GDP, neighbours: Neighbours, generator: np.random.Generator | None
) -> tuple[Array, Statement]:
    r"""$\frac1n(\sum_i x_i + N(0, \sigma^2I))$ for rows projected on the ball of radius R, cut to that ball; and what it costs.

    One record moves the sum by at most 2R where it is replaced, and by R where it is zeroed out.

    Args:
        table: shape (n, d), every record present; or a table in blocks that was looked through.
        norm: R > 0.
        target: the guarantee wanted.
        neighbours: replace_one or zero_out.
        generator: None where privacy matters.
    """
    records, columns = table.shape
    if isinstance(table, ExaminedTable):
        (total,) = table.sum(_sum_of_block, norm)
    else:
        total = projected_rows(table, feature_norm=norm).sum(axis=0)
    sensitivity = require_swap(neighbours) * norm
    noise_std = gaussian_noise_std(sensitivity, target)
    mean = (total + noise_std * noise_generator(generator).standard_normal(columns)) / records
    statement = Statement(
        name=f"mean of {columns} columns",
        guarantee=gaussian_guarantee(sensitivity, noise_std),
        neighbours=neighbours,
        findings=(projected(norm), holds("sensitivity", f"one record moves the sum by at most {sensitivity:.6g}", evidence="enforced")),
        citations=(_CITATION,),
        seeded=generator is not None,
        derivation=derivation("mean of rows", norm=float(norm), noise_std=noise_std),
        records=records,
    )
    return mean * min(1.0, norm / max(float(np.linalg.norm(mean)), 1e-300)), statement


def _sum_of_block(block: Block, norm: float) -> tuple[Array]:
    total = np.zeros(block.features.shape[1])
    for part in blocks("rows", block.features):
        total += projected_rows(part, feature_norm=norm).sum(axis=0)
    return (total,)
