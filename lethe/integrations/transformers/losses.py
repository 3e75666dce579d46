"""One loss a record from a transformers model or Trainer, whose own loss is a mean over the tokens of the whole batch. Such a mean cannot
be clipped by record. The loop (loop.py) calls `loss_of`; users of `fit` call `record_losses`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.models.auto import modeling_auto
from transformers.utils.generic import find_labels

from lethe.errors import InputError
from lethe.train.clip.isolated import MeanLoss

IGNORED = -100
"""The label of a token that is not predicted."""

# Kinds of losses, and the tasks that have them: transformers' own tables, MODEL_FOR_..._MAPPING_NAMES. The first that names a model counts.
_KINDS = {
    "causal": "CAUSAL_LM",
    "tokens": "SEQ_TO_SEQ_CAUSAL_LM SPEECH_SEQ_2_SEQ MASKED_LM TOKEN_CLASSIFICATION",
    "classes": "SEQUENCE_CLASSIFICATION IMAGE_CLASSIFICATION AUDIO_CLASSIFICATION VIDEO_CLASSIFICATION",
    "choices": "MULTIPLE_CHOICE",
    "answers": "QUESTION_ANSWERING",
}


def kind_of(model: nn.Module) -> str | None:
    """What a model is for, by its class: "causal", "tokens", "classes", "choices" or "answers"; None: another thing."""
    kinds = [kind.__name__ for kind in type(model).__mro__]
    name = kinds[kinds.index("FSDPModule") + 1 if "FSDPModule" in kinds else 0]  # fully_shard puts itself before the class
    for kind, tasks in _KINDS.items():
        for task in tasks.split():
            models: dict[str, Any] = getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES", {})
            if any(name in names if isinstance(names, tuple | list) else name == names for names in models.values()):
                return kind
    return None


@dataclass(frozen=True, slots=True)
class RecordLosses:
    """The loss of each record: `losses(outputs, labels)`, shape (B,), of a kind of `kind_of`, with labels smoothed by a share in [0, 1).

    A record none of whose tokens is predicted has the loss 0: it takes part like any other. A problem_type of None is told by the labels.
    """

    kind: str
    smoothing: float = 0.0
    problem_type: str | None = None

    def __call__(self, outputs: Any, labels: Tensor) -> Tensor:
        """The losses; an error of outputs without the numbers that are needed, or labels of another shape."""
        if self.kind == "answers":
            return self._answers(outputs, labels)
        logits = _part(outputs, "logits")
        if self.kind not in ("causal", "tokens"):
            return self._classes(logits, labels)
        if logits.dim() != 3 or labels.shape != logits.shape[:2]:
            raise InputError(
                f"labels: got shape {tuple(labels.shape)} for outputs of shape {tuple(logits.shape)}; each token needs one label.",
                source="the data collator, or the model's outputs",
                remedy=f"pad labels as far as input_ids, with {IGNORED}.",
            )
        return self._tokens(logits, labels) if self.kind == "tokens" else self._tokens(logits[:, :-1], labels[:, 1:])

    def _tokens(self, logits: Tensor, labels: Tensor) -> Tensor:
        predicted = labels != IGNORED
        each = self._cross_entropy(logits, labels) * predicted
        return each.sum(1) / predicted.sum(1).clamp(min=1)

    def _cross_entropy(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Cross entropy of each position, 0 where the label is ignored; an error for labels outside the classes."""
        strange = (labels >= logits.shape[-1]) | ((labels < 0) & (labels != IGNORED))
        if _any(strange):
            raise InputError(
                f"labels: one of them is {labels[strange][0].item()}; the model tells {logits.shape[-1]} classes or words apart, numbered "
                f"from 0, and {IGNORED} stands for none.",
                source="the data's labels, or num_labels or vocab_size of the model's configuration",
                remedy="number the classes from 0, and make the model with as many as there are.",
            )
        logs = -functional.log_softmax(logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits, dim=-1)
        log_likelihood = logs.gather(-1, labels.clamp(0, logits.shape[-1] - 1)[..., None].long())[..., 0].masked_fill(strange, math.nan)
        return log_likelihood if not self.smoothing else (1 - self.smoothing) * log_likelihood + self.smoothing * logs.mean(-1)

    def _classes(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of classification, or regression, of each record."""
        several = "multi_label_classification" if labels.is_floating_point() else "single_label_classification"
        kind = self.problem_type or ("regression" if logits.shape[-1] == 1 else several)
        if self.kind == "choices" or kind == "single_label_classification":
            flat = labels.reshape(len(logits), -1)
            if flat.shape[1] != 1:
                raise InputError(f"labels: got shape {tuple(labels.shape)}; it needs one class a record, shape ({len(logits)},).")
            return self._cross_entropy(logits, flat[:, 0]) * (flat[:, 0] != IGNORED)
        if self.smoothing:
            raise InputError(f"label_smoothing_factor: given, and the labels are those of a {kind}.", remedy="leave it out.")
        if labels.numel() != logits.numel():
            raise InputError(
                f"labels: got shape {tuple(labels.shape)} of a {kind}, for outputs of shape {tuple(logits.shape)}.",
                source="the data's labels, which are several classes a record where they are no whole numbers; or problem_type, num_labels",
                remedy="give a class as a whole number; a number to come close to needs a model with num_labels=1.",
            )
        targets = labels.reshape(logits.shape).to(logits.dtype)
        if kind == "regression":
            return (logits - targets).square().flatten(1).mean(1)
        return functional.binary_cross_entropy_with_logits(logits, targets, reduction="none").flatten(1).mean(1)

    def _answers(self, outputs: Any, labels: Tensor) -> Tensor:
        """The loss of extractive question answering: the mean of start and end."""
        each = []
        for name, positions in zip(("start_logits", "end_logits"), labels.unbind(1), strict=True):
            logits = _part(outputs, name)
            inside = (positions >= 0) & (positions < logits.shape[1])  # an answer that lies outside what was kept of the text
            each.append(self._cross_entropy(logits, positions.clamp(0, logits.shape[1] - 1)) * inside)
        return (each[0] + each[1]) / 2


def _any(flags: Tensor) -> bool:
    """Whether one of them is set; under vmap, which knows no single numbers, that cannot be asked, and their losses are NaN."""
    try:
        return bool(flags.any())
    except RuntimeError:
        return False


def _part(outputs: Any, name: str) -> Tensor:
    """A tensor of the model's outputs by name; an error where there is none."""
    part = cast(Mapping[str, Any], outputs).get(name) if isinstance(outputs, Mapping) else getattr(outputs, name, None)
    if not isinstance(part, Tensor):
        names = ", ".join(outputs) if isinstance(outputs, Mapping) else type(outputs).__name__
        raise InputError(
            f"the model's outputs hold no {name}: {names}.", remedy="give a loss function: (outputs, batch) -> one loss a record."
        )
    return part


Criterion = Callable[[Any, Tensor], Tensor]
"""Outputs and labels to one loss a record, shape (B,)."""


def criterion_of(model: nn.Module, smoothing: float) -> Criterion:
    """The loss function of the model's kind; an error where the kind is not known."""
    bare = _bare(model)
    kind = kind_of(bare)
    if kind is None:
        raise InputError(
            f"model: what the loss of one record is, is not known of {type(bare).__name__}.",
            source="the model's class",
            remedy="leave the loss out: fit(model, None, ...) takes the model's own, of one record after another.",
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
    criterion = criterion_of(model, label_smoothing)
    names = tuple(find_labels(type(_bare(model)))) or ("labels",)

    def losses(outputs: Any, batch: Mapping[str, Tensor]) -> Tensor:
        if not isinstance(batch, Mapping):
            raise InputError(
                f"record_losses: got a {type(batch).__name__}; it needs the batch, whose labels it finds by their name.",
                remedy="losses=lambda batch: criterion(model(**batch), batch), with criterion = record_losses(model).",
            )
        return criterion(outputs, labels_of(batch, names)[1])

    return losses


def _bare(model: nn.Module) -> nn.Module:
    """The model of transformers within what PEFT wraps around it."""
    unwrapped: Any = getattr(model, "get_base_model", None)
    return cast(nn.Module, unwrapped()) if callable(unwrapped) else model


def labels_of(inputs: Mapping[str, Tensor], names: Sequence[str]) -> tuple[dict[str, Tensor], Tensor]:
    """The model's arguments without labels, and the labels, of which there need to be those that a loss of a record is known for; the two
    ends of an answer as one tensor of shape (B, 2)."""
    present = [name for name in names if name in inputs]
    arguments = {name: value for name, value in inputs.items() if name not in present}
    if len(present) == 1:
        return arguments, inputs[present[0]]
    if present == ["start_positions", "end_positions"]:
        return arguments, torch.stack([inputs[name].reshape(-1) for name in present], dim=1)
    collator = (
        " (for a language model DataCollatorForLanguageModeling(tokenizer, mlm=False))" if not present and "input_ids" in inputs else ""
    )
    raise InputError(
        f"labels: a batch holds {', '.join(inputs)}; of the labels ({', '.join(names)}) it has {', '.join(present) or 'none'}.",
        source="the data collator",
        remedy=f"give the column that holds them the name that the model has for it{collator}; for several, a loss of your own.",
    )


# Losses of TRL's DPOTrainer that are a mean over pairs of each one's own.
_OF_PAIRS = {"sigmoid", "sigmoid_norm", "hinge", "ipo", "exo_pair", "nca_pair", "robust", "bco_pair", "sppo_hard", "apo_zero", "apo_down"}


def is_known_mean(trainer: Any) -> bool:
    """Whether the one number of compute_loss is a mean over items, each of one record, in every batch: of losses known by their code alone.

    No check of some batches tells: weights of classes, divided by their sum, are such a mean until a rare class comes.
    """
    owner = next(base for base in type(trainer).__mro__ if "compute_loss" in vars(base))
    family, loss_function = owner.__module__.split(".")[0], trainer.compute_loss_func
    if family not in ("transformers", "trl") or (
        loss_function is not None and not str(getattr(loss_function, "__module__", "")).startswith("trl.")
    ):
        return False
    if family == "trl" and owner.__name__ != "SFTTrainer":
        pairs = owner.__name__ == "DPOTrainer" and set(trainer.loss_types) <= _OF_PAIRS and not trainer.use_weighting
        return pairs or owner.__name__ == "RewardTrainer"
    model = _bare(trainer.accelerator.unwrap_model(trainer.model))
    return (
        kind_of(model) is not None and "_loss_function" not in vars(model) and (len(trainer.label_names) < 2 or kind_of(model) == "answers")
    )


def loss_of(loss: Any, counts: Tensor) -> Tensor | MeanLoss:
    """What compute_loss gives: one loss a record, or one number, a mean over records or items, of which each record has `counts`, (B,)."""
    if isinstance(loss, Tensor) and loss.shape in (counts.shape, (len(counts), 1)):
        return loss.reshape(len(counts))
    if isinstance(loss, Tensor) and loss.numel() == 1:
        return MeanLoss(loss.reshape(()), counts)
    raise InputError(
        f"compute_loss: gives {f'shape {tuple(loss.shape)}' if isinstance(loss, Tensor) else type(loss).__name__}; it needs one number, or "
        f"one loss a record, shape ({len(counts)},).",
        source="the Trainer's compute_loss, or compute_loss_func",
        remedy="return the mean over the batch, or what reduction='none' gives of each record.",
    )
