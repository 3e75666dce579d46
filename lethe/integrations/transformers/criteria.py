"""The loss function of a Trainer's model, record by record, and its agreement with the model's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers.utils.generic import find_labels

from lethe.errors import InputError, LetheError
from lethe.integrations.transformers.losses import RecordLosses, kind_of
from lethe.train.core.comparison import FAILURES, first_line
from lethe.train.data.map_style import MapStyleSource

Criterion = Callable[[Any, Tensor], Tensor]
"""Outputs and labels to one loss a record, shape (B,)."""

_FUNCTION = "give compute_loss_func: (outputs, labels, num_items_in_batch=None) -> one loss a record, shape (B,)."
_CHECK = "the check of the loss: single records before training"
_LOOKED_AT = 3  # records whose loss is compared with the model's own
_ALLOWED = {False: 1e-5, True: 2e-2}  # relative, in single precision and in half


def criterion_of(model: nn.Module, smoothing: float, function: Callable[..., Any] | None) -> Criterion:
    """The loss function.

    Args:
        model: of transformers, or one that PEFT made of one.
        smoothing: label_smoothing_factor.
        function: compute_loss_func of the Trainer; None: the model's own kind of loss.
    Raises:
        InputError: a model whose loss is not known, or a smoothing that has no meaning.
    """
    if function is not None:
        return partial(function, num_items_in_batch=None)
    bare = bare_model(model)
    kind = kind_of(bare)
    if kind is None:
        raise InputError(
            f"model: what the loss of one record is, is not known of {type(bare).__name__}.", source="the model's class", remedy=_FUNCTION
        )
    return RecordLosses(kind, float(smoothing), getattr(getattr(bare, "config", None), "problem_type", None))


def record_losses(model: nn.Module, *, label_smoothing: float = 0.0) -> Callable[[Any, Mapping[str, Tensor]], Tensor]:
    """The loss of each record of a model of transformers, normalised by the record's own tokens: `fit(model, record_losses(model), ...)`.

    It is the model's own loss of the record alone, computed of a whole batch at once: a function of the model's outputs and of the batch,
    which holds the labels, to losses of shape (B,).

    Args:
        model: of transformers, or one that PEFT made of one; called with the fields of a record, labels among them.
        label_smoothing: in [0, 1).
    Raises:
        InputError: a model whose loss is not known: leave the loss out (`fit(model, None, ...)`), and each record passes through it alone.
            Of the function: no batch, no labels in it, or outputs or labels of another shape.
    """
    if not 0 <= label_smoothing < 1:
        raise InputError(f"label_smoothing: got {label_smoothing!r}; it needs a number in [0, 1).")
    criterion = criterion_of(model, label_smoothing, None)
    names = tuple(find_labels(type(bare_model(model)))) or ("labels",)

    def losses(outputs: Any, batch: Mapping[str, Tensor]) -> Tensor:
        if not isinstance(batch, Mapping):
            raise InputError(
                f"record_losses: got a {type(batch).__name__}; it needs the batch, whose labels it finds by their name.",
                remedy="losses=lambda batch: criterion(model(**batch), batch), with criterion = record_losses(model).",
            )
        return criterion(outputs, labels_of(batch, names)[1])

    return losses


def bare_model(model: nn.Module) -> nn.Module:
    """The model of transformers within what PEFT wraps around it."""
    unwrapped: Any = getattr(model, "get_base_model", None)
    return cast(nn.Module, unwrapped()) if callable(unwrapped) else model


def labels_of(inputs: Mapping[str, Tensor], names: Sequence[str]) -> tuple[dict[str, Tensor], Tensor]:
    """The model's arguments without labels, and the labels; the two ends of an answer as one tensor of shape (B, 2).

    Raises:
        InputError: there are none, or others than a loss of a record is known for.
    """
    there = [name for name in names if name in inputs]
    arguments = {name: value for name, value in inputs.items() if name not in there}
    if len(there) == 1:
        return arguments, inputs[there[0]]
    if there == ["start_positions", "end_positions"]:
        return arguments, torch.stack([inputs[name].reshape(-1) for name in there], dim=1)
    collator = (
        " (for a language model DataCollatorForLanguageModeling(tokenizer, mlm=False))" if not there and "input_ids" in inputs else ""
    )
    raise InputError(
        f"labels: a batch holds {', '.join(inputs)}; of the labels ({', '.join(names)}) it has {', '.join(there) or 'none'}.",
        source="the data collator, label_names",
        remedy=f"name the numeric column that holds them (label_names=[...]){collator}; for several, override compute_loss.",
    )


def with_decoder_inputs(model: nn.Module, arguments: dict[str, Tensor], labels: Tensor) -> dict[str, Tensor]:
    """The arguments, of an encoder and decoder with what the decoder reads: the labels, shifted as the model shifts them.

    Args:
        model: of transformers.
        arguments: by name, of shapes (B, ...).
        labels: shape (B, T).
    """
    bare = bare_model(model)
    shift: Any = getattr(bare, "prepare_decoder_input_ids_from_labels", None)
    if not getattr(getattr(bare, "config", None), "is_encoder_decoder", False) or "decoder_input_ids" in arguments:
        return arguments
    return {**arguments, "decoder_input_ids": cast(Tensor, shift(labels=labels))} if callable(shift) else arguments


@torch.no_grad()
def refuse_other_loss(
    losses: Callable[[dict[str, Tensor]], Tensor],
    own: Callable[[dict[str, Tensor]], Any],
    model: nn.Module,
    source: MapStyleSource,
    *,
    half: bool,
) -> None:
    """Refuse a model whose own loss of a record alone is another one: it has terms that are not known here.

    Args:
        losses: of a batch, that training would take.
        own: the Trainer's loss of a batch.
        model: is asked in eval mode, and is afterwards as it was.
        source: of the records.
        half: whether it computes in half precision.
    Raises:
        InputError: see above, or a record of which nothing is computed.
    """
    training = {module: module.training for module in model.modules()}
    device, last = next(model.parameters()).device, len(source) - 1
    try:
        model.eval()
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            for place in sorted({last * step // max(1, _LOOKED_AT - 1) for step in range(_LOOKED_AT)}):
                parts = (part.to(device) for part in source.fetch(slice(place, place + 1)))
                batch = dict(zip(source.fields or (), parts, strict=True))
                ours, theirs = float(_computed(losses, batch)), float(own(dict(batch)))
                if math.isfinite(theirs) and math.isfinite(ours) and abs(ours - theirs) > _ALLOWED[half] * max(1.0, abs(theirs)):
                    raise InputError(
                        f"model: its own loss of a record alone is not that which is known of {type(bare_model(model)).__name__}.",
                        source=_CHECK,
                        remedy=_FUNCTION,
                    )
    finally:
        for module, mode in training.items():
            module.training = mode


def _computed(losses: Callable[[dict[str, Tensor]], Tensor], batch: dict[str, Tensor]) -> Tensor:
    try:
        return losses(batch)
    except FAILURES as error:
        if isinstance(error, LetheError | torch.OutOfMemoryError):
            raise
        raise InputError(
            f"model: forward fails on a record alone, with {', '.join(batch)}: {type(error).__name__}: {first_line(error)}",
            source=_CHECK,
            remedy="tokenise texts; look for tokens beyond len(tokenizer) or config.vocab_size, and for texts beyond "
            "config.max_position_embeddings.",
        ) from error
