"""Hugging Face's Trainers with private training, TRL's among them: the same arguments, and epsilon and delta, or a Run.

    trainer = privatize(trainer, epsilon=3.0, delta=1e-5)
    trainer.train()
    print(trainer.certificate_.explain())

Importing lethe does not load this package, nor transformers.
"""

import importlib.util

from lethe.errors import MissingExtraError

if not all(importlib.util.find_spec(package) for package in ("torch", "transformers", "accelerate")):
    raise MissingExtraError(
        "lethe.integrations.transformers needs transformers, accelerate and PyTorch, which are not all installed.",
        remedy='pip install "lethe-dp[transformers]"',
    )

from transformers import Trainer

from lethe.integrations.transformers.losses import record_losses
from lethe.integrations.transformers.trainer import PrivateTrainer, privatize

# Methods of the Trainer that are its own affair: where one is gone, its loop would not ask for what stands in its place.
_SUPPORTED = (
    "_clip_grad_norm _finalize_training _get_grad_norm _get_num_items_in_batch _prepare_for_training "
    "_save_checkpoint _save_optimizer_and_scheduler"
)
if not all(hasattr(Trainer, name) for name in _SUPPORTED.split()):
    raise MissingExtraError(
        "lethe.integrations.transformers needs another version of transformers: its Trainer has another loop.",
        remedy='pip install "lethe-dp[transformers]"',
    )

__all__ = ["PrivateTrainer", "privatize", "record_losses"]
