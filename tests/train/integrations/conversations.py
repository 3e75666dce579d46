"""Texts, prompts with completions, and conversations of a few words; a tokeniser for them, and trainers of TRL."""

import random
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from small_models import DELTA, RECORDS
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.utils.data import SequentialSampler
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

import lethe
from lethe.integrations.transformers import privatize

WORDS = ["<pad>", "<eos>", "<user>", "<bot>", *"abcdefghijklmnopqrst"]
PLACES = {word: place for place, word in enumerate(WORDS)}
TEMPLATE = (
    "{% for message in messages %}{% if message.role == 'user' %}<user> {{ message.content }} "
    "{% else %}<bot> {% generation %}{{ message.content }} <eos>{% endgeneration %} {% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<bot> {% endif %}"
)


def tokenizer() -> PreTrainedTokenizerFast:
    """A word for each number; with a chat template that marks what the assistant says."""
    bare = Tokenizer(models.WordLevel(PLACES, unk_token="a"))
    bare.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = PreTrainedTokenizerFast(tokenizer_object=bare, pad_token="<pad>", eos_token="<eos>")
    made.chat_template = TEMPLATE
    return made


def model() -> LlamaForCausalLM:
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = LlamaConfig(vocab_size=len(WORDS), max_position_embeddings=24, pad_token_id=0, eos_token_id=1, **sizes)
        return LlamaForCausalLM(config).double()


_CHANCE = random.Random(0)


def said(words: int) -> str:
    return " ".join(_CHANCE.choice(WORDS[4:]) for _ in range(words))


EVEN = [{"text": said(6)} for _ in range(RECORDS)]
TEXTS = [{"text": said(3 + place % 5)} for place in range(RECORDS)]
PAIRS = [{"prompt": said(2 + place % 3), "completion": " " + said(2 + place % 4)} for place in range(RECORDS)]
TALKS = [
    {
        "messages": [{"role": "user", "content": said(2 + place % 3)}, {"role": "assistant", "content": said(1 + place % 4)}]
        * (1 + place % 2)
    }
    for place in range(RECORDS)
]


def config(folder: Path | str, **changes: Any) -> SFTConfig:
    quiet = {"use_cpu": True, "bf16": False, "disable_tqdm": True, "report_to": "none", "save_strategy": "no", "logging_strategy": "no"}
    return SFTConfig(
        output_dir=str(folder), **{**quiet, "gradient_checkpointing": False, "per_device_train_batch_size": 8, "max_steps": 3, **changes}
    )


PrivateSFTTrainer: Any = privatize(SFTTrainer)


def private_sft(folder: Path | str, data: Any, *, run: lethe.Run | None = None, told: dict[str, Any] | None = None, **changes: Any) -> Any:
    """A private SFTTrainer; `told` are its arguments, the others those of SFTConfig."""
    target = {"epsilon": 3.0} if run is None else {"run": run}
    changes = {"max_steps": -1, **changes} if run is not None else changes
    given = {"model": None, "train_dataset": Dataset.from_list(data), "processing_class": tokenizer(), **(told or {})}
    given["model"] = given["model"] or model()
    return PrivateSFTTrainer(args=config(folder, **changes), delta=DELTA, **target, **given)


class InOrder(SFTTrainer):
    """TRL's own, with batches in order, as a cyclic run has them."""

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        return SequentialSampler(self.train_dataset)


def plain_sft(folder: Path | str, data: Any, *, told: dict[str, Any] | None = None, **changes: Any) -> SFTTrainer:
    given = {"model": None, "train_dataset": Dataset.from_list(data), "processing_class": tokenizer(), **(told or {})}
    given["model"] = given["model"] or model()
    return InOrder(args=config(folder, max_grad_norm=0.0, **changes), **given)
