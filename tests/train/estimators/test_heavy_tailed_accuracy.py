"""Estimators for heavy tails learn where least squares does not, and bound their errors as they say."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from gaussian_guarantees import mu_of
from how_many import by_night
from repository import ROOT
from sklearn.linear_model import LinearRegression

import lethe.estimators
from lethe.estimators import HeavyTailedLinearRegression, PrivateMean
from lethe.estimators.heavy_tailed.solvers import planned
from lethe.estimators.options import EstimatorOptions
from lethe.heavy_tailed import BallDomain, Moments, Problem
from lethe.heavy_tailed.one_pass import one_pass_optimised

TEACHER = np.array([1.0, -2.0, 0.5])
SEEDED = {"random_state": 0, "seed_noise": True}


def spoilt(records: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A linear model with t noise; one record in a hundred is beyond all measure."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_t(4, size=(records, 3))
    values = rows @ TEACHER + 3.0 + rng.standard_t(3, size=records)
    bad = rng.random(records) < 0.01
    rows[bad] *= 1000.0
    values[bad] = 1e7
    return rows, values


def test_outliers_pull_least_squares_and_not_the_private_model() -> None:
    rows, values = spoilt(20_000, 0)
    plain = LinearRegression().fit(rows, values)
    model = HeavyTailedLinearRegression(delta=1e-6, **SEEDED).fit(rows, values)
    assert np.linalg.norm(plain.coef_ - TEACHER) > 10.0
    assert np.linalg.norm(model.coef_ - TEACHER) < 0.5
    assert abs(model.intercept_ - 3.0) < 0.5
    assert model.predict(rows[:2]) == pytest.approx(rows[:2] @ model.coef_ + model.intercept_)


@pytest.mark.parametrize("solver", ["auto", "multi_pass"])
@pytest.mark.parametrize("parameters", ["practical", "optimised", "theory"])
def test_a_mean_is_found_from_a_released_centre(solver: str, parameters: str) -> None:
    rng = np.random.default_rng(4)
    rows = np.array([1e3, -2.0]) + rng.standard_t(3, size=(20_000, 2))
    rows[:100] = 1e9
    model = PrivateMean(delta=1e-6, options=EstimatorOptions(mechanism=solver, parameters=parameters), **SEEDED).fit(rows)
    # A hundred rows clipped to C, all to one side, pull by C/200; the "theory" clips at about 30 r_2.
    pull = model.phases_[0].clip_norm / 200.0
    assert model.mean_ == pytest.approx([1e3, -2.0], abs=0.3 + 2.0 * pull)
    assert (model.error_bound_ is None) == (solver == "multi_pass" or parameters == "practical")


@pytest.mark.slow
def test_the_error_of_a_mean_is_within_its_bound_and_not_far_below_with_noise() -> None:
    rng = np.random.default_rng(5)
    errors, bounds = [], []
    for seed in range(200 if by_night() else 60):
        rows = rng.standard_normal((100, 2))
        model = PrivateMean(delta=1e-6, moment=math.sqrt(2.0), centre=[0.0, 0.0], random_state=seed, seed_noise=True).fit(rows)
        errors.append(float(model.mean_ @ model.mean_))
        bounds.append(model.error_bound_)
    rms = math.sqrt(np.mean(errors))
    assert 0.3 * max(bounds) < rms <= min(bounds)


@pytest.mark.slow
def test_noise_and_a_record_s_pull_are_what_the_phase_says() -> None:
    """The law of what is released, from many fits: its spread, and how far one record moves its middle."""
    rows = np.zeros((50, 1))
    other = rows.copy()
    rows[0], other[0] = 1e6, -1e6
    count = 200 if by_night() else 60
    fits = [
        [PrivateMean(moment=1.0, centre=[0.0], random_state=seed, seed_noise=True).fit(table) for seed in range(first, first + count)]
        for table, first in ((rows, 0), (other, 1000))
    ]
    (phase,) = fits[0][0].phases_
    first, second = (np.array([model.mean_[0] for model in models]) for models in fits)
    spread = np.std(np.concatenate([first - first.mean(), second - second.mean()]))
    assert spread == pytest.approx(phase.release.noise_std, rel=3.0 / math.sqrt(count))  # four standard errors
    assert first.mean() - second.mean() == pytest.approx(2.0 / 50.0, abs=5.0 * spread * math.sqrt(2.0 / count))
    assert 2.0 / 50.0 / phase.release.noise_std == pytest.approx(mu_of(fits[0][0].statement_.planned), rel=1e-9)


@pytest.mark.slow
def test_the_plan_is_the_solver_s_with_the_radius_as_distance() -> None:
    problem = Problem(
        gradient=lambda point, rows: rows,
        dimension=4,
        domain=BallDomain(radius=1.5),
        smoothness=2.0,
        strong_convexity=0.5,
        pl_constant=0.5,
        moments=Moments(order=2.0, bound=3.0),
    )
    assert planned("one_pass", "optimised", problem, 1000, 0.1) == one_pass_optimised(problem, 1000, 0.1, distance=1.5)
    assert planned("proximal", "theory", problem, 1000, 0.1).bound < math.inf


def test_the_example_on_the_page_is_short_and_finds_what_it_is_made_of(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "estimators.md").read_text()
    (example,) = [block for block in re.findall(r"```python\n(.*?)```", page, flags=re.S) if "PrivateMean" in block]
    assert len([line for line in example.splitlines() if line.strip()]) <= 15
    names = {"np": np, "private": lethe.estimators, "delta": 1e-6}
    exec(compile(example, "estimators.md", "exec"), names)
    assert np.linalg.norm(names["robust"].coef_ - names["slopes"]) < 0.5
    assert np.linalg.norm(names["middle"].mean_) < 0.5
    printed = capsys.readouterr().out
    assert "What was released" in printed
    assert "-GDP" in printed
