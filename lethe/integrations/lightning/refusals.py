"""What of a Trainer, its callbacks and the module would break privacy, or is not honoured: refused by name, with the reason."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch

from lethe.errors import InputError
from lethe.integrations.lightning.package import is_a, overrides
from lethe.integrations.lightning.processes import refuse_strategy

_DESIGN = "which records meet which step is the batch design of the run; leave it at its default"
_TRIALS = "it trains on the private records to choose a setting, and each trial costs; choose by public data"
_SET = "it changes parameters, or which of them are trained, beside the optimiser's step"

_AVERAGED = f"{_SET}; PrivateTraining(ema=0.999) keeps a moving average of the iterates, which the certificate covers"

_CALLBACKS: Mapping[str, str] = {
    "GradientAccumulationScheduler": "how many records a step has is the batch design of the run, the same at every step",
    "BatchSizeFinder": _TRIALS,
    "LearningRateFinder": _TRIALS,
    "StochasticWeightAveraging": _AVERAGED,
    "WeightAveraging": _AVERAGED,
    "EMAWeightAveraging": _AVERAGED,
    "BaseFinetuning": _SET,
    "ModelPruning": _SET,
}
_ROWS = "it would see the records of a whole step; transform each record in the data set, or in training_step"
_METHODS: Mapping[str, str] = {
    "backward": "the gradient of each record is clipped, and no other is computed",
    "on_before_batch_transfer": _ROWS,
    "transfer_batch_to_device": _ROWS,
    "on_after_batch_transfer": _ROWS,
}
_ONE = "a step is one noisy gradient, for one optimiser; that may be one whose step() calls those of several"
_PRECISIONS = ("32-true", "64-true", "bf16-mixed")


def refuse_trainer(trainer: Any, module: Any, *, log_private: bool) -> None:
    """Refuse what is told before training begins.

    Args:
        trainer: of Lightning.
        module: a LightningModule.
        log_private: whether train_loss, which is private, is at hand.
    Raises:
        InputError: the first thing that is not honoured, by name.
    """
    _refuse_precision(trainer)
    refuse_strategy(trainer)
    told = {
        "fast_dev_run": (trainer.fast_dev_run, (False, 0), "a trial on the private records is a training, and costs"),
        "overfit_batches": (trainer.overfit_batches, (0, 0.0), _DESIGN),
        "limit_train_batches": (trainer.limit_train_batches, (1.0,), _DESIGN),
        "reload_dataloaders_every_n_epochs": (trainer.reload_dataloaders_every_n_epochs, (0,), _DESIGN),
    }
    for name, (value, allowed, why) in told.items():
        if value not in allowed or (name == "limit_train_batches" and isinstance(value, int)):  # 1 is one batch, 1.0 are all
            raise _refused(name, value, why)
    for callback in trainer.callbacks:
        if log_private and getattr(callback, "monitor", None) == "train_loss":
            why = "what it chooses by the private loss no certificate covers; monitor public data"
            raise _refused("monitor", f"train_loss, of {type(callback).__name__}", why)
        for name, why in _CALLBACKS.items():
            if is_a(callback, name):
                raise _refused("callbacks", type(callback).__name__, why)
    if not module.automatic_optimization:
        raise _refused(
            "automatic_optimization", False, "the steps of a module that optimises by hand are its own: use lethe.train.PrivacyEngine"
        )
    if getattr(module, "_compiler_ctx", None) is not None:
        raise _refused(
            "module", "a compiled module", "gradients of single records are found by hooks that a compiled model skips; give it plain"
        )
    if "dataloader_iter" in inspect.signature(module.training_step).parameters:
        raise _refused("training_step", "dataloader_iter", "it would take records from the loader, and the run draws them; take a batch")
    for owner in (module, trainer.datamodule):
        for name, why in _METHODS.items():
            if owner is not None and overrides(owner, name):
                raise _refused(name, f"a method of {type(owner).__name__}", why)


def refuse_optimizers(trainer: Any, *, log_private: bool) -> torch.optim.Optimizer:
    """The one optimiser of a Trainer.

    Args:
        trainer: whose module has configured them.
        log_private: whether private numbers are at hand, which a learning rate could follow.
    Raises:
        InputError: several, or a schedule that follows what is private.
    """
    if len(trainer.optimizers) != 1:
        raise _refused("configure_optimizers", f"{len(trainer.optimizers)} optimisers", _ONE)
    if not trainer.optimizers[0].param_groups:
        raise InputError(
            "configure_optimizers: returns none; private training takes the steps of the module's optimiser.",
            source="the LightningModule",
            remedy="return torch.optim.AdamW(self.parameters(), lr=...).",
        )
    plateau = any(config.reduce_on_plateau for config in trainer.lr_scheduler_configs)
    if plateau and log_private:
        raise _refused(
            "lr_scheduler", "ReduceLROnPlateau", "its learning rate may follow what no certificate covers; take a fixed schedule"
        )
    return trainer.optimizers[0]


def _refuse_precision(trainer: Any) -> None:
    if str(trainer.precision) not in _PRECISIONS:
        scaled = "loss scaling changes gradients between clipping and the step; " if str(trainer.precision) == "16-mixed" else ""
        raise _refused("precision", trainer.precision, f"{scaled}parameters and noise need float32 or float64: {', '.join(_PRECISIONS)}")


def _refused(name: str, value: object, why: str) -> InputError:
    return InputError(f"{name}: got {value}, which private training does not take.", source="Trainer or LightningModule", remedy=f"{why}.")
