"""Training on PyTorch: carries out a Run, and records the Run that was executed.

`fit` trains any PyTorch model, and `PrivacyEngine` does in a loop of one's own. `fit_linear` trains the models whose privacy hypotheses the
pipeline itself enforces, by any loss of `lethe.losses` that is a `LinearLoss`; `fit_head` the same on the features of a frozen backbone. In
`fit` and both of these the noise may be chosen along the way by a noise policy.
`fit_adaptively` trains them by an algorithm that divides its budget as it goes.
"""

import importlib.util

from lethe.errors import MissingExtraError

if importlib.util.find_spec("torch") is None:
    raise MissingExtraError("lethe.train needs PyTorch, which is not installed.", remedy='pip install "lethe-dp[train]"')

from lethe.train.checkpoints.file import Checkpoints
from lethe.train.clipping import Group
from lethe.train.core.budgeted_noise import NoisePolicy, Observed
from lethe.train.engine.private_engine import PrivacyEngine
from lethe.train.fit import Fitted, fit
from lethe.train.linear.adaptive_budget import AdaptivelyTrained, AdaptiveStep, fit_adaptively
from lethe.train.linear.adaptive_descent import AdaptiveDescent
from lethe.train.linear.convex_head import FittedHead, fit_head
from lethe.train.linear.loop import fit_linear
from lethe.train.linear.noise_policies import ValidationDecay, scheduled
from lethe.train.linear.trained import Report, Trained
from lethe.train.network.proximal.steps import ProximalGroup

__all__ = [
    "AdaptiveDescent",
    "AdaptiveStep",
    "AdaptivelyTrained",
    "Checkpoints",
    "Fitted",
    "FittedHead",
    "Group",
    "NoisePolicy",
    "Observed",
    "PrivacyEngine",
    "ProximalGroup",
    "Report",
    "Trained",
    "ValidationDecay",
    "fit",
    "fit_adaptively",
    "fit_head",
    "fit_linear",
    "scheduled",
]
