"""Kong & Ribero 2025: the hypotheses refused by name, runs of every kind, extreme numbers, and the ends of the closed forms."""

import math

import numpy as np
from kong_ribero_2025_runs import letters

from lethe.theorems.literature.kong_ribero_2024 import bounded_domain_rho
from lethe.theorems.literature.kong_ribero_2025 import (
    clipped_rho,
    corollary_steps_per_pass,
    independent_of_passes_rho,
    unclipped_rho,
)
from lethe.theorems.literature.kong_ribero_setting import step_limit
from lethe_experiments.kong_ribero_noise import corrected_noise_std


def test_the_closed_forms_know_their_limits() -> None:
    numbers = {"batch_size": 10, "noise_std": 0.25, "weak_convexity": 0.05, "smoothness": 0.2, "steps": 50, "steps_per_pass": 10}
    for bound, sizes in ((clipped_rho, [2.0, 2.1]), (unclipped_rho, [4.0, 4.1]), (independent_of_passes_rho, [0.447, 0.448])):
        assert np.isfinite(bound(letters(**numbers, step_size=sizes))).tolist() == [True, False]
    assert np.isfinite(bounded_domain_rho(letters(**numbers, step_size=[2.0, 2.1]), 0.1, "revised")).tolist() == [True, False]
    assert independent_of_passes_rho(letters(**{**numbers, "steps": 9}, step_size=0.1)) == math.inf
    short = {"clip_norm": 1.0, "batch_size": 10, "weak_convexity": 0.05, "smoothness": 0.2, "order": 2.0, "epsilon": 1.0, "steps": 50}
    assert np.isfinite(corrected_noise_std(**short, steps_per_pass=[7, 8])).tolist() == [False, True]
    assert corollary_steps_per_pass([0.0, -1.0], 0.2).tolist() == [math.inf, math.inf]
    assert step_limit(0.0, 0.0) == math.inf
