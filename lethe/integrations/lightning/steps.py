"""Puts the steps of a PrivacyEngine in the place of those of Lightning's loop, with losses that the module's own training_step computes.
`PrivateTraining` puts these patches on when training starts, and takes them off at its end: Lightning has no hook that replaces a step.
"""

import functools
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from lethe.errors import InputError, LetheWarning
from lethe.integrations.training import LogicalBatch

_EACH = 'compute the loss with reduction="none" in training_step, and return it: one loss a record.'


class Patches:
    """Methods that were put on objects in the place of their own while training lasts."""

    def __init__(self) -> None:
        self._put: list[tuple[Any, str, bool, Any]] = []

    def put(self, owner: Any, name: str, value: Callable[..., Any]) -> Any:
        """Set a method of an object, and return what was there."""
        before, is_own = getattr(owner, name), name in vars(owner)

        @functools.wraps(before)  # whoever asks for its signature is told that of before
        def replaced(*args: Any, **kwargs: Any) -> Any:
            return value(*args, **kwargs)

        self._put.append((owner, name, is_own, before))
        setattr(owner, name, replaced)
        return before

    def take_off(self) -> None:
        """Everything is as it was."""
        for owner, name, is_own, before in reversed(self._put):
            if is_own:
                setattr(owner, name, before)
            else:
                delattr(owner, name)
        self._put.clear()


class StepLosses:
    """`losses(batch)`, shape (B,), by training_step, as a loop of Lightning calls it: with the batch's number in its epoch.

    A batch that is no mapping (`named`) is a list, as a DataLoader gives it, or the one tensor.
    """

    def __init__(self, trainer: Any, module: Any, *, named: bool) -> None:
        self._step, self._named, self._precision = module.training_step, named, trainer.precision_plugin
        self._numbered = len(inspect.signature(self._step).parameters) > 1
        self._trainers = {each: vars(each)["_trainer"] for each in module.modules() if vars(each).get("_trainer") is not None}
        self._said = False
        self.number = 0

    @contextmanager
    def without_trainer(self) -> Iterator[None]:
        """Within: the module does not know its Trainer, but while training_step runs: what a Trainer counts is no state of the model."""
        with self._having({module: {"_trainer": None} for module in self._trainers}):
            yield

    @contextmanager
    def _having(self, attributes: Mapping[Any, Mapping[str, Any]]) -> Iterator[None]:
        """Within: modules have these attributes."""
        before = {module: dict(vars(module)) for module in attributes}
        for module, values in attributes.items():
            vars(module).update(values)
        try:
            yield
        finally:
            for module, values in attributes.items():
                for name in values:
                    if name in before[module]:
                        vars(module)[name] = before[module][name]
                    else:
                        del vars(module)[name]

    def __call__(self, batch: Any) -> Tensor:
        """The losses, shape (B,); a NotImplementedError where training_step gives one number for several records: each is to pass alone.

        No check of some batches tells whether such a number is a mean of records' own losses in all: with weights of classes it is one
        until a rare class comes.
        """
        batch = self._precision.convert_input(batch)
        records = len(next(iter(batch.values())) if self._named else batch[0])
        batch = batch if self._named else list(batch) if len(batch) > 1 else batch[0]
        # What is logged, which no certificate covers, goes nowhere.
        within = {module: {"_trainer": trainer, "log": self._note, "log_dict": self._note} for module, trainer in self._trainers.items()}
        with self._having(within), self._precision.train_step_context():
            result = self._step(batch, self.number) if self._numbered else self._step(batch)
        loss = result.get("loss") if isinstance(result, Mapping) else result
        if isinstance(loss, Tensor) and loss.shape in ((records,), (records, 1)):
            return loss.reshape(records)
        if isinstance(loss, Tensor) and loss.numel() == 1:
            if records > 1:
                raise NotImplementedError(f"training_step gives one number for its batch; {_EACH}")
            return loss.reshape(1)
        got = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise InputError(
            f"training_step: gives a loss of {got}; it needs one number, or one loss a record, shape ({records},).",
            source="the LightningModule",
            remedy=_EACH,
        )

    def _note(self, name: Any, *values: Any, **options: Any) -> None:
        """In place of the module's `log`: a warning, once, that private numbers are not logged."""
        if self._said:
            return
        self._said = True
        named = ", ".join(map(str, name)) if isinstance(name, Mapping) else str(name)
        warnings.warn(
            LetheWarning(
                f"training_step logs {named}, which is computed of private records and covered by no certificate: it is not logged "
                "(log_private=True logs the mean loss, as train_loss)."
            ),
            stacklevel=4,
        )


class PrivateSteps:
    """Puts an engine's steps into a module and its optimiser while it trains.

    Lightning's closure calls training_step, which notes the batch; `zero_grad`; and `backward`, which computes the noisy gradient of the
    batch's records, micro-batch by micro-batch. Then the optimiser steps without a closure. `mean_loss` is of the last step's records, or
    None; `lost` steps were taken before, and are counted and not taken again.
    """

    def __init__(self, losses: StepLosses, gradient: Callable[[LogicalBatch], Tensor | None], *, lost: int) -> None:
        self._losses, self._gradient, self._lost = losses, gradient, lost
        self._batch: LogicalBatch | None = None
        self.mean_loss: Tensor | None = None

    def put_on(self, patches: Patches, module: Any, optimizer: torch.optim.Optimizer) -> None:
        """Put them there."""
        patches.put(module, "training_step", self._note)
        patches.put(module, "backward", lambda loss, *arguments, **options: self._noisy_gradient())
        inner = patches.put(optimizer, "step", lambda closure=None: self._step(inner, closure))

    def _note(self, batch: LogicalBatch, batch_idx: int = 0) -> Tensor:
        self._batch = batch
        self._losses.number = batch_idx
        return torch.zeros(())

    def _noisy_gradient(self) -> None:
        if not self._lost and self._batch is not None:
            with self._losses.without_trainer():
                self.mean_loss = self._gradient(self._batch)

    def _step(self, inner: Callable[[], Any], closure: Callable[[], Any] | None) -> Any:
        """Call the closure first, which computes the noisy gradient, and then step without one, once."""
        result = closure() if closure is not None else None
        if self._lost:
            self._lost -= 1
        else:
            inner()
        return result
