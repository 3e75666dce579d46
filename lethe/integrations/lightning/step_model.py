"""A LightningModule's training_step as a model: its outputs are the losses of the records."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Mapping
from types import FunctionType, MethodType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from lethe.errors import InputError, LetheWarning, RecordByRecordWarning
from lethe.train.model_state.outputs import one_loss_each
from lethe.train.model_state.undisturbed import undisturbed

_FASTER = 'compute the loss with reduction="none" in training_step, and return it: one loss a record.'


class Logging:
    """Takes what a training_step logs, and passes it to nobody: it was computed of private records, and no certificate covers it.

    Args:
        module: a LightningModule.
    """

    def __init__(self, module: Any) -> None:
        self._module = module
        self._said = False

    def __enter__(self) -> None:
        self._module.log, self._module.log_dict = self._note, self._note

    def __exit__(self, *raised: object) -> None:
        del self._module.log, self._module.log_dict

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


class StepCall:
    """A call of training_step on a micro-batch.

    Args:
        module: a LightningModule.
        fields: names of the tensors; None: they are given in a list, as a DataLoader gives them.
    """

    def __init__(self, module: Any, fields: tuple[str, ...] | None) -> None:
        self.module, self._step, self._fields = module, module.training_step, fields
        self._numbered = len(inspect.signature(self._step).parameters) > 1
        self._logging = Logging(module)
        self.number = 0

    def __call__(self, tensors: tuple[Tensor, ...]) -> Any:
        """What training_step gives."""
        batch: Any = list(tensors) if self._fields is None else dict(zip(self._fields, tensors, strict=True))
        if self._fields is None and len(tensors) == 1:
            batch = tensors[0]
        with self._logging:
            return self._step(batch, self.number) if self._numbered else self._step(batch)

    def copied(self, memo: dict[int, Any]) -> StepCall:
        """The same call of a copy of the module, which knows the same Trainer.

        Args:
            memo: of copy.deepcopy.
        """
        module = copy.deepcopy(self.module, memo)  # without the Trainer, as Lightning has it
        for replaced in ("training_step", "backward", "log", "log_dict", "configure_gradient_clipping"):
            vars(module).pop(replaced, None)
        vars(module)["_trainer"] = vars(self.module).get("_trainer")
        return StepCall(module, self._fields)

    def own(self) -> dict[str, Any]:
        """The module's own plain attributes: those that Lightning did not give it."""
        kept = vars(self.module).items()
        return {name: value for name, value in kept if name not in _LIGHTNINGS and not isinstance(value, FunctionType | MethodType)}

    @property
    def training(self) -> bool:
        """Whether the module is in train mode."""
        return self.module.training


_LIGHTNINGS: set[str] = set()

# Not in the model: from there the checks would find the Trainer, and take what it counts for something that the model keeps.
_CALLS: WeakKeyDictionary[nn.Module, StepCall] = WeakKeyDictionary()


class StepModel(nn.Module):
    """`training_step` as a forward pass: tensors of a micro-batch in, one loss a record out.

    Its layers, parameters and buffers are the module's own, under the same names, and so is its state dict; what the module keeps in
    attributes of its own is watched as that of any model.

    Args:
        module: a LightningModule.
        fields: names of a micro-batch's tensors; None: they have none.
    """

    def __init__(self, module: Any, fields: tuple[str, ...] | None) -> None:
        super().__init__()
        if not _LIGHTNINGS:
            plain = next(kind for kind in type(module).__mro__ if kind.__name__ == "LightningModule")
            _LIGHTNINGS.update(vars(plain()))
        self._take(StepCall(module, fields))

    def _take(self, call: StepCall) -> None:
        for shared in ("_modules", "_parameters", "_buffers", "_non_persistent_buffers_set"):
            self.__dict__[shared] = vars(call.module)[shared]
        _CALLS[self] = call
        self.refresh()

    def __deepcopy__(self, memo: dict[int, Any]) -> StepModel:
        made = StepModel.__new__(StepModel)
        nn.Module.__init__(made)
        memo[id(self)] = made
        made._take(_CALLS[self].copied(memo))
        return made

    def refresh(self) -> None:
        """Look at the module's mode and attributes as they are now."""
        call = _CALLS[self]
        self.__dict__["training"], self.__dict__["own"] = call.training, call.own()

    def begin(self, number: int) -> None:
        """Say which batch is the present one.

        Args:
            number: of the batch in its epoch, which training_step is given.
        """
        _CALLS[self].number = number

    def forward(self, *tensors: Tensor) -> Tensor:
        """The losses of the records, shape (B,).

        Raises:
            InputError: training_step gives something else.
        """
        found = _CALLS[self](tensors)
        loss = one_loss_each(found.get("loss") if isinstance(found, Mapping) else found)
        if isinstance(loss, Tensor) and loss.numel() == 1 and len(tensors[0]) == 1:
            return loss.reshape(1)
        if isinstance(loss, Tensor) and (loss.dim() == 0 or loss.shape == (len(tensors[0]),)):
            return loss
        got = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise InputError(
            f"training_step: gives a loss of {got}; it needs one number, or one loss a record, shape ({len(tensors[0])},).",
            source="the LightningModule",
            remedy=_FASTER,
        )


def gives_losses_of_records(model: StepModel, tensors: tuple[Tensor, ...], *, several_rows: str | None) -> bool:
    """Whether training_step gives one loss a record; if it gives one number for its batch, it is asked of each record alone.

    Args:
        model: is asked once, and is afterwards as it was.
        tensors: of two records, on the model's device.
        several_rows: the option by which a batch has several rows of one unit, whose losses are needed; None: it has one.
    Raises:
        InputError: it gives one number, and a unit has several rows.
    """
    devices = [tensors[0].device] if tensors[0].device.type == "cuda" else []
    with torch.no_grad(), torch.random.fork_rng(devices=devices), undisturbed(model):
        several = model(*tensors).dim() == 1
    if not several and several_rows is not None:
        raise InputError(
            f"training_step: gives one number for its batch; with {several_rows} it needs one loss a row: the mean over the rows of each "
            f"{'user' if several_rows == 'users' else 'record'} is clipped.",
            source=f"the LightningModule, {several_rows}",
            remedy=_FASTER,
        )
    if not several:
        warnings.warn(
            "training_step gives one number for its batch, so each record passes through it alone, as exact and slower: " + _FASTER,
            RecordByRecordWarning,
            stacklevel=3,
        )
    return several
