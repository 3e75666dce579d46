"""Multi-pass, one-pass, accelerated and proximal clipped descent: steps, maps, prices, the settings of the theorems, and their bounds."""

import math
from itertools import product

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from solver_problems import CLASSIC, QUADRATIC, stated, strongly

from lethe.heavy_tailed import BallDomain, Problem, multi_pass
from lethe.heavy_tailed.accelerated import accelerated_bound, accelerated_theory, best_step, step_counts
from lethe.heavy_tailed.one_pass import one_pass, one_pass_bound, one_pass_theory, step_weights
from lethe.heavy_tailed.oracles import ClippedMean, ExactMean
from lethe.heavy_tailed.problem import Records
from lethe.heavy_tailed.proximal import proximal, proximal_bound, proximal_map
from lethe.heavy_tailed.sets import BoxDomain, ConvexSet, WholeSpace, near_projection
from lethe.heavy_tailed.settings import gradient_errors
from lethe.run.regularisers import L1, L1L2, L2, Regulariser
from lethe_experiments.lowy_razaviyayn.printed import explicit_bound, printed_bounds


def test_the_theorem_s_settings_and_bounds_at_the_worked_points() -> None:
    assert step_counts(CLASSIC, 10_000, 0.5) == pytest.approx((3.881533, 6.687403), rel=1e-6)
    plan = accelerated_theory(CLASSIC, 10_000, 0.5)
    assert plan.steps == 4
    assert (plan.clip_norm, plan.step) == pytest.approx((149.534878, 2.234655), rel=1e-6)
    errors = gradient_errors(CLASSIC, batch_size=2500, clip_norm=plan.clip_norm, rho=0.5, printed=True)
    assert (errors.bias, errors.variance) == pytest.approx((0.133748, 0.294217), rel=1e-5)
    numbers = (plan.errors.bias, plan.errors.variance)
    assert plan.step is not None
    assert printed_bounds(4, plan.step, 1.0, 2.0, *numbers) == pytest.approx((1.796244, 3.172548), rel=1e-6)
    third = 8 * 4 / 20 + 8 * 2 * math.sqrt(plan.errors.squared) / 2 + 2 * plan.errors.bias
    assert third == pytest.approx(6.336807, rel=1e-6)
    eta = best_step(4, 1.0, 2.0, plan.errors.squared)
    assert eta == 2.0
    assert accelerated_bound(4, eta, 1.0, 2.0, *numbers) == pytest.approx(1.301575, rel=1e-6)
    for count, expected in ((10**4, 13.579270), (10**6, 1.755942), (10**8, 0.225367)):
        steps = accelerated_theory(CLASSIC, count, 0.5).steps
        assert explicit_bound(CLASSIC, count, 0.5, steps) == pytest.approx(expected, rel=1e-6)
    sharp = stated(50.0, 4, 3.0, 2.0, 10)
    assert step_counts(sharp, 10**6, 0.5) == pytest.approx((238.810935, 223.606798), rel=1e-8)
    plan = accelerated_theory(sharp, 10**6, 0.5)
    assert (plan.steps, plan.step) == (224, 100.0)
    assert plan.clip_norm == pytest.approx(36.169312, rel=1e-7)
    assert (plan.errors.bias, plan.errors.variance) == pytest.approx((5.706148e-4, 3.522042e-3), rel=1e-6)


@settings(max_examples=examples(100), deadline=None)
@given(steps=st.integers(1, 400), beta=st.floats(0.0, 100.0), bias=st.floats(0.0, 5.0), variance=st.floats(1e-6, 50.0))
def test_the_tight_bound_is_below_the_printed_ones_and_its_step_is_best(steps: int, beta: float, bias: float, variance: float) -> None:
    eta = best_step(steps, beta, 2.0, variance + bias**2)
    tight = accelerated_bound(steps, eta, beta, 2.0, bias, variance)
    assert tight <= min(printed_bounds(steps, eta, beta, 2.0, bias, variance)) * (1 + 1e-12)
    for factor in (0.9, 1.1, 3.0):
        if eta * factor >= 2 * beta:
            assert tight <= accelerated_bound(steps, eta * factor, beta, 2.0, bias, variance) * (1 + 1e-12)


@pytest.mark.parametrize(
    ("scale", "bound", "printed", "mended"), [(1.0, 30.0, 7.50463, 2.24876), (1e3, 30.0, 30.3442, 1.99431), (1e3, 300.0, 263.897, 2.06558)]
)
def test_the_printed_number_of_steps_is_refuted(scale: float, bound: float, printed: float, mended: float) -> None:
    """Its own bound at sqrt(beta D / r_k) n^(1/4) steps exceeds the risk that is claimed, by ever more in r_k / r_2.

    (46) is beta D^2/T^2 + D r_2/sqrt(n) + r_k D (sqrt(d T)/(eps n))^((k-1)/k) up to a constant; D = 1, r_2 = 1, k = 4, n = 10^8, d = 1.
    """
    count, k, beta = 10**8, 4, 1000.0
    problem = stated(beta, k, bound, 1.0, 1, radius=0.5)
    private = 1 / (scale * count)
    first, second = step_counts(problem, count, scale**2 / 2)

    def achieved(steps: float) -> float:
        return beta / steps**2 + count**-0.5 + bound * (math.sqrt(steps) * private) ** (3 / 4)

    def claimed(moment: float) -> float:
        inner = ((beta / bound) ** 0.25 * private) ** (12 / 19)
        other = (beta / moment) ** (3 / 16) * private**0.75 * count ** (3 / 32)
        return count**-0.5 + bound * (private**0.75 + min(inner, other))

    wrong = math.sqrt(beta / bound) * count**0.25
    assert achieved(math.ceil(min(first, wrong))) / claimed(bound) == pytest.approx(printed, rel=3e-6)
    assert achieved(math.ceil(min(first, second))) / claimed(bound) == pytest.approx(mended, rel=3e-6)


def test_the_printed_noise_is_too_little_where_steps_do_not_divide_records() -> None:
    """n = 100, T = 40: batches of 2, whose sensitivity is C; 4 C^2 T^2 / (eps n)^2 is for batches of 2.5."""
    printed = 4 * 40**2 / 100**2
    real = ClippedMean(clip_norm=1.0, rho=0.5).release(2, 1).noise_std ** 2
    assert printed == pytest.approx(0.64)
    assert real == pytest.approx(1.0)
    assert 1.0 / (2 * printed) > 0.5


@settings(max_examples=examples(40), deadline=None)
@given(
    seed=st.integers(0, 10**6),
    step=st.floats(0.01, 3.0),
    regulariser=st.sampled_from([None, L2(strength=0.7), L1(strength=0.4), L1L2(l1_strength=0.3, ridge_strength=0.5)]),
    domain=st.sampled_from([WholeSpace(), BallDomain(radius=0.8), BoxDomain(low=(-0.5, 0.1), high=(0.4, 0.9))]),
)
def test_the_map_is_a_minimiser(seed: int, step: float, regulariser: Regulariser | None, domain: ConvexSet) -> None:
    point = 1.5 * np.random.default_rng(seed).standard_normal(2)
    found = proximal_map(point, step, regulariser, domain)

    l1 = {L1: 0.4, L1L2: 0.3}.get(type(regulariser), 0.0)
    ridge = {L2: 0.7, L1L2: 0.5}.get(type(regulariser), 0.0)

    def value(y: np.ndarray) -> float:
        return step * float(l1 * np.abs(y).sum() + 0.5 * ridge * (y * y).sum()) + 0.5 * float(((y - point) ** 2).sum())

    for scale in (1.0, 0.1, 0.01):
        for offset in product((-1.0, -0.5, 0.0, 0.5, 1.0), repeat=2):
            assert value(found) <= value(domain.project(found + scale * np.array(offset))) + 1e-12


def test_the_closed_forms_of_two_bounds() -> None:
    assert proximal_bound(2, 1.0, 1.0, 4.0, 3.0, 5.0) == pytest.approx(4.0 / 4 + 14.0, rel=1e-12)
    assert one_pass_bound(4, 1.0, 1.0, 2.0, 0.1, 0.3) == pytest.approx(math.exp(-0.75) + 2.0 + 0.06, rel=1e-12)
    assert one_pass_bound(2, 1.0, 1.0, 2.0, 0.1, 0.3) == pytest.approx(2.0 * math.exp(-1.0) + 0.3 + 0.02, rel=1e-12)


def test_a_loss_that_is_not_convex() -> None:
    """w^2 + 3 sin^2 w is Polyak-Lojasiewicz with mu = 1/32 and smooth with 8, and not convex."""
    problem = Problem(
        gradient=lambda w, x: np.tile(2 * w + 3 * np.sin(2 * w), (len(x), 1)), dimension=1, smoothness=8.0, pl_constant=1 / 32
    )
    done = proximal(problem, np.zeros(200), oracle=ExactMean(), steps=200, start=[3.0])
    gap = float(done.parameters[0] ** 2 + 3 * math.sin(done.parameters[0]) ** 2)
    assert gap <= proximal_bound(200, 8.0, 1 / 32, 9 + 3 * math.sin(3.0) ** 2, 0.0, 0.0)


def test_a_ball_and_a_box_and_points_far_away() -> None:
    project = near_projection(BoxDomain(low=(-1.0, -1.0), high=(0.9, 0.2)), np.zeros(2), 0.8)
    for size in (2.0, 1e10, 1e150):
        assert project(np.array([size, size])) == pytest.approx([(0.64 - 0.04) ** 0.5, 0.2], abs=1e-9)


@settings(max_examples=examples(60), deadline=None)
@given(
    seed=st.integers(0, 10**6),
    radius=st.floats(1e-3, 2.0),
    size=st.floats(0.0, 4.0),
    domain=st.sampled_from([WholeSpace(), BallDomain(radius=1.0), BoxDomain(low=(-1.0, -0.1, 0.0), high=(0.5, 0.2, 3.0))]),
)
def test_what_is_near_meets_the_definition(seed: int, radius: float, size: float, domain: ConvexSet) -> None:
    """p is the projection of z iff <z - p, y - p> <= 0 for every y of the set."""
    rng = np.random.default_rng(seed)
    centre, point = domain.project(rng.standard_normal(3)), size * rng.standard_normal(3)
    image = near_projection(domain, centre, radius)(point)
    assert np.linalg.norm(domain.project(image) - image) <= 1e-12
    assert np.linalg.norm(image - centre) <= radius * (1 + 1e-9)
    others = [domain.project(centre + radius * other) for other in rng.uniform(-1, 1, (400, 3))]
    inside = np.array([other for other in others if np.linalg.norm(other - centre) <= radius])
    assert np.all((inside - image) @ (point - image) <= 1e-9)


@pytest.mark.parametrize(
    "convex",
    [WholeSpace(), BallDomain(radius=0.5), BallDomain(radius=1.5, centre=(1.0, -1.0)), BoxDomain(low=(-1.0, 0.0), high=(0.5, 2.0))],
)
def test_projections_are_projections(convex: ConvexSet) -> None:
    points = 3.0 * np.random.default_rng(1).standard_normal((50, 2))
    images = np.array([convex.project(point) for point in points])
    assert np.allclose([convex.project(image) for image in images], images, atol=1e-12)
    for image, point in zip(images, points, strict=True):
        assert np.all((images - image) @ (point - image) <= 1e-9)
    assert np.linalg.norm(images[:, None] - images[None], axis=2).max() <= convex.diameter + 1e-9


def test_steps_and_weights_at_the_worked_points() -> None:
    steps, weights = step_weights(6, 0.5, 4.0)
    assert steps == pytest.approx(np.full(7, 0.25))
    assert weights * 2.546500 == pytest.approx([1.142857, 1.306122, 1.492711, 1.705956, 1.949664, 2.228187, 2.546500], rel=1e-6)
    steps, weights = step_weights(12, 0.5, 4.0)
    assert steps == pytest.approx([0.25] * 7 + [0.235294, 0.222222, 0.210526, 0.2, 0.190476, 0.181818], abs=5e-7)
    assert weights * 22 == pytest.approx([0.0] * 6 + [16, 17, 18, 19, 20, 21, 22])
    steps, weights = step_weights(10**6, 1e-8, 1.0)
    assert np.isfinite(weights).all()
    assert step_weights(0, 2.0, 2.0)[1] == pytest.approx([1.0])


@settings(max_examples=examples(100), deadline=None)
@given(
    last=st.integers(1, 300), ratio=st.floats(1.0, 200.0), noise=st.floats(0.0, 5.0), drift=st.floats(0.0, 1.0), seed=st.integers(0, 10**6)
)
def test_no_sequence_of_the_recursion_exceeds_the_bound(last: int, ratio: float, noise: float, drift: float, seed: int) -> None:
    """r' <= (1 - a eta) r - 2 eta s + c eta^2 + e eta with r' >= 0 and s >= 0: random and greedy adversaries."""
    mu, beta = 1.0, ratio
    steps, weights = step_weights(last, mu / 2, beta)
    rng = np.random.default_rng(seed)
    variance, bias = noise, drift
    for greed in (0.0, 1.0, rng.random()):
        r, paid = 4.0, []
        for length in steps:
            most = (1 - mu / 2 * length) * r + 2 * length**2 * variance + 4 * length * bias**2 / mu
            spend = most * (greed if rng.random() < 0.9 else rng.random())
            paid.append(spend / (2 * length))
            r = most - spend
        bound = one_pass_bound(last + 1, beta, mu, 2.0, bias, variance)
        if last <= 2 * ratio or greed > 0.0 or r >= 0.0:
            assert float(weights @ np.array(paid) / weights.sum()) <= bound * (1 + 1e-9)


def test_the_price_and_the_batches() -> None:
    """61 rounds of 200 records: batches of 3, not of 200 // 60; the noise from the real size."""
    done = one_pass(QUADRATIC, np.zeros(200), oracle=ClippedMean(clip_norm=2.0, rho=0.5), steps=61)
    (phase,) = done.phases
    assert (phase.batch_size, phase.touches, phase.stop, phase.steps) == (3, 1, 183, 61)
    assert phase.release.noise_std == pytest.approx(4.0 / 3.0)
    assert done.fresh.guarantee.mu == pytest.approx(1.0)  # pyright: ignore[reportAttributeAccessIssue]
    quiet = one_pass(QUADRATIC, np.zeros(200), oracle=ClippedMean(clip_norm=1e9, rho=math.inf), steps=61)
    assert quiet.parameters == pytest.approx(one_pass(QUADRATIC, np.zeros(200), oracle=ExactMean(), steps=61).parameters)


def test_the_theorem_s_settings() -> None:
    plan = one_pass_theory(strongly(5.0, 3.0, 10), 20_000, 0.5)
    assert plan.steps == 265
    assert plan.clip_norm == pytest.approx(59.188219, rel=1e-7)
    assert plan.notes == ()
    short = one_pass_theory(strongly(144.7648, 3.0, 10), 1000, 0.5)
    assert short.steps == 1000
    assert "7842." in short.notes[0] or "7843" in short.notes[0]
    assert "does not apply" in short.notes[0]


@pytest.mark.parametrize(("count", "batch"), [(7, None), (7, 3), (8, 2), (5, 5), (1, 1)])
def test_every_pass_touches_every_record_of_a_whole_batch_once(count: int, batch: int | None) -> None:
    seen: list[float] = []

    def gradient(parameters: np.ndarray, records: Records) -> np.ndarray:
        assert isinstance(records, np.ndarray)
        seen.extend(records.tolist())
        return np.ones((len(records), 2))

    problem = Problem(gradient=gradient, dimension=2, domain=QUADRATIC.domain, smoothness=1.0)
    done = multi_pass(problem, np.arange(float(count)), oracle=ClippedMean(clip_norm=1.5, rho=0.4), passes=5, batch_size=batch)
    (phase,), size = done.phases, batch or count
    assert {record: seen.count(record) for record in set(seen)} == {float(record): 5 for record in range(count - count % size)}
    assert phase.steps * phase.batch_size == len(seen)
    # sum of Delta^2 / (2 sigma^2) over the steps that touch one record, from first principles
    assert 0.4 * (1 - 1e-12) <= 5 * (2 * 1.5 / size) ** 2 / (2 * phase.release.noise_std**2) <= 0.4 * (1 + 1e-15)
    assert done.fresh.guarantee.mu == pytest.approx(math.sqrt(0.8), rel=1e-12)  # pyright: ignore[reportAttributeAccessIssue]
    assert done.zcdp is not None
    assert done.zcdp.rho == pytest.approx(0.4, rel=1e-12)
    assert done.neighbours == "replace_one"


def test_seeds_repeat_and_no_seed_does_not() -> None:
    oracle = ClippedMean(clip_norm=1.0, rho=0.5)
    runs = [multi_pass(QUADRATIC, np.zeros(7), oracle=oracle, generator=np.random.default_rng(3)).parameters for _ in range(2)]
    assert np.array_equal(runs[0], runs[1])
    fresh = [multi_pass(QUADRATIC, np.zeros(7), oracle=oracle, passes=1, step_size=1e-3).parameters for _ in range(2)]
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
    problem = Problem(gradient=lambda w, rows: np.ones((len(rows), 2)), dimension=2, domain=domain, smoothness=1.0)
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
