"""Noise at pass ends that wanes: it costs what equal noise does, and what it leaves is what is predicted."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("torch")

from lethe.accounting.certify import certify
from lethe.calculus.guarantees import GDP
from lethe.estimators.choice.averaged import waning_kept, waning_variances
from lethe.estimators.choice.run_shapes import best_shape
from lethe.estimators.choice.runs import RunMechanism
from lethe.estimators.inputs.facts import PublicFacts
from lethe.run.losses import Logistic


@pytest.mark.parametrize("passes", [1, 2, 7, 400])
def test_the_variances_pay_together_for_one_and_what_is_kept_is_their_sum(passes: int) -> None:
    noise = waning_variances(passes)
    assert np.sum(1.0 / noise) == pytest.approx(1.0, abs=1e-12)
    assert np.all(np.diff(noise) < 0.0)
    for decay in (0.0, 1e-3, 0.5, 0.97, 0.9999, 1.0):
        summed = np.sum(noise * decay ** (2.0 * np.arange(passes - 1, -1, -1)))
        assert float(waning_kept(np.array([decay]), passes)[0]) == pytest.approx(summed, rel=0.01)


def test_a_run_with_noise_that_is_a_hundredth_too_small_costs_more_than_mu() -> None:
    """Composition over the passes: the certificate is mu, neither less nor more, whatever the shape."""
    facts = PublicFacts(records=2000, columns=5, loss=Logistic(feature_norm=1.0), passes=5, neighbours="zero_out")
    shape = best_shape(facts, "cyclic", "pass_ends", 0.3)
    run = RunMechanism("pass_ends", "cyclic", "pass_ends")._run(shape)  # pyright: ignore[reportPrivateUsage]
    assert run.noise_multipliers[run.noisy_steps] == pytest.approx(np.sqrt(waning_variances(5)))
    exact = run.with_noise_scaled(1.0 / 0.3)
    assert certify(exact, 1e-6).epsilon == pytest.approx(GDP(0.3).epsilon(1e-6), rel=1e-6)
    assert certify(exact.with_noise_scaled(0.99), 1e-6).epsilon > GDP(0.3 * 1.005).epsilon(1e-6)
