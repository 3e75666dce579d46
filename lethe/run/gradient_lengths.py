"""Whether a loss's gradients can be longer than a norm: decided by exact squares where the loss itself says how long they get."""

from __future__ import annotations

import math
from fractions import Fraction

from lethe.run.losses import (
    LeastSquares,
    Logistic,
    Loss,
    OneVersusRest,
    SmoothedHinge,
    Softmax,
    TruncatedLogistic,
    TruncatedSoftmax,
)


def may_exceed(loss: Loss, norm: float) -> bool:
    r"""Whether a gradient of `loss` may be longer than `norm`; of a loss of which nothing is known, it may.

    The derived bound $G = \sigma R$ is rounded up, and a clip norm that is the bound itself need not be: $C^2 \ge \sigma^2R^2$ in whole
    fractions says that clipping never acts, where $C < G$ as floats.

    Args:
        loss: any.
        norm: > 0.
    """
    bound = loss.known_gradient_bound
    if bound is None or bound <= norm:
        return bound is None
    squared = _squared_bound(loss)
    return squared is None or not math.isfinite(norm) or Fraction(norm) ** 2 < squared


def _squared_bound(loss: Loss) -> Fraction | None:
    """$G^2$, exactly; None where it does not follow from the features."""
    match loss:
        case Logistic() | SmoothedHinge():
            slope = Fraction(1)
        case Softmax():
            slope = Fraction(2)
        case LeastSquares(residual_bound=residual):
            slope = Fraction(residual) ** 2
        case TruncatedLogistic(cut=cut):
            slope = Fraction(cut) ** 2
        case TruncatedSoftmax(cut=cut):
            slope = 2 * Fraction(cut) ** 2
        case OneVersusRest(classes=classes):
            slope = Fraction(classes)
        case _:
            return None
    return slope * (Fraction(loss.feature_norm) ** 2 + (1 if loss.intercept else 0))
