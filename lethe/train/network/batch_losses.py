"""From a batch to one loss a record: the user's model and loss function in one function, with errors that explain a wrong shape. `Trainer`
makes a `BatchLosses` and passes it to the clipper, which differentiates it; a mean over the batch would hide single records.
"""

import copy
import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import FunctionType
from typing import Any, cast

import torch
from torch import Tensor, nn

from lethe.errors import InputError, LetheError
from lethe.train.core.comparison import first_line
from lethe.train.data.sources import Source, fields_of, mapping_of

LossFunction = Callable[[Any, Any], Tensor]
"""(outputs, targets) -> one loss a record, shape (B,) or (B, 1), or a loss of PyTorch's with its mean; targets are a
tensor, or of records with fields the batch as a mapping."""

_OF_ITS_OWN = "give a loss function, (outputs, batch) -> one loss a record"
_OF_PARTS = (
    "take out of the outputs what the loss needs: lambda outputs, targets: loss(outputs.logits, targets); of a model of transformers, "
    "lethe.integrations.transformers.record_losses(model) is the loss of each record."
)
_OF_CLASSES = (
    "classes are whole numbers from 0 (targets.long()), one a record, fewer than the model has outputs; numbers to come close to have "
    "the outputs' type and shape: (B, 1), as of targets[:, None], where the model has one output."
)
_OF_FIELDS = (
    "the loss is given the batch, and takes what it needs out of it, by the name of a field: lambda outputs, batch: "
    "loss(outputs, batch[name])."
)


class BatchLosses:
    """The losses of a batch, which is a list of tensors, or of records with fields a mapping.

    Without fields a record is (inputs, ..., target): `model(*inputs)` and `loss(outputs, target)`. With fields it is a mapping:
    `model(**batch)`, of which a forward without `**kwargs` is given what it names; and `loss(outputs, batch)`. Neither is given the field
    that is left out, such as the column of users' ids. Without a loss it is the model's own, `outputs.loss`.

    Attributes:
        mean_left_out: whether the loss is one of PyTorch's with its mean, whose twin without is taken.
    """

    def __init__(self, model: nn.Module, loss: LossFunction | None, source: Source, left_out: str | None = None) -> None:
        self._model, self._fields, self._left_out = model, fields_of(source), left_out
        needed = "(outputs, targets) to one loss a record" if self._fields is None else "(outputs, batch) to one loss a record, or None"
        if isinstance(loss, type):
            raise InputError(
                f"loss: got the class {loss.__name__}; it needs a function.",
                remedy=f'give {loss.__name__}(reduction="none").',
            )
        if not callable(loss) and (loss is not None or self._fields is None):
            raise InputError(
                f"loss: got {type(loss).__name__}; it needs a function of {needed}.",
                remedy='give nn.CrossEntropyLoss(reduction="none"), or a function without a mean over the batch dimension.',
            )
        if not isinstance(model, nn.Module):
            raise InputError(
                f"model: got {type(model).__name__}; it needs a torch.nn.Module.",
                remedy="give the network itself, an object of a class of torch.nn.",
            )
        model_parameters = {id(parameter) for parameter in model.parameters()}
        if isinstance(loss, nn.Module) and any(
            parameter.requires_grad and id(parameter) not in model_parameters for parameter in loss.parameters()
        ):
            raise InputError(
                "loss: it has trainable parameters of its own, which nobody would train.",
                source="the loss module's parameters",
                remedy="make it a part of the model (model.criterion = loss), or freeze them: loss.requires_grad_(False).",
            )
        self._arguments: tuple[str, ...] = ()
        if self._fields is not None:
            field_names = tuple(name for name in self._fields if name != left_out)
            self._arguments = _arguments_of(model, field_names, all_of_them=loss is None)
        twin = _without_mean(loss)
        self._loss: LossFunction = own_loss if loss is None else twin or loss
        self.mean_left_out = twin is not None

    def batch(self, tensors: Sequence[Tensor], device: torch.device, counted: Tensor | None) -> Any:
        """A batch on the model's device. The shape of `counted` is (rows,)."""
        on_device = [tensor.to(device) for tensor in tensors]
        if self._fields is not None:
            batch = mapping_of(self._fields, on_device, counted)
            batch.pop(self._left_out or "", None)
            return batch
        if len(on_device) < 2:
            raise InputError(
                "data: a record is one tensor; it needs inputs and a target.",
                remedy="give (features, targets), or the same array twice where a model is to reproduce its input.",
            )
        return on_device

    def __call__(self, batch: Any) -> Tensor:
        """The losses, shape (B,) or (B, 1)."""
        outputs = self._outputs(batch)
        targets = batch[-1] if self._fields is None else dict(batch)
        losses = self._loss(outputs, targets)
        if self.mean_left_out and isinstance(outputs, Tensor) and losses.dim() > 1 and losses.shape == outputs.shape:
            # Over each record's own numbers; not over classes of many positions, some of which may not count, nor over what PyTorch's
            # broadcasting makes of other shapes.
            return losses.flatten(1).mean(1)
        if isinstance(losses, Tensor) and losses.dim() == 2:
            _refuse_table(losses, outputs, targets)
        return losses

    def _outputs(self, batch: Any) -> Any:
        if self._fields is None:
            return self._model(*batch[:-1])
        return self._model(**{name: batch[name] for name in self._arguments})

    def explained(self, error: Exception, batch: Any) -> Exception | None:
        """The error of a batch that does not go through the model or the loss, in words; None: it goes through both."""
        with torch.no_grad():
            try:
                outputs = self._outputs(batch)
            except (RuntimeError, IndexError, TypeError, ValueError):
                return self._of_inputs(error, batch)
            except Exception as again:
                return again
            targets = batch[-1] if self._fields is None else dict(batch)
            try:
                self._loss(outputs, targets)
            except (AttributeError, LookupError, NotImplementedError, RuntimeError, TypeError, ValueError) as again:
                if isinstance(again, LetheError) or (type(again) is ValueError and not _of_torch(again)):
                    return again  # what a loss raises on purpose
                of_targets = _OF_CLASSES if isinstance(targets, Tensor) else _OF_FIELDS
                return InputError(
                    f"loss: of outputs, {_said(outputs)}, and targets, {_said(targets)}, it computes nothing: {type(error).__name__}: "
                    f"{first_line(error)}",
                    source="the loss function, on a batch's outputs and targets",
                    remedy=of_targets if isinstance(outputs, Tensor) else _OF_PARTS,
                )
        return None

    def _of_inputs(self, error: Exception, batch: Any) -> InputError:
        model_dtypes = {parameter.dtype for parameter in self._model.parameters()}
        inputs = [batch[name] for name in self._arguments] if self._fields is not None else batch[:-1]
        strange = [str(tensor.dtype) for tensor in inputs if tensor.is_floating_point() and tensor.dtype not in model_dtypes]
        if strange:
            return InputError(
                f"data: {', '.join(strange)} does not go into this model of {', '.join(map(str, model_dtypes))}: {first_line(error)}",
                remedy="convert the features first, as by features.astype(numpy.float32), or the model by model.double().",
            )
        return InputError(
            f"data: forward fails on a batch, {', '.join(map(_said, inputs))}: {first_line(error)}.",
            source="the model's forward pass, on a batch of the records",
            remedy="match the first layer's width (or an embedding's size) to the records, whose first dimension is the batch.",
        )


def _without_mean(loss: Any) -> LossFunction | None:
    """The same loss with reduction="none", of one of PyTorch's that takes the mean over its batch; None: it is another.

    The twin has the loss's own weights, and computes what the loss gives of a record alone, but that weights of classes, which the mean
    divides by, stay.
    """
    ours = type(loss).__module__ == "torch.nn.modules.loss" and type(loss) is not nn.CTCLoss
    if ours and getattr(loss, "reduction", None) == "mean":
        twin = copy.copy(loss)
        twin.reduction = "none"
        return twin
    if isinstance(loss, FunctionType) and loss.__module__ == "torch.nn.functional" and loss is not nn.functional.ctc_loss:
        reduction = inspect.signature(loss).parameters.get("reduction")
        return None if reduction is None or reduction.default != "mean" else partial(loss, reduction="none")
    return None


def _refuse_table(losses: Tensor, outputs: Any, targets: Any) -> None:
    """Refuse a loss of every output with every target, which PyTorch makes of the shapes (B, 1) and (B,)."""
    if not isinstance(outputs, Tensor) or not isinstance(targets, Tensor):
        return
    records = len(losses)
    if records > 1 and losses.shape == (records, records) and {outputs.shape, targets.shape} == {(records,), (records, 1)}:
        raise InputError(
            f"loss: of outputs of shape {tuple(outputs.shape)} and targets of shape {tuple(targets.shape)} it computes a loss of every "
            "output with every target.",
            source="PyTorch's broadcasting",
            remedy="give targets of the outputs' shape: targets[:, None] of (B, 1), targets[:, 0] of (B,).",
        )


def units_of(unit_indices: Tensor) -> list[list[int]]:
    """The rows of each unit that has any, from the unit of each row, shape (rows,)."""
    counts = unit_indices.unique(return_counts=True)[1]
    return [rows.tolist() for rows in unit_indices.argsort(stable=True).split(counts.tolist())]


def own_loss(outputs: Any, batch: Mapping[str, Tensor]) -> Tensor:
    """The loss that the model computes itself: one for each record, or, of a record that is alone, one number.

    Raises:
        InputError: the outputs hold none, or one of another shape.
        NotImplementedError: one number for several records: each has to be computed alone.
    """
    records = len(next(iter(batch.values())))
    loss = cast(Mapping[str, Any], outputs).get("loss") if isinstance(outputs, Mapping) else getattr(outputs, "loss", None)
    if not isinstance(loss, Tensor):
        names = ", ".join(map(str, outputs)) if isinstance(outputs, Mapping) else type(outputs).__name__
        raise InputError(
            f"loss: got None, which stands for the model's own, and its outputs hold no loss: {names}.",
            source="outputs.loss",
            remedy=f"give the model what it computes its loss of, such as labels; or {_OF_ITS_OWN}.",
        )
    if loss.dim() == 0 and records > 1:
        raise NotImplementedError("the model's own loss is one number for a batch, and each record needs one")
    if loss.numel() != records or loss.shape[:1] not in ((), (records,)):
        raise InputError(
            f"loss: the model's own has shape {tuple(loss.shape)}; it needs one loss a record, shape ({records},).",
            source="outputs.loss",
            remedy=f"{_OF_ITS_OWN}.",
        )
    return loss.reshape(records)


def _of_torch(error: Exception) -> bool:
    """Whether PyTorch raised it."""
    *_, (raising, _) = traceback.walk_tb(error.__traceback__)
    return str(raising.f_globals.get("__name__")).partition(".")[0] == "torch"


def _said(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"
    return f"a mapping of {', '.join(map(str, value))}" if type(value) is dict else f"a {type(value).__name__}"


def _arguments_of(model: nn.Module, fields: tuple[str, ...], *, all_of_them: bool) -> tuple[str, ...]:
    """The fields of a record that the model's forward takes; an error where it takes none, or not all and nothing else does."""
    parameters = inspect.signature(model.forward).parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return fields
    by_name = [
        name for name, parameter in parameters.items() if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    accepted, strange = [name for name in fields if name in by_name], [name for name in fields if name not in by_name]
    missing = [name for name in by_name if parameters[name].default is inspect.Parameter.empty and name not in fields]
    if missing or not accepted or (strange and all_of_them):
        what = f"it needs {', '.join(missing)}" if missing else f"it does not take {', '.join(strange)}"
        raise InputError(
            f"data: a record has the fields {', '.join(fields)}; forward of {type(model).__name__} takes {', '.join(by_name) or 'none'}: "
            f"{what}.",
            source="the fields of a record, which are arguments of the model",
            remedy="rename or remove columns: dataset.rename_column(...), dataset.remove_columns([...]), or map names in a collate "
            "function.",
        )
    return tuple(accepted)
