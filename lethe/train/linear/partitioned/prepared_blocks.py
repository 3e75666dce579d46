"""What is done to a block where it is read: its features, a backbone's of it, projected as in memory, a chunk at a time."""

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
from lethe.partitions.block import Block, refused
from lethe.partitions.given_tables import looked_at_numbers, targets_of
from lethe.run.clip_fields import ClipMethod
from lethe.run.losses import LinearLoss
from lethe.train.data.sources.arrays import TensorSource
from lethe.train.linear.features import Features, prepare_features
from lethe.train.linear.frozen_features import checked_features, copied, features_at_once
from lethe.train.linear.gradients import LinearModel
from lethe.train.linear.links import link_of
from lethe.train.linear.targets import prepare_targets

_CHUNK = 2**17  # entries that are held at 8 bytes at once: a MiB
_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
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
            targets = prepare_targets(targets_of(block)[part], classes=self.loss.target_classes, records=len(rows), device=_CPU)
            table = self._projected(rows)
            yield LinearModel(
                link_of(self.loss), table.rows, targets, clip_norm=self.clip_norm, outputs=self.loss.outputs, method=self.method
            )

    def looked_at(self, block: Block) -> int:
        """How many records of a block are longer than the feature norm.

        Raises:
            InputError: features or targets that cannot be used.
            HypothesisError: the backbone does not keep records apart.
        """
        looked_at_numbers(block)
        self._refuse_other_classes(block)
        parts = self._stored(block) if self.backbone is None else self.backbone.checked(block) if len(block) else iter(())
        return sum(self._projected(rows).projected for rows, _ in parts)

    def _stored(self, block: Block) -> Iterator[tuple[Any, slice]]:
        size = max(1, _CHUNK // block.features.shape[1])
        for start in range(0, len(block), size):
            part = slice(start, start + size)
            yield block.features[part], part

    def _projected(self, rows: Any) -> Features:
        return prepare_features(rows, feature_norm=self.loss.feature_norm, intercept=self.loss.intercept, dtype=self.dtype, device=_CPU)

    def _refuse_other_classes(self, block: Block) -> None:
        classes, values = self.loss.target_classes, targets_of(block)
        if classes is None or values.dtype.kind == "b":
            return
        wrong = (values != np.floor(values)) | (values < 0) | (values >= classes)
        if wrong.any():
            row = int(np.argmax(wrong))
            what = f"row {row} holds {values[row]:g}; it needs a class number 0..{classes - 1}"
            raise refused(block.name, "y", what, "number the classes 0, 1, 2, ... by a public list, before")


def look(block: Block, prepared: PreparedBlocks) -> int:
    """`looked_at`, with the partition's name in every error.

    Raises:
        InputError, HypothesisError: as there.
    """
    with torch.inference_mode(False), torch.no_grad():
        try:
            return prepared.looked_at(block)
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
