"""One loss a record of the models of transformers: each normalised by the record's own tokens, never by the batch's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.models.auto import modeling_auto

from lethe.errors import InputError

IGNORED = -100
"""The label of a token that is not predicted."""

_KINDS: tuple[tuple[str, str], ...] = (
    ("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", "causal"),
    ("MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES", "tokens"),
    ("MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES", "tokens"),
    ("MODEL_FOR_MASKED_LM_MAPPING_NAMES", "tokens"),
    ("MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES", "tokens"),
    ("MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES", "classes"),
    ("MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES", "classes"),
    ("MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES", "classes"),
    ("MODEL_FOR_VIDEO_CLASSIFICATION_MAPPING_NAMES", "classes"),
    ("MODEL_FOR_MULTIPLE_CHOICE_MAPPING_NAMES", "choices"),
    ("MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES", "answers"),
)


def kind_of(model: nn.Module) -> str | None:
    """What a model is for, by its class: "causal", "tokens", "classes", "choices" or "answers"; None: another thing."""
    kinds = [kind.__name__ for kind in type(model).__mro__]
    name = kinds[kinds.index("FSDPModule") + 1 if "FSDPModule" in kinds else 0]  # fully_shard puts itself before the class
    for mapping, kind in _KINDS:
        if name in {one for names in getattr(modeling_auto, mapping, {}).values() for one in _listed(names)}:
            return kind
    return None


def _listed(names: Any) -> tuple[str, ...]:
    return tuple(names) if isinstance(names, tuple | list) else (names,)


@dataclass(frozen=True, slots=True)
class RecordLosses:
    """The loss of each record: `losses(outputs, labels)`, shape (B,).

    A record none of whose tokens is predicted has the loss 0: it takes part like any other.

    Args:
        kind: see `kind_of`.
        smoothing: of labels, in [0, 1).
        problem_type: of a classifier: "regression", "single_label_classification", "multi_label_classification", or None: told by the
            labels.
        dynamic: weighs each token by the probability that the model gives it, without a gradient: Dynamic Fine-Tuning (Wu et al. 2025,
            arXiv:2508.05629).
    """

    kind: str
    smoothing: float = 0.0
    problem_type: str | None = None
    dynamic: bool = False

    def __call__(self, outputs: Any, labels: Tensor) -> Tensor:
        """The losses.

        Raises:
            InputError: outputs without the numbers that are needed, or labels of another shape.
        """
        if self.kind == "answers":
            return self._answers(outputs, labels)
        logits = _part(outputs, "logits")
        if self.kind == "causal":
            _require_tokens(logits, labels)
            return self._tokens(logits[:, :-1], labels[:, 1:])
        if self.kind == "tokens":
            _require_tokens(logits, labels)
            return self._tokens(logits, labels)
        return self._classes(logits, labels)

    def _tokens(self, logits: Tensor, labels: Tensor) -> Tensor:
        predicted = labels != IGNORED
        each = self._cross_entropy(logits, labels) * predicted
        if self.dynamic:
            each = each * (-each).exp().detach()
        return each.sum(1) / predicted.sum(1).clamp(min=1)

    def _cross_entropy(self, logits: Tensor, labels: Tensor) -> Tensor:
        strange = (labels >= logits.shape[-1]) | ((labels < 0) & (labels != IGNORED))
        if _any(strange):
            raise InputError(
                f"labels: one of them is {labels[strange][0].item()}; the model tells {logits.shape[-1]} classes or words apart, numbered "
                f"from 0, and {IGNORED} stands for none.",
                source="the data's labels, or num_labels or vocab_size of the model's configuration",
                remedy="number the classes from 0, and make the model with as many as there are.",
            )
        logs = -functional.log_softmax(logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits, dim=-1)
        told = logs.gather(-1, labels.clamp(0, logits.shape[-1] - 1)[..., None].long())[..., 0].masked_fill(strange, math.nan)
        return told if not self.smoothing else (1 - self.smoothing) * told + self.smoothing * logs.mean(-1)

    def _classes(self, logits: Tensor, labels: Tensor) -> Tensor:
        kind = self.problem_type or _problem(logits, labels)
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
        each = []
        for name, places in zip(("start_logits", "end_logits"), labels.unbind(1), strict=True):
            logits = _part(outputs, name)
            inside = (places >= 0) & (places < logits.shape[1])  # an answer that lies outside what was kept of the text
            each.append(self._cross_entropy(logits, places.clamp(0, logits.shape[1] - 1)) * inside)
        return (each[0] + each[1]) / 2


def _any(flags: Tensor) -> bool:
    """Whether one of them is set; under vmap, which knows no single numbers, that cannot be asked, and their losses are NaN."""
    try:
        return bool(flags.any())
    except RuntimeError:
        return False


def _part(outputs: Any, name: str) -> Tensor:
    found = cast(Mapping[str, Any], outputs).get(name) if isinstance(outputs, Mapping) else getattr(outputs, name, None)
    if not isinstance(found, Tensor):
        held = ", ".join(outputs) if isinstance(outputs, Mapping) else type(outputs).__name__
        raise InputError(
            f"the model's outputs hold no {name}: {held}.", remedy="give compute_loss_func: (outputs, labels) -> one loss a record."
        )
    return found


def _require_tokens(logits: Tensor, labels: Tensor) -> None:
    if logits.dim() != 3 or labels.shape != logits.shape[:2]:
        raise InputError(
            f"labels: got shape {tuple(labels.shape)} for outputs of shape {tuple(logits.shape)}; each token needs one label.",
            source="the data collator, or the model's outputs",
            remedy=f"pad labels as far as input_ids, with {IGNORED}.",
        )


def _problem(logits: Tensor, labels: Tensor) -> str:
    if logits.shape[-1] == 1:
        return "regression"
    return "multi_label_classification" if labels.is_floating_point() else "single_label_classification"
