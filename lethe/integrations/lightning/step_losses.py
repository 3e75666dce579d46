"""A LightningModule's training_step as the function of a batch: it may be called on parts of one, down to single records."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from lethe.errors import InputError, LetheWarning

_FASTER = 'compute the loss with reduction="none" in training_step, and return it: one loss a record.'


class StepLosses:
    """`losses(batch)`, shape (B,), by training_step, as a loop of Lightning calls it.

    Args:
        trainer: of Lightning.
        module: its LightningModule.
        named: whether a batch is a mapping; else training_step is given a list, as a DataLoader gives it, or the one tensor.

    Attributes:
        number: of the batch in its epoch, which training_step is given.
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
        for module, given in attributes.items():
            vars(module).update(given)
        try:
            yield
        finally:
            for module, given in attributes.items():
                for name in given:
                    if name in before[module]:
                        vars(module)[name] = before[module][name]
                    else:
                        del vars(module)[name]

    def __call__(self, batch: Any) -> Tensor:
        """The losses, shape (B,).

        Raises:
            InputError: training_step gives something else.
            NotImplementedError: it gives one number for several records: each is to be computed alone.
        """
        batch = self._precision.convert_input(batch)
        records = len(next(iter(batch.values())) if self._named else batch[0])
        batch = batch if self._named else list(batch) if len(batch) > 1 else batch[0]
        # What is logged, which no certificate covers, goes nowhere.
        within = {module: {"_trainer": trainer, "log": self._note, "log_dict": self._note} for module, trainer in self._trainers.items()}
        with self._having(within), self._precision.train_step_context():
            result = self._step(batch, self.number) if self._numbered else self._step(batch)
        loss = result.get("loss") if isinstance(result, Mapping) else result
        if isinstance(loss, Tensor) and loss.numel() == 1:
            if records > 1:
                raise NotImplementedError(f"training_step gives one number for its batch; {_FASTER}")
            return loss.reshape(1)
        if isinstance(loss, Tensor) and loss.shape in ((records,), (records, 1)):
            return loss.reshape(records)
        got = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise InputError(
            f"training_step: gives a loss of {got}; it needs one number, or one loss a record, shape ({records},).",
            source="the LightningModule",
            remedy=_FASTER,
        )

    def _note(self, name: Any, *values: Any, **options: Any) -> None:
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
