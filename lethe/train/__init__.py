"""Training on PyTorch: the doers. They read a Run, carry it out, and record the Run that was really carried out.

`fit_linear` trains the models whose privacy hypotheses the pipeline itself enforces: softmax and logistic regression, least squares.
"""

import importlib.util

from lethe.errors import MissingExtraError

if importlib.util.find_spec("torch") is None:
    raise MissingExtraError("lethe.train needs PyTorch, which is not installed.", remedy='pip install "lethe-dp[train]"')

from lethe.train.loop import fit_linear
from lethe.train.trained import Report, Trained

__all__ = ["Report", "Trained", "fit_linear"]
