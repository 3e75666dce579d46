"""Lightning with private training: a callback, and the module's `training_step` as it is.

    private = PrivateTraining(epsilon=3.0, delta=1e-5, clip_norm=1.0)
    trainer = L.Trainer(max_epochs=10, callbacks=[private])
    trainer.fit(module, loader)
    print(private.certificate_.explain())

It works with `lightning` and with `pytorch_lightning`: the one that was imported before it. Importing lethe does not load this package.
"""

import importlib.util

from lethe.errors import MissingExtraError

if importlib.util.find_spec("torch") is None or not any(map(importlib.util.find_spec, ("lightning", "pytorch_lightning"))):
    raise MissingExtraError(
        "lethe.integrations.lightning needs lightning (or pytorch_lightning) and PyTorch, which are not all installed.",
        remedy='pip install "lethe-dp[lightning]"',
    )

from lethe.integrations.lightning.callback import PrivateTraining

__all__ = ["PrivateTraining"]
