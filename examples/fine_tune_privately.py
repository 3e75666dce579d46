"""Train a small vision transformer on handwritten digits privately; fine_tune.py does so without privacy."""

import sys

from datasets import Dataset
from sklearn.datasets import load_digits
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification, set_seed

from lethe.integrations.transformers import privatize

set_seed(0)
digits = load_digits()
rows = {"pixel_values": (digits.images[:, None] / 8.0 - 1.0).astype("float32"), "labels": digits.target}
data = Dataset.from_dict(rows).with_format("torch").train_test_split(test_size=297, seed=0)
sizes = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 128}
config = ViTConfig(image_size=8, patch_size=4, num_channels=1, num_labels=10, **sizes)
model = ViTForImageClassification(config)
args = TrainingArguments(
    output_dir=sys.argv[1] if len(sys.argv) > 1 else "digits",
    per_device_train_batch_size=250,
    gradient_accumulation_steps=2,
    num_train_epochs=10,
    learning_rate=5e-3,
    warmup_steps=5,
    save_strategy="no",
)
trainer = Trainer(
    model=model,
    args=args,
    train_dataset=data["train"],
    eval_dataset=data["test"],
    compute_metrics=lambda predicted: {"accuracy": (predicted.predictions.argmax(1) == predicted.label_ids).mean()},
)
trainer = privatize(trainer, epsilon=8.0, delta=1e-5)
trainer.train()
print(f"accuracy {trainer.evaluate()['eval_accuracy']:.3f}")
trainer.save_model()
print(trainer.certificate_)
