"""RoBERTa learns whether a film review is good (SST-2, 67 349 sentences), all its weights trained at epsilon = 3.

    python examples/recipes/roberta_sst2.py [--size real|random|small] [--steps N] [--epsilon E]

Needs `pip install "lethe-dp[transformers]" datasets`; RoBERTa-large on one GPU of 40 GB (355 million weights with gradients and AdamW's
state take 6 GB, clipped sums 3 GB, activations of 64 sentences the rest) for an estimated 3 hours.
Prints the accuracy on the 872 public sentences of the validation set. Published, not ours: 93.9 % at epsilon = 3.
"""

import math
import tempfile

import numpy as np
import torch
from arguments import Meter, downloading, parse
from datasets import Dataset, load_dataset
from reviews import reviews, tokenizer
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    RobertaConfig,
    RobertaForSequenceClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)

from lethe.integrations.transformers import privatize

options = parse(__doc__, epsilon=3.0)
set_seed(0)
size, rate, epochs, batch, physical = 64, 3e-4, 4, 1024, 64
large = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096, "type_vocab_size": 1}
if options.size == "real":
    with downloading("RoBERTa-large and SST-2"):
        words = AutoTokenizer.from_pretrained("FacebookAI/roberta-large")
        model = AutoModelForSequenceClassification.from_pretrained("FacebookAI/roberta-large", num_labels=2)
        data = load_dataset("stanfordnlp/sst2")
    texts = [(data[part]["sentence"], data[part]["label"]) for part in ("train", "validation")]
elif options.size == "small":
    size, rate, epochs, batch, physical = 16, 1e-2, 12, 250, 250
    words, texts = tokenizer(), [reviews(4000, seed=1), reviews(1000, seed=2)]
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    model = RobertaForSequenceClassification(
        RobertaConfig(**sizes, vocab_size=len(words), max_position_embeddings=size + 2, pad_token_id=1)
    )
else:
    words = None
    model = RobertaForSequenceClassification(RobertaConfig(**large, vocab_size=50_265, max_position_embeddings=514))
    draw = np.random.default_rng(0)
    texts = [(draw.integers(5, 50_265, (records, size)).tolist(), draw.integers(2, size=records).tolist()) for records in (67_349, 872)]


def rows(sentences: list, labels: list[int]) -> Dataset:
    """A sentence a row, cut or padded to a length that is fixed in advance."""
    if words is None:
        return Dataset.from_dict({"input_ids": sentences, "labels": labels})
    return Dataset.from_dict({**words(sentences, truncation=True, padding="max_length", max_length=size), "labels": labels})


train, public = (rows(*part) for part in texts)
whole = epochs * math.ceil(len(train) / batch)
with tempfile.TemporaryDirectory() as folder:
    args = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=physical,
        gradient_accumulation_steps=batch // physical,
        max_steps=options.steps or whole,
        learning_rate=rate,
        max_grad_norm=0.1,
        bf16=options.size != "small",
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=torch.cuda.is_available(),
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=train,
        eval_dataset=public,
        compute_metrics=lambda scores: {"accuracy": (scores.predictions.argmax(1) == scores.label_ids).mean()},
    )
    if options.epsilon < math.inf:
        trainer = privatize(trainer, epsilon=options.epsilon, delta=0.1 / len(train))
    meter = Meter(options, model)
    trainer.add_callback(meter.callback())
    trainer.train()
    meter.report(getattr(trainer, "certificate_", None), whole, accuracy=trainer.evaluate()["eval_accuracy"])
