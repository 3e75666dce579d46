"""Language models, encoders of text, and adapters of peft."""

from typing import Any

import torch
from torch import Tensor, nn
from zoo_member import ALONE, VMAP, Batch, Member, classes, classified, next_words, padding, tokens, told, without_chance, words

SIZES: dict[str, Any] = {
    "vocab_size": 31,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def made(name: str, config: str | None = None, **sizes: Any) -> Any:
    """A model of transformers by its class name, with random weights, without dropout."""
    import transformers

    without = ("max_position_embeddings",) if "XLNet" in name else ("num_hidden_layers",) if "Funnel" in name else ()
    sizes = {key: size for key, size in sizes.items() if key not in without}
    kind = getattr(transformers, name)
    settings = kind.config_class if config is None else getattr(transformers, config)
    return without_chance(kind(settings(**sizes)).double())


def causal_batch() -> Batch:
    ids, mask = tokens(7), padding(7)
    return {"input_ids": ids, "attention_mask": mask, "targets": ids.masked_fill(mask == 0, -100)}


def classified_batch() -> Batch:
    return {"input_ids": tokens(7), "attention_mask": padding(7), "targets": classes()}


def masked_batch() -> Batch:
    mask = padding(7)
    return {"input_ids": tokens(7), "attention_mask": mask, "targets": classes(31, 7).masked_fill(mask == 0, -100)}


def choices_batch() -> Batch:
    return {"input_ids": tokens(7, between=3), "attention_mask": padding(7)[:, None].expand(-1, 3, -1).clone(), "targets": classes()}


def spoken_batch() -> Batch:
    return {"input_ids": tokens(7), "attention_mask": padding(7), "decoder_input_ids": tokens(4), "targets": classes(31, 4)}


def checkpointed() -> Any:
    model = made("GPT2LMHeadModel", **{**SIZES, **GPT})
    model.gradient_checkpointing_enable()
    return model


def causal(name: str, **sizes: Any) -> Member:
    return Member(build=lambda: made(name, **{**SIZES, **sizes}), batch=causal_batch, losses=next_words)


def classifier(name: str, **sizes: Any) -> Member:
    return Member(build=lambda: made(name, **{**SIZES, "num_labels": 3, **sizes}), batch=classified_batch, losses=classified)


def masked(name: str, **sizes: Any) -> Member:
    return Member(build=lambda: made(name, **{**SIZES, **sizes}), batch=masked_batch, losses=words)


def chosen(name: str, **sizes: Any) -> Member:
    return Member(build=lambda: made(name, **{**SIZES, **sizes}), batch=choices_batch, losses=classified)


def translator(name: str, **sizes: Any) -> Member:
    return Member(build=lambda: made(name, **{**SIZES, **sizes}), batch=spoken_batch, losses=words)


def answered(output: Any, targets: Tensor) -> Tensor:
    """Where an answer begins and ends."""
    ends = (output.start_logits, output.end_logits)
    return torch.stack([classified(logits, targets) for logits in ends]).mean(0)


GROUPED: dict[str, Any] = {"num_key_value_heads": 1, "head_dim": 8}
EXPERTS: dict[str, Any] = {**GROUPED, "num_experts_per_tok": 2, "output_router_logits": False, "experts_implementation": "eager"}
RANKS = {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8, "moe_intermediate_size": 12}
LATENT = {**EXPERTS, **RANKS, "num_key_value_heads": 2, "head_dim": 4, "n_routed_experts": 4, "n_group": 2, "topk_group": 1}
HALVES: dict[str, Any] = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
BART: dict[str, Any] = {"d_model": 16, **HALVES, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "decoder_start_token_id": 1}
T5: dict[str, Any] = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2, "decoder_start_token_id": 1}
GPT: dict[str, Any] = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32, "n_inner": 24}
STATE_SPACE: dict[str, Any] = {"state_size": 4, "conv_kernel": 3, "expand": 2, "time_step_rank": 2}

TEXT: dict[str, Member] = {
    "GPT-2": causal("GPT2LMHeadModel", **GPT),
    "GPT-2, checkpointed": Member(build=checkpointed, batch=causal_batch, losses=next_words),
    "GPT-2, classification": classifier("GPT2ForSequenceClassification", **GPT),
    "GPT (OpenAI)": causal("OpenAIGPTLMHeadModel", **GPT),
    "GPT-Neo": causal("GPTNeoForCausalLM", attention_types=[[["global", "local"], 1]], num_layers=2, num_heads=2, window_size=4),
    "GPT-J": causal("GPTJForCausalLM", **GPT, rotary_dim=4),
    "GPT-NeoX": causal("GPTNeoXForCausalLM"),
    "GPT-BigCode": causal("GPTBigCodeForCausalLM", **GPT),
    "OPT": causal("OPTForCausalLM", ffn_dim=24, word_embed_proj_dim=16),
    "OPT, classification": classifier("OPTForSequenceClassification", ffn_dim=24, word_embed_proj_dim=12),
    "Bloom": causal("BloomForCausalLM", n_layer=2, n_head=2),
    "Falcon": causal("FalconForCausalLM"),
    "MPT": causal("MptForCausalLM", d_model=16, n_heads=2, n_layers=2, max_seq_len=32, expansion_ratio=2),
    "CTRL": causal("CTRLLMHeadModel", **{**GPT, "dff": 24}),
    "Llama": causal("LlamaForCausalLM", **GROUPED),
    "Llama, classification": classifier("LlamaForSequenceClassification", **GROUPED),
    "Mistral": causal("MistralForCausalLM", **GROUPED, sliding_window=4),
    "Qwen 2": causal("Qwen2ForCausalLM", **GROUPED),
    "Qwen 3": causal("Qwen3ForCausalLM", **GROUPED),
    "Gemma": causal("GemmaForCausalLM", **GROUPED),
    "Gemma 2": causal("Gemma2ForCausalLM", **GROUPED, sliding_window=8),
    "Gemma 3": causal("Gemma3ForCausalLM", **GROUPED, sliding_window=4),
    "Phi": causal("PhiForCausalLM"),
    "Phi 3": causal("Phi3ForCausalLM", **GROUPED),
    "StableLM": causal("StableLmForCausalLM", num_key_value_heads=1),
    "OLMo 2": causal("Olmo2ForCausalLM", num_key_value_heads=1),
    "SmolLM 3": causal("SmolLM3ForCausalLM", num_key_value_heads=1),
    "Mixtral": causal("MixtralForCausalLM", **EXPERTS, num_local_experts=4),
    "Qwen 2 MoE": causal("Qwen2MoeForCausalLM", **EXPERTS, num_experts=4, moe_intermediate_size=12, shared_expert_intermediate_size=12),
    "Qwen 3 MoE": causal("Qwen3MoeForCausalLM", **EXPERTS, num_experts=4, moe_intermediate_size=12),
    "OLMoE": causal("OlmoeForCausalLM", num_experts=4, num_experts_per_tok=2, experts_implementation="eager"),
    "GPT-OSS": causal("GptOssForCausalLM", **EXPERTS, num_local_experts=4, sliding_window=4),
    "DeepSeek V3": causal("DeepseekV3ForCausalLM", **LATENT, first_k_dense_replace=1),
    "Mamba": causal("MambaForCausalLM", **STATE_SPACE),
    "Mamba 2": causal("Mamba2ForCausalLM", state_size=4, conv_kernel=3, expand=2, num_heads=4, head_dim=8, n_groups=1, chunk_size=4),
    "RWKV": causal("RwkvForCausalLM", attention_hidden_size=16, context_length=16),
    "BERT": classifier("BertForSequenceClassification"),
    "BERT, masked words": masked("BertForMaskedLM"),
    "BERT, multiple choice": chosen("BertForMultipleChoice"),
    "BERT, question answering": Member(
        build=lambda: made("BertForQuestionAnswering", **SIZES),
        batch=lambda: {"input_ids": tokens(7), "attention_mask": padding(7), "targets": classes(7)},
        losses=answered,
    ),
    "BERT, words": Member(
        build=lambda: made("BertForTokenClassification", **SIZES, num_labels=3),
        batch=lambda: {"input_ids": tokens(7), "attention_mask": padding(7), "targets": classes(3, 7)},
        losses=words,
    ),
    "RoBERTa": classifier("RobertaForSequenceClassification"),
    "RoBERTa, multiple choice": chosen("RobertaForMultipleChoice"),
    "XLM-RoBERTa": classifier("XLMRobertaForSequenceClassification"),
    "DistilBERT": classifier("DistilBertForSequenceClassification", dim=16, n_layers=2, n_heads=2, hidden_dim=24),
    "ALBERT": classifier("AlbertForSequenceClassification", embedding_size=8),
    "ELECTRA": classifier("ElectraForSequenceClassification", embedding_size=8),
    "MPNet": classifier("MPNetForSequenceClassification"),
    "ModernBERT": classifier("ModernBertForSequenceClassification", cls_token_id=1, sep_token_id=2, global_attn_every_n_layers=2),
    "DeBERTa": classifier("DebertaForSequenceClassification", relative_attention=True, pos_att_type=["c2p", "p2c"]),
    "DeBERTa v2": classifier(
        "DebertaV2ForSequenceClassification", relative_attention=True, pos_att_type=["c2p", "p2c"], position_buckets=4
    ),
    "XLNet": classifier("XLNetForSequenceClassification", d_model=16, n_layer=2, n_head=2, d_inner=24),
    "Longformer": classifier("LongformerForSequenceClassification", attention_window=4),
    "BigBird": classifier("BigBirdForSequenceClassification", attention_type="original_full"),
    "Funnel": classifier(
        "FunnelForSequenceClassification", d_model=16, d_head=8, n_head=2, d_inner=24, block_sizes=[1, 1], num_decoder_layers=1
    ),
    "SqueezeBERT": classifier("SqueezeBertForSequenceClassification", embedding_size=16),
    "FNet": Member(
        build=lambda: made("FNetForSequenceClassification", **SIZES, num_labels=3),
        batch=lambda: {"input_ids": tokens(7), "targets": classes()},
        losses=classified,
    ),
    "T5": translator("T5ForConditionalGeneration", **T5),
    "mT5": translator("MT5ForConditionalGeneration", **T5),
    "BART": translator("BartForConditionalGeneration", **BART),
    "mBART": translator("MBartForConditionalGeneration", **BART),
    "Pegasus": translator("PegasusForConditionalGeneration", **BART),
    "Marian": translator("MarianMTModel", **BART),
}

told(
    TEXT,
    ALONE,
    {
        "Longformer": "attention keeps the records along another dimension",
        "SqueezeBERT": "it needs the memory layout that its layers have when they are not recorded",
    },
)
told(TEXT, VMAP, {"XLNet": "attention keeps the records along another dimension"})


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

# Of a Llama: the name of peft's class, and its options.
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "LoRA": ("LoraConfig", {"r": 2, "target_modules": QUERY}),
    "LoRA on an embedding": ("LoraConfig", {"r": 2, "target_modules": ["embed_tokens", "q_proj"]}),
    "DoRA": ("LoraConfig", {"r": 2, "target_modules": QUERY, "use_dora": True}),
    "AdaLoRA": ("AdaLoraConfig", {"init_r": 3, "target_r": 2, "target_modules": QUERY, "total_step": 10}),
    "IA3": ("IA3Config", {"target_modules": ["k_proj", "v_proj", "down_proj"], "feedforward_modules": ["down_proj"]}),
    "VeRA": ("VeraConfig", {"r": 2, "target_modules": ["q_proj"]}),
    "LoHa": ("LoHaConfig", {"r": 2, "target_modules": QUERY}),
    "LoKr": ("LoKrConfig", {"r": 2, "target_modules": QUERY}),
    "OFT": ("OFTConfig", {"r": 0, "oft_block_size": 4, "target_modules": QUERY}),
    "BOFT": ("BOFTConfig", {"boft_block_size": 4, "target_modules": ["q_proj"]}),
    "HRA": ("HRAConfig", {"r": 2, "target_modules": QUERY}),
    "VB-LoRA": ("VBLoRAConfig", {"r": 2, "num_vectors": 4, "vector_length": 4, "topk": 2, "target_modules": ["q_proj"]}),
    "LN tuning": ("LNTuningConfig", {"target_modules": ["input_layernorm", "post_attention_layernorm"]}),
    "prefix tuning": ("PrefixTuningConfig", {"num_virtual_tokens": 3}),
    "prefix tuning, projected": ("PrefixTuningConfig", {"num_virtual_tokens": 3, "prefix_projection": True, "encoder_hidden_size": 6}),
    "prompt tuning": ("PromptTuningConfig", {"num_virtual_tokens": 3}),
    "P-tuning": ("PromptEncoderConfig", {"num_virtual_tokens": 3, "encoder_hidden_size": 6}),
}

ADAPTERS: dict[str, Member] = {
    "LoRA": adapted("LoraConfig", **CONFIGS["LoRA"][1]),
    "LoRA on GPT-2": adapted("LoraConfig", base="GPT2LMHeadModel", r=2, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True),
    **{name: adapted(kind, **options) for name, (kind, options) in CONFIGS.items()},
}

told(ADAPTERS, ALONE, {"LoHa": "weights are put together by a function of its own, outside of the layer that uses them"})
