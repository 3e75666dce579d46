"""What people fine-tune, small: models by configuration with random weights, shaped like the real ones, and a batch for each.

The widths' ratios, the numbers of positions, tied embeddings, dropout and learnt positions are those of the published models; there are
fewer layers and words, so that a step takes a fraction of a second on two cores. Two more have all 50 257 words of GPT-2, and few records;
three are as wide as the published ones, and take about a second; four, for GPUs, have the published sizes; and two are so narrow that next
to nothing but calling the operations takes time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

WORDS, LENGTH, RECORDS = 4000, 128, 16
ALL_WORDS, FEW_RECORDS = 50_257, 4


@dataclass(frozen=True, slots=True)
class Ease:
    """What is made easier for a rival that does not take a model as it is.

    Args:
        positions: what all records share is given to each (GPT-2), or frozen (DistilBERT, ViT).
        untied: the head has a weight of its own.
    """

    positions: bool = False
    untied: bool = False


AS_IT_IS = Ease()


@dataclass(frozen=True, slots=True)
class Size:
    """How large a transformer is."""

    width: int
    layers: int
    heads: int


_SMALL, _TINY, _PUBLISHED, _NARROW = Size(256, 2, 4), Size(192, 3, 3), Size(768, 12, 12), Size(48, 12, 12)
_WIDE = replace(_PUBLISHED, layers=2)
Shape = dict[str, Any]
Built = tuple[nn.Module, Tensor, Tensor]


class RecordLoss(nn.Module):
    """Cross-entropy, averaged over the positions of each record; `reduction` is what Opacus switches."""

    reduction = "mean"

    def forward(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Scores of shape (B, T, K) or (B, K)."""
        losses = nn.functional.cross_entropy(scores.flatten(0, -2), targets.flatten(), reduction="none").view(targets.shape)
        losses = losses.mean(1) if losses.dim() > 1 else losses
        return losses.mean() if self.reduction == "mean" else losses


class Scores(nn.Module):
    """A model of transformers that is given one tensor and returns its scores."""

    def __init__(self, model: Any, *, records_get_positions: bool = False) -> None:
        super().__init__()
        self.model, self.records_get_positions = model, records_get_positions

    def forward(self, given: Tensor) -> Tensor:
        """Pictures, or tokens."""
        more = {}
        if self.records_get_positions:
            more["position_ids"] = torch.arange(given.shape[1], device=given.device).repeat(len(given), 1)
        return self.model(given, **more).logits


def _gpt2(ease: Ease, words: int, length: int, size: Size) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    shape: Shape = {
        "vocab_size": words,
        "n_positions": length,
        "n_embd": size.width,
        "n_layer": size.layers,
        "n_head": size.heads,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    return GPT2LMHeadModel(GPT2Config(**shape, use_cache=False, tie_word_embeddings=not ease.untied))


def gpt2(ease: Ease, *, words: int = WORDS, records: int = RECORDS, length: int = LENGTH, size: Size = _SMALL) -> Built:
    """GPT-2 with the Conv1D of transformers and tied embeddings; next words."""
    given = torch.randint(words, (records, length))
    return Scores(_gpt2(ease, words, length, size), records_get_positions=ease.positions), given, given.roll(-1, 1)


def lora(ease: Ease, *, words: int = WORDS, records: int = RECORDS, length: int = LENGTH, size: Size = _SMALL) -> Built:
    """LoRA of rank 8 on its attention, by peft."""
    from peft import LoraConfig, get_peft_model

    given = torch.randint(words, (records, length))
    config = LoraConfig(r=8, lora_alpha=16, target_modules=["c_attn"], fan_in_fan_out=True, lora_dropout=0.05)
    return Scores(get_peft_model(_gpt2(ease, words, length, size), config), records_get_positions=ease.positions), given, given.roll(-1, 1)


def qlora(ease: Ease, *, bits: int = 4, words: int = WORDS, records: int = RECORDS, length: int = LENGTH, size: Size = _SMALL) -> Built:
    """The same on a base in 4 bits (nf4, scales quantised too) or 8, by bitsandbytes."""
    from peft import LoraConfig, get_peft_model
    from transformers import BitsAndBytesConfig, GPT2LMHeadModel

    four: Shape = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
    told = BitsAndBytesConfig(**(four if bits == 4 else {"load_in_8bit": True, "llm_int8_threshold": 0.0}))
    given = torch.randint(words, (records, length))
    with tempfile.TemporaryDirectory() as folder:
        _gpt2(ease, words, length, size).save_pretrained(folder)
        base = GPT2LMHeadModel.from_pretrained(folder, quantization_config=told, device_map=given.device)
    model = get_peft_model(base, LoraConfig(r=8, lora_alpha=16, target_modules=["c_attn"], lora_dropout=0.05))
    return Scores(model, records_get_positions=ease.positions), given, given.roll(-1, 1)


def vit(ease: Ease, *, records: int = RECORDS, size: Size = _TINY) -> Built:
    """ViT on 197 positions; 10 classes. Eased, positions and class token are frozen."""
    from transformers import ViTConfig, ViTForImageClassification

    shape: Shape = {
        "hidden_size": size.width,
        "num_attention_heads": size.heads,
        "intermediate_size": 4 * size.width,
        "num_hidden_layers": size.layers,
        "num_labels": 10,
    }
    model: Any = ViTForImageClassification(ViTConfig(**shape))
    for parameter in (model.vit.embeddings.cls_token, model.vit.embeddings.position_embeddings):
        parameter.requires_grad_(not ease.positions)
    return Scores(model), torch.randn(records, 3, 224, 224), torch.randint(10, (records,))


def distilbert(ease: Ease, *, words: int = WORDS, records: int = RECORDS, size: Size = _SMALL) -> Built:
    """DistilBERT; 2 classes. Eased, its table of positions is frozen."""
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    shape: Shape = {
        "vocab_size": words,
        "max_position_embeddings": LENGTH,
        "dim": size.width,
        "n_heads": size.heads,
        "hidden_dim": 4 * size.width,
        "n_layers": size.layers,
    }
    model: Any = DistilBertForSequenceClassification(DistilBertConfig(**shape))
    model.distilbert.embeddings.position_embeddings.weight.requires_grad_(not ease.positions)
    return Scores(model), torch.randint(words, (records, LENGTH)), torch.randint(2, (records,))


MODELS: dict[str, Callable[..., Built]] = {
    "GPT-2": gpt2,
    "LoRA": lora,
    "QLoRA": qlora,
    "LoRA on 8 bits": partial(qlora, bits=8),
    "ViT-tiny": vit,
    "DistilBERT": distilbert,
    "GPT-2 (all words)": partial(gpt2, words=ALL_WORDS, records=FEW_RECORDS),
    "LoRA (all words)": partial(lora, words=ALL_WORDS, records=FEW_RECORDS),
    "GPT-2 (published width)": partial(gpt2, size=_WIDE),
    "LoRA (published width)": partial(lora, size=_WIDE),
    "QLoRA (published width)": partial(qlora, size=_WIDE),
    "DistilBERT (published width)": partial(distilbert, size=_WIDE),
    "GPT-2 (narrow)": partial(gpt2, words=50, length=8, size=_NARROW),
    "LoRA (narrow)": partial(lora, words=50, length=8, size=_NARROW),
    "GPT-2 (published size)": partial(gpt2, words=ALL_WORDS, size=_PUBLISHED),
    "LoRA (published size)": partial(lora, words=ALL_WORDS, size=_PUBLISHED),
    "QLoRA (published size)": partial(qlora, words=ALL_WORDS, size=_PUBLISHED),
    "ViT-base (published size)": partial(vit, size=_PUBLISHED),
    "DistilBERT (published size)": partial(distilbert, words=30_522, size=replace(_PUBLISHED, layers=6)),
}
TIME_TARGETS = {"GPT-2": 1.4, "LoRA": 1.1, "QLoRA": 1.1, "ViT-tiny": 1.3, "DistilBERT": 1.3}
MEMORY_TARGETS = {"GPT-2": 1.25, "LoRA": 1.1, "QLoRA": 1.1, "ViT-tiny": 1.25, "DistilBERT": 1.25}
FIRST_STEP_TARGET = 4.0
