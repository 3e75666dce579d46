"""DPO: a language model learns which of two answers people prefer (UltraFeedback, 62 135 pairs), by LoRA, at epsilon = 8.

    python examples/recipes/dpo.py [--size real|random|small] [--steps N] [--epsilon E]

Needs `pip install "lethe-dp[trl]" peft`; Qwen2.5-0.5B-Instruct, by estimate, one GPU of 40 GB (494 million frozen weights 2 GB, activations
of 4 pairs of 1024 tokens 6 GB, their scores of 151 936 words 20 GB) for 3 hours.
A record is a prompt with both answers. What the base thinks of them is computed once, before training, and not released.
Prints the share of 1000 public pairs of the test set in which the preferred answer has the larger reward. We know of no published figure.
"""

import math
import tempfile

import torch
from arguments import QUIET, Meter, downloading, parse
from datasets import Dataset, load_dataset
from made_up_texts import BAD, GOOD, reviews, tokenizer
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2Config, Qwen2ForCausalLM, set_seed
from trl import DPOConfig, DPOTrainer

from lethe.integrations.transformers import privatize

options = parse(__doc__, epsilon=8.0)
set_seed(0)


def preferences(records: int, seed: int, repeated: int = 1) -> Dataset:
    """Of a review and the same with all judgements turned, the better one is preferred; both are `repeated`, to be as long as real ones."""
    turned = dict(zip(BAD + GOOD, GOOD + BAD, strict=True))
    both = [
        (text, " ".join(turned.get(word, word) for word in text.split()), good) for text, good in zip(*reviews(records, seed), strict=True)
    ]
    rows = [(text, other) if good else (other, text) for text, other, good in both]
    return Dataset.from_list(
        [{"prompt": "a review :", "chosen": f" {chosen}" * repeated, "rejected": f" {rejected}" * repeated} for chosen, rejected in rows]
    )


length, learning_rate, epochs, accumulated, physical = 1024, 1e-4, 2, 128, 4
if options.size == "real":
    with downloading("Qwen2.5-0.5B-Instruct and UltraFeedback"):
        words = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B-Instruct")
        model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B-Instruct")
        data = load_dataset("trl-lib/ultrafeedback_binarized")
    train, public = data["train"], data["test"].select(range(1000))
elif options.size == "small":
    length, learning_rate, epochs, accumulated, physical = 32, 2e-2, 5, 1, 200
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
    sizes["vocab_size"], train, public = 50, preferences(2000, 1), preferences(200, 2)
else:
    sizes = {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2}
    sizes |= {"vocab_size": 151_936, "tie_word_embeddings": True}
    public = preferences(200, 2, 35)
    train = preferences(62_135 if options.steps is None else 2048, 1, 35)  # the base reads all of them before the first step
if options.size != "real":
    words = tokenizer(["a review :", *public["chosen"], *public["rejected"]])
    model = Qwen2ForCausalLM(Qwen2Config(**sizes, bos_token_id=words.bos_token_id, eos_token_id=words.eos_token_id))

records = 62_135 if options.size == "random" else len(train)
whole = epochs * math.ceil(records / (accumulated * physical))
with tempfile.TemporaryDirectory() as folder:
    args = DPOConfig(
        output_dir=folder,
        per_device_train_batch_size=physical,
        gradient_accumulation_steps=accumulated,
        max_steps=options.steps or whole,
        learning_rate=learning_rate,
        max_grad_norm=0.1,
        max_length=length,
        precompute_ref_log_probs=True,
        bf16=torch.cuda.is_available(),
        **QUIET,
    )
    trainer = DPOTrainer(
        model=model,
        args=args,
        train_dataset=train,
        eval_dataset=public,
        processing_class=words,
        peft_config=LoraConfig(task_type="CAUSAL_LM", r=16, target_modules="all-linear"),
    )
    if options.epsilon < math.inf:
        trainer = privatize(trainer, epsilon=options.epsilon, delta=0.1 / len(train))
    meter = Meter(options, trainer.model)
    trainer.add_callback(meter.callback())
    trainer.train()
    rewards = trainer.evaluate()
    meter.report(getattr(trainer, "certificate_", None), whole, preferred=rewards["eval_rewards/accuracies"])
