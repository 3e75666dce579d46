"""Kong & Ribero 2025: the hypotheses refused by name, runs of every kind, extreme numbers, and the ends of the closed forms."""

import math

import numpy as np
import pytest
from helpers import make_run, varied_runs
from how_many import by_night
from kong_ribero_2025_runs import BALL, CLIPPED, CORRECTED, DELTA, DOMAIN, INDEPENDENT, STATED, THEOREMS, UNCLIPPED, WEAK, letters

from lethe.certificates.findings import first_failure
from lethe.errors import HypothesisError
from lethe.theorems.base import Theorem
from lethe.theorems.literature.kong_ribero_2024 import bounded_domain_rho
from lethe.theorems.literature.kong_ribero_2025 import (
    clipped_rho,
    corollary_steps_per_pass,
    independent_of_passes_rho,
    unclipped_rho,
)
from lethe.theorems.literature.kong_ribero_setting import step_limit
from lethe_experiments.kong_ribero_noise import corrected_noise_std

CONVEX = {"kind": "convex", "smoothness": 0.2, "gradient_bound": 1.0}
VARYING = {"schedule": "exponential", "first": 0.5, "ratio": 0.9}
GOOD: dict[Theorem, dict[str, object]] = {
    DOMAIN: {"loss": WEAK, "regulariser": BALL},
    CLIPPED: {"loss": WEAK, "clip_norm": 0.5},
    UNCLIPPED: {"loss": WEAK},
    STATED: {"loss": WEAK, "step_size": 2.0},
    CORRECTED: {"loss": WEAK, "step_size": 2.0},
    INDEPENDENT: {"loss": WEAK, "step_size": 0.4},
}


@pytest.mark.parametrize(
    ("theorem", "changes", "hypothesis"),
    [
        *((theorem, {"release": "all"}, "release") for theorem in THEOREMS),
        *((theorem, {"batches": {"design": "full"}, "neighbours": "add_or_remove"}, "neighbours") for theorem in THEOREMS),
        *((theorem, {"batches": {"design": "poisson", "size": 10}}, "batches") for theorem in THEOREMS),
        *((theorem, {"loss": {"kind": "unknown", "gradient_bound": 1.0}}, "smoothness") for theorem in THEOREMS),
        *((theorem, {"batches": {"design": "shuffled", "size": 10}}, "batches") for theorem in THEOREMS[1:]),
        *((theorem, {"step_size": VARYING}, "constant schedule") for theorem in THEOREMS[1:]),
        *((theorem, {"noise_at": "pass_ends"}, "constant schedule") for theorem in THEOREMS[1:]),
        *((theorem, {"clip_norm": 0.5}, "clipping") for theorem in THEOREMS[2:]),
        *((theorem, {"step_size": 2.0000001}, "step size") for theorem in (DOMAIN, CLIPPED, STATED, CORRECTED)),
        *((theorem, {"step_size": 1.9999999}, "step size") for theorem in (STATED, CORRECTED)),
        *((theorem, {"batches": {"design": "cyclic", "size": 14}}, "pass length") for theorem in (STATED, CORRECTED)),  # 7 < 7.27
        *((theorem, {"loss": CONVEX, "step_size": 2.5}, "pass length") for theorem in (STATED, CORRECTED)),
        (UNCLIPPED, {"step_size": 4.0000001}, "step size"),
        (INDEPENDENT, {"step_size": 0.4473}, "step size"),  # 1/sqrt(5) = 0.44721
        (INDEPENDENT, {"step_size": 0.4, "loss": {**WEAK, "smoothness": 1.3}}, "step size"),
        (INDEPENDENT, {"steps": 9}, "passes"),
        (DOMAIN, {"regulariser": None}, "domain"),
        (DOMAIN, {"noise_multiplier": [*[5.0] * 49, 0.0]}, "noise"),
    ],
)
def test_they_refuse_by_name(theorem: Theorem, changes: dict[str, object], hypothesis: str) -> None:
    assert first_failure(theorem.examine(make_run(**GOOD[theorem]))) is None
    run = make_run(**{**GOOD[theorem], **changes})
    failure = first_failure(theorem.examine(run))
    assert failure is not None
    assert failure.name == hypothesis
    with pytest.raises(HypothesisError, match=theorem.name):
        theorem.bound(run)


@pytest.mark.slow
def test_no_run_makes_them_raise_and_no_bound_is_nan() -> None:
    for run in varied_runs(1 if by_night() else 11):
        for theorem in THEOREMS:
            if first_failure(theorem.examine(run)) is None:
                assert theorem.bound(run).guarantee.epsilon(DELTA) > 0  # nan is not


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("noise", [1e-140, 1e140])
def test_extreme_noise_and_long_runs(noise: float) -> None:
    for theorem in THEOREMS:
        run = make_run(**{**GOOD[theorem], "noise_multiplier": noise, "steps": 1_000_000, "step_size": 0.0009})
        if theorem in (STATED, CORRECTED):
            run = make_run(**{**GOOD[theorem], "noise_multiplier": noise, "steps": 1_000_000})
        guarantee = theorem.bound(run).guarantee
        assert guarantee.epsilon(DELTA) > 1e250 if noise < 1 else 0 < guarantee.epsilon(DELTA) < 0.2


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
