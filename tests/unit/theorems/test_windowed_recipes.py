"""The recipe of the windowed bound: noise levels that are only ever lowered, what it refuses, and its JSON."""

from __future__ import annotations

import numpy as np
import pytest
from windowed_runs import guarantee_of, windowed_of, windowed_run


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


def test_no_window_reaches_over_a_step_without_noise() -> None:
    run = windowed_run(steps=30, noise_multiplier=[4.0] * 19 + [0.0] + [4.0] * 10)
    lengths = [sum(row) for row in windowed_of(run).counts]
    assert max(lengths) == 10
