"""PrivateSFTTrainer: TRL's SFTTrainer, whose steps are those of a PrivacyEngine."""

import copy
import inspect
from numbers import Integral
from typing import Any, ClassVar, cast

import torch
from torch import nn
from trl.trainer.sft_trainer import SFTTrainer

from lethe.errors import InputError
from lethe.integrations.training import LogicalBatches
from lethe.integrations.transformers.arguments import TRAINING, Known, Needs, off, one_of, refuse_arguments, refuse_evaluated
from lethe.integrations.transformers.losses import RecordLosses
from lethe.integrations.transformers.trainer import PrivateTrainer

_HONOURED = """
    model_init_kwargs trust_remote_code chat_template_path dataset_text_field dataset_kwargs dataset_num_proc eos_token
    truncation_mode shuffle_dataset packing_strategy pad_to_multiple_of completion_only_loss assistant_only_loss loss_type pad_token
"""
HONOURED = frozenset(_HONOURED.split())
"""Fields of SFTConfig's own that mean what they always mean; packing_strategy says nothing where nothing is packed."""
NEEDS = {
    "packing": Needs(off, "give one conversation a row: a packed row is of several, and is no record whose gradient could be clipped"),
    "padding_free": Needs(off, "leave it out: it joins all conversations of a batch into one row; a record needs a row of its own"),
    "max_length": Needs(
        lambda value: value is None or (isinstance(value, Integral) and int(value) >= 2),
        "give a number of tokens, at least 2: of fewer none is predicted; or None, which cuts nothing",
    ),
    "router_aux_loss_coef": Needs(one_of(None, 0.0), "set it to 0: the load-balancing loss of experts is one of the whole batch"),
}
SFT = Known(TRAINING.honoured | HONOURED, {**TRAINING.needs, **NEEDS})
"""Of all fields of an SFTConfig."""
_HALF = (torch.float16, torch.bfloat16)


class PrivateSFTTrainer(PrivateTrainer, SFTTrainer):
    r"""TRL's `SFTTrainer` that trains privately: the same arguments, and (epsilon, delta) or a Run; one record is one conversation.

        args = SFTConfig(output_dir="tuned", completion_only_loss=True)
        trainer = PrivateSFTTrainer(model=model, args=args, train_dataset=dataset, processing_class=tokenizer, epsilon=3.0, delta=1e-5)
        trainer.train()
        trainer.certificate_

    Texts, prompts with completions, and messages are tokenised as TRL does it, chat templates, `formatting_func`, truncation and
    `peft_config` included. A record's loss is the mean over the tokens that *it* predicts (of completions or of the assistant alone, if so
    asked), where TRL's is the mean over all tokens of the batch. A conversation of which truncation leaves no token to predict
    stays a record, with loss 0: TRL drops it, and then the number of records, which is public, would tell of what is in them.

    Refused, with the reason: packing and padding-free batches, offloading of activations, and the load-balancing loss of experts.
    TRL's telemetry is not sent. For all else see `PrivateTrainer`.

    Args:
        args: positional arguments of the SFTTrainer, in its order.
        others: arguments of the SFTTrainer, and of `PrivateTrainer` (epsilon, delta, run, neighbours and so on), by name.
    Raises:
        InputError: arguments that cannot be used.
        CalibrationError: no noise meets the target.
    """

    _KNOWN: ClassVar[Known] = SFT

    def __init__(self, *args: Any, **others: Any) -> None:
        names = [name for name in inspect.signature(SFTTrainer.__init__).parameters if name != "self"]
        given = {**dict(zip(names, args, strict=False)), **others}
        config = given.get("args")
        if config is None:
            raise InputError(
                "args: none were given.", remedy='PrivateSFTTrainer(..., args=SFTConfig(output_dir="tuned", max_grad_norm=1.0)).'
            )
        refuse_arguments(config, self._KNOWN)
        _refuse_data(given.get("train_dataset"))
        refuse_evaluated(given.get("train_dataset"), given.get("eval_dataset"))
        super().__init__(**given)
        if self.aux_loss_enabled:
            raise InputError(
                f"router_aux_loss_coef: {type(self.model).__name__} adds a loss of the whole batch, that of its experts' load.",
                source="the model's configuration",
                remedy="SFTConfig(router_aux_loss_coef=0.0).",
            )
        _in_single_precision(cast(nn.Module, self.model))

    def _send_telemetry(self) -> None:
        """Nothing is sent."""

    def _prepare_dataset(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, dataset: Any, processing_class: Any, args: Any, packing: bool, formatting_func: Any, dataset_name: str
    ) -> Any:
        """As SFTTrainer does it; of the training records none is dropped."""
        whole, longest = copy.copy(args), args.max_length if dataset_name == "train" else None
        if longest is not None:
            whole.max_length = None
        try:
            prepared: Any = super()._prepare_dataset(dataset, processing_class, whole, packing, formatting_func, dataset_name)
        except KeyError as error:
            raise InputError(
                f"{dataset_name}_dataset: it has the columns {', '.join(dataset.column_names)}; TRL looks for {error}.",
                source=f"{dataset_name}_dataset, SFTConfig",
                remedy="name the column of texts (SFTConfig(dataset_text_field=...)), or give prompt and completion, messages, or "
                "formatting_func.",
            ) from error
        if longest is None:
            return prepared
        kept = slice(None, longest) if args.truncation_mode == "keep_start" else slice(-longest, None)
        return prepared.map(lambda record: {name: record[name][kept] for name in ("input_ids", "labels")})

    def _own_criterion(self, model: Any) -> Any:
        if self.args.loss_type == "dft" and self.compute_loss_func is None:  # pyright: ignore[reportAttributeAccessIssue]
            return RecordLosses("causal", dynamic=True)
        return super()._own_criterion(model)

    def _open(self, batches: LogicalBatches) -> None:
        super()._open(batches)
        for kept in self._metrics.values():  # of the records whose loss was compared with the model's own
            kept.clear()


def _refuse_data(dataset: Any) -> None:
    if hasattr(dataset, "column_names") and hasattr(dataset, "__len__") and not len(dataset):
        raise InputError(
            "train_dataset: it has no records; it needs at least one.", source="train_dataset", remedy="look at len(train_dataset)."
        )
    if "seq_lengths" in (getattr(dataset, "column_names", None) or ()):
        raise InputError(
            "train_dataset: it has a column seq_lengths: its rows hold several conversations each.",
            source="a data set that was packed before",
            remedy="give one conversation a row, and packing=False.",
        )


def _in_single_precision(model: nn.Module) -> None:
    """Adapters on a quantised model in float32 again: TRL turns them into bfloat16, which is too coarse for noise."""
    if getattr(model, "is_loaded_in_8bit", False) or getattr(model, "is_loaded_in_4bit", False):
        for parameter in model.parameters():
            if parameter.requires_grad and parameter.dtype in _HALF:
                parameter.data = parameter.data.float()
