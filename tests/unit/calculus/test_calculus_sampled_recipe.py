"""The recipe of a sampled Gaussian: laws, files, refusals, and what computing it leaves alone."""

import json
import logging
import math
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampled_cases import steps

from lethe.calculus.any_guarantee.stored import guarantee_from_dict, noise_scaled
from lethe.calculus.sampled.gaussian import SampledGaussian, merged_levels, sampled_gaussian
from lethe.calculus.sampled.renyi import Design
from lethe.errors import InputError


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


@pytest.mark.parametrize(
    "change",
    [
        {"sampling_probability": -0.1},
        {"sampling_probability": 1.1},
        {"sampling_probability": math.nan},
        {"noise": ()},
        {"noise": (0.0,)},
        {"noise": (math.inf,)},
        {"noise": (1.0, 1.0), "counts": (1, 1)},
        {"noise": (1.0, 2.0)},
        {"counts": (0,)},
        {"counts": (1.5,)},
        {"relation": "neighbours"},
        {"design": "shuffled"},
        {"design": "without_replacement", "relation": "add_or_remove"},
        {"levels_before_rounding": -1},
        {"gaussian_mu": -0.1},
        {"gaussian_mu": math.inf},
        {"gaussian_mu": math.nan},
    ],
)
def test_bad_recipes_are_refused(change: dict[str, object]) -> None:
    good: dict[str, object] = {"sampling_probability": 0.1, "noise": (1.0,), "counts": (3,), "relation": "zero_out", "design": "poisson"}
    with pytest.raises(InputError):
        SampledGaussian(**(good | change))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("noise", [[], [-1.0], [math.nan], [math.inf], [[1.0]], 1.0, None])
def test_bad_noise_is_refused(noise: object) -> None:
    for probability in (0.0, 0.5, 1.0):
        with pytest.raises(InputError):
            sampled_gaussian(probability, noise, "zero_out", "poisson")  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="Poisson"):
        sampled_gaussian(0.5, [1.0], "add_or_remove", "without_replacement")


def test_nothing_is_logged_and_no_logger_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = list(logging.getLogger("absl").filters)
    said: list[logging.LogRecord] = []
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", said.append)
    for name in (None, "absl"):
        monkeypatch.setattr(logging.getLogger(name), "handlers", [handler])
    monkeypatch.setattr(logging.getLogger(), "level", logging.DEBUG)
    logging.getLogger("absl").warning("heard")
    steps(0.5, 1.0, 7).epsilon(1e-5)  # dp_accounting warns about the order 1.1 here
    assert {record.getMessage() for record in said} == {"heard"}
    assert logging.getLogger("absl").filters == before


@pytest.mark.slow
@pytest.mark.nightly(by_day="test_importing_lethe_stays_light")
def test_importing_the_module_does_not_import_dp_accounting() -> None:
    # dp_accounting takes most of a second to import; the calculus modules are imported by every command.
    code = "import sys, lethe.calculus.guarantees, lethe.calculus.sampled.gaussian; sys.exit('dp_accounting' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_merged_levels_keep_their_steps() -> None:
    assert merged_levels(np.array([3.0, 1.0, 3.0, 2.0]), (5, 7, 11, 0)) == ((1.0, 3.0), (7, 16))


@pytest.mark.slow
def test_scaling_the_noise_keeps_each_level_s_steps() -> None:
    """Many steps at much noise, few at little: exchanged, epsilon would be several times as large."""
    mechanism = SampledGaussian(sampling_probability=0.05, noise=(8.0, 1.0), counts=(500, 3), relation="zero_out", design="poisson")
    again = noise_scaled(mechanism, 1.0)
    assert again.epsilon(1e-5) == pytest.approx(mechanism.epsilon(1e-5), rel=1e-9)
