"""Convex losses with Hölder gradients, or with several in a point: how far a step takes two iterates apart, and the shift that hides it."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from helpers import batches, make_run
from oracles import Floats, ProjectedChain, law_epsilon
from scipy.optimize import minimize
from theorem_bounds import mu_of

import lethe
from lethe.theorems.holder.convex_growth import ConvexGrowth
from lethe.theorems.holder.path import HolderPath, PassStretch, Touched
from lethe.theorems.holder_shift import HolderShift, _best, every_step_mu
from lethe.theorems.optimal_shift import OptimalShift


def _loss(constant: float, exponent: float, convex: bool = True, bound: float = 1.0) -> dict[str, Any]:
    return {"kind": "holder", "constant": constant, "exponent": exponent, "convex": convex, "gradient_bound": bound}


def _apart(growth: float, flat: float, exponent: float, distance: float) -> float:
    return ConvexGrowth(np.array([growth]), np.array([flat]), exponent).apart(0, distance)


def _furthest(growth: float, flat: float, exponent: float, distance: float) -> float:
    """By a grid over the length of the difference of gradients, from what convexity says of its angle."""
    if distance == 0.0:
        return 0.0
    moved = np.linspace(0.0, min(growth * distance**exponent, flat), 4001)
    with np.errstate(divide="ignore", over="ignore"):
        inward = 0.0 if exponent == 0.0 else 4 * exponent / (1 + exponent) * (moved / growth) ** (1 / exponent)
    return math.sqrt(distance**2 + float(np.max(moved**2 - moved * inward)))


def test_the_distance_after_a_step_is_the_largest_that_convexity_allows() -> None:
    generator = np.random.default_rng(0)
    for _ in range(3000):
        exponent = float(generator.choice([0.0, generator.uniform(0.01, 0.99), 1 - 10 ** generator.uniform(-6, -1)]))
        growth, flat = 10 ** generator.uniform(-4, 1, 2)
        distance = 10 ** generator.uniform(-6, 2)
        exact = _furthest(growth, flat, exponent, distance)
        assert exact <= _apart(growth, flat, exponent, distance) <= exact * (1 + 1e-5)  # the grid


def test_a_kink_attains_the_distance() -> None:
    """G |x_1| at two points of its kink, the gradients G and -G there: the points part at right angles, and one per cent less is false."""
    step, bound = 0.1, 2.0
    for distance in (1e-3, 0.1, 5.0):
        one, other = np.array([0.0, distance]), np.zeros(2)
        parted = np.linalg.norm(one - step * np.array([bound, 0.0]) - (other - step * np.array([-bound, 0.0])))
        assert parted <= _apart(step * 2 * bound, step * 2 * bound, 0.0, distance) <= parted * (1 + 1e-12)


@pytest.mark.parametrize("exponent", [0.2, 0.5, 0.8])
def test_no_sum_of_powers_parts_its_points_further(exponent: float) -> None:
    r"""$\sum_k c_k|\langle a_k, x\rangle|^{1+p}/(1+p)$, Hölder with $\sum_k c_k2^{1-p}\|a_k\|^{1+p}$; the worst pair is searched."""
    generator = np.random.default_rng(1)
    closest = math.inf
    for _ in range(5):
        rows, weights = generator.normal(size=(2, 2)), generator.uniform(0.1, 1.0, 2)
        constant = float(np.sum(weights * 2 ** (1 - exponent) * np.linalg.norm(rows, axis=1) ** (1 + exponent)))
        step = float(generator.uniform(0.1, 2.0))

        def slack(pair: Floats, rows: Floats = rows, weights: Floats = weights, constant: float = constant, step: float = step) -> float:
            one, other = pair[:2], pair[2:]
            distance = float(np.linalg.norm(one - other))
            if distance < 1e-9:
                return 1.0
            moved = [step * rows.T @ (weights * np.sign(rows @ x) * np.abs(rows @ x) ** exponent) for x in (one, other)]
            return _apart(step * constant, 1e6, exponent, distance) / float(np.linalg.norm(one - moved[0] - other + moved[1])) - 1.0

        for _ in range(3):
            closest = min(closest, float(minimize(slack, generator.normal(size=4) * 0.3, method="Nelder-Mead").fun))
    assert 0.0 <= closest < 0.5


def test_exponents_near_one_are_smooth() -> None:
    shared: dict[str, Any] = {"batches": batches("cyclic", 10), "passes": 3, "regulariser": {"kind": "ball", "radius": 0.5}}
    smooth = mu_of(OptimalShift(), make_run(loss={"kind": "convex", "smoothness": 0.3, "gradient_bound": 1.0}, **shared))
    near = mu_of(HolderShift(), make_run(loss=_loss(0.3, 1 - 1e-4), **shared))
    assert smooth * (1 - 1e-9) <= near <= smooth * 1.02
    alike = [
        lethe.certify(make_run(loss=loss, **shared), 1e-5)
        for loss in (_loss(0.3, 1.0), {"kind": "convex", "smoothness": 0.3, "gradient_bound": 1.0})
    ]
    assert alike[0].epsilon == alike[1].epsilon


def _brute(run: lethe.Run, window: int) -> float:
    """The cheapest distances for the last `window` steps, of which each may be touched, by descent from many starts."""
    assert isinstance(run.loss, lethe.losses.Holder)
    size, touch, noise = float(run.step_sizes[0]), float(run.sensitivities[0]), float(run.noise_stds[0])
    growth, flat, start = size * run.loss.constant, 2 * size, run.diameter if window < run.total_steps else 0.0

    def squares(distances: Floats) -> float:
        before, after = np.append(start, distances), np.append(distances, 0.0)
        grown = [_furthest(growth, flat, run.loss.exponent, z) for z in before]  # pyright: ignore[reportAttributeAccessIssue]
        return float(np.sum(np.maximum(np.array(grown) + touch - after, 0.0) ** 2)) / noise**2

    if window == 1:
        return math.sqrt(squares(np.empty(0)))
    generator, best = np.random.default_rng(window), math.inf
    for _ in range(2):
        first = np.sort(generator.uniform(0.0, run.diameter, window - 1))[::-1]
        best = min(best, minimize(squares, first, bounds=[(1e-12, run.diameter)] * (window - 1), method="L-BFGS-B").fun)
    return math.sqrt(best)


@pytest.mark.parametrize(
    ("constant", "exponent", "radius", "step"), [(2.0, 0.0, 0.02, 0.05), (0.3, 0.5, 0.05, 0.05), (1.0, 0.8, 0.05, 0.1)]
)
def test_brute_force_over_paths(constant: float, exponent: float, radius: float, step: float) -> None:
    run = make_run(
        records=4,
        batches={"design": "full"},
        steps=30,
        step_size=step,
        noise_multiplier=20.0,
        loss=_loss(constant, exponent),
        regulariser={"kind": "ball", "radius": radius},
    )
    composition = math.sqrt(30) / float(run.relative_noise[0])
    expected = min(_brute(run, window) for window in range(1, 9))
    mu = every_step_mu(HolderPath(run))
    assert expected < 0.99 * composition
    assert expected * (1 - 1e-4) <= mu <= expected * (1 + 1e-6)  # the search of the paths, on a grid of gradients
    assert mu < 0.95 * mu_of(HolderShift(), run.replace(loss=_loss(constant, max(exponent, 1e-3), convex=False)))


@pytest.mark.parametrize("exponent", [0.0, 0.5])
def test_a_stretch_of_a_pass_costs_no_less_than_any_place_in_it(exponent: float) -> None:
    run = make_run(
        records=8, batches=batches("cyclic", 2), passes=4, loss=_loss(0.5, exponent), regulariser={"kind": "ball", "radius": 0.1}
    )
    path = HolderPath(run)
    stretch = _best(path, Touched(own=PassStretch(1, 3), earlier=PassStretch(0, 3)))[0]
    for earlier, own in itertools.product(range(4), range(1, 4)):
        place = Touched(own=PassStretch(own, own), earlier=PassStretch(earlier, earlier))
        assert _best(path, place)[0] <= stretch * (1 + 1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_convexity_never_costs(seed: int) -> None:
    """Whatever the design, the steps, the noise and the regulariser; and where clipping acts it says nothing."""
    generator = np.random.default_rng(seed)
    design = str(generator.choice(["full", "cyclic", "shuffled_once", "shuffled", "without_replacement"]))
    passes, slots = int(generator.integers(1, 4)), 1 if design == "full" else 4
    pass_ends = bool(generator.integers(2))
    noise = generator.uniform(5.0, 30.0, passes if pass_ends else passes * slots)
    ball = {"kind": "ball", "radius": float(10 ** generator.uniform(-2.5, 0))}
    run = make_run(
        records=10 * slots,
        batches=batches(design, 10),
        passes=passes,
        step_size=generator.uniform(0.01, 0.1, passes * slots).tolist(),
        noise_at="pass_ends" if pass_ends else "every_step",
        noise_multiplier=noise.tolist(),
        loss=_loss(float(10 ** generator.uniform(-2, 1)), float(generator.choice([0.3, 0.6, 0.9]))),
        regulariser=[{"kind": "ridge", "strength": 0.5}, ball] if generator.integers(2) else ball,
        precision={"dtype": "float64", "parameter_norm": 10.0} if generator.integers(2) else None,
    )
    assert isinstance(run.loss, lethe.losses.Holder)
    general = run.replace(loss=run.loss.model_copy(update={"convex": False}))
    convex, other = (HolderShift().bound(one).guarantee.epsilon(1e-4) for one in (run, general))
    assert convex <= other * (1 + 1e-6)
    clipped = [one.replace(clip_norm=0.5) for one in (run, general)]
    assert HolderShift().bound(clipped[0]).guarantee == HolderShift().bound(clipped[1]).guarantee


def test_where_clipping_acts_a_bounded_gradient_is_a_line() -> None:
    """z + lambda min(H, 2C): with one step from the diameter, exactly."""
    for constant, widens in ((0.6, 0.6), (5.0, 1.0)):
        run = make_run(
            batches=batches("full", 10), steps=500, clip_norm=0.5, loss=_loss(constant, 0.0), noise_multiplier=20.0, step_size=0.1,
            regulariser={"kind": "ball", "radius": 1e-3},
        )  # fmt: skip
        expected = (2e-3 + 0.1 * widens + float(run.sensitivities[0])) / float(run.noise_stds[0])
        assert mu_of(HolderShift(), run) == pytest.approx(expected, rel=1e-9)


def test_linear_losses_are_exact_with_convexity_too() -> None:
    run = make_run(loss=_loss(0.0, 0.5), regulariser={"kind": "ball", "radius": 1e6}, passes=4)
    exact = lethe.certify(run.replace(loss={"kind": "convex", "smoothness": 0.0, "gradient_bound": 1.0}), 1e-3).epsilon
    assert exact * (1 - 1e-9) <= HolderShift().bound(run).guarantee.epsilon(1e-3) <= exact * 1.005


@pytest.mark.parametrize(("exponent", "slots", "passes"), [(0.0, 1, 30), (0.0, 3, 4), (0.5, 1, 12), (0.5, 2, 4)])
@pytest.mark.parametrize("design", ["cyclic", "shuffled_once", "shuffled"])
def test_never_below_the_exact_chain_of_a_loss_with_a_kink(exponent: float, slots: int, passes: int, design: str) -> None:
    """k |x|^(1+p)/(1+p) around the middle of an interval, and a record that adds a slope of +-1 at its own steps; both directions.

    Under one secret order the laws are the means over places, under fresh ones over all paths.
    """
    diameter, size, strength = 0.1, 0.05, 0.5
    middle = diameter / 2
    run = make_run(
        records=2 * slots,
        batches=batches(design, 2),
        passes=passes,
        step_size=size,
        noise_multiplier=2.0,
        loss=_loss(2.0 * strength if exponent == 0.0 else strength * 2 ** (1 - exponent), exponent, bound=1.0 + strength),
        regulariser={"kind": "ball", "radius": diameter / 2},
    )
    chain = ProjectedChain(diameter, middle, nodes=200)

    def move(points: Floats) -> Floats:
        return points - size * strength * np.sign(points - middle) * np.abs(points - middle) ** exponent

    def law(way: int, places: list[int]) -> Floats:
        drifts = [[(1.0, way * size / 2 * (t % slots == places[t // slots]))] for t in range(slots * passes)]
        return chain.law(run.noise_stds, drifts, move)

    paths = [[place] * passes for place in range(slots)]
    if design == "shuffled":
        paths = [list(path) for path in itertools.product(range(slots), repeat=passes)]
    laws = [tuple(law(way, path) for way in (1, -1)) for path in paths]
    guarantee = HolderShift().bound(run).guarantee
    if design == "cyclic":
        assert all(guarantee.epsilon(1e-4) >= law_epsilon(*pair, 1.2e-4) for pair in laws)
    else:
        mean = [np.mean([pair[side] for pair in laws], axis=0) for side in (0, 1)]
        assert guarantee.epsilon(1e-4) >= law_epsilon(mean[0], mean[1], 1.2e-4)
