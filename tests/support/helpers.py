"""The only lists the tests share: every design, loss, regulariser and schedule, and one valid run of them that can be changed.

A list that means fewer designs is made from their facts, so that a new one joins it by itself.
"""

from typing import Any

import lethe
from lethe.run.batches import DESIGNS as DESIGN_CLASSES
from lethe.run.losses import (
    Huber,
    LeastSquares,
    Logistic,
    OneVersusRest,
    SmoothedHinge,
    Softmax,
    TruncatedLogistic,
    TruncatedSoftmax,
    Tweedie,
)
from lethe.run.losses.linear import LinearLoss
from lethe.run.participation import BatchSizes, Participation

ONE_A_PASS = (Participation.PUBLIC_SLOT, Participation.SECRET_SLOT, Participation.FRESH_SECRET_SLOT)

DESIGNS = tuple(DESIGN_CLASSES)
SIZED_DESIGNS = tuple(name for name, design in DESIGN_CLASSES.items() if "size" in design.model_fields)
EXACT_DESIGNS = tuple(name for name, design in DESIGN_CLASSES.items() if design.sizes is BatchSizes.EXACT)
SECRET_DESIGNS = tuple(name for name, design in DESIGN_CLASSES.items() if design.secret)
# A record takes part in one step of each pass, or may take part in every step. In cyclic_poisson neither.
SLOT_DESIGNS = tuple(name for name, design in DESIGN_CLASSES.items() if design.participation in ONE_A_PASS)
EXACT_SLOT_DESIGNS = tuple(name for name in SLOT_DESIGNS if name in EXACT_DESIGNS)
EVERY_STEP_DESIGNS = tuple(name for name in DESIGNS if name not in (*SLOT_DESIGNS, "cyclic_poisson"))
NEIGHBOURS = ("replace_one", "zero_out", "add_or_remove")

LOSSES: tuple[dict[str, Any], ...] = (
    {"kind": "unknown", "gradient_bound": 1.0},
    {"kind": "smooth", "smoothness": 0.1, "gradient_bound": 1.0},
    {"kind": "holder", "constant": 0.2, "exponent": 0.5, "gradient_bound": 1.0},
    {"kind": "holder", "constant": 2.0, "exponent": 0.0, "convex": True, "gradient_bound": 1.0},
    {"kind": "weakly_convex", "weak_convexity": 0.01, "smoothness": 0.5, "gradient_bound": 1.0},
    {"kind": "convex", "smoothness": 0.5, "gradient_bound": 1.0},
    {"kind": "strongly_convex", "strong_convexity": 0.1, "smoothness": 0.5, "gradient_bound": 1.0},
    {"kind": "generalised_linear", "weak_convexity": 0.0, "smoothness": 0.5, "gradient_bound": 1.0},
    {"kind": "logistic_regression", "feature_norm": 1.0},
    {"kind": "softmax_regression", "feature_norm": 1.0, "intercept": True},
    {"kind": "least_squares", "feature_norm": 1.0, "residual_bound": 2.0},
    {"kind": "huber", "feature_norm": 1.0, "residual_bound": 2.0},
    {"kind": "truncated_logistic_regression", "feature_norm": 1.0, "cut": 0.5},
    {"kind": "truncated_softmax_regression", "feature_norm": 1.0, "cut": 0.25, "intercept": True},
    {"kind": "smoothed_hinge", "feature_norm": 1.0, "width": 0.5},
    {"kind": "one_versus_rest_hinge", "feature_norm": 1.0, "classes": 3, "width": 0.5},
    {"kind": "tweedie_regression", "feature_norm": 1.0, "power": 1.5, "target_bound": 4.0, "cut": 2.0},
)

LINEAR_LOSSES: tuple[LinearLoss, ...] = (
    Logistic(feature_norm=1.0),
    Softmax(feature_norm=1.0, classes=2),
    Softmax(feature_norm=1.0, classes=4),
    TruncatedLogistic(feature_norm=1.0, cut=0.4),
    TruncatedLogistic(feature_norm=1.0, cut=0.9),
    TruncatedSoftmax(feature_norm=1.0, classes=3, cut=0.4),
    TruncatedSoftmax(feature_norm=1.0, classes=2, cut=0.8),
    SmoothedHinge(feature_norm=1.0, width=0.2),
    OneVersusRest(feature_norm=1.0, classes=3, width=0.7),
    LeastSquares(feature_norm=1.0, residual_bound=0.6),
    Huber(feature_norm=1.0, residual_bound=0.6),
    Tweedie(feature_norm=1.0, power=1.0, target_bound=1.5, cut=0.6),
    Tweedie(feature_norm=1.0, power=1.5, target_bound=1.0, cut=1.0),
    Tweedie(feature_norm=1.0, power=2.0, target_bound=2.0, cut=1.3),
)

REGULARISERS: tuple[Any, ...] = (
    None,
    {"kind": "ridge", "strength": 0.1},
    {"kind": "l1", "strength": 0.1},
    {"kind": "elastic_net", "l1_strength": 0.1, "ridge_strength": 0.2},
    {"kind": "group_l1", "strength": 0.1},
    {"kind": "nuclear_norm", "strength": 0.1},
    {"kind": "ball", "radius": 2.0},
    {"kind": "box", "half_width": 1.0, "dimension": 4},
    {"kind": "simplex", "total": 1.0},
    [{"kind": "ridge", "strength": 0.1}, {"kind": "ball", "radius": 2.0}],
)

SCHEDULES: tuple[Any, ...] = (
    0.5,
    {"schedule": "exponential", "first": 0.5, "ratio": 0.99},
    {"schedule": "step", "first": 0.5, "factor": 0.6, "period": 3},
    {"schedule": "polynomial", "first": 0.5, "last": 0.1, "power": 3.0, "period": 20},
    {"schedule": "time_decay", "first": 0.5, "rate": 0.05},
    {"schedule": "repeated", "every": 10, "of": {"schedule": "exponential", "first": 0.5, "ratio": 0.9}},
    [0.5 - 0.001 * step for step in range(50)],
)


def batches(design: str, size: int) -> dict[str, Any]:
    """The document of a design; `size` is dropped where there is none. Groups of records: one, which is right for every number of steps."""
    if design == "full":
        return {"design": design}
    return {"design": design, "size": size, **({"groups": 1} if design == "cyclic_poisson" else {})}


# Softmax regression on as many records as MNIST has.
MNIST_SIZED = lethe.Run(
    records=60_000,
    batches=lethe.batches.Cyclic(600),
    passes=20,
    step_size=0.5,
    noise_multiplier=10.0,
    loss=lethe.losses.Softmax(feature_norm=1.0),
    release="last",
    neighbours="replace_one",
)


def make_run(**changes: Any) -> lethe.Run:
    """100 records in 10 cyclic batches, 5 passes, softmax regression; any field can be changed."""
    fields: dict[str, Any] = {
        "records": 100,
        "batches": {"design": "cyclic", "size": 10},
        "passes": 5,
        "step_size": 0.5,
        "noise_multiplier": 5.0,
        "loss": {"kind": "softmax_regression", "feature_norm": 1.0},
        "release": "last",
        "neighbours": "replace_one",
    }
    if "steps" in changes:
        fields.pop("passes")
    return lethe.Run(**{**fields, **changes})


def admits(design: str, relation: str) -> bool:
    """Whether a run of this design may have these neighbours."""
    return relation in DESIGN_CLASSES[design].neighbours


def with_fresh_noise(run: lethe.Run) -> lethe.Run:
    """What a test recorded under a seed, or with a generator of its own, as it would be recorded without."""
    return run.replace(seeded=False)


def as_planned(recorded: lethe.Run) -> lethe.Run:
    """What a test recorded under a seed, as it was planned: without seed, and without the precision that training adds to a run."""
    assert (recorded.precision is None) == (recorded.release == "all" or recorded.noise is not None)
    assert recorded.precision is None or recorded.precision.dtype == "float64"
    return with_fresh_noise(recorded).replace(precision=None)
