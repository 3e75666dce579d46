"""The steps of a PrivacyEngine in the place of those of Lightning's loop."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from lethe.integrations.lightning.package import overrides
from lethe.integrations.lightning.patches import Patches, step_after_its_closure
from lethe.integrations.lightning.step_model import StepModel
from lethe.integrations.recorded_training import MeanLoss
from lethe.train import PrivacyEngine
from lethe.train.data.logical_batches import LogicalBatch


class PrivateSteps:
    """Puts an engine's steps into a module and its optimiser while it trains.

    Lightning's closure calls training_step, which notes the batch; `zero_grad`; and `backward`, which computes the noisy gradient of the
    batch's records, micro-batch by micro-batch. Then the optimiser steps without a closure. A gradient is clipped within that step, after
    the engine's guard has looked at it.

    Args:
        engine: that has the model and the optimiser.
        model: the module's training_step.
        lost: steps to come that were taken before, and are counted and not taken again.
        log_private: whether the mean loss is kept.

    Attributes:
        mean_loss: of the last step's records; None where it is not kept.
    """

    def __init__(self, engine: PrivacyEngine, model: StepModel, *, lost: int, log_private: bool) -> None:
        self._engine, self._model, self._lost, self._log_private = engine, model, lost, log_private
        self._patches = Patches()
        self._batch: LogicalBatch | None = None
        self._clipping: tuple[Any, dict[str, Any]] | None = None
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
        clip: Any = None
        if trainer.gradient_clip_val is not None or overrides(module, "configure_gradient_clipping"):
            clip = put(module, "configure_gradient_clipping", self._note_clipping)

        def within() -> Any:
            (told, options), self._clipping = self._clipping or (optimizer, {}), None
            return optimizer.register_step_pre_hook(lambda *_: clip(told, **options))  # after the guard's own

        step_after_its_closure(self._patches, optimizer, (lambda: None) if clip is None else within, self._was_lost)

    def take_off(self) -> None:
        """Leave module and optimiser as they were."""
        self._patches.take_off()

    def _note(self, batch: LogicalBatch, batch_idx: int = 0) -> Tensor:
        self._batch = batch
        self._model.begin(batch_idx)
        return torch.zeros(())

    def _noisy_gradient(self, trainer: Any) -> None:
        if self._lost or self._batch is None:
            return
        engine, precision, strategy, mean = self._engine, trainer.precision_plugin, trainer.strategy, MeanLoss()
        for micro_batch in self._batch:
            parts = precision.convert_input(tuple(micro_batch.values()) if isinstance(micro_batch, dict) else tuple(micro_batch))
            self._model.refresh()
            with ExitStack() as within:
                within.enter_context(engine.recording())
                within.enter_context(precision.train_step_context())
                losses = engine.losses(_as_they_are, self._model(*parts), parts[0])
            self._model.refresh()
            engine.backward(losses)
            if self._log_private:
                mean.add(losses, engine.counted)
        if self._log_private:
            add_up = None if trainer.world_size == 1 else lambda told: strategy.reduce(told, reduce_op="sum")
            self.mean_loss = mean.over(add_up, strategy.root_device)

    def _was_lost(self) -> bool:
        lost = self._lost > 0
        self._lost -= lost
        return lost

    def _note_clipping(self, optimizer: Any, **options: Any) -> None:
        self._clipping = (optimizer, options)


def _as_they_are(losses: Tensor, record: Tensor) -> Tensor:
    """The losses that training_step gave; the check of the model is the check of them."""
    return losses
