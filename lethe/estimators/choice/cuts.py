"""How far slopes are cut: a loss that goes on linearly has smaller gradients, so needs less noise, and is not quite what was asked for."""

from __future__ import annotations

from dataclasses import replace

from lethe.estimators.inputs.facts import PublicFacts
from lethe.mechanisms.losses.linear_losses import Huber, Logistic, Softmax
from lethe.mechanisms.losses.truncated_losses import TruncatedLogistic, TruncatedSoftmax

# The share of the largest slope, and what it costs in the risk: of logits, and in squares of the bound on the targets.
_CUTS = ((0.5, 0.01),)
_RESIDUAL_CUTS = ((0.5, 0.0005), (0.25, 0.003))


def cut_losses(facts: PublicFacts) -> list[tuple[PublicFacts, float]]:
    """The problem with its own loss and with that loss cut, and what each adds to the predicted risk.

    A loss that was asked for by name stays. Least squares are cut: a Huber loss linear from the bound on the targets on, or farther out.
    """
    loss, found = facts.loss, [(facts, 0.0)]
    if facts.keeps_loss:
        return found
    if isinstance(loss, Logistic):
        found += [(replace(facts, loss=TruncatedLogistic(cut)), cost) for cut, cost in _CUTS]
    elif isinstance(loss, Softmax):
        found += [(replace(facts, loss=TruncatedSoftmax(loss.classes, cut)), cost) for cut, cost in _CUTS]
    elif isinstance(loss, Huber) and facts.target_bound is not None and loss.residual_bound >= facts.target_bound:
        bound = facts.target_bound
        found += [(replace(facts, loss=Huber(residual_bound=cut * bound)), cost * bound**2) for cut, cost in _RESIDUAL_CUTS]
    return found
