r"""Noisy histograms of d columns over bins that are public, or were released before.

A record has one value a column, which lies in one bin of it. So when it is replaced, two counts of each column move by 1 at most, and when
it is zeroed out one does: in Euclidean norm all counts together move by at most

$$\Delta = \sqrt{2d}\ \text{(replaced)},\qquad \Delta = \sqrt d\ \text{(zeroed out)},$$

which is attained where every value changes its bin. With $N(0, \sigma^2)$ on each count the release is $(\Delta/\sigma)$-GDP, whatever the
number of bins. Counts are whole numbers, exact in floating point, so rounding comes after the noise.
"""

from __future__ import annotations

import math

import numpy as np

from lethe.calculus.domains import require_count
from lethe.calculus.guarantees import GDP, NotPrivate
from lethe.calculus.noise_generators import noise_generator
from lethe.calculus.rounding import round_up
from lethe.certificates.derivation import derivation
from lethe.certificates.findings import holds
from lethe.certificates.parts import Citation
from lethe.certificates.statement import Statement
from lethe.mechanisms.base import Array, gaussian_guarantee, gaussian_noise_std, require_swap
from lethe.run.run import Neighbours

_CITATIONS = (Citation(key="dong-2019", text="Dong, Roth, Su 2019, Gaussian differential privacy, arXiv:1905.02383, Theorem 2.7"),)


def histogram_sensitivity(columns: int, neighbours: object) -> float:
    r"""$\Delta$, how far one record moves the counts of d columns together, rounded up."""
    return round_up(math.sqrt(require_swap(neighbours) * require_count("columns", columns)), 4e-16)


def histogram_noise_std(columns: int, target: GDP, neighbours: Neighbours) -> float:
    r"""$\sigma$ of a count, in records, rounded up.

    Args:
        columns: d.
        target: what the counts of all columns may cost together.
        neighbours: replace_one or zero_out.
    """
    return gaussian_noise_std(histogram_sensitivity(columns, neighbours), target)


def histogram_guarantee(columns: int, noise_std: float, neighbours: Neighbours) -> GDP | NotPrivate:
    r"""$(\Delta/\sigma)$-GDP, rounded up.

    Args:
        columns: d.
        noise_std: $\sigma$ of a count, in records.
        neighbours: replace_one or zero_out.
    """
    return gaussian_guarantee(histogram_sensitivity(columns, neighbours), noise_std)


def noisy_counts(
    counts: Array, *, noise_std: float, neighbours: Neighbours, records: int, name: str, generator: np.random.Generator | None = None
) -> tuple[Array, Statement]:
    """Release the counts of every bin of every column.

    Args:
        counts: shape (d, bins); each record is in one bin of each column.
        noise_std: of a count, in records, > 0.
        neighbours: replace_one or zero_out.
        records: n, public.
        name: of the release.
        generator: for tests, and the statement is then `seeded`; None: fresh entropy.
    """
    columns, bins = counts.shape
    sensitivity = histogram_sensitivity(columns, neighbours)
    noisy = counts + noise_std * noise_generator(generator).standard_normal(counts.shape)
    statement = Statement(
        name=name,
        guarantee=histogram_guarantee(columns, noise_std, neighbours),
        neighbours=neighbours,
        findings=(
            holds("values in bins", f"each in one of {bins}, at every end of the range as well", evidence="enforced"),
            holds("sensitivity", f"one record moves the counts by at most {sensitivity:.6g}", evidence="enforced"),
        ),
        citations=_CITATIONS,
        seeded=generator is not None,
        derivation=derivation("histograms", columns=columns, noise_std=noise_std),
        records=records,
    )
    return noisy, statement
