"""Checks of a Trainer's class, model and data set: what would make a record's loss depend on others is refused, or replaced by an equal.
`privatize`'s Trainer calls it when it is made; TRL's Trainers prepare models and data in ways that need it.
"""

from types import MethodType
from typing import Any, cast

import torch
from torch import nn
from transformers import Trainer

from lethe.errors import InputError
from lethe.integrations.transformers.on_policy import is_on_policy

_HALF = (torch.float16, torch.bfloat16)
_OWN_LOSSES = {
    "get_train_dataloader": "which records meet in a step is the batch design of the run: give train_dataset and data_collator",
    "_prepare_inputs": "change records in the data collator, or a batch in compute_loss",
    "training_step": "compute the loss of a batch in compute_loss, and leave its gradient to the private step",
}


def refuse_kind(kind: type) -> None:
    """Refuse a class that is no Trainer, or whose steps, or batches, are its own. TRL's training_step only calls the Trainer's."""
    if not issubclass(kind, Trainer):
        raise InputError(f"privatize: got {kind.__name__}; it needs a class that derives from transformers.Trainer, or an object of one.")
    for name, remedy in _OWN_LOSSES.items():
        owner = next(base for base in kind.__mro__ if name in vars(base))
        is_supported = owner.__module__.startswith("trl.") and (name == "training_step" or is_on_policy(kind))
        if owner is not Trainer and not is_supported:
            raise InputError(
                f"{name}: {owner.__name__} has one of its own, which private training does not take.",
                source="the class of the trainer",
                remedy=f"{remedy}; or train in a loop of your own: lethe.train.PrivacyEngine.",
            )


def refuse_prepared(trainer: Any, dataset: Any) -> None:
    """Refuse records that the Trainer made of several rows of the given `dataset`, or a number of them that tells of what they hold."""
    if getattr(trainer, "calculate_KL", False):
        raise InputError(
            f"loss_type: {trainer.loss_type!r} pairs each prompt with the answer of another record, and centres on the mean of the batch.",
            source=type(trainer.args).__name__,
            remedy='loss_type="apo_zero_unpaired": the same loss, centred on 0.',
        )
    # While the policy is the reference, as after a step of size 0, records seem apart: no comparison of the first batches would tell.
    if sorting := [loss_type for loss_type in getattr(trainer, "loss_types", ()) if loss_type in ("aot", "aot_unpaired")]:
        raise InputError(
            f"loss_type: {sorting[0]!r} sorts the batch: the loss of a record depends on the others.",
            source=type(trainer.args).__name__,
            remedy='loss_type="sigmoid", or another that compares the two answers of a record.',
        )
    if getattr(trainer.args, "shuffle_dataset", False) and trainer._users is not None:
        raise InputError(
            "shuffle_dataset: given with users, whose ids are in the order of the data set as it was.",
            source=type(trainer.args).__name__,
            remedy="leave it out: batches are drawn anew in each epoch.",
        )
    if "seq_lengths" in (getattr(dataset, "column_names", None) or ()):
        raise InputError("train_dataset: it has a column seq_lengths: its rows hold several conversations each.", remedy="give one a row.")
    row_count, record_count = (len(rows) if hasattr(rows, "__len__") else None for rows in (dataset, trainer.train_dataset))
    if row_count and record_count is not None and row_count != record_count:
        raise InputError(
            f"train_dataset: the trainer made {record_count} records of {row_count} rows; "
            "how many it drops or joins tells of what they hold.",
            source="rows of which truncation leaves nothing, packed rows, or pairs where each answer becomes a record",
            remedy="do it yourself, before the trainer, by a rule that may be public; or a larger max_length.",
        )


def quantised(model: nn.Module) -> bool:
    """Whether the weights of its base are in 8 or 4 bits."""
    return any(getattr(model, f"is_loaded_in_{bits}bit", False) for bits in (8, 4))


def prepared(model: nn.Module) -> None:
    """A model whose trained parameters are what its layers use, and in a type that noise can be added in.

    TRL turns adapters on a quantised model into bfloat16, which is too coarse for noise, and lets a language model compute the losses
    of tokens beside the layer that owns the head: where that layer is trained, it is called again.
    """
    if quantised(model):
        for parameter in model.parameters():
            if parameter.requires_grad and parameter.dtype in _HALF:
                parameter.data = parameter.data.float()
    for module in model.modules():
        forward_before, head = vars(module).get("forward"), cast(Any, module)
        fused = isinstance(forward_before, MethodType) and "fused_lm_head" in forward_before.__func__.__code__.co_varnames
        if fused and any(parameter.requires_grad for parameter in head.get_output_embeddings().parameters()):
            module.forward = MethodType(_with_logits(forward_before), module)


def _with_logits(fused: Any) -> Any:
    """TRL's forward pass with a fused head, by the head's own call: the same numbers of each token, of all logits at once."""
    from trl.trainer.utils import FusedCausalLMOutput

    def forward(
        self: Any, *args: Any, fused_lm_head: bool = False, labels: Any = None, num_items_in_batch: Any = None, **options: Any
    ) -> Any:
        if not fused_lm_head:
            labels_given = {"labels": labels, "num_items_in_batch": num_items_in_batch}
            return fused(*args, **{name: value for name, value in labels_given.items() if value is not None}, **options)
        outputs = fused(*args, **options)
        logits, labels = outputs.logits[:, :-1], labels[:, 1:]
        mask = labels != -100
        logs = logits.float().log_softmax(-1) if logits.dtype in _HALF else logits.log_softmax(-1)
        outputs_of = {"log_probs": logs.gather(-1, labels.clamp(min=0)[..., None])[..., 0]}
        with torch.no_grad():
            outputs_of["entropy"] = -(logs.exp() * logs).sum(-1)
            outputs_of["log_sum_sq_probs"] = (2 * logs).logsumexp(-1)
            outputs_of["mean_logits"], outputs_of["is_top1"] = logits.mean(-1), logits.argmax(-1) == labels
        outputs_of = {name: value.masked_fill(~mask, 0) for name, value in outputs_of.items()}
        loss = -outputs_of["log_probs"].sum() / (mask.sum().clamp(min=1) if num_items_in_batch is None else num_items_in_batch)
        return FusedCausalLMOutput(loss=loss, label_mask=mask, aux_loss=getattr(outputs, "aux_loss", None), **outputs_of)

    return forward
