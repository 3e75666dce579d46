"""Estimators load PyTorch where a mechanism needs it, and not before: it takes seconds."""

import subprocess
import sys

_CODE = """
import sys

import numpy as np

import lethe.features
from lethe.estimators import *


def model(mechanism):
    options = EstimatorOptions(mechanism=mechanism)
    return LogisticRegression(delta=1e-4, feature_norm=1.5, classes=[0, 1], options=options).fit(X, y)


def say(what):
    print(what, "torch" in sys.modules, any(one.startswith("lethe.train") for one in sys.modules))


X = np.random.default_rng(0).uniform(-1, 1, (60, 2))
y = (X[:, 0] > 0).astype(int)
PrivateMean, HeavyTailedLinearRegression
say("imported")
private_score(model("objective_perturbation"), X, y, epsilon=1.0, delta=1e-4)
PrivateStandardScaler(delta=1e-4).fit(X)
say("solved")
model("full_batch")
say("trained")
"""


def test_torch_is_loaded_where_a_mechanism_needs_it() -> None:
    done = subprocess.run([sys.executable, "-c", _CODE], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.splitlines() == ["imported False False", "solved False False", "trained True True"], done.stderr
