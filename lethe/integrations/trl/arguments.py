"""SFTConfig under private training: what is honoured, and what is refused, by name and with its reason."""

from __future__ import annotations

from numbers import Integral

from lethe.integrations.transformers.arguments import TRAINING, Known, Needs, off, one_of

_PACKED = "a packed row holds pieces of several conversations, so that no row is one record's, whose gradient could be clipped"

_HONOURED = """
    model_init_kwargs trust_remote_code chat_template_path dataset_text_field dataset_kwargs dataset_num_proc eos_token
    truncation_mode shuffle_dataset packing_strategy pad_to_multiple_of completion_only_loss assistant_only_loss loss_type pad_token
"""
HONOURED = frozenset(_HONOURED.split())
"""Fields of SFTConfig's own that mean what they always mean; packing_strategy says nothing where nothing is packed."""

NEEDS = {
    "packing": Needs(off, _PACKED),
    "eval_packing": Needs(off, "it needs the collator of packed rows, which training does not take"),
    "padding_free": Needs(off, "it joins all conversations of a batch into one row; a record needs a row of its own"),
    "activation_offloading": Needs(off, "it is not honoured here; gradient_checkpointing=True is"),
    "max_length": Needs(
        lambda value: value is None or (isinstance(value, Integral) and int(value) >= 2),
        "of a conversation cut to fewer than two tokens none is predicted; it is a number of tokens, or None, which cuts nothing",
    ),
    "router_aux_loss_coef": Needs(
        one_of(None, 0.0), "the load-balancing loss of experts is of the whole batch: each record would move the gradients of all others"
    ),
}

SFT = Known(TRAINING.honoured | HONOURED, {**TRAINING.needs, **NEEDS})
"""Of all fields of an SFTConfig."""
