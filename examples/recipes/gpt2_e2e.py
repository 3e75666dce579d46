"""GPT-2 with LoRA learns to put facts of a restaurant into words (E2E, 42 061 pairs), at epsilon = 8.

    python examples/recipes/gpt2_e2e.py [--size real|random|small] [--steps N] [--epsilon E]

Needs `pip install "lethe-dp[transformers]" datasets peft torchmetrics`; GPT-2, by estimate, one GPU of 16 GB (124 million frozen weights
0.5 GB, activations of 32 texts 1 GB, their scores of 50 257 words 3 GB) for half an hour.
Prints the BLEU of the public validation set's 547 restaurants, by greedy decoding. Published, not ours: 63.4 at epsilon = 8, by LoRA and
beam search (arXiv:2110.05679).
"""

import math
import tempfile

import torch
from arguments import QUIET, Meter, downloading, parse
from datasets import Dataset, load_dataset
from made_up_texts import PRIVATE, PUBLIC, restaurants, tokenizer
from peft import LoraConfig, get_peft_model
from torchmetrics.functional.text import bleu_score
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

from lethe.integrations.transformers import privatize

options = parse(__doc__, epsilon=8.0)
set_seed(0)
length, learning_rate, epochs, accumulated, physical = 100, 2e-3, 10, 32, 32
if options.size == "real":
    with downloading("GPT-2 and E2E"):
        words, model = AutoTokenizer.from_pretrained("gpt2"), AutoModelForCausalLM.from_pretrained("gpt2")
        data = load_dataset("tuetschek/e2e_nlg", revision="refs/convert/parquet")
    words.pad_token = words.eos_token  # labels are made of the mask, so that the end of a text counts
    pairs = [
        list(zip(data[part]["meaning_representation"], data[part]["human_reference"], strict=True)) for part in ("train", "validation")
    ]
elif options.size == "small":
    length, learning_rate, epochs, accumulated, physical = 18, 2e-2, 5, 1, 200
    sizes = {"n_embd": 32, "n_layer": 1, "n_head": 4, "vocab_size": 50, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    pairs = [restaurants(4000, 1, PRIVATE), [pair for manner in PRIVATE for pair in restaurants(100, 2, (manner,))]]
else:
    sizes, pairs = {}, [restaurants(42_061, 1, PRIVATE), restaurants(4_672, 2, PRIVATE)]
if options.size != "real":
    words = tokenizer(text for pair in restaurants(1000, 3, PUBLIC + PRIVATE) for text in (*pair, ":"))
    ends = {"bos_token_id": words.bos_token_id, "eos_token_id": words.eos_token_id}
    model = GPT2LMHeadModel(GPT2Config(**sizes, **ends))


def rows(pairs: list[tuple[str, str]]) -> Dataset:
    """Facts and their text a row, cut or padded to a length that is fixed in advance; the text and its end are learnt."""
    texts = [f"{facts} : {text} {words.eos_token}" for facts, text in pairs]
    batch = words(texts, truncation=True, padding="max_length", max_length=length)
    prompts = [len(prompt) for prompt in words([f"{facts} :" for facts, _ in pairs])["input_ids"]]
    labels = [
        [token if mask and place >= prompt else -100 for place, (token, mask) in enumerate(zip(tokens, masks, strict=True))]
        for tokens, masks, prompt in zip(batch["input_ids"], batch["attention_mask"], prompts, strict=True)
    ]
    return Dataset.from_dict({**batch, "labels": labels})


@torch.no_grad()
def bleu(pairs: list[tuple[str, str]]) -> float:
    """Of what the model writes of each restaurant, against all texts that people wrote of it."""
    references: dict[str, list[str]] = {}
    for facts, text in pairs:
        references.setdefault(facts, []).append(text)
    prompts, written = [f"{facts} :" for facts in references], []
    for start in range(0, len(prompts), 100):
        batch = words(prompts[start : start + 100], padding=True, padding_side="left", return_tensors="pt").to(model.device)
        tokens = model.generate(**batch, max_new_tokens=length, pad_token_id=words.pad_token_id)
        written += words.batch_decode(tokens[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
    return 100 * float(bleu_score([text.strip() for text in written], list(references.values())))


if options.size == "small":  # a base that has read public texts, in another manner
    optimizer, public = torch.optim.AdamW(model.parameters(), lr=1e-2), rows(restaurants(2000, 4, PUBLIC)).with_format("torch")
    for _ in range(120):
        model(**public[torch.randint(len(public), (64,))]).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=4, target_modules=["c_attn", "c_fc"], fan_in_fan_out=True))
train = rows(pairs[0])
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
    trainer = Trainer(model=model, args=args, train_dataset=train)
    if options.epsilon < math.inf:
        trainer = privatize(trainer, epsilon=options.epsilon, delta=0.1 / len(train))
    meter = Meter(options, model)
    trainer.add_callback(meter.callback())
    trainer.train()
    meter.report(getattr(trainer, "certificate_", None), whole, bleu=bleu(pairs[1]))
