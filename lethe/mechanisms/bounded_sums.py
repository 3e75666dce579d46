r"""Sums of numbers in [0, 1], d a record, with Gaussian noise: hits, truncated losses, missing entries.

`describe`, `private_score` and `LevelRelease` call `noisy_sums` with d numbers of each record; metrics.py takes its sensitivity.

One record moves each of the d sums by at most 1, whether it is replaced or zeroed out (then it adds nothing), and all of them together by
at most $\Delta = \sqrt d$. Some pair of neighbours moves them so far: a record of ones beside one of zeros, or beside none.
"""

import math
from typing import Any

import numpy as np

from lethe.calculus.domains import require_count
from lethe.calculus.noise_generators import noise_generator
from lethe.calculus.rounding import round_up
from lethe.certificates.findings import holds
from lethe.certificates.statement import Statement
from lethe.mechanisms.base import Array, gaussian_statement, require_swap
from lethe.run.run import Neighbours


def sums_sensitivity(columns: int, neighbours: object) -> float:
    r"""$\sqrt d$, rounded up; the same for both relations."""
    require_swap(neighbours)
    return round_up(math.sqrt(require_count("columns", columns)), 4e-16)


def noisy_sums(
    values: Array, *, noise_std: float, neighbours: Neighbours, name: str, generator: np.random.Generator | None = None
) -> tuple[Array, Statement]:
    """Release the sums of d columns, shape (d,), of values of n records, shape (n, d); what is outside [0, 1] is clipped, and NaN is 0."""
    sums = np.where(np.isnan(values), 0.0, np.clip(values, 0.0, 1.0)).sum(axis=0)
    return with_noise(sums, records=len(values), noise_std=noise_std, neighbours=neighbours, name=name, generator=generator)


def with_noise(
    sums: Array, *, records: int, noise_std: float, neighbours: Neighbours, name: str, generator: np.random.Generator | None = None
) -> tuple[Array, Statement]:
    """Release sums, shape (d,), that the caller added up of d numbers in [0, 1] a record."""
    columns = len(sums)
    sensitivity = sums_sensitivity(columns, neighbours)
    findings = (
        holds("bounded numbers", f"{columns} a record, each clipped to [0, 1]", evidence="enforced"),
        holds("sensitivity", f"one record moves the sums together by at most {sensitivity:.6g}", evidence="enforced"),
    )
    stated: dict[str, Any] = {"noise_std": noise_std, "neighbours": neighbours, "records": records, "generator": generator}
    statement = gaussian_statement(name, "bounded sums", sensitivity=sensitivity, findings=findings, columns=columns, **stated)
    return sums + noise_std * noise_generator(generator).standard_normal(columns), statement
