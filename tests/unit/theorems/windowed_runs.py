"""Runs under random batches in a ball, and what is guaranteed of their last iterate."""

from __future__ import annotations

from typing import Any

import lethe
from lethe.calculus.guarantees import WithSlack
from lethe.calculus.sampled.windowed_gaussian import WindowedGaussian
from lethe.theorems.windowed import Windowed

LINEAR = {"kind": "convex", "smoothness": 0.0, "gradient_bound": 1.0}


def windowed_run(**changes: Any) -> lethe.Run:
    """200 records, batches of 20, a ball of radius .1, steps of .1: one touch moves by s = .005, and a pass by .05."""
    fields: dict[str, Any] = {
        "records": 200,
        "batches": {"design": "poisson", "size": 20},
        "steps": 300,
        "step_size": 0.1,
        "noise_multiplier": 4.0,
        "loss": LINEAR,
        "regulariser": {"kind": "ball", "radius": 0.1},
        "neighbours": "zero_out",
        "release": "last",
    }
    return lethe.Run(**{**fields, **changes})


def guarantee_of(run: lethe.Run) -> lethe.guarantees.Guarantee:
    return Windowed().bound(run).guarantee


def windowed_of(run: lethe.Run) -> WindowedGaussian:
    guarantee = guarantee_of(run)
    inner = guarantee.guarantee if isinstance(guarantee, WithSlack) else guarantee
    assert isinstance(inner, WindowedGaussian)
    return inner
