r"""A public model of a training problem, which predicts the error of each mechanism: a quadratic whose curvature falls like a power.

`choose` calls `risk` with the public facts and the noise of each plan, and takes the smallest; run_shapes.py and perturbed.py use the same
model to set step sizes and ridges. n records have k scores of loss l, rows of norm at most R; $h_j$ is the curvature of the j-th direction,
$\rho$ the norm of the reference (the weights without privacy).

$$\text{risk} = \frac k2\sum_j h_j\big(\beta_j^2\,\rho^2 + v_j\big),\qquad h_j \propto j^{-a},\quad
  \sum_j h_j = c\,R^2\,\mathrm{tr}\,l''/k,$$

where, of the j-th weight, $\beta_j$ is the share of the reference that is missed and $v_j$ the variance that noise leaves. The decay a,
$\rho$ and c were chosen on generated data. It predicts; no guarantee rests on it.

Of classes $\rho$ follows from how far apart the weights of two of them are, D: one score that tells two classes apart has weights of norm
D, and k scores that add up to nothing and are all as far apart have weights of norm $D\sqrt{(k-1)/2k}$ each.

Less noise is needed for losses of bounded slope: cut ones, and Lipschitz envelopes; each adds what it costs in log-loss.
"""

import math
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from lethe.estimators.inputs.facts import PublicFacts
from lethe.mechanisms.base import Array
from lethe.run.losses import LeastSquares, Logistic, Softmax, TruncatedLogistic, TruncatedSoftmax, Tweedie
from lethe.run.losses.linear import LinearLoss

REFERENCE = 5.0  # D: between the weights of two classes, for rows of norm at most 1
REFERENCE_OF_LOGARITHMS = 2.0  # of counts and costs: chosen on generated ones whose logarithms spread by .7
REFERENCE_SHARE = 0.7  # of a regression: of the bound on its targets; with more, ridges are too small where features tell little

# The share of the largest slope, or C over R of an envelope, and what it costs without noise: of regressions in squares of the bound on the
# targets; of classes in log-loss, probabilities being those of the inverse link, on logistic models with rates of 2 to 50 % and log-odds
# that spread by .5 to 2. Of many classes an envelope cost ten times what stands here, but with less the accuracy on MNIST fell by .01.
_CUT = 0.5
_CUT_COST, _CUT_COST_OF_MANY = 0.002, 0.004
_RESIDUAL_CUTS = ((0.5, 0.0005), (0.25, 0.003))
# Of counts and costs: slopes in units of their bound, and what they cost in half the deviance; the level is corrected.
_DEVIANCE_CUTS = ((0.5, 0.001), (0.25, 0.004), (0.125, 0.02))
_ENVELOPES, _ENVELOPES_OF_MANY = ((0.25, 0.01), (0.5, 0.002)), ((0.25, 0.004), (0.5, 0.002))


class _Spectrum(NamedTuple):
    decay: float  # a
    share: float  # c: what a fitted model has of the largest curvature, which rows shorter than their bound have less of


_OF_CLASSES, _OF_A_REGRESSION = _Spectrum(decay=2.0, share=0.125), _Spectrum(decay=1.5, share=0.5)


@lru_cache(maxsize=8)
def curvatures(facts: PublicFacts) -> Array:
    """$h_j$ of one score, shape (D,), read-only."""
    spectrum = _OF_CLASSES if facts.target_bound is None else _OF_A_REGRESSION
    falling = np.arange(1.0, facts.rows + 1.0) ** -spectrum.decay
    total = spectrum.share * facts.norm**2 * usual_trace(facts.loss) / facts.loss.outputs
    curved: Array = total * falling / falling.sum()
    curved.flags.writeable = False
    return curved


def usual_trace(loss: LinearLoss) -> float:
    """Of $l''$: its largest, or of counts and costs in units of about their mean that at the mean."""
    return 1.0 if isinstance(loss, Tweedie) else loss.curvature_trace


def reference(facts: PublicFacts) -> float:
    r"""$\rho$: for rows of norm 1; in target units for a regression."""
    if isinstance(facts.loss, LeastSquares):
        return REFERENCE_SHARE * (facts.target_bound or facts.loss.residual_bound)
    if isinstance(facts.loss, Tweedie):
        return REFERENCE_OF_LOGARITHMS
    scores = facts.loss.outputs
    return REFERENCE if scores == 1 else REFERENCE * math.sqrt((scores - 1) / (2 * scores))


def risk(facts: PublicFacts, missed: Array | float, variances: Array | float) -> float:
    """`risks` of one model."""
    return float(risks(facts, missed, variances))


def risks(facts: PublicFacts, missed: Array | float, variances: Array | float) -> Array:
    r"""The excess risk of models that miss shares $\beta_j$ of the reference and have variances $v_j$: shape (..., D), or one for all."""
    terms = curvatures(facts) * (np.square(missed) * reference(facts) ** 2 + variances)
    return 0.5 * facts.loss.outputs * np.sum(terms, axis=-1)


def minimiser_missed(facts: PublicFacts, ridge: float) -> Array:
    r"""$\kappa/(h_j + \kappa)$: what the minimiser of the regularised risk misses."""
    curved = curvatures(facts)
    return ridge / (curved + ridge) if ridge > 0.0 else np.zeros_like(curved)


def cut_losses(facts: PublicFacts) -> list[tuple[PublicFacts, float]]:
    """The problem with its own loss and, but where that was asked for by name, with it cut; and what each adds to the predicted risk."""
    if facts.keeps_loss:
        return [(facts, 0.0)]
    return [(facts, 0.0), *((replace(facts, loss=cut), cost) for cut, cost in _cut(facts))]


def run_losses(facts: PublicFacts) -> list[tuple[PublicFacts, float]]:
    """What a run may descend: the losses of `cut_losses`, or for a cut one of classes envelopes."""
    # Unlike a cut slope it is as long for every record that is far off. Of users' mean losses, and of weighted ones, none is known.
    if facts.keeps_loss or facts.weighted or facts.unit != "record" or not isinstance(facts.loss, Logistic | Softmax):
        return cut_losses(facts)
    envelopes = _ENVELOPES if isinstance(facts.loss, Logistic) else _ENVELOPES_OF_MANY
    return [(facts, 0.0), *((replace(facts, envelope=share * facts.norm), cost) for share, cost in envelopes)]


def _cut(facts: PublicFacts) -> list[tuple[LinearLoss, float]]:
    """Versions of the facts' loss with a smaller bound on its slope, each with what it costs in log-loss; none for other losses."""
    bound, norm = facts.target_bound, facts.norm
    match facts.loss:
        case Logistic():
            return [(TruncatedLogistic(feature_norm=norm, cut=_CUT), _CUT_COST)]
        case Softmax(classes=classes):
            return [(TruncatedSoftmax(feature_norm=norm, classes=classes, cut=_CUT), _CUT_COST_OF_MANY)]
        case LeastSquares(residual_bound=given) if bound is not None and given >= bound:
            return [(LeastSquares(feature_norm=norm, residual_bound=cut * bound), cost * bound**2) for cut, cost in _RESIDUAL_CUTS]
        case Tweedie(cut=given) as loss:
            return [(loss.model_copy(update={"cut": cut * given}), cost) for cut, cost in _DEVIANCE_CUTS]
        case _:
            return []
