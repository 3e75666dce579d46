"""Settings of a Lightning Trainer, its callbacks and the module that would break privacy or would be ignored: refused by name, with the
reason.

`PrivateTraining.setup` calls it before anything is trained.

The classes are those of the package that is in use: `lightning.pytorch`, or `pytorch_lightning`, which has them under other names.
"""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from lethe.errors import InputError

if TYPE_CHECKING:
    from lightning.pytorch import Callback
else:
    _new = ("lightning.pytorch" in sys.modules or "pytorch_lightning" not in sys.modules) and importlib.util.find_spec("lightning")
    Callback = importlib.import_module("lightning.pytorch" if _new else "pytorch_lightning").Callback

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
_ONE_OPTIMISER = "a step is one noisy gradient, for one optimiser; that may be one whose step() calls those of several"
_PRECISIONS = ("32-true", "64-true", "bf16-mixed")


def refuse_trainer(trainer: Any, module: Any, *, log_private: bool) -> None:
    """Refuse what is told before training begins: the first thing that is not honoured, by name."""
    if str(trainer.precision) not in _PRECISIONS:
        raise _refused("precision", trainer.precision, f"parameters and noise need float32 or float64: {', '.join(_PRECISIONS)}")
    _refuse_strategy(trainer)
    settings = {
        "fast_dev_run": (trainer.fast_dev_run, (False, 0), "a trial on the private records is a training, and costs"),
        "overfit_batches": (trainer.overfit_batches, (0, 0.0), _DESIGN),
        "limit_train_batches": (trainer.limit_train_batches, (1.0,), _DESIGN),
        "reload_dataloaders_every_n_epochs": (trainer.reload_dataloaders_every_n_epochs, (0,), _DESIGN),
    }
    for name, (value, allowed, why) in settings.items():
        if value not in allowed or (name == "limit_train_batches" and isinstance(value, int)):  # 1 is one batch, 1.0 are all
            raise _refused(name, value, why)
    for callback in trainer.callbacks:
        if log_private and getattr(callback, "monitor", None) == "train_loss":
            why = "what it chooses by the private loss no certificate covers; monitor public data"
            raise _refused("monitor", f"train_loss, of {type(callback).__name__}", why)
        for name, why in _CALLBACKS.items():
            if _is_a(callback, name):
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
            if owner is not None and _overrides(owner, name):
                raise _refused(name, f"a method of {type(owner).__name__}", why)


def refuse_optimizers(trainer: Any, *, log_private: bool) -> torch.optim.Optimizer:
    """The one optimiser of a Trainer; with log_private none may follow private numbers."""
    if len(trainer.optimizers) != 1:
        raise _refused("configure_optimizers", f"{len(trainer.optimizers)} optimisers", _ONE_OPTIMISER)
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


def _refuse_strategy(trainer: Any) -> None:
    """Refuse strategies other than one device, and one process for each device, which exchange clipped sums through the engine."""
    strategy = trainer.strategy
    if _is_a(strategy, "SingleDeviceStrategy") and not _is_a(strategy, "ParallelStrategy") and trainer.world_size == 1:
        return
    if not (type(strategy).__name__ == "DDPStrategy" and _is_a(strategy, "DDPStrategy")):
        raise InputError(
            f"strategy: got {type(strategy).__name__}; private training takes one device, or DDP.",
            source="Trainer",
            remedy='strategy="ddp"; for a model too large for one device, lethe.train.fit after torch.distributed.fsdp.fully_shard(model).',
        )
    if strategy._start_method != "popen":
        raise InputError(
            f"strategy: got DDP that starts its processes by {strategy._start_method}, where the certificate would stay.",
            source="Trainer",
            remedy='strategy="ddp" in a script, by itself or under torchrun --nproc-per-node=2; in a notebook devices=1.',
        )
    for name in ("ddp_comm_hook", "ddp_comm_wrapper", "ddp_comm_state", "model_averaging_period"):
        if getattr(strategy, f"_{name}") is not None:
            raise _refused(name, "a value", "it exchanges gradients, or moves parameters, by itself; leave it out")
    if strategy._ddp_kwargs.get("mixed_precision") is not None:
        raise _refused("mixed_precision", "a value", "it exchanges gradients by itself; leave it out")


def begin_alike(module: torch.nn.Module) -> None:
    """Give all processes the weights of process 0, as the wrapper of ddp does, which is not made."""
    for tensor in (*module.parameters(), *module.buffers()):
        torch.distributed.broadcast(tensor.detach(), 0)


def _is_a(thing: object, name: str) -> bool:
    """Whether a class of this name, of either package, is among those of an object."""
    return any(kind.__name__ == name and "lightning" in kind.__module__ for kind in type(thing).__mro__)


def _overrides(thing: Any, name: str) -> bool:
    """Whether a module, data module or callback has a method of its own in place of Lightning's."""
    if name in vars(thing):
        return True
    owner = next((kind for kind in type(thing).__mro__ if name in vars(kind)), None)
    return owner is not None and owner.__module__.partition(".")[0] not in ("lightning", "pytorch_lightning", "torch")


def _refused(name: str, value: object, why: str) -> InputError:
    return InputError(f"{name}: got {value}, which private training does not take.", source="Trainer or LightningModule", remedy=f"{why}.")
