"""What the estimators for heavy tails state is what the solvers prove, what is released before is paid for, and outliers do not pull."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from gaussian_guarantees import mu_of
from how_many import by_night
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from private_cases import build

from lethe.accounting.verify import verify
from lethe.calculus.guarantees import GDP, ApproxDP
from lethe.calculus.sampled.gaussian import SampledGaussian
from lethe.estimators import HeavyTailedLinearRegression, HeavyTailedLogisticRegression, PrivateMean
from lethe.estimators.heavy_tailed.base import part_of, released_curvature, set_aside
from lethe.estimators.heavy_tailed.linear import ClippedLinearMean, ScoreGradients, clipped_to, gradient_rows, linear_records
from lethe.estimators.options import EstimatorOptions
from lethe.heavy_tailed.oracles import ClippedMean, clip_rows

SEEDED = {"seed_noise": True, "random_state": 0}
RNG = np.random.default_rng(0)
ROWS = RNG.standard_t(3, size=(2000, 4))
VALUES = ROWS @ np.array([0.5, -0.5, 0.2, 0.0]) + RNG.standard_t(3, size=2000)
ODD = st.sampled_from([0.0, 1.0, -1e-320, 1e-200, -3e-160, 1e-154, 1e-77, 1e77, -1e154, 1e160, 1e300, -1.7e308])


class Still(np.random.Generator):
    """Noise of size nought."""

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(0))

    def standard_normal(self, *args: Any, **kwargs: Any) -> Any:
        return np.zeros(args[0]) if args else 0.0


@pytest.mark.parametrize("neighbours", ["replace_one", "zero_out"])
@pytest.mark.parametrize("given", [{}, {"moment": 3.0}, {"moment": 3.0, "smoothness": 2.0}, {"smoothness": 2.0}])
def test_the_statement_meets_the_target_and_is_the_larger_of_two_disjoint_parts(given: dict[str, float], neighbours: str) -> None:
    model = build(HeavyTailedLinearRegression, epsilon=1.0, delta=1e-6, neighbours=neighbours, seed_noise=True, random_state=0, **given)
    model.fit(ROWS, VALUES)
    assert 0.999999 < model.statement_.planned.epsilon(model.delta_) <= 1.0
    assert model.statement_.neighbours == neighbours
    # The solver's own accounting, from sensitivity and noise alone: 30 Gaussian means of clipped gradients.
    (phase,) = model.phases_
    solver = math.sqrt(phase.touches) * (2.0 * phase.clip_norm / phase.batch_size) / phase.release.noise_std
    assert isinstance(model.statement_.planned, GDP)
    assert mu_of(model.statement_.planned) >= solver * (1.0 - 1e-12)
    assert model.n_iter_ == model.run_.total_steps == 30
    assert model.run_.records == phase.stop
    assert phase.batch_size == (2000 if len(given) == 2 else 2000 - set_aside(2000, GDP(solver)))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("solver", ["one_pass", "accelerated", "proximal", "localised", "strongly_convex"])
def test_every_solver_states_its_own_phases(solver: str) -> None:
    model = HeavyTailedLinearRegression(
        delta=1e-6,
        options=EstimatorOptions(mechanism=solver, order=4.0, strong_convexity=0.5),
        moment=5.0,
        radius=1.0,
        smoothness=2.0,
        seed_noise=True,
        random_state=0,
    ).fit(ROWS, VALUES)
    costs = [math.sqrt(phase.touches) * 2.0 * phase.clip_norm / phase.batch_size / phase.release.noise_std for phase in model.phases_]
    ends = [(phase.first, phase.stop) for phase in model.phases_]
    assert all(stop <= first for (_, stop), (first, _) in pairwise(ends))  # disjoint, so the worst counts
    assert mu_of(model.statement_.planned) == pytest.approx(max(costs), rel=1e-9)
    assert model.statement_.planned.epsilon(model.delta_) <= 1.0
    assert float(np.linalg.norm(np.append(model.coef_, model.intercept_))) <= 1.0 + 1e-9


@pytest.mark.parametrize(("records", "given"), [(100, True), (1000, True), (1000, False)])
def test_secret_batches_state_the_solver_s_own_target(records: int, given: bool) -> None:
    """(epsilon, delta) as asked: of phases on 64 records or more what their composition costs at delta, and of constants no more.

    Of phases on fewer, all records at each step, what their Gaussian means cost. From its numbers the statement follows again.
    """
    constants: dict[str, Any] = {"moment": 5.0, "smoothness": 2.0} if given else {}
    options = EstimatorOptions(mechanism="sampled_localised", order=4.0)
    model = HeavyTailedLinearRegression(epsilon=1.0, delta=1e-4, options=options, radius=1.0, **constants)
    model.fit(ROWS[:records], VALUES[:records])
    assert isinstance(model.statement_.planned, ApproxDP if records == 1000 else GDP)
    assert 0.99 < model.epsilon_ <= 1.0
    assert verify(model.certificate_).follows.yes
    drawn = [phase for phase in model.phases_ if phase.whole is not None]
    assert len(drawn) == (3 if records == 1000 else 0)
    for phase in drawn:  # the accountant of secret batches, from what was drawn and added alone
        z = phase.release.noise_std * phase.batch_size / phase.clip_norm
        rate = phase.batch_size / (phase.stop - phase.first)
        exact = SampledGaussian(sampling_probability=rate, noise=(z,), counts=(phase.steps,), relation="replace_one", design="poisson")
        assert isinstance(phase.whole, ApproxDP)
        assert exact.epsilon(1e-4) <= phase.whole.epsilon_bound * (1 + 1e-9)
    assert model.mechanism_ == "sampled_localised"


def test_records_set_aside_do_not_train() -> None:
    """A record of the first part moves the constants, one of the others nothing that was released before the solver."""
    models = []
    order = None
    for value in (0.0, 1e6):
        model = HeavyTailedLinearRegression(delta=1e-6, smoothness=1.0, seed_noise=True, random_state=3)
        order = model._randomness(2000).order
        targets = VALUES.copy()
        targets[order[-1]] = value  # the last one in the public order is the solver's
        models.append(model.fit(ROWS, targets))
    assert models[0].moment_ == models[1].moment_
    assert not np.array_equal(models[0].coef_, models[1].coef_)


@given(rows=arrays(np.float64, (6, 3), elements=ODD), slopes=arrays(np.float64, 6, elements=ODD))
def test_no_record_of_any_size_moves_a_clipped_linear_mean_by_more_than_its_share(rows: np.ndarray, slopes: np.ndarray) -> None:
    features, _, norms = linear_records(rows, slopes)
    oracle, generator = ClippedLinearMean(clip_norm=2.0, rho=1.0), Still()
    alone = [oracle.mean(ScoreGradients(features=features[[i]], norms=norms[[i]], slopes=slopes[[i]]), generator) for i in range(len(rows))]
    assert all(np.isfinite(one).all() and math.hypot(*one) <= 2.0 for one in alone)
    together = oracle.mean(ScoreGradients(features=features, norms=norms, slopes=slopes), generator)
    assert together == pytest.approx(np.mean(alone, axis=0), rel=1e-9, abs=1e-12)


def test_it_is_the_clipped_mean_of_the_table_of_gradients() -> None:
    features, targets, norms = linear_records(ROWS, VALUES)
    weights = np.array([1.0, 0.0, -1.0, 2.0])

    def slope(scores: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        return scores - wanted

    table = gradient_rows(slope)(weights, (features, targets, norms))
    rows = ScoreGradients(features=features, norms=norms, slopes=slope(features @ weights, targets))
    for clip in (0.1, 3.0, 1e9):
        ours = ClippedLinearMean(clip_norm=clip, rho=0.5)
        assert ours.mean(rows, Still()) == pytest.approx(clip_rows(table, clip).mean(axis=0), rel=1e-12)
        assert ours.release(7, 4) == ClippedMean(clip_norm=clip, rho=0.5).release(7, 4)
        drawn = ours.mean(rows, np.random.default_rng(1)) - ours.mean(rows, Still())
        assert drawn == pytest.approx(ours.release(2000, 4).noise_std * np.random.default_rng(1).standard_normal(4), rel=1e-9)


@given(
    rows=arrays(np.float64, (5, 3), elements=ODD | st.floats(-4.0, 4.0)), other=arrays(np.float64, 3, elements=ODD | st.floats(-4.0, 4.0))
)
def test_the_largest_eigenvalue_moves_by_no_more_than_its_sensitivity(rows: np.ndarray, other: np.ndarray) -> None:
    """At a fixed clip norm, which the first release gives: the statement's noise is for c^2/m."""
    found = []
    for first in (rows[0], other):
        table = np.vstack([first, rows[1:]])
        features, _, norms = linear_records(table, np.zeros(5))
        clipped = clipped_to(features, norms, 2.0)
        found.append(float(np.linalg.eigvalsh(clipped.T @ clipped / 5)[-1]))
    assert abs(found[0] - found[1]) <= 4.0 / 5 * (1.0 + 1e-12)


class OneDeviation(Still):
    """Every normal number is 1."""

    def standard_normal(self, *args: Any, **kwargs: Any) -> Any:
        return 1.0 + super().standard_normal(*args, **kwargs)


def test_the_noise_added_to_the_curvature_is_the_noise_stated() -> None:
    """Of rows of zeros the curvature is noise alone; what is returned lies two deviations above it."""
    fact = released_curvature(np.zeros((50, 2)), np.ones(50), GDP(1.0), neighbours="replace_one", generator=OneDeviation())
    noise = float(fact.statements[1].findings[1].detail.rsplit(" ", 1)[1])
    assert fact.value == pytest.approx(3.0 * noise, rel=1e-4)


@given(records=st.integers(2, 10**7), mu=st.floats(1e-3, 50.0))
def test_some_records_are_set_aside_and_some_are_left(records: int, mu: float) -> None:
    first = set_aside(records, GDP(mu))
    assert 1 <= first < records
    assert first <= max(records / 3.0 + 1.0, 1.0)


def test_parts_make_no_more_than_the_whole() -> None:
    for parts in (1, 2, 3, 7):
        one = part_of(GDP(0.3), parts).mu
        assert one * one * parts <= 0.09
        assert one > 0.3 / math.sqrt(parts) * (1.0 - 1e-12)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("solver", ["multi_pass", "accelerated", "localised"])
def test_no_finite_record_breaks_a_fit_or_moves_it_far(solver: str) -> None:
    """An error or a nan that depends on one record would tell that it is there."""
    settings = {"moment": 2.0, "order": 4.0, "radius": 2.0} if solver != "multi_pass" else {}
    rows, values = ROWS.copy(), VALUES.copy()
    rows[:4], values[:4] = [[1e306], [-1e307], [1e-308], [0.0]], [1e307, 0.0, -1e307, 1e307]
    for model in (
        build(HeavyTailedLinearRegression, options=EstimatorOptions(mechanism=solver), **settings, **SEEDED).fit(rows, values),
        build(HeavyTailedLogisticRegression, options=EstimatorOptions(mechanism=solver), **settings, **SEEDED).fit(rows, values > 0.0),
    ):
        assert np.linalg.norm(model.coef_) < 10.0
    assert np.linalg.norm(PrivateMean(**SEEDED).fit(rows).mean_) < 10.0


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
