"""One theorem, loss, schedule, layer rule and mechanism of a package that is not Lethe's; `register` adds them."""

from acme.layer_rule import Scale, scale_gradients
from acme.loss import PseudoHuber
from acme.mechanism import noisy_count
from acme.schedule import Cosine
from acme.theorem import EveryStep
from lethe.run.losses import LOSSES
from lethe.run.schedules import SCHEDULES
from lethe.train.clip.rules.registry import register_rule

__all__ = ["Cosine", "EveryStep", "PseudoHuber", "Scale", "noisy_count", "register", "scale_gradients"]


def register() -> None:
    """Make Lethe read, train and clip what has a name in a document or a layer of its own."""
    LOSSES[PseudoHuber.kind] = PseudoHuber
    SCHEDULES[Cosine.schedule] = Cosine
    register_rule(Scale, scale_gradients)
