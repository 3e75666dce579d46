"""Audits that train: canaries, games of two worlds and of one run, played in many processes, kept as they go.

All of it works on any callable `train(data, seed) -> model`, or on a `World` that can be watched. Games with Lethe's own trainers are in
`lethe.audit.trainers`.
"""

import importlib.util
from functools import partial

from lethe.errors import MissingExtraError
from lethe.errors.names import refuse_old_name

if importlib.util.find_spec("joblib") is None:
    raise MissingExtraError("lethe.audit.games needs joblib, which is not installed.", remedy='pip install "lethe-dp[audit]"')

__getattr__ = partial(refuse_old_name, __name__)
