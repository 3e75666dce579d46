"""Small models of transformers with random weights, their records, and Trainers for them."""

from pathlib import Path
from typing import Any

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    TrainingArguments,
)

import lethe
from lethe.integrations.transformers import PrivateTrainer

WORDS, CLASSES, RECORDS, DELTA = 40, 3, 24, 1e-3
SIZES: dict[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 12,
}


def classifier(**changes: Any) -> BertForSequenceClassification:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        plain = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "num_labels": CLASSES}
        return BertForSequenceClassification(BertConfig(**{**SIZES, **plain, **changes})).double()


def language_model(**changes: Any) -> LlamaForCausalLM:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        tokens = {"num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
        return LlamaForCausalLM(LlamaConfig(**{**SIZES, **tokens, **changes})).double()


def gpt2() -> GPT2LMHeadModel:
    sizes = {"vocab_size": WORDS, "n_positions": 12, "n_embd": 16, "n_layer": 1, "n_head": 2, "bos_token_id": 1, "eos_token_id": 2}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return GPT2LMHeadModel(GPT2Config(**sizes, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)).double()


def sentences(records: int = RECORDS, *, length: int | None = 8) -> list[dict[str, Any]]:
    """Records of a classifier: all of one length, or of lengths of their own."""
    random = torch.Generator().manual_seed(1)
    made = []
    for place in range(records):
        own = 4 + place % 5 if length is None else length
        tokens = torch.randint(1, WORDS, (own,), generator=random).tolist()
        made.append({"input_ids": tokens, "attention_mask": [1] * own, "labels": place % CLASSES})
    return made


def padded(records: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """A collator that pads to the longest of the batch; labels of tokens with -100."""
    longest = max(len(record["input_ids"]) for record in records)
    fillers = {"input_ids": 0, "attention_mask": 0, "labels": -100}
    batch = {}
    for key in records[0]:
        parts = [record[key] for record in records]
        batch[key] = torch.tensor(
            [part + [fillers[key]] * (longest - len(part)) for part in parts] if isinstance(parts[0], list) else parts
        )
    return batch


def texts(records: int = RECORDS, *, length: int | None = None) -> list[dict[str, Any]]:
    """Records of a language model: each token predicts the next, the first ones are a prompt in some records."""
    made = sentences(records, length=length)
    for place, record in enumerate(made):
        prompt = place % 3
        record["labels"] = [-100] * prompt + record["input_ids"][prompt:]
    return made


def arguments(folder: Path | str, **changes: Any) -> TrainingArguments:
    """Arguments of a quiet Trainer on the CPU."""
    quiet = {"use_cpu": True, "disable_tqdm": True, "report_to": "none", "save_strategy": "no", "logging_strategy": "no"}
    return TrainingArguments(output_dir=str(folder), **{**quiet, "per_device_train_batch_size": 8, "max_steps": 3, **changes})


def run_of(**changes: Any) -> lethe.Run:
    """24 records in cyclic batches of 8, no noise, and a clip norm that nothing reaches."""
    fields: dict[str, Any] = {
        "records": RECORDS,
        "batches": lethe.batches.Cyclic(8),
        "steps": 3,
        "step_size": 0.1,
        "clip_norm": 1e6,
        "noise_multiplier": 0.0,
        "release": "all",
        "neighbours": "zero_out",
    }
    return lethe.Run(**{**fields, **changes})


def private(
    folder: Path | str, model: Any, data: Any, *, run: lethe.Run | None = None, told: dict[str, Any] | None = None, **changes: Any
) -> Any:
    """A PrivateTrainer; `told` are its arguments, the others those of TrainingArguments."""
    target = {"epsilon": 3.0} if run is None else {"run": run}
    changes = {"max_steps": -1, **changes} if run is not None else changes
    return PrivateTrainer(model=model, args=arguments(folder, **changes), train_dataset=data, delta=DELTA, **target, **(told or {}))


def flat(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().double().reshape(-1) for parameter in model.parameters()])
