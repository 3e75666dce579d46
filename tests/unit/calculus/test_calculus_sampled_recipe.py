"""The recipe of a sampled Gaussian: laws, files, refusals, and what computing it leaves alone."""

import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampled_cases import steps

from lethe.calculus.any_guarantee.stored import guarantee_from_dict, noise_scaled
from lethe.calculus.sampled.gaussian import SampledGaussian, merged_levels
from lethe.calculus.sampled.renyi import Design


def test_strong_leaks_cost_exactly_the_chance_of_being_drawn() -> None:
    q, count = 0.01, 3
    drawn = 1 - (1 - q) ** count
    assert drawn * (1 - 1e-12) <= steps(q, 1e-3, count).delta(0.0) <= drawn * (1 + 1e-12)
    assert drawn * (1 - 1e-12) <= steps(q, 1e-3, count, "replace_one", "without_replacement").delta(0.0) <= drawn * (1 + 1e-12)


@pytest.mark.slow
@settings(max_examples=2, deadline=None)
@given(
    q=st.floats(0.01, 0.6),
    z=st.floats(0.8, 4.0),
    count=st.integers(1, 12),
    mu=st.sampled_from([0.0, 0.3]),
    design=st.sampled_from(["poisson", "without_replacement"]),
)
def test_more_noise_fewer_steps_rarer_batches_and_no_gaussian_never_cost_more(
    q: float, z: float, count: int, mu: float, design: Design
) -> None:
    def delta(q: float, z: float, count: int, mu: float) -> float:
        return SampledGaussian(
            sampling_probability=q, noise=(z,), counts=(count,), relation="zero_out", design=design, gaussian_mu=mu
        ).delta(0.5)

    # 1e-6 of room, and the allowance for floating point: two discretisations of one curve need not be ordered to the last digit.
    base = delta(q, z, count, mu) * (1 + 1e-6) + 1e-12
    assert delta(q, z * 1.1, count, mu) <= base
    assert delta(q * 0.9, z, count, mu) <= base
    assert delta(q, z, max(count - 1, 1), mu) <= base
    assert delta(q, z, count, 0.0) <= base


@pytest.mark.slow
def test_json_and_pickle_rebuild_the_recipe() -> None:
    mechanism = SampledGaussian(
        sampling_probability=0.1,
        noise=(1.0, 3.0),
        counts=(4, 5),
        relation="replace_one",
        design="poisson",
        levels_before_rounding=7,
        gaussian_mu=0.25,
    )
    epsilon = mechanism.epsilon(1e-5)
    back = guarantee_from_dict(json.loads(json.dumps(mechanism.to_dict(), allow_nan=False)))
    assert back == mechanism == pickle.loads(pickle.dumps(mechanism))
    assert back.epsilon(1e-5) == epsilon
    assert "7 levels rounded down to 2, and a 0.25-GDP Gaussian" in back.describe()


def test_merged_levels_keep_their_steps() -> None:
    assert merged_levels(np.array([3.0, 1.0, 3.0, 2.0]), (5, 7, 11, 0)) == ((1.0, 3.0), (7, 16))


@pytest.mark.slow
def test_scaling_the_noise_keeps_each_level_s_steps() -> None:
    """Many steps at much noise, few at little: exchanged, epsilon would be several times as large."""
    mechanism = SampledGaussian(sampling_probability=0.05, noise=(8.0, 1.0), counts=(500, 3), relation="zero_out", design="poisson")
    again = noise_scaled(mechanism, 1.0)
    assert again.epsilon(1e-5) == pytest.approx(mechanism.epsilon(1e-5), rel=1e-9)
