"""Lethe: train on private data and prove how private the released model is.

    run = lethe.Run(records=60_000, batches=lethe.batches.Cyclic(600), passes=20, step_size=0.5, noise_multiplier=10.0,
                    loss=lethe.losses.Softmax(feature_norm=1.0), release="last")
    certificate = lethe.certify(run, delta=1e-5)
    print(certificate.explain())

Importing lethe loads neither torch, scikit-learn, matplotlib nor dp_accounting.
"""

import sys
from functools import partial

from lethe.accounting import Unlearning, certify_unlearning
from lethe.accounting.certify import certify
from lethe.accounting.compare import compare
from lethe.accounting.plan import plan
from lethe.accounting.totals import total
from lethe.accounting.verify import verify
from lethe.calculus import guarantees
from lethe.certificates.certificate import Certificate
from lethe.certificates.statement import Statement
from lethe.documents.version import __version__
from lethe.errors import CalibrationError, HypothesisError, InputError, LargeDeltaWarning, LetheError, LetheWarning, MissingExtraError
from lethe.errors.names import refuse_old_name
from lethe.noise_allocation.allocate import allocate
from lethe.noise_allocation.correlate import correlate
from lethe.run import batches, losses, noise, regularisers, schedules
from lethe.run.precision import Precision
from lethe.run.run import Run

for _namespace in (batches, losses, regularisers, schedules, noise, guarantees):  # for `from lethe.batches import Poisson`
    sys.modules[f"lethe.{_namespace.__name__.rpartition('.')[2]}"] = _namespace

__all__ = [
    "CalibrationError",
    "Certificate",
    "HypothesisError",
    "InputError",
    "LargeDeltaWarning",
    "LetheError",
    "LetheWarning",
    "MissingExtraError",
    "Precision",
    "Run",
    "Statement",
    "Unlearning",
    "__version__",
    "allocate",
    "batches",
    "certify",
    "certify_unlearning",
    "compare",
    "correlate",
    "guarantees",
    "losses",
    "noise",
    "plan",
    "regularisers",
    "schedules",
    "total",
    "verify",
]

__getattr__ = partial(refuse_old_name, __name__)
