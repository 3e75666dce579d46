"""Linear models and heads on tables in blocks (partitions that workers read): each block gives only its sum of clipped gradients. For data
that do not fit in memory: the linear loop uses `BlockLinearModel` in place of `LinearModel`, and sends `Rows` to the workers.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lethe.calculus.domains import FloatArray
from lethe.errors import HypothesisError, InputError
from lethe.partitions.block import Block, looked_at_numbers, targets_of
from lethe.partitions.table import PartitionedTable
from lethe.run.fields import ClipMethod
from lethe.run.losses.linear import LinearLoss
from lethe.run.run import Run
from lethe.train.core.samplers import Batch, refuse_other_records
from lethe.train.data.sources import TensorSource
from lethe.train.linear.frozen_features import Backbone
from lethe.train.linear.gradients import LinearModel
from lethe.train.linear.models import Features, prepare_features, prepare_targets

MOST_DRAWN = 2**28
"""Records of which the driver draws a number each, for one batch or one permutation: 2 GiB."""
_CHUNK = 2**17  # entries that are held at 8 bytes at once: a MiB
_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """How the records of a block become rows of a linear model; it is sent to workers.

    A backbone gives each block's features by a copy of its own, so no two blocks' records mix; None: they are what is stored.
    """

    loss: LinearLoss
    dtype: torch.dtype
    clip_norm: float | None
    method: ClipMethod
    backbone: Backbone | None = None

    def chunks(self, block: Block, *, checked: bool = False) -> Iterator[tuple[Features, Tensor]]:
        """Features and targets of a block's records, some at a time; with a check of the backbone if it is asked for."""
        targets = prepare_targets(targets_of(block), classes=self.loss.target_classes, records=len(block), device=_CPU)
        if len(block) and self.backbone is not None:
            source = TensorSource(np.array(block.features, order="C"), targets)
            backbone = self.backbone.copied()
            parts = backbone.checked(source, _CPU) if checked else backbone.batches(source, _CPU)
        else:
            size = max(1, _CHUNK // block.features.shape[1])
            places = [slice(start, start + size) for start in range(0, len(block), size)]
            parts = ((block.features[part], targets[part]) for part in places)
        for rows, column in parts:
            norm, intercept = self.loss.feature_norm, self.loss.intercept
            yield prepare_features(rows, feature_norm=norm, intercept=intercept, dtype=self.dtype, device=_CPU), column


def _look(block: Block, rows: Rows) -> int:
    """How many records of a block are longer than the feature norm; whatever is refused has the partition's name."""
    with torch.inference_mode(False), torch.no_grad():
        try:
            looked_at_numbers(block)
            return sum(features.projected for features, _ in rows.chunks(block, checked=True))
        except (InputError, HypothesisError) as error:
            if error.what.startswith(block.name):
                raise
            source = f"{block.name}; nothing was released"
            raise type(error)(f"{block.name}: {error.what}", source=source, remedy=error.remedy) from error


def _gradients(block: Block, rows: Rows, parameters: FloatArray) -> tuple[FloatArray]:
    """The sum of a block's clipped gradients at parameters of shape (D, k), in float64."""
    total = np.zeros(parameters.shape)
    with torch.inference_mode(False), torch.no_grad():
        start = torch.from_numpy(parameters)
        for features, targets in rows.chunks(block):
            model = LinearModel(rows.loss, features.rows, targets, clip_norm=rows.clip_norm, method=rows.method)
            total += model.clipped_gradient_sum(start, slice(None)).numpy()
    return (total,)


class BlockLinearModel:
    """A linear model on records in blocks; see `LinearModel`, which this is on every chunk of a block.

    It is made by a pass over the table, which refuses blocks and numbers of records that cannot be used, and a backbone that does not
    keep records apart. `width` is D, the constant feature included; `projected` counts rows longer than the feature norm.
    """

    def __init__(self, table: PartitionedTable, rows: Rows, run: Run) -> None:
        if run.batches.secret and run.records > MOST_DRAWN:
            raise InputError(
                f"records: got {run.records}; {run.batches.design} batches draw a number for each in one place, of at most {MOST_DRAWN}.",
                source="run.batches, and a table in blocks",
                remedy="take full or cyclic batches.",
            )
        if rows.backbone is not None:
            rows.backbone.copied()  # refused here, before it is sent to workers
        self._rows = rows
        self._table, projected = table.examined(_look, rows)
        records, columns = self._table.shape
        refuse_other_records(run.records, records, "the table in blocks has {}")
        self.width = (columns if rows.backbone is None else rows.backbone.columns) + int(rows.loss.intercept)
        self.projected = sum(projected)

    def clipped_gradient_sum(self, parameters: Tensor, batch: Batch) -> Tensor:
        """As `LinearModel.clipped_gradient_sum`: one pass over the blocks that hold records of the batch."""
        if isinstance(batch, slice):
            start, stop, _ = batch.indices(self._table.shape[0])
            records = None if (start, stop) == (0, self._table.shape[0]) else slice(start, stop)
        elif len(records := batch.numpy().astype(np.intp)) == 0:
            self._table.nothing_drawn()
            return torch.zeros_like(parameters)
        (total,) = self._table.sum(_gradients, self._rows, np.array(parameters.numpy()), records=records)
        return torch.from_numpy(total).to(parameters)
