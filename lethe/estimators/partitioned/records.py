r"""BlockRecords: the private data as training reads it, in blocks; in place of `inputs.records.Records`, of which each chunk is one.

`PrivateLinearModel` makes them where `fit` gets a table in blocks (files, Dask); mechanisms read sums over blocks from them.

Beside the records of a table stand their weights, and whose they are. Rows of one user may lie in several blocks. A user's loss is the mean
over its rows, so that the sum over users is one over rows, each with the share $1/n_u$ of its user: sums over blocks need $n_u$, and no two
rows of a user in one place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lethe.calculus.domains import require_positive
from lethe.errors import InputError, LetheError
from lethe.estimators.inputs.facts import longest_row
from lethe.estimators.inputs.records import Index, Records
from lethe.estimators.inputs.tables import readable
from lethe.mechanisms.base import Array
from lethe.partitions.block import Block, Values, refused
from lethe.partitions.table import ExaminedTable, RecordSums
from lethe.run.losses.linear import LinearLoss

_CHUNK = 2**16  # entries that are held at 8 bytes at once: with twice as many, a worker of Dask asks the kernel anew for each chunk
MOST_USERS = 2**22  # whose ids go to every worker in every pass: 64 MiB
_ROUNDED_DOWN = 1.0 - 1e-12  # shares of a user add up to 1 at most


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockUsers:
    """The users of all rows of a table; as private as the rows."""

    ids: np.ndarray[Any, Any]  # sorted, each once
    sizes: np.ndarray[Any, np.dtype[np.int64]]  # how many rows each has, shape (users,)

    @property
    def users(self) -> int:
        """How many there are."""
        return len(self.ids)

    def shares(self, ids: Any) -> Array:
        """What rows with these ids count in their users' losses, shape (m,)."""
        from lethe.train.data.users import plain_ids  # loads torch, which takes seconds

        return _ROUNDED_DOWN / self.sizes[np.searchsorted(self.ids, plain_ids(ids))]


def users_in_blocks(table: ExaminedTable, max_weight: Any) -> BlockUsers | None:
    """Look at weights, of at most max_weight, and users: one pass, where there are any; None: each row is a record by itself."""
    bound, read = require_positive("max_weight", max_weight), table.source.read
    if not read.roles & {"weights", "users"}:
        return None
    answers = [answer.values for answer in table.answers(_counted_users, (bound,))]
    id_counts = [answer for answer in answers if answer is not None and len(answer[0])]
    if "users" not in read.roles:
        return None
    if len({ids.dtype.kind == "U" for ids, _ in id_counts}) > 1:
        raise InputError("users: partitions hold whole numbers and texts; ids need to be one or the other.", source="the argument users")
    ids, codes = np.unique(np.concatenate([ids for ids, _ in id_counts]), return_inverse=True)
    if not 2 <= len(ids) <= MOST_USERS:
        raise InputError(
            f"users: there are {len(ids)}; a table in blocks takes 2 to {MOST_USERS}, whose ids go to every worker.",
            source="the argument users",
            remedy="fit by records, or fewer users" if len(ids) > 2 else "name the column whose entries tell users apart",
        )
    sizes = np.bincount(codes.ravel(), weights=np.concatenate([counts for _, counts in id_counts])).astype(np.int64)
    return BlockUsers(ids=ids, sizes=sizes)


def _counted_users(block: Block, bound: float) -> tuple[np.ndarray[Any, Any], Any] | None:
    """The users of a block and the number of their rows; refuses weights outside [0, bound]."""
    if block.weights is not None:
        _refuse_weights(block, block.weights, bound)
    if block.users is None or not len(block):
        return None
    from lethe.train.data.users import plain_ids

    try:
        return np.unique(plain_ids(block.users), return_counts=True)
    except InputError as error:
        raise refused(block.name, "users", error.what.removeprefix("users: ").rstrip("."), error.remedy or "") from None


def _refuse_weights(block: Block, weights: Any, bound: float) -> None:
    if weights.dtype.kind not in "biuf":
        raise refused(block.name, "sample_weight", f"it holds {weights.dtype}; it needs numbers", "write weights as numbers before")
    wide = weights.astype(np.float64)  # in which they are divided by the bound; NumPy would round the bound to the type of narrower ones
    wrong = ~((wide >= 0.0) & (wide <= bound))  # nan as well
    if wrong.any():
        row = int(np.argmax(wrong))
        raise refused(
            block.name,
            "sample_weight",
            f"row {row} holds {wide[row]:.10g}; it needs a number from 0 to max_weight = {bound:g}",
            "set max_weight to a bound known without looking at the data; noise grows with it",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRows:
    """Rows scaled to norm at most 1 with the constant feature, and targets as the loss takes them; it is sent to workers."""

    targets: Callable[[Values], Array]  # makes what the loss takes of a block's targets
    loss: LinearLoss  # l
    feature_norm: float  # R
    intercept: bool  # whether to append the constant
    max_weight: float = 1.0  # the public bound on weights
    users: BlockUsers | None = None  # whose rows are whose; None: each row is a record by itself

    def __call__(self, block: Block) -> Iterator[tuple[Array, Array]]:
        """Rows and targets, a chunk at a time."""
        for part in self.chunks(block):
            yield part.dense(), self.loss.check_targets(part.targets, len(part))

    def chunks(self, block: Block) -> Iterator[Records]:
        """The records of a block, a chunk at a time."""
        size = max(1, _CHUNK // block.features.shape[1])
        for start in range(0, len(block), size):
            part = block.some(slice(start, start + size))
            assert part.targets is not None
            yield Records(
                readable(part.features),
                self.targets(part.targets),
                weights=self._weights(part),
                loss=self.loss,
                feature_norm=self.feature_norm,
                intercept=self.intercept,
            )

    def _weights(self, block: Block) -> Array | None:
        """Of the rows of a block, in [0, 1]; None: all 1."""
        weights = None if block.weights is None else block.weights.astype(np.float64) / self.max_weight
        if self.users is None:
            return weights
        assert block.users is not None  # without shares a user would count once a row
        shares = self.users.shares(block.users)
        return shares if weights is None else shares * weights


class BlockRecords:
    """Records of a table in blocks: batches are consecutive in the order of the blocks, or by number, from every block that holds one."""

    order = None

    def __init__(self, table: ExaminedTable, prepared: PreparedRows) -> None:
        self.table, self.prepared = table, prepared
        self.loss, self.intercept, self.columns = prepared.loss, prepared.intercept, table.shape[1]
        self._envelope: float | None = None

    def __len__(self) -> int:
        users = self.prepared.users
        return self.table.shape[0] if users is None else users.users

    def with_loss(self, loss: LinearLoss) -> BlockRecords:
        """The same records, for another loss of the same targets."""
        twin = copy(self)
        twin.loss, twin.prepared = loss, replace(self.prepared, loss=loss)
        return twin

    def with_envelope(self, bound: float | None) -> BlockRecords:
        """The same records, along the Lipschitz envelope of their loss, as `Records.with_envelope`."""
        twin = copy(self)
        twin._envelope = bound
        return twin

    def arrays(self, loss: LinearLoss | None = None) -> tuple[RecordSums, None]:
        """What a mechanism takes as features and targets, which has the loss that it trains on; None: this one."""
        prepared = self.prepared if loss is None else replace(self.prepared, loss=loss)
        width = self.columns + (1 if self.intercept else 0)
        return RecordSums(table=self.table, prepare=prepared, columns=width, norm=longest_row(self.intercept)), None

    def gradient_sum(self, parameters: Array, batch: slice | Index) -> Array:
        """The sum of the losses' gradients over records, consecutive or by number, shape (D, k): one pass over their blocks."""
        if not isinstance(batch, slice) and len(batch) == 0:
            self.table.nothing_drawn()
            return np.zeros_like(parameters)
        whole = isinstance(batch, slice) and batch.start == 0 and batch.stop == len(self)
        if not whole and len(self) != self.table.shape[0]:
            raise LetheError("a batch of some users: their rows may lie in every block; nothing was released.", source="what draws batches")
        return self.table.sum(_gradients, self.prepared, self._envelope, parameters, records=None if whole else batch)[0]


def _gradients(block: Block, prepared: PreparedRows, envelope: float | None, parameters: Array) -> tuple[Array]:
    total = np.zeros_like(parameters)
    for part in prepared.chunks(block):
        total += part.with_envelope(envelope).gradient_sum(parameters, slice(0, len(part)))
    return (total,)
