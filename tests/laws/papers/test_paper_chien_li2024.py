"""Chien and Li 2024 (arXiv:2410.01068): the full-batch bound against brute force, exact linear runs and the shift engine."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from helpers import make_run
from how_many import by_night
from scipy.optimize import minimize
from theorem_bounds import rho_of

import lethe
from lethe.theorems.lipschitz import clipped_step
from lethe.theorems.literature.chien_li_2024 import ChienLi2024, ChienLi2024Holder, _tangent_cost, holder_cost, smooth_constant, smooth_cost
from lethe.theorems.shift.engine import solve

RNG = np.random.default_rng(2410)
SMOOTH = {"kind": "smooth", "smoothness": 0.1, "gradient_bound": 1.0}
HOLDER = {"kind": "holder", "constant": 0.1, "exponent": 0.5, "gradient_bound": 1.0}
BALL = {"kind": "ball", "radius": 0.05}


def _full(**changes: Any) -> lethe.Run:
    """s = 2 * .5 / 100 = .01 and s / tau = .4; on BALL, D / s = 10."""
    return make_run(**{"batches": {"design": "full"}, "passes": 100, "loss": SMOOTH, **changes})


# The formula.


def _instances(count: int, steps: int) -> list[tuple[float, int, float]]:
    factors = [float(RNG.choice([RNG.uniform(0.2, 1), 1.0, RNG.uniform(1, 1.6)])) for _ in range(count)]
    return [(c, int(RNG.integers(1, steps + 1)), float(RNG.choice([RNG.uniform(0.05, 5), math.inf]))) for c in factors]


def _starts(c: float, steps: int, diameter: float) -> list[tuple[int, float]]:
    """(R, c^R D_tau) of every window, by the sums of the statement."""
    return [(steps - tau, c ** (steps - tau) * min(diameter, sum(c**i for i in range(tau)))) for tau in range(steps)]


def _by_support(c: float, window: int, budget: float) -> float:
    """min of sum (1 + a)^2 with a >= 0 and sum c^i a_i = budget: over every set of positive payments, by its own Lagrange multiplier."""
    weights, best = c ** np.arange(window), math.inf if budget > 0 else float(window)
    for size in range(1, window + 1):
        for support in itertools.combinations(range(window), size):
            used = weights[list(support)]
            level = (budget + used.sum()) / (used @ used)
            if (level * used >= 1).all():
                best = min(best, window - size + level**2 * float(used @ used))
    return best


def test_it_is_the_minimum_over_windows_and_payments() -> None:
    for c, steps, diameter in _instances(60, 8):
        expected = min(_by_support(c, window, budget) for window, budget in _starts(c, steps, diameter))
        assert smooth_cost(c, steps, diameter) == pytest.approx(expected, rel=1e-11)


def test_it_is_the_minimum_over_shares_of_the_noise() -> None:
    """As stated: the sum of 1 / beta_t plus the squared start over the sum of (1 - beta_t) c^(2(T-1-t)), minimised by scipy."""
    for c, steps, diameter in _instances(12, 5):
        best = math.inf
        for window, budget in _starts(c, steps, diameter):
            squares = c ** (2 * np.arange(window))

            def stated(logits: np.ndarray, squares: np.ndarray = squares, budget: float = budget) -> float:
                shares = 1 / (1 + np.exp(-logits))
                return float((1 / shares).sum() + budget**2 / ((1 - shares) @ squares))

            found = minimize(stated, np.zeros(window), method="BFGS", options={"gtol": 1e-9}) if budget else None
            best = min(best, float(found.fun) if found else float(window))
        assert smooth_cost(c, steps, diameter) <= best * (1 + 1e-9)
        assert smooth_cost(c, steps, diameter) == pytest.approx(best, rel=1e-3)  # shares of 1 are approached, not reached


def test_the_theorem_is_the_formula_in_the_units_of_a_run() -> None:
    """alpha (2K/n)^2 / (2 sigma^2) = alpha (s/tau)^2 / 2 with s/tau = .4; c = 1.05, D = .1 = 10 s."""
    assert rho_of(ChienLi2024(), _full(regulariser=BALL)) == pytest.approx(0.08 * smooth_cost(1.05, 100, 10.0), rel=1e-10)
    assert rho_of(ChienLi2024(), _full()) == pytest.approx(0.08 * 100, rel=1e-10)
    assert rho_of(ChienLi2024(), _full(neighbours="zero_out")) == pytest.approx(0.02 * 100, rel=1e-10)
    holder = _full(loss=HOLDER, regulariser=BALL)
    assert rho_of(ChienLi2024Holder(), holder) == pytest.approx(0.08 * holder_cost(0.05 / math.sqrt(0.01), 0.5, 100, 10.0), rel=1e-10)


@pytest.mark.parametrize(
    ("loss", "step", "constant"),
    [
        (SMOOTH, 0.5, 1.05),
        ({"kind": "weakly_convex", "weak_convexity": 0.01, "smoothness": 0.1, "gradient_bound": 1.0}, 0.5, 1.05),
        ({"kind": "convex", "smoothness": 0.1, "gradient_bound": 1.0}, 20.0, 1.0),
        ({"kind": "convex", "smoothness": 0.1, "gradient_bound": 1.0}, 21.0, 3.1),
        ({"kind": "strongly_convex", "strong_convexity": 0.05, "smoothness": 0.1, "gradient_bound": 1.0}, 0.5, 0.975),
        ({"kind": "strongly_convex", "strong_convexity": 0.05, "smoothness": 0.1, "gradient_bound": 1.0}, 16.0, 0.6),
    ],
)
def test_the_constant_of_a_step(loss: dict[str, Any], step: float, constant: float) -> None:
    assert smooth_constant(_full(loss=loss, step_size=step)) == pytest.approx(constant, rel=1e-14)


# Never too small.


def test_never_below_the_shift_engine() -> None:
    """The engine takes every payment of at least 0, this bound those of at least one touch."""
    for c, steps, diameter in _instances(400, 60):
        engine = solve(np.full(steps, c), np.ones(steps), np.ones(steps), diameter=diameter).mu ** 2
        assert smooth_cost(c, steps, diameter) >= engine * (1 - 1e-11)
    assert smooth_cost(1.0, 50, 10.0) == pytest.approx(40.0, rel=1e-12)  # 4 D / s, as for Bok et al.
    assert smooth_cost(1.0, 40) == 40.0  # linear losses: composition is exact


def test_hoelder_is_never_below_the_engine_of_a_slower_growth() -> None:
    """On [0, D] the concave z + g z^p lies above its chord (1 + g D^(p-1)) z, whose shifts the engine prices exactly."""
    for _ in range(60):
        growth, exponent, diameter = RNG.uniform(0, 0.5), RNG.uniform(0.1, 0.999), float(RNG.uniform(0.05, 8))
        steps = int(RNG.integers(1, 80))
        chord = np.full(steps, 1 + growth * diameter ** (exponent - 1))
        engine = solve(chord, np.ones(steps), np.ones(steps), diameter=diameter).mu ** 2
        assert holder_cost(growth, exponent, steps, diameter) >= engine * (1 - 1e-9)


def _path_cost(inside: np.ndarray, growth: float, exponent: float, diameter: float) -> float:
    """The cost of distances D, z_1, .., 0; a payment below 0 is charged heavily."""
    path = np.concatenate(([diameter], np.abs(inside), [0.0]))
    payments = path[:-1] + growth * path[:-1] ** exponent - path[1:]
    return float(np.square(1 + payments).sum() + 1e3 * np.square(np.minimum(payments, 0)).sum())


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("growth", "exponent", "diameter"), [(0.2, 0.5, 2.0), (0.5, 0.3, 3.0), (0.1, 0.8, 4.0), (0.02, 0.5, 3.0)])
def test_hoelder_is_the_minimum_over_payments(growth: float, exponent: float, diameter: float) -> None:
    """Over all distances of windows up to 8 steps, by scipy from straight lines; 1e-3 is what a grid of first payments may cost."""
    best = math.inf
    for window in range(1, 9):
        start = np.linspace(diameter, 0, window + 1)[1:-1]
        options = {"xatol": 1e-9, "fatol": 1e-11, "maxiter": 20_000, "maxfev": 20_000, "adaptive": True}
        found = minimize(_path_cost, start, (growth, exponent, diameter), "Nelder-Mead", options=options) if window > 1 else None
        best = min(best, float(found.fun) if found else _path_cost(start, growth, exponent, diameter))
    assert holder_cost(growth, exponent, 10**4, diameter) == pytest.approx(best, rel=1e-3)
    assert holder_cost(growth, exponent, 10**4, diameter) >= best * (1 - 1e-6)


def test_hoelder_with_exponent_1_is_the_smooth_case() -> None:
    for growth, diameter in ((0.01, 20.0), (0.3, 2.0), (0.0, 5.0)):
        assert holder_cost(growth, 1.0, 500, diameter) == smooth_cost(1 + growth, 500, diameter)
        near = holder_cost(growth, 1 - 1e-12, 500, diameter)
        assert smooth_cost(1 + growth, 500, diameter) * (1 - 1e-9) <= near <= smooth_cost(1 + growth, 500, diameter) * (1 + 1e-5)
    theorem, run = ChienLi2024Holder(), _full(loss={**HOLDER, "exponent": 1.0}, regulariser=BALL)
    assert rho_of(theorem, run) == pytest.approx(rho_of(ChienLi2024(), _full(regulariser=BALL)), rel=1e-12)


@pytest.mark.parametrize(("growth", "exponent", "at"), [(0.1, 0.5, 3.0), (0.02, 0.2, 40.0), (1.0, 0.8, 1.0)])
def test_a_tangent_is_one(growth: float, exponent: float, at: float) -> None:
    slope = 1 + growth * exponent * at ** (exponent - 1)  # of h(z) = z + growth z^exponent
    touch = 1.0 + at + growth * at**exponent - slope * at
    expected = touch**2 * smooth_cost(slope, 5000, 200.0 / touch)
    assert _tangent_cost(growth, exponent, 5000, 200.0, at) == pytest.approx(expected, rel=1e-6)


def test_wide_domains_are_bounded_by_tangents() -> None:
    """Without growth the tangents are h itself; with it they lie above, by a quarter here, and the bound stays above 4 D."""
    steps, diameter, growth = (10**5, 2e4, 0.001) if by_night() else (2 * 10**4, 4e3, 0.002)
    assert holder_cost(0.0, 0.5, steps, diameter) == pytest.approx(4 * diameter, rel=1e-12 if by_night() else 1e-6)  # by day the grid shows
    assert 4 * diameter < holder_cost(growth, 0.5, steps, diameter) < 5 * diameter


@pytest.mark.parametrize(
    ("loss", "soundness"),
    [
        (SMOOTH, "dominated"),
        ({"kind": "weakly_convex", "weak_convexity": 0.05, "smoothness": 0.1}, "dominated"),
        ({"kind": "logistic_regression", "feature_norm": 1.0}, "dominated"),
        ({"kind": "convex", "smoothness": 2.0}, "proof-gap"),
        ({"kind": "strongly_convex", "strong_convexity": 0.2, "smoothness": 2.0}, "proof-gap"),
        ({"kind": "softmax_regression", "feature_norm": 1.0}, "proof-gap"),
    ],
)
def test_clipping_that_its_constant_allows_for_and_that_may_break_its_proof(loss: dict[str, Any], soundness: str) -> None:
    run = _full(loss=loss, clip_norm=0.5)
    assert run.clips
    assert ChienLi2024().standing_on(run).soundness == soundness
    assert ChienLi2024().standing_on(run).usable == (soundness == "dominated")
    # The gap is real: a clipped step of a convex quadratic expands by 1/sqrt(1 - h/4), as the test for Kong & Ribero does at h = 1.
    assert soundness == "dominated" or smooth_constant(run) < clipped_step(0.5, 0.0, 2.0)
