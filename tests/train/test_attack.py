"""One record at its worst, in passes that end at an average: what a pass moves by is what is certified, and no more.

The exact privacy of whole runs is in tests/support/exact_runs.py.
"""

import numpy as np
import pytest
from doors import fit_linear

from lethe.run.run import Run

FEATURES = np.array([[1, 0], [0, 1], [0.6, 0.8], [0.8, -0.6], [0.5, 0.5], [-0.3, 0.9], [0, -0.7], [0.6, 0.8]])
TARGETS = np.array([0.3, -0.5, 0.1, 0.6, -0.2, 0.4, 0.0, 0.998])
SIZE = 4


@pytest.mark.sampled(8)
@pytest.mark.parametrize("weights", [[1.0, 1.0], [1.0, 0.0], [0.2, 0.8], [0.0, 1.0]])
@pytest.mark.parametrize("record", [0, 7])
@pytest.mark.parametrize("step_size", [0.5, {"schedule": "exponential", "first": 2.0, "ratio": 0.6}])
def test_one_record_moves_a_pass_by_at_most_what_is_certified(weights: list[float], record: int, step_size: object) -> None:
    """From many starting points; least squares with features of norm 1, steps at most 2 / smoothness."""
    run = Run(
        records=len(FEATURES), batches={"design": "cyclic", "size": SIZE}, passes=1, step_size=step_size, noise_multiplier=0.0,
        noise_at="pass_ends", pass_weights=weights, release="last", neighbours="replace_one",
        loss={"kind": "least_squares", "feature_norm": 1.0, "residual_bound": 1.0, "evidence": "enforced"},
    )  # fmt: skip
    reached = np.cumsum(weights[::-1])[::-1] / np.sum(weights)  # the part of the average that a touch in batch k reaches
    allowed = (reached * run.sensitivities)[record // SIZE]
    random, largest = np.random.default_rng(0), 0.0
    for start in [np.zeros((2, 1)), *(random.normal(size=(2, 1)) * scale for scale in (0.1, 1.0, 100.0) for _ in range(10))]:
        ends = []
        for sign in (-1.0, 1.0):
            features, values = FEATURES.copy(), TARGETS.copy()
            features[record], values[record] = sign * np.array([0.6, 0.8]), 1e6
            ends.append(fit_linear(run, features, values, seed=0, initial=start).model.weights)
        largest = max(largest, float(np.linalg.norm(ends[1] - ends[0])))
    # 1e-13: iterates of size 100 are rounded, which no certificate counts
    assert 0.5 * allowed <= largest <= allowed + 1e-13  # the attack is a real one
    assert largest <= run.sensitivities.max() + 1e-13
