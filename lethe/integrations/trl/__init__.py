"""TRL's SFTTrainer with private training: the same arguments, and epsilon and delta, or a Run; one record is one conversation.

    args = SFTConfig(output_dir="tuned", completion_only_loss=True)
    trainer = PrivateSFTTrainer(model=model, args=args, train_dataset=dataset, processing_class=tokenizer, epsilon=3.0, delta=1e-5)
    trainer.train()
    print(trainer.certificate_.explain())

Importing lethe does not load this package, nor TRL.
"""

import importlib.util

from lethe.errors import MissingExtraError

if not all(importlib.util.find_spec(package) for package in ("torch", "transformers", "accelerate", "datasets", "trl")):
    raise MissingExtraError(
        "lethe.integrations.trl needs TRL, transformers and PyTorch, which are not all installed.", remedy='pip install "lethe-dp[trl]"'
    )

from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from lethe.integrations.trl.trainer import PrivateSFTTrainer

# What is the trainer's own affair: where it is gone, records are prepared and logged in another way than the one looked at here.
_ASKED = "_prepare_dataset _send_telemetry _set_signature_columns_if_needed"
if not (all(hasattr(SFTTrainer, name) for name in _ASKED.split()) and hasattr(SFTConfig, "loss_type")):
    raise MissingExtraError(
        "lethe.integrations.trl needs another version of TRL: its SFTTrainer prepares records in another way.",
        remedy='pip install "lethe-dp[trl]"',
    )

__all__ = ["PrivateSFTTrainer"]
