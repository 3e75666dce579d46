"""What allocate and correlate refuse, one line each: the run, what is asked for, and what is said."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import batches, make_run

import lethe
from lethe.calculus.correlated.sensitivity import output_square
from lethe.noise_allocation.allocate import allocate
from lethe.noise_allocation.noise_shapes import shaped
from lethe.run.schedules import Influence

UNKNOWN: dict[str, Any] = {"loss": {"kind": "unknown"}, "clip_norm": 1.0}
POISSON: dict[str, Any] = {"batches": batches("poisson", 10), **UNKNOWN}
REFUSED: tuple[tuple[dict[str, Any], dict[str, Any], str], ...] = (
    *((changes, {"schedule": "joint"}, "no joint optimum") for changes in ({"release": "all"}, POISSON, UNKNOWN)),
    ({}, {"schedule": "best"}, "schedule"),
    *(({}, {"floor": floor}, "floor") for floor in (-1.0, math.nan, math.inf)),
    *(({}, {"influence": wrong}, "influence") for wrong in ("0.97", True, {"rate": 0.97})),
    ({"release": "all", "noise_budget": 0.1}, {}, "cannot be planned"),
    ({"release": "all"}, {"schedule": "pass_ends"}, "release is all"),
    (POISSON, {"schedule": "pass_ends"}, "drawn afresh"),
    ({"batches": {"design": "full"}, "passes": 3}, {"schedule": "pass_ends"}, "a pass is one step"),
    ({"noise_at": "pass_ends"}, {"schedule": "pass_ends"}, "has its noise there already"),
    ({"release": "last"}, {"schedule": "pass_ends", "floor": 1.0}, "floor"),
    *((changes, {"schedule": "correlated"}, "does not go with") for changes in (POISSON, {"noise_at": "pass_ends", "release": "last"})),
)


UNCORRELATED: tuple[tuple[dict[str, Any], dict[str, Any], str], ...] = (
    ({}, {"strategy": "tree"}, "strategy"),
    ({}, {"strategy": "dense"}, "path"),
    ({}, {"path": "C.npy"}, "path"),
    *(({}, {"bands": bands}, "bands") for bands in (0, 51)),
    ({}, {"strategy": "buffered_toeplitz", "buffers": 11}, "buffers"),
    ({}, {"momentum": 1.0}, "momentum"),
    ({}, {"momentum": 0.5, "influence": Influence(rate=0.8, basis="assumed")}, "momentum"),
    ({"step_size": [0.5] * 49 + [0.4]}, {}, "step_size"),
    (POISSON, {}, "poisson"),
    ({"noise_at": "pass_ends"}, {}, "noise_at"),
    ({"passes": 500}, {"strategy": "dense", "path": "C.npy"}, "4096"),
)


@pytest.mark.parametrize(("changes", "asked", "said"), REFUSED)
def test_it_is_refused(changes: dict[str, Any], asked: dict[str, Any], said: str) -> None:
    with pytest.raises(lethe.InputError, match=said):
        allocate(make_run(**{"noise_multiplier": None, **changes}), 1.0, 1e-5, **asked)


@pytest.mark.parametrize(("changes", "asked", "said"), UNCORRELATED)
def test_correlate_refuses(changes: dict[str, Any], asked: dict[str, Any], said: str) -> None:
    with pytest.raises(lethe.InputError, match=said):
        lethe.correlate(make_run(**changes), **asked)
    assert not Path("C.npy").exists()


def test_weights_that_do_not_go_with_the_steps() -> None:
    run = make_run(noise_multiplier=None)
    with pytest.raises(lethe.InputError, match="weights"):
        shaped(run, "influence", Influence(weights=(1.0, 2.0), basis="assumed"))
    for wrong in ([1.0], [1.0, -1.0], [1.0, np.nan], [[1.0, 1.0]]):
        with pytest.raises(lethe.InputError, match="weights"):
            output_square([1.0, 0.5], wrong)
