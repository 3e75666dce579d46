"""The recipe of the windowed bound: noise levels that are only ever lowered, what it refuses, and its JSON."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from windowed_runs import guarantee_of, windowed_of, windowed_run

import lethe
from lethe.calculus.any_guarantee.stored import guarantee_from_dict, noise_scaled
from lethe.calculus.sampled.windowed_gaussian import WindowedGaussian
from lethe.certificates.findings import first_failure
from lethe.theorems.windowed import Windowed


@pytest.mark.slow
def test_many_noise_levels_are_rounded_down_and_change_little() -> None:
    level = {"schedule": "exponential", "first": 4.0, "ratio": 0.9999}
    rounded, plain = (
        guarantee_of(windowed_run(steps=600, noise_multiplier=level)),
        guarantee_of(windowed_run(steps=600, noise_multiplier=4.0 * 0.9999**599)),
    )
    assert len(windowed_of(windowed_run(steps=600, noise_multiplier=level)).noise) <= 256
    assert rounded.epsilon(1e-5) < plain.epsilon(1e-5)


def test_levels_are_only_ever_lowered() -> None:
    generator = np.random.default_rng(3)
    noise = generator.uniform(2.0, 6.0, 700)
    kept = windowed_of(windowed_run(steps=700, noise_multiplier=noise.tolist()))
    assert len(kept.noise) <= 256
    for length, row in zip((sum(row) for row in kept.counts), kept.counts, strict=True):
        lowered = np.repeat(kept.noise, row)
        assert np.all(np.sort(lowered) <= np.sort(noise[700 - length :]))


@pytest.mark.slow
def test_noise_counts_in_units_of_one_record_s_gradient() -> None:
    """A clip norm of 2 on gradients of at most 1: the noise is twice as large against a record."""
    loose, plain = windowed_run(clip_norm=2.0, steps=3000), windowed_run(noise_multiplier=8.0, steps=3000)
    assert guarantee_of(loose).epsilon(1e-5) == pytest.approx(guarantee_of(plain).epsilon(1e-5), rel=1e-9)


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("factor", np.linspace(0.7, 1.4, 8).tolist())
def test_levels_that_scaling_makes_equal_are_one_level(factor: float) -> None:
    level = 3.572212829762708
    run = windowed_run(
        steps=40, regulariser={"kind": "ball", "radius": 0.0012}, noise_multiplier=[level, float(np.nextafter(level, 9.0))] * 20
    )
    assert noise_scaled(guarantee_of(run), factor).epsilon(1e-5) > 0
    assert lethe.certify(run, 1e-5).epsilon > 0


def test_noise_next_to_nothing_is_no_error() -> None:
    assert lethe.certify(windowed_run(noise_multiplier=1e-110, steps=5), 1e-5).epsilon > 1e100


def test_no_window_reaches_over_a_step_without_noise() -> None:
    run = windowed_run(steps=30, noise_multiplier=[4.0] * 19 + [0.0] + [4.0] * 10)
    lengths = [sum(row) for row in windowed_of(run).counts]
    assert max(lengths) == 10


@pytest.mark.parametrize(
    ("changes", "hypothesis"),
    [
        ({"release": "all"}, "release"),
        ({"batches": {"design": "cyclic", "size": 20}}, "random batches"),
        ({"loss": {"kind": "unknown", "gradient_bound": 1.0}}, "smoothness"),
        ({"regulariser": None}, "domain or contraction"),
        ({"noise_multiplier": [4.0] * 299 + [0.0]}, "noise"),
        (
            {
                "loss": {"kind": "strongly_convex", "strong_convexity": 30.0, "smoothness": 40.0, "gradient_bound": 1.0},
                "neighbours": "replace_one",
                "step_size": 0.01,
            },
            "gradient bound",
        ),
    ],
)
def test_it_refuses_by_name(changes: dict[str, Any], hypothesis: str) -> None:
    failure = first_failure(Windowed().examine(windowed_run(**changes)))
    assert failure is not None
    assert failure.name == hypothesis


def test_a_round_trip_through_json_changes_no_bit() -> None:
    guarantee = guarantee_of(windowed_run())
    again = guarantee_from_dict(guarantee.to_dict())
    assert again == guarantee
    assert again.epsilon(1e-6) == guarantee.epsilon(1e-6)


@pytest.mark.parametrize(
    "changes",
    [
        {"counts": ((1, 2),)},
        {"counts": ((0,),)},
        {"shift_mus": (1.0, 2.0)},
        {"shift_mus": (-1.0,)},
        {"noise": (0.0,)},
        {"sampling_probability": 0.0},
        {"design": "cyclic"},
        {"design": "without_replacement", "relation": "add_or_remove"},
    ],
)
def test_bad_recipes_are_refused(changes: dict[str, Any]) -> None:
    recipe: dict[str, Any] = {
        "sampling_probability": 0.1,
        "noise": (1.0,),
        "counts": ((3,),),
        "shift_mus": (0.5,),
        "relation": "zero_out",
        "design": "poisson",
    }
    WindowedGaussian(**recipe)
    with pytest.raises(lethe.InputError):
        WindowedGaussian(**{**recipe, **changes})
