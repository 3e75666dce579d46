"""Which loss a Run names for what is trained: the bounds on gradient and curvature follow from it, so nothing of them is declared."""

from __future__ import annotations

from lethe.errors import InputError
from lethe.mechanisms.losses.linear_losses import Huber, LinearLoss, Logistic, SmoothedHinge, Softmax
from lethe.mechanisms.losses.one_versus_rest import OneVersusRest
from lethe.mechanisms.losses.truncated_losses import TruncatedLogistic, TruncatedSoftmax
from lethe.run import losses


def run_loss(loss: LinearLoss, norm: float) -> losses.Loss:
    """The noun of a loss on rows of norm at most `norm`, which `Records` makes true.

    Args:
        loss: what is trained.
        norm: R, the constant feature of the intercept included.
    Raises:
        InputError: a loss that no Run can name.
    """
    match loss:
        case Logistic():
            return losses.Logistic(feature_norm=norm, evidence="enforced")
        case Softmax():
            return losses.Softmax(feature_norm=norm, evidence="enforced")
        case TruncatedLogistic():
            return losses.TruncatedLogistic(feature_norm=norm, cut=loss.cut, evidence="enforced")
        case TruncatedSoftmax():
            return losses.TruncatedSoftmax(feature_norm=norm, cut=loss.cut, evidence="enforced")
        case SmoothedHinge():
            return losses.SmoothedHinge(feature_norm=norm, width=loss.width, evidence="enforced")
        case OneVersusRest():
            return losses.OneVersusRest(feature_norm=norm, classes=loss.classes, width=loss.width, evidence="enforced")
        case Huber():
            return losses.LeastSquares(feature_norm=norm, residual_bound=loss.residual_bound, evidence="enforced")
        case _:
            raise InputError(
                f"loss: no Run can name {loss!r}.", source="the loss of the estimator", remedy="add its noun to lethe.run.losses"
            )
