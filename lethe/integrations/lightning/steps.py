"""The steps of a PrivacyEngine in the place of those of Lightning's loop."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lethe.integrations.lightning.patches import Patches, step_after_its_closure
from lethe.integrations.lightning.step_losses import StepLosses
from lethe.integrations.logical_batches import LogicalBatch
from lethe.integrations.recorded_training import MeanLoss
from lethe.train import PrivacyEngine


class PrivateSteps:
    """Puts an engine's steps into a module and its optimiser while it trains.

    Lightning's closure calls training_step, which notes the batch; `zero_grad`; and `backward`, which computes the noisy gradient of the
    batch's records, micro-batch by micro-batch. Then the optimiser steps without a closure.

    Args:
        engine: that has the module and the optimiser.
        losses: the module's training_step.
        lost: steps to come that were taken before, and are counted and not taken again.
        log_private: whether the mean loss is kept.

    Attributes:
        mean_loss: of the last step's records; None where it is not kept.
    """

    def __init__(self, engine: PrivacyEngine, losses: StepLosses, *, lost: int, log_private: bool) -> None:
        self._engine, self._losses, self._lost, self._log_private = engine, losses, lost, log_private
        self._patches = Patches()
        self._batch: LogicalBatch | None = None
        self.mean_loss: Tensor | None = None

    def put_on(self, trainer: Any, module: Any, optimizer: torch.optim.Optimizer) -> None:
        """Put them there.

        Args:
            trainer, module: of Lightning.
            optimizer: the module's.
        """
        put = self._patches.put
        put(module, "training_step", self._note)
        put(module, "backward", lambda loss, *others, **options: self._noisy_gradient(trainer))
        step_after_its_closure(self._patches, optimizer, self._was_lost)

    def take_off(self) -> None:
        """Leave module and optimiser as they were."""
        self._patches.take_off()

    def _note(self, batch: LogicalBatch, batch_idx: int = 0) -> Tensor:
        self._batch = batch
        self._losses.number = batch_idx
        return torch.zeros(())

    def _noisy_gradient(self, trainer: Any) -> None:
        if self._lost or self._batch is None:
            return
        engine, mean = self._engine, MeanLoss()
        for micro_batch in self._batch:
            with self._losses.without_trainer():
                losses = engine.backward(micro_batch)
            if self._log_private:
                mean.add(losses, engine.counted)
        if self._log_private:
            strategy = trainer.strategy
            add_up = None if trainer.world_size == 1 else lambda told: strategy.reduce(told, reduce_op="sum")
            self.mean_loss = mean.over(add_up, strategy.root_device)

    def _was_lost(self) -> bool:
        lost = self._lost > 0
        self._lost -= lost
        return lost
