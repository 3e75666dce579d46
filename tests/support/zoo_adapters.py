"""Adapters of peft on a small Llama, GPT-2 or T5."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from zoo_member import ALONE, PREPARED, Batch, Member, next_words, padding, tokens, told, without_chance
from zoo_text import GPT, GROUPED, SIZES, made


def adapted(kind: str, *, base: str = "LlamaForCausalLM", **options: Any) -> Member:
    def build() -> nn.Module:
        import peft

        sizes = {**SIZES, **(GPT if base.startswith("GPT2") else GROUPED)}
        config = getattr(peft, kind)(task_type="CAUSAL_LM", **options)
        model = peft.get_peft_model(made(base, **sizes), config)
        with torch.no_grad():  # adapters begin at 0: what is before or behind them would have no gradient
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.add_(0.1 * torch.randn(parameter.shape))
        return without_chance(model)

    return Member(build=build, batch=adapter_batch, losses=next_words)


def adapter_batch() -> Batch:
    ids, mask = tokens(7), padding(7)
    return {"input_ids": ids, "attention_mask": mask, "targets": ids.masked_fill(mask == 0, -100)}


QUERY = ["q_proj", "v_proj"]

ADAPTERS: dict[str, Member] = {
    "LoRA": adapted("LoraConfig", r=2, target_modules=QUERY),
    "LoRA on GPT-2": adapted("LoraConfig", base="GPT2LMHeadModel", r=2, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True),
    "LoRA on an embedding": adapted("LoraConfig", r=2, target_modules=["embed_tokens", "q_proj"]),
    "DoRA": adapted("LoraConfig", r=2, target_modules=QUERY, use_dora=True),
    "AdaLoRA": adapted("AdaLoraConfig", init_r=3, target_r=2, target_modules=QUERY, total_step=10),
    "IA3": adapted("IA3Config", target_modules=["k_proj", "v_proj", "down_proj"], feedforward_modules=["down_proj"]),
    "VeRA": adapted("VeraConfig", r=2, target_modules=["q_proj"]),
    "LoHa": adapted("LoHaConfig", r=2, target_modules=QUERY),
    "LoKr": adapted("LoKrConfig", r=2, target_modules=QUERY),
    "OFT": adapted("OFTConfig", r=0, oft_block_size=4, target_modules=QUERY),
    "BOFT": adapted("BOFTConfig", boft_block_size=4, target_modules=["q_proj"]),
    "HRA": adapted("HRAConfig", r=2, target_modules=QUERY),
    "VB-LoRA": adapted("VBLoRAConfig", r=2, num_vectors=4, vector_length=4, topk=2, target_modules=["q_proj"]),
    "LN tuning": adapted("LNTuningConfig", target_modules=["input_layernorm", "post_attention_layernorm"]),
    "prefix tuning": adapted("PrefixTuningConfig", num_virtual_tokens=3),
    "prefix tuning, projected": adapted("PrefixTuningConfig", num_virtual_tokens=3, prefix_projection=True, encoder_hidden_size=6),
    "prompt tuning": adapted("PromptTuningConfig", num_virtual_tokens=3),
    "P-tuning": adapted("PromptEncoderConfig", num_virtual_tokens=3, encoder_hidden_size=6),
}

told(
    ADAPTERS,
    ALONE,
    dict.fromkeys(("DoRA", "LoHa", "LoKr", "VB-LoRA"), PREPARED)
    | dict.fromkeys(("prompt tuning", "P-tuning"), "the prompt is made for all records, and repeated to as many as there are"),
)
