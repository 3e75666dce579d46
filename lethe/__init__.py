"""Lethe: train on private data and prove how private the released model is.

    run = lethe.Run(records=60_000, batches=lethe.Cyclic(size=600), passes=20, step_size=0.5, noise_multiplier=10.0,
                    loss=lethe.SoftmaxRegression(feature_norm=1.0), release="last")
    certificate = lethe.certify(run, delta=1e-5)
    print(certificate.explain())

Importing lethe loads neither torch, scikit-learn, matplotlib nor dp_accounting.
"""

from lethe._version import __version__
from lethe.allocate import Allocation, allocate
from lethe.batches import BallsInBins, Cyclic, Full, Poisson, Shuffled, ShuffledOnce, WithoutReplacement
from lethe.calculus.guarantees import GDP, ZCDP, ApproxDP, GDPMixture, Guarantee, Profile, RDPCurve
from lethe.certificate import Certificate
from lethe.certify import certify
from lethe.compare import compare
from lethe.comparison import Comparison, Sweep
from lethe.errors import CalibrationError, HypothesisError, InputError, LargeDeltaWarning, LetheError, MissingExtraError
from lethe.losses import (
    ConvexLoss,
    GeneralisedLinearLoss,
    HolderLoss,
    LeastSquares,
    LogisticRegression,
    OneVersusRestHinge,
    SmoothedHinge,
    SmoothLoss,
    SoftmaxRegression,
    StronglyConvexLoss,
    TruncatedLogisticRegression,
    TruncatedSoftmaxRegression,
    UnknownLoss,
    WeaklyConvexLoss,
)
from lethe.plan import plan
from lethe.regularisers import L1, Ball, Box, ElasticNet, GroupL1, NuclearNorm, Ridge, Simplex
from lethe.run import Run
from lethe.schedules import Constant, Explicit, Exponential, Influence, Polynomial, Repeated, Step, TimeDecay
from lethe.training_record import TrainingRecord
from lethe.verify import Verification, verify

__all__ = [
    "GDP",
    "L1",
    "ZCDP",
    "Allocation",
    "ApproxDP",
    "Ball",
    "BallsInBins",
    "Box",
    "CalibrationError",
    "Certificate",
    "Comparison",
    "Constant",
    "ConvexLoss",
    "Cyclic",
    "ElasticNet",
    "Explicit",
    "Exponential",
    "Full",
    "GDPMixture",
    "GeneralisedLinearLoss",
    "GroupL1",
    "Guarantee",
    "HolderLoss",
    "HypothesisError",
    "Influence",
    "InputError",
    "LargeDeltaWarning",
    "LeastSquares",
    "LetheError",
    "LogisticRegression",
    "MissingExtraError",
    "NuclearNorm",
    "OneVersusRestHinge",
    "Poisson",
    "Polynomial",
    "Profile",
    "RDPCurve",
    "Repeated",
    "Ridge",
    "Run",
    "Shuffled",
    "ShuffledOnce",
    "Simplex",
    "SmoothLoss",
    "SmoothedHinge",
    "SoftmaxRegression",
    "Step",
    "StronglyConvexLoss",
    "Sweep",
    "TimeDecay",
    "TrainingRecord",
    "TruncatedLogisticRegression",
    "TruncatedSoftmaxRegression",
    "UnknownLoss",
    "Verification",
    "WeaklyConvexLoss",
    "WithoutReplacement",
    "__version__",
    "allocate",
    "certify",
    "compare",
    "plan",
    "verify",
]
