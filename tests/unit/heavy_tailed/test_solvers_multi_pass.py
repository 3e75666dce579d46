"""Multi-pass clipped descent: against its plain form, its price, and what it reaches on heavy tails."""

import math

import numpy as np
import pytest
from solver_problems import CURVATURES, QUADRATIC, SLOPES

from lethe.calculus.guarantees import GDP, NotPrivate
from lethe.heavy_tailed import multi_pass
from lethe.heavy_tailed.oracles import ClippedMean, ExactMean
from lethe.heavy_tailed.problem import Records
from lethe.heavy_tailed.sets import BallDomain, BoxDomain, ConvexSet, WholeSpace

RECORDS = np.zeros(7)


def test_without_noise_it_is_projected_gradient_descent() -> None:
    done = multi_pass(QUADRATIC, RECORDS, oracle=ExactMean(), passes=9, start=[-1.0, 0.2])
    wide = multi_pass(QUADRATIC, RECORDS, oracle=ClippedMean(clip_norm=1e6, rho=math.inf), passes=9, start=[-1.0, 0.2])
    point = np.array([-1.0, 0.2]) / math.hypot(1.0, 0.2)
    for _ in range(9):
        point = point - 0.1 * (CURVATURES * point - SLOPES)
        point /= max(1.0, np.linalg.norm(point))
    assert done.parameters == pytest.approx(point, abs=1e-14)
    assert wide.parameters == pytest.approx(point, abs=1e-14)
    assert isinstance(done.fresh.guarantee, NotPrivate)
    assert wide.fresh.guarantee.epsilon(1e-5) == math.inf
    assert done.zcdp is not None
    assert done.zcdp.rho == math.inf


@pytest.mark.parametrize(("count", "batch"), [(7, None), (7, 3), (8, 2), (5, 5), (1, 1)])
def test_the_price_is_the_one_asked_for_whatever_the_batches(count: int, batch: int | None) -> None:
    seen: list[float] = []

    def gradient(parameters: np.ndarray, records: Records) -> np.ndarray:
        assert isinstance(records, np.ndarray)
        seen.extend(records.tolist())
        return np.ones((len(records), 2))

    problem = QUADRATIC.__class__(gradient=gradient, dimension=2, domain=QUADRATIC.domain, smoothness=1.0)
    done = multi_pass(problem, np.arange(float(count)), oracle=ClippedMean(clip_norm=1.5, rho=0.4), passes=5, batch_size=batch)
    (phase,) = done.phases
    size = batch or count
    used = count - count % size
    assert {record: seen.count(record) for record in set(seen)} == {float(record): 5 for record in range(used)}
    assert phase.steps * phase.batch_size == len(seen)
    # sum of Delta^2 / (2 sigma^2) over the steps that touch one record, from first principles
    spent = 5 * (2 * 1.5 / size) ** 2 / (2 * phase.release.noise_std**2)
    assert spent == pytest.approx(0.4, rel=1e-12)
    assert spent <= 0.4 * (1 + 1e-15)
    assert isinstance(done.fresh.guarantee, GDP)
    assert done.fresh.guarantee.mu == pytest.approx(math.sqrt(0.8), rel=1e-12)
    assert done.zcdp is not None
    assert done.zcdp.rho == pytest.approx(0.4, rel=1e-12)
    assert done.neighbours == "replace_one"


def test_seeds_repeat_and_no_seed_does_not() -> None:
    oracle = ClippedMean(clip_norm=1.0, rho=0.5)
    runs = [multi_pass(QUADRATIC, RECORDS, oracle=oracle, generator=np.random.default_rng(3)).parameters for _ in range(2)]
    assert np.array_equal(runs[0], runs[1])
    fresh = [multi_pass(QUADRATIC, RECORDS, oracle=oracle, passes=1, step_size=1e-3).parameters for _ in range(2)]
    assert not np.array_equal(fresh[0], fresh[1])
    assert np.linalg.norm(runs[0]) <= 1.0 + 1e-12


@pytest.mark.parametrize(
    ("domain", "norm"),
    [
        (BallDomain(radius=2.0), 2.0),
        (BallDomain(radius=2.0, centre=(3.0, 4.0)), 7.0),
        (BoxDomain(low=(-3.0, 0.0), high=(1.0, 4.0)), 5.0),
        (WholeSpace(), None),
    ],
)
def test_its_run_states_the_set_s_norm_and_what_a_mean_is_off_by(domain: ConvexSet, norm: float | None) -> None:
    problem = QUADRATIC.__class__(gradient=lambda w, rows: np.ones((len(rows), 2)), dimension=2, domain=domain, smoothness=1.0)
    run = multi_pass(problem, np.arange(8.0), oracle=ClippedMean(clip_norm=1.5, rho=0.4), passes=2, batch_size=4).run
    assert run is not None
    if norm is None:
        assert run.precision is None
        return
    assert run.precision is not None
    assert run.precision.dtype == "float64"
    assert run.precision.roundings == 7.0
    assert norm < run.precision.parameter_norm == pytest.approx(norm, rel=1e-9)
    assert run.precision.gradient_error == pytest.approx(2.0**-53 * (4 + 2 + 32) * 1.5, rel=1e-12, abs=0.0)
