"""Losses: what is known of one record's loss, and of linear models its values, slopes and curvatures; one class for each, one file a class.

A new loss is a file, a line in `LOSSES` and its tests.
"""

from __future__ import annotations

from lethe.documents.specification import from_tagged
from lethe.errors import InputError
from lethe.run.losses.base import Loss
from lethe.run.losses.general import Convex, GeneralisedLinear, Holder, Smooth, StronglyConvex, Unknown, WeaklyConvex
from lethe.run.losses.huber import Huber
from lethe.run.losses.least_squares import LeastSquares
from lethe.run.losses.logistic import Logistic
from lethe.run.losses.one_versus_rest import OneVersusRest
from lethe.run.losses.smoothed_hinge import SmoothedHinge
from lethe.run.losses.softmax import Softmax
from lethe.run.losses.truncated_logistic import TruncatedLogistic
from lethe.run.losses.truncated_softmax import TruncatedSoftmax

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
    )
}


def parse_loss(value: object) -> Loss:
    """Read {kind: name, ...}.

    Raises:
        InputError: an unknown kind, a bad parameter, or a class that is not in `LOSSES`, a class derived from one that is included.
    """
    if isinstance(value, Loss) and type(value) is not LOSSES.get(value.kind):
        raise InputError(
            f"got {type(value).__name__}, which is not the registered class of kind {value.kind!r}: nobody looked at its bounds.",
            remedy="add it to lethe.run.losses.LOSSES, with tests of its bounds, or take Unknown.",
        )
    return from_tagged(value, tag="kind", classes=LOSSES)
