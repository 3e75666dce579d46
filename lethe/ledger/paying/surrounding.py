"""spending: within a block, every fit and every training is paid, those of scikit-learn's clones and folds included."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lethe.ledger.ledger import Ledger
from lethe.ledger.paying.spending import Spending


@contextmanager
def spending(ledger: Ledger, data_set: str, *, by: str | None = None, why: str = "", slack: float = 0.0) -> Iterator[Spending]:
    """Within, each fit of an estimator of `lethe.estimators`, and each training of `lethe.train`, is paid for by a data set.

    Whatever names a `ledger=` of its own is paid by that. It holds in every thread of this process; an estimator that is sent to another
    process takes it along. A process that was started within, and in which an estimator is made anew, refuses to fit it. Not seen is what
    is made and fitted in a process that was started before (but for joblib's workers, which are started again), and mechanisms of
    `lethe.mechanisms` and `lethe.heavy_tailed` that are called by hand: for those there is `Spending.release`.

    Args:
        ledger: it.
        data_set: whose budget.
        by, why, slack: as `Spending`.
    Raises:
        InputError: unknown data set, or another one pays in this process already.
        LedgerError: the ledger cannot be read.
    """
    from lethe.train.callbacks.paying import in_force  # loads torch, as whatever is paid for has

    spender = Spending(ledger, data_set, by=by, why=why, slack=slack)
    with in_force(spender, spender.ledger.terms(data_set).name):
        yield spender
