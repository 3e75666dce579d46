"""BlockLinearModel: a linear model on a table in blocks, which answers as `LinearModel` does, by a pass over the blocks each time."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from lethe.errors import InputError
from lethe.partitions.given_tables import table_in_blocks
from lethe.partitions.table import ExaminedTable, PartitionedTable
from lethe.run.batches import Cyclic, Full, Poisson, ShuffledOnce
from lethe.run.run import Run
from lethe.train.core.samplers import Batch, refuse_other_records
from lethe.train.linear.partitioned.prepared_blocks import PreparedBlocks, gradients, look

MOST_DRAWN = 2**28
"""Records of which the driver draws a number each, for one batch or one permutation: 2 GiB."""
_CARRIED_OUT = (Full, Cyclic, ShuffledOnce, Poisson)


def given_in_blocks(data: Any) -> PartitionedTable | None:
    """The table in blocks that a linear model is to be trained on; None: the data are in memory.

    Args:
        data: a table with targets, or the pair of features and targets; as `table_in_blocks`.
    Raises:
        InputError: features and targets do not fit together.
    """
    if isinstance(data, tuple | list) and len(data) == 2:
        return table_in_blocks(data[0], data[1])
    return table_in_blocks(data)


def refuse_other_batches(run: Run) -> None:
    """Refuse what is not carried out on tables in blocks.

    Raises:
        InputError: another design of the batches, or too many records to draw from.
    """
    design = run.batches.design
    if type(run.batches) not in _CARRIED_OUT:
        raise InputError(
            f"batches.design: got {design}; on a table in blocks batches are {', '.join(one.design for one in _CARRIED_OUT)}.",
            source="run.batches, and a table in blocks: records of such a batch lie in all blocks, which each step would read",
            remedy="take cyclic batches, or shuffled_once or poisson, which read the whole table in each step as well.",
        )
    if run.batches.secret and run.records > MOST_DRAWN:
        raise InputError(
            f"records: got {run.records}; {design} batches draw a number for each in one place, of at most {MOST_DRAWN}.",
            source="run.batches, and a table in blocks",
            remedy="take full or cyclic batches.",
        )


class BlockLinearModel:
    """A linear model on records in blocks; see `LinearModel`, which this is on every chunk of a block.

    Args:
        table: that was looked through.
        prepared: how records are made of a block.
        columns: of the features that it makes, without the constant.
    """

    def __init__(self, table: ExaminedTable, prepared: PreparedBlocks, columns: int) -> None:
        self._table, self._prepared = table, prepared
        self.width = columns + (1 if prepared.loss.intercept else 0)
        self.clip_norm = prepared.clip_norm

    @classmethod
    def of(cls, table: PartitionedTable, prepared: PreparedBlocks, run: Run) -> tuple[BlockLinearModel, int]:
        """The model, and how many records were longer than the feature norm: one pass, which refuses what cannot be used.

        Args:
            table: with targets.
            prepared: how records are made of a block.
            run: to be carried out.
        Raises:
            InputError: a block, a number of records or a batch design that cannot be used.
            HypothesisError: the backbone does not keep records apart.
        """
        refuse_other_batches(run)
        found, projected = table.examined(look, prepared)
        records, columns = found.shape
        refuse_other_records(run.records, records, "the table in blocks has {}")
        if prepared.backbone is not None:
            columns = prepared.backbone.columns
        return cls(found, prepared, columns), sum(projected)

    def clipped_gradient_sum(self, parameters: torch.Tensor, batch: Batch) -> torch.Tensor:
        """As `LinearModel.clipped_gradient_sum`: one pass over the blocks that hold records of the batch."""
        if isinstance(batch, slice):
            start, stop, _ = batch.indices(self._table.shape[0])
            records = None if (start, stop) == (0, self._table.shape[0]) else slice(start, stop)
        else:
            records = batch.numpy().astype(np.intp)
            if len(records) == 0:
                self._table.nothing_drawn()
                return torch.zeros_like(parameters)
        (total,) = self._table.sum(gradients, self._prepared, _array(parameters), records=records)
        return torch.from_numpy(total).to(parameters)


def _array(tensor: torch.Tensor) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array(tensor.detach().numpy(), dtype=np.float64)
