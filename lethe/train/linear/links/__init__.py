"""Losses of linear models on tensors: derived from their classes in `lethe.run.losses`, or with tensor operations of their own."""

from __future__ import annotations

from lethe.errors import InputError
from lethe.run.losses import LOSSES, LeastSquares, LinearLoss, Logistic, Loss, Softmax
from lethe.train.linear.links.base import Link, ScoreCurvature
from lethe.train.linear.links.least_squares import LeastSquaresLink
from lethe.train.linear.links.logistic import LogisticCurvature, LogisticLink
from lethe.train.linear.links.softmax import SoftmaxCurvature, SoftmaxLink

__all__ = ["Link", "LogisticCurvature", "LogisticLink", "ScoreCurvature", "SoftmaxCurvature", "SoftmaxLink", "linear_loss", "link_of"]


def link_of(loss: LinearLoss) -> Link:
    """The link of a loss."""
    match loss:
        case LeastSquares():
            return LeastSquaresLink(loss)
        case Softmax():
            return SoftmaxLink(loss)
        case Logistic():
            return LogisticLink(loss)
        case _:
            return Link(loss)


def linear_loss(loss: Loss) -> LinearLoss:
    """`loss`, if it is one whose facts the pipeline can enforce.

    Raises:
        InputError: another kind of loss.
    """
    if isinstance(loss, LinearLoss):
        return loss
    kinds = [kind for kind, known in LOSSES.items() if issubclass(known, LinearLoss)]
    raise InputError(
        f"loss.kind: got {loss.kind}; fit_linear trains {', '.join(kinds[:-1])} and {kinds[-1]}.",
        source="loss",
        remedy="choose one of these with a feature_norm, or train the model itself with lethe.train.fit.",
    )
