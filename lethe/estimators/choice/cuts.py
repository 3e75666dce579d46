"""Losses of bounded slope: cut ones, and Lipschitz envelopes; less noise is needed for them."""

from __future__ import annotations

from dataclasses import replace

from lethe.estimators.inputs.facts import PublicFacts
from lethe.run.losses import LeastSquares, Logistic, Softmax, TruncatedLogistic, TruncatedSoftmax
from lethe.run.losses.linear import LinearLoss

# The share of the largest slope, and what it costs in the risk: of logits, and in squares of the bound on the targets.
_CUTS = ((0.5, 0.01),)
ENVELOPE_SHARE = 0.25  # C over R
ENVELOPE_COST = 1e-4  # on generated data accuracy lost nothing by it; enough that records without end take the loss itself
_RESIDUAL_CUTS = ((0.5, 0.0005), (0.25, 0.003))


def cut_losses(facts: PublicFacts) -> list[tuple[PublicFacts, float]]:
    """The problem with its own loss and with that loss cut, and what each adds to the predicted risk.

    A loss that was asked for by name stays. Least squares are cut: a Huber loss linear from the bound on the targets on, or farther out.
    """
    if facts.keeps_loss:
        return [(facts, 0.0)]
    return [(facts, 0.0), *((replace(facts, loss=cut), cost) for cut, cost in _cut(facts))]


def run_losses(facts: PublicFacts) -> list[tuple[PublicFacts, float]]:
    r"""What a run may descend: the losses of `cut_losses`, or in place of a cut one the envelope of the loss itself, and what each adds.

    Of classes the envelope of bound C = `ENVELOPE_SHARE` R: unlike a cut slope it is as long for every record that is far off, whatever
    its classes are and however short its row is. Of users' mean losses, and of weighted ones, none is known.
    """
    if facts.keeps_loss or facts.weighted or facts.unit != "record" or not isinstance(facts.loss, Logistic | Softmax):
        return cut_losses(facts)
    return [(facts, 0.0), (replace(facts, envelope=ENVELOPE_SHARE * facts.norm), ENVELOPE_COST)]


def _cut(facts: PublicFacts) -> list[tuple[LinearLoss, float]]:
    bound, norm = facts.target_bound, facts.norm
    match facts.loss:
        case Logistic():
            return [(TruncatedLogistic(feature_norm=norm, cut=cut), cost) for cut, cost in _CUTS]
        case Softmax(classes=classes):
            return [(TruncatedSoftmax(feature_norm=norm, classes=classes, cut=cut), cost) for cut, cost in _CUTS]
        case LeastSquares(residual_bound=given) if bound is not None and given >= bound:
            return [(LeastSquares(feature_norm=norm, residual_bound=cut * bound), cost * bound**2) for cut, cost in _RESIDUAL_CUTS]
        case _:
            return []
