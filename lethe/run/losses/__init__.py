"""Losses: what is known of one record's loss, and, of linear models, its values, slopes and curvatures; one class each.

A Run holds one as `loss`: theorems take bounds from it, trainers of linear models values and slopes. A slope is the derivative in the
score. A new loss is a class, a line in `LOSSES` and its tests.
"""

from lethe.documents.specification import from_tagged
from lethe.errors import InputError
from lethe.run.losses.base import Convex, GeneralisedLinear, Holder, Loss, Smooth, StronglyConvex, Unknown, WeaklyConvex
from lethe.run.losses.logistic import Logistic, TruncatedLogistic
from lethe.run.losses.piecewise import Huber, LeastSquares, OneVersusRest, SmoothedHinge
from lethe.run.losses.softmax import Softmax, TruncatedSoftmax
from lethe.run.losses.tweedie import Tweedie

__all__ = [
    "Convex",
    "GeneralisedLinear",
    "Holder",
    "Huber",
    "LeastSquares",
    "Logistic",
    "OneVersusRest",
    "Smooth",
    "SmoothedHinge",
    "Softmax",
    "StronglyConvex",
    "TruncatedLogistic",
    "TruncatedSoftmax",
    "Tweedie",
    "WeaklyConvex",
]

LOSSES: dict[str, type[Loss]] = {
    loss.kind: loss
    for loss in (
        Unknown,
        Smooth,
        Holder,
        WeaklyConvex,
        Convex,
        StronglyConvex,
        GeneralisedLinear,
        Logistic,
        Softmax,
        LeastSquares,
        Huber,
        TruncatedLogistic,
        TruncatedSoftmax,
        SmoothedHinge,
        OneVersusRest,
        Tweedie,
    )
}


def parse_loss(value: object) -> Loss:
    """Read {kind: name, ...}."""
    if isinstance(value, Loss) and type(value) is not LOSSES.get(value.kind):
        raise InputError(
            f"got {type(value).__name__}, which is not the registered class of kind {value.kind!r}: nobody looked at its bounds.",
            remedy="add it to lethe.run.losses.LOSSES, with tests of its bounds, or take Unknown.",
        )
    return from_tagged(value, tag="kind", classes=LOSSES)
