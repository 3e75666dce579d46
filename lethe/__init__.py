"""Lethe: train on private data and prove how private the released model is.

    run = lethe.Run(records=60_000, batches=lethe.batches.Cyclic(600), passes=20, step_size=0.5, noise_multiplier=10.0,
                    loss=lethe.losses.Softmax(feature_norm=1.0), release="last")
    certificate = lethe.certify(run, delta=1e-5)
    print(certificate.explain())

Importing lethe loads neither torch, scikit-learn, matplotlib nor dp_accounting.
"""

from lethe._version import __version__
from lethe.accounting.certify import certify
from lethe.accounting.compare import compare
from lethe.accounting.plan import plan
from lethe.accounting.totals.composed import Total
from lethe.accounting.totals.total import total
from lethe.accounting.verify import Verification, verify
from lethe.calculus.guarantees import GDP, ZCDP, ApproxDP, GDPMixture, Guarantee, Profile, RDPCurve
from lethe.certificates.certificate import Certificate
from lethe.certificates.comparison import Comparison, Sweep
from lethe.certificates.counted_elsewhere import counted_by
from lethe.certificates.shown_elsewhere import drawn_by
from lethe.certificates.statement import Statement
from lethe.certificates.training_record import TrainingRecord
from lethe.errors import CalibrationError, HypothesisError, InputError, LargeDeltaWarning, LetheError, LetheWarning, MissingExtraError
from lethe.noise_allocation.allocate import Allocation, allocate
from lethe.noise_allocation.correlate import correlate
from lethe.report.figures import figure_of
from lethe.run import losses, noise, schedules
from lethe.run.batches import BallsInBins, Cyclic, CyclicPoisson, Full, Poisson, Shuffled, ShuffledOnce, WithoutReplacement
from lethe.run.precision import Precision
from lethe.run.regularisers import L1, L1L2, L2, Ball, Box, GroupL1, NuclearNorm, Simplex
from lethe.run.run import Run
from lethe.run.schedules import Constant, Explicit, Exponential, Influence, Polynomial, Repeated, Step, TimeDecay

drawn_by(figure_of)
counted_by(plan=plan, certify=certify)

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
    "Cyclic",
    "CyclicPoisson",
    "ElasticNet",
    "Explicit",
    "Exponential",
    "Full",
    "GDPMixture",
    "GroupL1",
    "Guarantee",
    "HypothesisError",
    "Influence",
    "InputError",
    "LargeDeltaWarning",
    "LetheError",
    "LetheWarning",
    "MissingExtraError",
    "NuclearNorm",
    "Poisson",
    "Polynomial",
    "Precision",
    "Profile",
    "RDPCurve",
    "Repeated",
    "Ridge",
    "Run",
    "Shuffled",
    "ShuffledOnce",
    "Simplex",
    "Statement",
    "Step",
    "Sweep",
    "TimeDecay",
    "Total",
    "TrainingRecord",
    "Verification",
    "WithoutReplacement",
    "__version__",
    "allocate",
    "certify",
    "compare",
    "correlate",
    "losses",
    "noise",
    "plan",
    "schedules",
    "total",
    "verify",
]
