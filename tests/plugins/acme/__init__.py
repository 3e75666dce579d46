"""One theorem, loss, schedule, layer rule and mechanism of a package that is not Lethe's; `register` adds them."""

from lethe.train.clipping import register_rule

from acme.layer_rule import Scale, ScaleGradients
from acme.loss import PseudoHuber
from acme.mechanism import noisy_count
from acme.schedule import Cosine
from acme.theorem import EveryStep
from lethe.run.losses import LOSSES
from lethe.run.schedules import SCHEDULES

__all__ = ["Cosine", "EveryStep", "PseudoHuber", "Scale", "ScaleGradients", "noisy_count", "register"]


def register() -> None:
    """Make Lethe read, train and clip what has a name in a document or a layer of its own."""
    LOSSES[PseudoHuber.kind] = PseudoHuber
    SCHEDULES[Cosine.schedule] = Cosine
    register_rule(Scale, ScaleGradients)
