"""How a batch is given to the model and to the loss: by places, or by the names of its fields."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from lethe.errors import InputError
from lethe.train.checks.loss import LossFunction
from lethe.train.clipping.unfollowed import UnfollowedError
from lethe.train.core.comparison import first_line
from lethe.train.data.sources.base import Source
from lethe.train.data.sources.fields import attending, fields_of
from lethe.train.model_state.outputs import one_loss_each

# What PyTorch says of data of other sizes than a layer's; other errors of a forward pass are the model's own.
_OTHER_SIZES = ("shapes cannot be multiplied", "size mismatch", "to have", "must match the size", "index out of range", "normalized_shape")
_OF_ITS_OWN = "give a loss function, (outputs, batch) -> one loss a record"


class Calls:
    """Calls of a model and its loss on some rows of a batch.

    Without fields a record is (inputs, ..., target): `model(*inputs)` and `loss(outputs, target)`. With fields it is a mapping:
    `model(**batch)`, of which a forward without `**kwargs` is given what it names; and `loss(outputs, batch)`.

    Args:
        model: to be called.
        loss: of a batch; None: the model's own, `outputs.loss`.
        source: of the records.
        left_out: a field that neither is given, such as the column of users' ids; None: there is none.
    Raises:
        InputError: a loss that is none, or fields that the model does not know.
    """

    def __init__(self, model: nn.Module, loss: LossFunction | None, source: Source, left_out: str | None = None) -> None:
        self._model, self._fields, self._left_out = model, fields_of(source), left_out
        if self._fields is None:
            if not callable(loss):
                raise InputError(f"loss: got {type(loss).__name__}; it needs a function of (outputs, targets) to one loss a record.")
            self._arguments: tuple[str, ...] = ()
        elif loss is not None and not callable(loss):
            raise InputError(f"loss: got {type(loss).__name__}; it needs a function of (outputs, batch) to one loss a record, or None.")
        else:
            self._arguments = _arguments_of(model, tuple(name for name in self._fields if name != left_out), all_of_them=loss is None)
        self.loss: LossFunction = own_loss if loss is None else loss

    def batch(self, tensors: Sequence[Tensor], device: torch.device, counted: Tensor | None) -> GivenBatch:
        """A batch on the model's device.

        Args:
            tensors: as a source gives them.
            device: of the model.
            counted: shape (rows,), which of them are records; None: all.
        Raises:
            InputError: records without a target.
        """
        there = [tensor.to(device) for tensor in tensors]
        if self._fields is not None:
            named = {name: tensor for name, tensor in zip(self._fields, there, strict=True) if name != self._left_out}
            if counted is not None:
                attending(named, counted.to(device))
            return GivenBatch(self._called_by_name, {name: named[name] for name in self._arguments}, named)
        if len(there) < 2:
            raise InputError(
                "data: a record is one tensor; it needs inputs and a target.",
                remedy="give (features, targets), or the same array twice where a model is to reproduce its input.",
            )
        return GivenBatch(self._called, there[:-1], there[-1])

    def _called(self, inputs: list[Tensor]) -> Any:
        return self._guarded(lambda: self._model(*inputs), inputs)

    def _called_by_name(self, inputs: dict[str, Tensor]) -> Any:
        return self._guarded(lambda: self._model(**inputs), list(inputs.values()))

    def _guarded(self, call: Callable[[], Any], inputs: list[Tensor]) -> Any:
        try:
            return call()
        except (RuntimeError, IndexError) as error:
            known = {parameter.dtype for parameter in self._model.parameters()}
            strange = [str(tensor.dtype) for tensor in inputs if tensor.is_floating_point() and tensor.dtype not in known]
            if (not strange or isinstance(error, IndexError)) and any(words in str(error) for words in _OTHER_SIZES):
                shapes = ", ".join(str(tuple(tensor.shape)) for tensor in inputs)
                raise InputError(
                    f"data: batches of shape {shapes} do not go into this model: {first_line(error)}.",
                    source="the model's forward pass, on a batch of the records",
                    remedy="make the model's first layer as wide as a record has numbers, an embedding as large as the largest index and "
                    "one, and shape the records as the layers take them (the records come first).",
                ) from error
            if not strange or isinstance(error, IndexError):
                raise
            raise InputError(
                f"data: {', '.join(strange)} does not go into this model of {', '.join(map(str, known))}: {str(error).splitlines()[0]}",
                remedy="convert the features first, as by features.astype(numpy.float32), or the model by model.double().",
            ) from error


class GivenBatch:
    """The rows of a batch: `outputs(rows)` of the model, and `targets(rows)`, which the loss is given besides.

    Args:
        called: of the model, on inputs.
        inputs: tensors by place or by name.
        targets: a tensor, or all fields by name.
    """

    def __init__(self, called: Callable[[Any], Any], inputs: Any, targets: Any) -> None:
        self._called, self._inputs, self._targets = called, inputs, targets

    def __len__(self) -> int:
        return len(self._targets if isinstance(self._targets, Tensor) else next(iter(self._targets.values())))

    def outputs(self, rows: slice | list[int]) -> Any:
        """The model's outputs of some rows."""
        return self._called(_rows(self._inputs, rows))

    def targets(self, rows: slice | list[int]) -> Any:
        """What the loss is given of some rows."""
        return _rows(self._targets, rows)


def own_loss(outputs: Any, batch: Mapping[str, Tensor]) -> Tensor:
    """The loss that the model computes itself: one for each record, or, of a record that is alone, one number.

    Raises:
        InputError: the outputs hold none, or one of another shape.
        UnfollowedError: one number for several records.
    """
    records = len(next(iter(batch.values())))
    loss = cast(Mapping[str, Any], outputs).get("loss") if isinstance(outputs, Mapping) else getattr(outputs, "loss", None)
    if not isinstance(loss, Tensor):
        held = ", ".join(map(str, outputs)) if isinstance(outputs, Mapping) else type(outputs).__name__
        raise InputError(
            f"loss: got None, which stands for the model's own, and its outputs hold no loss: {held}.",
            source="outputs.loss",
            remedy=f"give the model what it computes its loss of, such as labels; or {_OF_ITS_OWN}.",
        )
    if loss.numel() == 1 and (records == 1 or loss.dim() == 0):
        if records == 1:
            return loss.reshape(1)
        raise UnfollowedError(
            "its own loss is one number for a batch, and each record needs one.",
            source="outputs.loss",
            remedy=f"{_OF_ITS_OWN}; of a model of transformers, lethe.integrations.transformers.record_losses(model)",
        )
    loss = one_loss_each(loss)
    if loss.shape != (records,):
        raise InputError(
            f"loss: the model's own has shape {tuple(loss.shape)}; it needs one loss a record, shape ({records},).",
            source="outputs.loss",
            remedy=f"{_OF_ITS_OWN}.",
        )
    return loss


def _rows(tensors: Any, rows: slice | list[int]) -> Any:
    if isinstance(tensors, Tensor):
        return tensors[rows]
    if isinstance(tensors, dict):
        return {name: tensor[rows] for name, tensor in cast(dict[str, Tensor], tensors).items()}
    return [tensor[rows] for tensor in tensors]


def _arguments_of(model: nn.Module, fields: tuple[str, ...], *, all_of_them: bool) -> tuple[str, ...]:
    """The fields that go to the model.

    Args:
        model: whose forward says what it takes.
        fields: of a record.
        all_of_them: whether nothing else takes those that it does not.
    Raises:
        InputError: it takes none of them, or not all where it must.
    """
    taken = inspect.signature(model.forward).parameters
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in taken.values()):
        return fields
    by_name = [name for name, one in taken.items() if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    known, strange = [name for name in fields if name in by_name], [name for name in fields if name not in by_name]
    missing = [name for name in by_name if taken[name].default is inspect.Parameter.empty and name not in fields]
    if missing or not known or (strange and all_of_them):
        what = f"it needs {', '.join(missing)}" if missing else f"it does not take {', '.join(strange)}"
        raise InputError(
            f"data: a record has the fields {', '.join(fields)}; forward of {type(model).__name__} takes {', '.join(by_name) or 'none'}: "
            f"{what}.",
            source="the fields of a record, which are arguments of the model",
            remedy="rename or leave out columns: dataset.rename_column(...), dataset.remove_columns([...]), or a collate function that "
            "makes a mapping of the model's arguments.",
        )
    return tuple(known)
