"""Training on PyTorch: carries out a Run, and records the Run that was executed.

`fit` trains any PyTorch module, a `Linear` model, or a convex `Head` on the features of a frozen backbone, and returns a `Fitted`. Of the
last two the pipeline itself enforces the privacy hypotheses. `PrivacyEngine` trains modules in a loop of one's own.
"""

import importlib.util
from typing import Any

from lethe.errors import MissingExtraError

if importlib.util.find_spec("torch") is None:
    raise MissingExtraError("lethe.train needs PyTorch, which is not installed.", remedy='pip install "lethe-dp[train]"')

from lethe.train.callbacks.callback import Callback
from lethe.train.checkpoints.file import Checkpoints
from lethe.train.clip.groups import Group
from lethe.train.clip.parts.selection import SparseSelection
from lethe.train.clip.rules.registry import fix_batch_norm, register_rule
from lethe.train.core.proximal import ProximalGroup
from lethe.train.engine.opacus import refuse_name
from lethe.train.engine.private_engine import PrivacyEngine
from lethe.train.fit import fit
from lethe.train.fitted import Fitted
from lethe.train.linear.convex_head import Head
from lethe.train.linear.models import Linear
from lethe.train.network.debiased_momentum import DebiasedMomentum
from lethe.train.network.module_gradients import ModuleGradients
from lethe.train.options import TrainOptions

__all__ = [
    "Callback",
    "Checkpoints",
    "DebiasedMomentum",
    "Fitted",
    "Group",
    "Head",
    "Linear",
    "ModuleGradients",
    "PrivacyEngine",
    "ProximalGroup",
    "SparseSelection",
    "TrainOptions",
    "fit",
    "fix_batch_norm",
    "register_rule",
]


def __getattr__(name: str) -> Any:
    """Names that Opacus exports, and old ones: an error with the line that does it here."""
    refuse_name(__name__, name)
