"""RoBERTa learns whether a film review is good (SST-2, 67 349 sentences), all its weights trained at epsilon = 3.

    python examples/recipes/roberta_sst2.py [--size real|random|small] [--steps N] [--epsilon E]

Needs `pip install "lethe-dp[transformers]" datasets`; RoBERTa-large, by estimate, one GPU of 24 GB (355 million weights, their gradients
and AdamW's state 6 GB, clipped sums 3 GB, activations of 64 sentences 4 GB) for half an hour.
Prints the accuracy on the 872 public sentences of the validation set. Published, not ours: 93.9 % at epsilon = 3 (arXiv:2206.07136).
"""

import math
import tempfile

import torch
from arguments import QUIET, Meter, downloading, parse
from datasets import Dataset, load_dataset
from made_up_texts import reviews, tokenizer
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
length, learning_rate, epochs, accumulated, physical = 64, 3e-4, 4, 16, 64
if options.size == "real":
    with downloading("RoBERTa-large and SST-2"):
        words = AutoTokenizer.from_pretrained("FacebookAI/roberta-large")
        model = AutoModelForSequenceClassification.from_pretrained("FacebookAI/roberta-large", num_labels=2)
        data = load_dataset("stanfordnlp/sst2")
    texts = [(data[part]["sentence"], data[part]["label"]) for part in ("train", "validation")]
elif options.size == "small":
    length, learning_rate, epochs, accumulated, physical = 14, 1e-2, 12, 1, 250
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 50}
    texts = [reviews(4000, seed=1), reviews(1000, seed=2)]
else:
    sizes = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096, "vocab_size": 50_265}
    texts = [reviews(67_349, seed=1), reviews(872, seed=2)]
if options.size != "real":
    words = tokenizer(texts[1][0])
    model = RobertaForSequenceClassification(RobertaConfig(**sizes, max_position_embeddings=length + 2, pad_token_id=words.pad_token_id))


def rows(sentences: list[str], labels: list[int]) -> Dataset:
    """A sentence a row, cut or padded to a length that is fixed in advance."""
    return Dataset.from_dict({**words(sentences, truncation=True, padding="max_length", max_length=length), "labels": labels})


train, public = (rows(*part) for part in texts)
whole = epochs * math.ceil(len(train) / (accumulated * physical))
with tempfile.TemporaryDirectory() as folder:
    args = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=physical,
        gradient_accumulation_steps=accumulated,
        max_steps=options.steps or whole,
        learning_rate=learning_rate,
        max_grad_norm=0.1,
        bf16=torch.cuda.is_available(),
        **QUIET,
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
