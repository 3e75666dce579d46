"""One small trainer of every kind that people fine-tune with, of transformers and of TRL, on random models in float64."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from conversations import PAIRS, TEXTS, WORDS, said, tokenizer
from datasets import Dataset
from small_models import RECORDS, SIZES, arguments, classifier, language_model, padded, sentences, texts
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForQuestionAnswering,
    BertForTokenClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    GPT2LMHeadModel,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    T5Config,
    T5ForConditionalGeneration,
    Trainer,
    Wav2Vec2Config,
    Wav2Vec2ForCTC,
    WhisperConfig,
    WhisperForConditionalGeneration,
)
from trl.trainer.dpo_config import DPOConfig
from trl.trainer.dpo_trainer import DPOTrainer
from trl.trainer.kto_config import KTOConfig
from trl.trainer.kto_trainer import KTOTrainer
from trl.trainer.reward_config import RewardConfig
from trl.trainer.reward_trainer import RewardTrainer
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

SGD: dict[str, Any] = {"optim": "sgd", "learning_rate": 0.1, "lr_scheduler_type": "constant", "max_steps": 1}
QUIET: dict[str, Any] = {"use_cpu": True, "bf16": False, "disable_tqdm": True, "report_to": "none", "save_strategy": "no"}
QUIET |= {"logging_strategy": "no", "gradient_checkpointing": False, "per_device_train_batch_size": 5}

PREFERRED = [
    {"prompt": said(2 + place % 3), "chosen": " " + said(1 + place % 4), "rejected": " " + said(2 + place % 3)} for place in range(RECORDS)
]
JUDGED = [{**pair, "label": place % 3 > 0} for place, pair in enumerate(PAIRS)]
STILL: dict[str, Any] = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def bert(kind: Any, **changes: Any) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return kind(BertConfig(**SIZES, **STILL, **changes)).double()


def t5() -> Any:
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2, "vocab_size": 40, "dropout_rate": 0.0}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return T5ForConditionalGeneration(T5Config(**sizes, decoder_start_token_id=0, pad_token_id=0)).double()


def wav2vec2(norm: str = "layer", **changes: Any) -> Any:
    """Its layers' norms are of one moment; those of groups are of all, padding included."""
    sizes = {"vocab_size": 12, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    front = {"conv_dim": [8, 8], "conv_stride": [5, 2], "conv_kernel": [10, 3], "num_conv_pos_embeddings": 4}
    still = {"apply_spec_augment": False, "layerdrop": 0.0, "feat_proj_dropout": 0.0, "final_dropout": 0.0, "hidden_dropout": 0.0}
    still |= {"attention_dropout": 0.0, "activation_dropout": 0.0, "num_conv_pos_embedding_groups": 2, "pad_token_id": 0}
    stable = {"feat_extract_norm": norm, "do_stable_layer_norm": norm == "layer", **changes}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model: Any = Wav2Vec2ForCTC(Wav2Vec2Config(**{**sizes, **front, **still, **stable})).double()
    model.wav2vec2.masked_spec_embed.requires_grad_(bool(changes.get("apply_spec_augment")))
    return model


def whisper() -> Any:
    sizes = {"vocab_size": 40, "num_mel_bins": 4, "encoder_layers": 1, "decoder_layers": 1, "d_model": 16, "max_source_positions": 12}
    sizes |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24}
    words = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, "max_target_positions": 12}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = WhisperForConditionalGeneration(
            WhisperConfig(**sizes, **words, dropout=0.0, suppress_tokens=None, begin_suppress_tokens=None)
        )
    return model.double()


def _spoken(name: str, place: int, *shape: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(place)
    return {
        name: torch.randn(*shape, generator=generator).double(),
        "labels": torch.randint(3, 12, (3 + place % 3,), generator=generator),
    }


SOUNDS = [_spoken("input_values", place, 400 + 40 * (place % 4)) for place in range(RECORDS)]
SPECTRA = [_spoken("input_features", place, 4, 24) for place in range(RECORDS)]


def of_sounds(records: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    heard = [record["input_values"] for record in records]
    return {
        "input_values": pad_sequence(heard, batch_first=True),
        "attention_mask": pad_sequence([torch.ones_like(one).long() for one in heard], batch_first=True),
        "labels": pad_sequence([record["labels"] for record in records], batch_first=True, padding_value=-100),
    }


def of_spectra(records: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    labels = pad_sequence([record["labels"] for record in records], batch_first=True, padding_value=-100)
    return {"input_features": torch.stack([record["input_features"] for record in records]), "labels": labels}


def gpt2(kind: Any = GPT2LMHeadModel, **changes: Any) -> Any:
    """All of it in float64, where a Llama normalises and turns in float32."""
    sizes = {"vocab_size": len(WORDS), "n_positions": 24, "n_embd": 16, "n_layer": 1, "n_head": 2, "bos_token_id": 1, "eos_token_id": 1}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return kind(GPT2Config(**sizes, pad_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **changes)).double()


def answers(*, outside: bool) -> list[dict[str, Any]]:
    """Where answers begin and end; with some that lie outside their texts."""
    rows = [{name: record[name] for name in ("input_ids", "attention_mask")} for record in sentences()]
    return [
        {**row, "start_positions": place % 6, "end_positions": 20 if outside and place % 4 == 1 else 7} for place, row in enumerate(rows)
    ]


def tagged() -> list[dict[str, Any]]:
    return [{**record, "labels": [token % 3 if token % 4 else -100 for token in record["input_ids"]]} for record in texts()]


def hidden(records: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Every third token is to be found, which no chance decides."""
    batch = padded(records)
    found = (batch["input_ids"] % 3 == 0) & (batch["attention_mask"] == 1)
    return {**batch, "labels": batch["input_ids"].masked_fill(~found, -100), "input_ids": batch["input_ids"].masked_fill(found, 3)}


def of_transformers(make: Callable[[], Any], data: Any, collator: Any = padded, kind: Any = Trainer, **changes: Any) -> Callable[..., Any]:
    def made(folder: Path | str, **others: Any) -> Any:
        args = arguments(folder, **{**SGD, "per_device_train_batch_size": 5, **changes, **others})
        if kind is Seq2SeqTrainer:
            args = Seq2SeqTrainingArguments(output_dir=str(folder), **{**QUIET, **SGD, **changes, **others})
        return kind(model=make(), args=args, train_dataset=data, data_collator=collator)

    return made


def of_trl(kind: Any, config: Any, data: Any, make: Callable[[], Any] = gpt2, ref: bool = False, **changes: Any) -> Callable[..., Any]:
    def made(folder: Path | str, **others: Any) -> Any:
        args = config(output_dir=str(folder), **{**QUIET, **SGD, **changes, **others})
        frozen = {"ref_model": make()} if ref else {}
        return kind(model=make(), args=args, train_dataset=Dataset.from_list(data), processing_class=tokenizer(), **frozen)

    return made


TRAINERS: Mapping[str, tuple[Callable[..., Any], str]] = {
    "classification": (of_transformers(classifier, sentences(length=None)), "fast"),
    "tokens": (of_transformers(lambda: bert(BertForTokenClassification, num_labels=3), tagged()), "fast"),
    "masked": (of_transformers(lambda: bert(BertForMaskedLM), sentences(length=None), hidden), "fast"),
    "answers": (of_transformers(lambda: bert(BertForQuestionAnswering), answers(outside=False)), "fast"),
    "answers outside": (of_transformers(lambda: bert(BertForQuestionAnswering), answers(outside=True)), "alone"),
    "smoothed": (of_transformers(language_model, texts(), label_smoothing_factor=0.1), "fast"),
    "speech, by its sounds": (of_transformers(wav2vec2, SOUNDS, of_sounds), "alone"),
    "speech, by its words": (of_transformers(whisper, SPECTRA, of_spectra, kind=Seq2SeqTrainer), "fast"),
    "seq2seq": (of_transformers(t5, texts(), kind=Seq2SeqTrainer), "fast"),
    "sft": (of_trl(SFTTrainer, SFTConfig, TEXTS), "fast"),
    "sft dft": (of_trl(SFTTrainer, SFTConfig, PAIRS, loss_type="dft"), "fast"),
    "dpo": (of_trl(DPOTrainer, DPOConfig, PREFERRED, ref=True), "fast"),
    "dpo precomputed": (of_trl(DPOTrainer, DPOConfig, PREFERRED, precompute_ref_log_probs=True), "fast"),
    "kto": (of_trl(KTOTrainer, KTOConfig, JUDGED, ref=True, loss_type="apo_zero_unpaired"), "alone"),
    "orpo": (of_trl(ORPOTrainer, ORPOConfig, PREFERRED, max_length=24), "alone"),
    "reward": (of_trl(RewardTrainer, RewardConfig, PREFERRED, make=lambda: gpt2(GPT2ForSequenceClassification, num_labels=1)), "fast"),
}
"""name -> (folder and changed arguments -> a Trainer), and the way in which its records' gradients are computed."""
