r"""BlockRecords: the private data as training reads it, in blocks; in place of `inputs.records.Records`, of which each chunk is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from lethe.errors import LetheError
from lethe.estimators.inputs.readable import readable
from lethe.estimators.inputs.records import Index, Records
from lethe.estimators.partitioned.beside import Beside
from lethe.mechanisms.base import Array
from lethe.partitions.block import Block, Values
from lethe.partitions.record_sums import RecordSums
from lethe.partitions.table import ExaminedTable
from lethe.run.losses.linear import LinearLoss

_CHUNK = 2**16  # entries that are held at 8 bytes at once: with twice as many, a worker of Dask asks the kernel anew for each chunk


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRows:
    """Rows scaled to norm at most 1 with the constant feature, and targets as the loss takes them; it is sent to workers.

    Args:
        targets: makes what the loss takes of a block's targets.
        loss: l.
        feature_norm: R.
        intercept: whether to append the constant.
        beside: weights and users.
    """

    targets: Callable[[Values], Array]
    loss: LinearLoss
    feature_norm: float
    intercept: bool
    beside: Beside | None = None

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
                weights=None if self.beside is None else self.beside.weights(part),
                loss=self.loss,
                feature_norm=self.feature_norm,
                intercept=self.intercept,
            )


class BlockRecords:
    """Records of a table in blocks, as mechanisms ask for them.

    Batches are consecutive records in the order of the blocks, or records by their numbers: then every block is read that holds one.

    Args:
        table: that was looked through.
        prepared: how its rows are made.
        norm: the bound on the norms of prepared rows, the constant included.
    """

    order = None

    def __init__(self, table: ExaminedTable, prepared: PreparedRows, *, norm: float) -> None:
        self.table, self.prepared, self.norm = table, prepared, norm
        self._envelope: float | None = None

    def __len__(self) -> int:
        beside = self.prepared.beside
        return self.table.shape[0] if beside is None or beside.users is None else beside.users.users

    @property
    def loss(self) -> LinearLoss:
        """l."""
        return self.prepared.loss

    @property
    def intercept(self) -> bool:
        """Whether the constant is appended."""
        return self.prepared.intercept

    @property
    def columns(self) -> int:
        """d."""
        return self.table.shape[1]

    def with_loss(self, loss: LinearLoss) -> BlockRecords:
        """The same records, for another loss of the same targets."""
        other = copy(self)
        other.prepared = replace(self.prepared, loss=loss)
        return other

    def with_envelope(self, bound: float | None) -> BlockRecords:
        """The same records, along the Lipschitz envelope of their loss, as `Records.with_envelope`."""
        other = copy(self)
        other._envelope = bound
        return other

    def given(self, loss: LinearLoss | None = None) -> tuple[RecordSums, None]:
        """What a mechanism takes as features and targets.

        Args:
            loss: that it trains on, of the same targets; None: this one.
        """
        prepared = self.prepared if loss is None else replace(self.prepared, loss=loss)
        width = self.columns + (1 if self.intercept else 0)
        return RecordSums(table=self.table, prepare=prepared, columns=width, norm=self.norm), None

    def gradient_sum(self, parameters: Array, batch: slice | Index) -> Array:
        """The sum of the losses' gradients over some records, shape (D, k): one pass over the blocks that hold them.

        Args:
            parameters: shape (D, k).
            batch: consecutive records, or their numbers, of which there may be none.
        Raises:
            LetheError: a batch of some users, whose numbers are none of rows.
        """
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
