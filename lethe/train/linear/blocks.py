"""Linear models and heads on tables in blocks: what is done to a block where it is read, and what training sees of it, sums."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lethe.calculus.domains import FloatArray
from lethe.errors import HypothesisError, InputError
from lethe.partitions.block import Block
from lethe.partitions.given_tables import looked_at_numbers, table_in_blocks, targets_of
from lethe.partitions.table import PartitionedTable
from lethe.run.batches import Cyclic, Full, Poisson, ShuffledOnce
from lethe.run.clip_fields import ClipMethod
from lethe.run.losses import LinearLoss
from lethe.run.run import Run
from lethe.train.core.samplers import Batch, refuse_other_records
from lethe.train.data.sources.arrays import TensorSource
from lethe.train.linear.features import Features, prepare_features, prepare_targets
from lethe.train.linear.frozen_features import checked_features, copied, features_at_once
from lethe.train.linear.gradients import LinearModel

MOST_DRAWN = 2**28
"""Records of which the driver draws a number each, for one batch or one permutation: 2 GiB."""
_CARRIED_OUT = (Full, Cyclic, ShuffledOnce, Poisson)
_CHUNK = 2**17  # entries that are held at 8 bytes at once: a MiB
_CPU = torch.device("cpu")


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


def _refuse_other_batches(run: Run) -> None:
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


@dataclass(frozen=True, slots=True, eq=False)
class BlockBackbone:
    """A frozen backbone, of which every block is given a copy: what it keeps while it works never meets another block's.

    Args:
        module: in eval mode, frozen, on the CPU.
        columns: d, of the features that it gives.
        size: records that go through it at once.
    """

    module: nn.Module
    columns: int
    size: int

    def features(self, block: Block) -> Iterator[tuple[Tensor, slice]]:
        """The features of a block's records and which ones they are, a physical batch at a time."""
        own = copy.deepcopy(self.module)
        for start in range(0, len(block), self.size):
            part = slice(start, start + self.size)
            yield features_at_once(own, torch.from_numpy(np.array(block.features[part], order="C")), self.columns), part

    def checked(self, block: Block) -> Iterator[tuple[Tensor, slice]]:
        """The same, with all that is checked of a backbone in memory checked on this block; see `checked_features`."""
        own = copy.deepcopy(self.module)
        source = TensorSource(np.array(block.features, order="C"), np.zeros(len(block)))
        start = 0
        for rows, _ in checked_features(own, copied(own), source, columns=self.columns, size=self.size, device=_CPU):
            yield rows, slice(start, start + len(rows))
            start += len(rows)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreparedBlocks:
    """Linear models on the records of a block, a chunk at a time; it is sent to workers.

    Args:
        loss: with the number of its classes.
        dtype: that features are rounded to; the arithmetic is in float64.
        clip_norm, method: of `LinearModel`.
        backbone: gives the features; None: they are what is stored.
    """

    loss: LinearLoss
    dtype: torch.dtype
    clip_norm: float | None
    method: ClipMethod
    backbone: BlockBackbone | None = None

    def models(self, block: Block) -> Iterator[LinearModel]:
        """One for each chunk."""
        parts = self._stored(block) if self.backbone is None else self.backbone.features(block)
        for rows, part in parts:
            targets = self.targets(targets_of(block)[part])
            table = self._features(rows)
            yield LinearModel(self.loss, table.rows, targets, clip_norm=self.clip_norm, method=self.method)

    def projected(self, block: Block) -> int:
        """How many records of a block are longer than the feature norm; a backbone is checked on them."""
        parts = self._stored(block) if self.backbone is None else self.backbone.checked(block) if len(block) else iter(())
        return sum(self._features(rows).projected for rows, _ in parts)

    def targets(self, values: Any) -> Tensor:
        """Some records' targets, as a column."""
        return prepare_targets(values, classes=self.loss.target_classes, records=len(values), device=_CPU)

    def _stored(self, block: Block) -> Iterator[tuple[Any, slice]]:
        size = max(1, _CHUNK // block.features.shape[1])
        for start in range(0, len(block), size):
            part = slice(start, start + size)
            yield block.features[part], part

    def _features(self, rows: Any) -> Features:
        return prepare_features(rows, feature_norm=self.loss.feature_norm, intercept=self.loss.intercept, dtype=self.dtype, device=_CPU)


def look(block: Block, prepared: PreparedBlocks) -> int:
    """How many records of a block are longer than the feature norm; every error has the partition's name.

    Raises:
        InputError: features or targets that cannot be used.
        HypothesisError: the backbone does not keep records apart.
    """
    with torch.inference_mode(False), torch.no_grad():
        try:
            looked_at_numbers(block)
            prepared.targets(targets_of(block))
            return prepared.projected(block)
        except (InputError, HypothesisError) as error:
            if error.what.startswith(block.name):
                raise
            source = f"{block.name}; nothing was released"
            raise type(error)(f"{block.name}: {error.what}", source=source, remedy=error.remedy) from error


def gradients(block: Block, prepared: PreparedBlocks, parameters: FloatArray) -> tuple[FloatArray]:
    """The sum of a block's clipped gradients, shape (D, k), added up in float64.

    Args:
        block: any.
        prepared: makes models of it.
        parameters: shape (D, k).
    """
    total = np.zeros(parameters.shape)
    with torch.inference_mode(False), torch.no_grad():
        start = torch.from_numpy(parameters)
        for model in prepared.models(block):
            total += model.clipped_gradient_sum(start, slice(None)).numpy()
    return (total,)


class BlockLinearModel:
    """A linear model on records in blocks; see `LinearModel`, which this is on every chunk of a block.

    It is made by a pass over the table, which refuses what cannot be used.

    Args:
        table: with targets.
        prepared: how records are made of a block.
        run: to be carried out.
    Raises:
        InputError: a block, a number of records or a batch design that cannot be used.
        HypothesisError: the backbone does not keep records apart.

    Attributes:
        width: D, the features of a record, the constant one included.
        projected: how many records were longer than the feature norm.
    """

    def __init__(self, table: PartitionedTable, prepared: PreparedBlocks, run: Run) -> None:
        _refuse_other_batches(run)
        self._prepared = prepared
        self._table, projected = table.examined(look, prepared)
        records, columns = self._table.shape
        refuse_other_records(run.records, records, "the table in blocks has {}")
        columns = columns if prepared.backbone is None else prepared.backbone.columns
        self.width = columns + (1 if prepared.loss.intercept else 0)
        self.projected = sum(projected)
        self.clip_norm = prepared.clip_norm

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
