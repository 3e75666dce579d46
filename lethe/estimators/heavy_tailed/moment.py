"""The moment of a size that every record has, released by `lethe.heavy_tailed.private_moments`, with its statement."""

from __future__ import annotations

import numpy as np

from lethe.accounting.heavy_tailed import phases_derivation
from lethe.calculus.guarantees import GDP
from lethe.certificates.findings import holds
from lethe.certificates.statement import Statement
from lethe.errors import InputError
from lethe.estimators.heavy_tailed.facts import Fact
from lethe.estimators.partitioned.gathered import many_records
from lethe.heavy_tailed.oracles import noise_for
from lethe.heavy_tailed.private_moments import COMPARISONS, blocks_for, private_moment
from lethe.mechanisms.base import Array
from lethe.mechanisms.quantiles.located import CountedColumns
from lethe.run.run import Neighbours

_FAILURES = (0.01, 0.03, 0.1, 0.3)


def refuse_many(records: int) -> None:
    """Refuse what `released_moment` will refuse of a table in blocks, which is a public fact, before anything is paid or read for it.

    Args:
        records: how many of them are set aside.
    Raises:
        InputError: they are too many to gather.
    """
    if many_records(records):
        raise _too_many(records)


def released_moment(
    sizes: Array | CountedColumns, order: float, share: GDP, *, neighbours: Neighbours, generator: np.random.Generator | None
) -> Fact:
    r"""A bound of $(E u^k)^{1/k}$, with the smallest of four failure probabilities that there are records enough for, a public choice.

    Args:
        sizes: $u \ge 0$, shape (m,).
        order: k.
        share: what it may cost.
        neighbours: replace_one or zero_out; a size that becomes 0 is one that is replaced.
        generator: None where privacy matters.
    Raises:
        InputError: there are too few records for the largest of these probabilities.
    """
    if not isinstance(sizes, np.ndarray):
        raise _too_many(sizes.shape[0])
    rho = 0.5 * share.mu * share.mu
    noise_std = noise_for(1.0, rho / COMPARISONS)
    failure = next((chance for chance in _FAILURES if blocks_for(chance, noise_std) <= sizes.shape[0]), _FAILURES[-1])
    found = private_moment(sizes, order=order, rho=rho, failure=failure, generator=generator)
    name = f"moment of order {order:g} (median of {found.blocks} blocks)"
    detail = f"one record is in one block and moves a count by 1; {COMPARISONS} counts with noise of standard deviation {noise_std:.6g}"
    statement = Statement(
        name=name,
        guarantee=found.phase.with_fresh_noise,
        neighbours=neighbours,
        findings=(holds("sensitivity", detail, evidence="enforced"),),
        citations=(),
        seeded=generator is not None,
        derivation=phases_derivation([found.phase]),
        records=sizes.shape[0],
    )
    end = {
        None: "",
        "high": "; AT THE TOP of the public range: may be too small",
        "low": "; at the bottom of the public range: may be too large",
    }
    why = f"{name} at most {found.bound:.4g}, wrong with probability {found.failure:.2g} if sizes are not too heavy-tailed{end[found.end]}"
    return Fact(value=found.bound, statements=(statement,), why=why)


def _too_many(records: int) -> InputError:
    return InputError(
        f"moment: {records} records of a table in blocks are set aside; of so many its moment is not released.",
        source="the parameters moment and parameters",
        remedy='give the moment from public knowledge, or take parameters="practical"',
    )
