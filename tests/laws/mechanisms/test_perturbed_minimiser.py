"""What a tilted minimiser costs, against its exact law in one dimension, samples of its loss in three, and vertices laid out by hand."""

import itertools
import math

import numpy as np
import pytest
from exact_minimisers import Record, exact_delta
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

from lethe.calculus.conversions import gdp_delta
from lethe.mechanisms.minimisers.objective_perturbation import (
    PerturbedMinimiser,
    gradient_vertices,
    log_determinant,
    minimiser_profile,
    ridge_for,
)
from lethe.run.losses import LeastSquares, Logistic, SmoothedHinge, Softmax, TruncatedLogistic, TruncatedSoftmax, Tweedie
from lethe.run.losses.linear import LinearLoss

LOSSES: dict[str, LinearLoss] = {
    "logistic": Logistic(feature_norm=1.0),
    "hinge": SmoothedHinge(feature_norm=1.0, width=0.5),
    "huber": LeastSquares(feature_norm=1.0, residual_bound=1.0),
    "cut": TruncatedLogistic(feature_norm=1.0, cut=0.5),
    "counts": Tweedie(feature_norm=1.0, power=1.0, target_bound=3.0, cut=1.0),
    "costs": Tweedie(feature_norm=1.0, power=2.0, target_bound=3.0, cut=1.0),
}
TARGETS = {"logistic": (0.0, 1.0), "hinge": (0.0, 1.0), "huber": (-9.0, 0.0, 0.4, 9.0), "cut": (0.0, 1.0)}
TARGETS |= {"counts": (1e-5, 1.0, 3.0), "costs": (1e-5, 1.0, 3.0)}
OTHERS = ((), (0,), (0, 1))
# A sum of 20000 cells is as exact as this.
ROUNDING = 1e-11


def _pairs(kind: str, neighbours: str) -> list[tuple[list[Record], list[Record]]]:
    """Adversarial pairs of data sets with one to three records: features at the bound and below, all targets."""
    records = [Record(feature, target, kind) for feature in (-1.0, 0.4, 1.0) for target in TARGETS[kind]]
    pool = [records[0], records[-1]]
    changed = list(itertools.product(records, [None] if neighbours == "zero_out" else records))
    rest = [[pool[index] for index in others] for others in OTHERS]
    return [([*others, one], [*others, *([] if other is None else [other])]) for others in rest for one, other in changed]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("neighbours", ["zero_out", "replace_one"])
@pytest.mark.parametrize("kind", list(LOSSES))
def test_no_pair_of_data_sets_exceeds_the_profile(kind: str, neighbours: str) -> None:
    rng = np.random.default_rng(1)
    pairs = _pairs(kind, neighbours)
    for ridge, noise_std in itertools.product((0.05, 0.6, 8.0), (0.7, 3.0)):
        profile = minimiser_profile(LOSSES[kind], ridge=ridge, noise_std=noise_std, neighbours=neighbours, solver_mu=0.0)
        for index in rng.choice(len(pairs), size=5, replace=False).tolist():
            for epsilon in (0.0, 0.3, 1.5):
                exact = exact_delta(*pairs[index], epsilon, ridge=ridge, noise_std=noise_std)
                assert exact <= profile.delta(epsilon) + ROUNDING, (pairs[index], ridge, noise_std, epsilon)


@pytest.mark.parametrize(("neighbours", "length"), [("zero_out", 1.0), ("replace_one", 2.0)])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_one_per_cent_less_noise_would_be_too_little(neighbours: str, length: float, epsilon: float) -> None:
    """Hinges whose slopes are at their bound wherever the minimiser can be; a large ridge, so that determinants cost little."""
    ridge, noise_std = 3000.0, 3.0 * length
    profile = minimiser_profile(LOSSES["hinge"], ridge=ridge, noise_std=noise_std, neighbours=neighbours, solver_mu=0.0)
    first, second = [Record(1.0, 1.0, "hinge")], [] if neighbours == "zero_out" else [Record(1.0, 0.0, "hinge")]
    assert exact_delta(first, second, epsilon, ridge=ridge, noise_std=noise_std) <= profile.delta(epsilon)
    assert exact_delta(first, second, epsilon, ridge=ridge, noise_std=noise_std / 1.01) > profile.delta(epsilon)


STATED = {
    # loss, relation -> lists of (length in gradient bounds, how many), by hand
    ("logistic", "zero_out"): [(1.0, 1)],
    ("logistic", "replace_one"): [(2.0, 1), (1.0, 2)],
    ("softmax", "zero_out"): [(1.0, 3)],
    ("softmax", "replace_one"): [(2.0, 3), (math.sqrt(3.0), 6), (1.0, 6)],
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("kind", "neighbours"), list(STATED))
@pytest.mark.parametrize("epsilon", [0.02, 0.5, 2.0])
def test_the_profile_is_the_stated_sum(kind: str, neighbours: str, epsilon: float) -> None:
    ridge, noise_std, solver_mu, norm = 4.0, 9.0, 0.2, 1.5
    loss = Softmax(feature_norm=1.0, classes=4) if kind == "softmax" else Logistic(feature_norm=1.0)
    bound = norm * (math.sqrt(2.0) if kind == "softmax" else 1.0) / noise_std
    cost = 3.0 * math.log1p(norm**2 * 0.25 / ridge) if kind == "softmax" else math.log1p(norm**2 * 0.25 / ridge)
    left = epsilon - cost
    mus = [(math.hypot(length * bound, solver_mu), count) for length, count in STATED[kind, neighbours]] + [(solver_mu, 1)]
    total = min(sum(count * gdp_delta(mu, max(left, 0.0)) for mu, count in mus), 1.0)
    wanted = total if left >= 0.0 else 1.0 - math.exp(left) * (1.0 - total)
    profile = minimiser_profile(loss.on_rows(norm), ridge=ridge, noise_std=noise_std, neighbours=neighbours, solver_mu=solver_mu)
    assert profile.delta(epsilon) == pytest.approx(wanted, rel=1e-9)


def test_the_profile_of_slopes_of_both_signs() -> None:
    """Taking a record away: one vertex and the determinants; adding it: two vertices."""
    bound, cost = 1.0 / 3.0, math.log1p(1.0 / 50.0)
    away = minimiser_profile(LOSSES["huber"], ridge=50.0, noise_std=3.0, neighbours="zero_out", solver_mu=0.0)
    for epsilon in (0.0, 0.1, 1.0):
        left = max(epsilon - cost, 0.0)
        along = gdp_delta(bound, left) if epsilon >= cost else 1.0 - math.exp(epsilon - cost) * (1.0 - gdp_delta(bound, 0.0))
        assert away.delta(epsilon) == pytest.approx(max(along, 2.0 * gdp_delta(bound, epsilon)), rel=1e-9)


def _losses(
    rng: np.random.Generator, cut: float, first: int, second: int | None, features: tuple[float, float], ridge: float, noise_std: float
) -> np.ndarray:
    """Samples of the privacy loss of softmax regression with one feature and three classes: the density of W is known exactly."""

    def parts(weights: np.ndarray, feature: float, label: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        shares = softmax(feature * weights, axis=1)
        others = shares * (np.arange(3) != label)
        missing = others.sum(axis=1)
        return shares, others / missing[:, None], missing

    def slopes(weights: np.ndarray, feature: float, label: int | None) -> np.ndarray:
        if label is None:
            return np.zeros_like(weights)
        _, others, missing = parts(weights, feature, label)
        return feature * np.minimum(missing, cut)[:, None] * (others - np.eye(3)[label])

    def log_density(weights: np.ndarray, feature: float, label: int | None) -> np.ndarray:
        hessian = np.tile(ridge * np.eye(3), (len(weights), 1, 1))
        if label is not None:
            shares, others, missing = parts(weights, feature, label)
            below = (missing < cut)[:, None]
            law = np.where(below, shares, others)
            hessian += feature**2 * np.where(below, 1.0, cut)[:, :, None] * law[:, :, None] * (np.eye(3) - law[:, None, :])
        tilt = slopes(weights, feature, label) + ridge * weights
        return np.linalg.slogdet(hessian)[1] - (tilt**2).sum(axis=1) / (2.0 * noise_std**2)

    tilt = noise_std * rng.standard_normal((20_000, 3))
    weights = -tilt / ridge
    for _ in range(60):  # a contraction: the slope's Lipschitz constant 1/2 is below the ridge
        weights = -(tilt + slopes(weights, features[0], first)) / ridge
    return log_density(weights, features[0], first) - log_density(weights, features[1], second)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("cut", [1.0, 0.5, 0.2])
@pytest.mark.parametrize(("first", "second", "features"), [(0, None, (1.0, 1.0)), (0, 1, (1.0, 1.0)), (0, 0, (1.0, -1.0))])
@pytest.mark.parametrize(("ridge", "noise_std", "caught"), [(0.8, 1.2, 4.0), (3.0, 2.5, 2.0)])
def test_softmax_against_samples_of_its_loss(
    first: int, second: int | None, features: tuple[float, float], ridge: float, noise_std: float, caught: float, cut: float
) -> None:
    rng = np.random.default_rng(5)
    neighbours = "zero_out" if second is None else "replace_one"
    loss, noise_std = (
        Softmax(feature_norm=1.0, classes=3) if cut == 1.0 else TruncatedSoftmax(feature_norm=1.0, classes=3, cut=cut),
        cut * noise_std,
    )
    profile = minimiser_profile(loss, ridge=ridge, noise_std=noise_std, neighbours=neighbours, solver_mu=0.0)
    losses = _losses(rng, cut, first, second, features, ridge, noise_std)
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        sample = np.maximum(-np.expm1(epsilon - losses), 0.0)
        assert sample.mean() - 4.0 * sample.std() / math.sqrt(sample.size) <= profile.delta(epsilon)
    # An eighth of the noise would be caught: the profile adds up vertices, and these records are not the worst for any one of them.
    less = np.maximum(-np.expm1(caught - _losses(rng, cut, first, second, features, ridge, noise_std / 8.0)), 0.0)
    assert less.mean() - 4.0 * less.std() / math.sqrt(less.size) > profile.delta(caught)


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_softmax_vertices_cover_every_pair_of_records(classes: int) -> None:
    """All vertices of two records' gradient difference, for every pair of classes and angle: sorted, none longer than those counted."""
    (_, listed), *more = gradient_vertices(Softmax(feature_norm=1.0, classes=classes), "replace_one")
    assert not more
    counted = sorted((length for length, count in listed for _ in range(count)), reverse=True)
    corners = {
        label: [np.zeros(classes)] + [np.eye(classes)[j] - np.eye(classes)[label] for j in range(classes) if j != label] for label in (0, 1)
    }
    longest = 0.0
    for other, cosine in itertools.product((0, 1), np.linspace(-1.0, 1.0, 9)):
        squares = [a @ a + b @ b - 2.0 * cosine * (a @ b) for a in corners[0] for b in corners[other]]
        lengths = np.sqrt(np.maximum(np.sort(squares)[::-1], 0.0) / 2.0)  # in units of G = sqrt 2
        longest = max(longest, lengths[0])
        assert (lengths[: len(counted)] <= np.array(counted) + 1e-12).all()
        assert (lengths[len(counted) :] <= 1e-12).all()
    assert longest == pytest.approx(2.0)


@given(
    kind=st.sampled_from(list(LOSSES)),
    ridge=st.floats(0.01, 1e4),
    noise_std=st.floats(0.1, 100.0),
    epsilon=st.floats(0.0, 10.0),
    neighbours=st.sampled_from(["zero_out", "replace_one"]),
)
def test_laws_of_the_profile(kind: str, ridge: float, noise_std: float, epsilon: float, neighbours: str) -> None:
    def profile(**changes: float) -> PerturbedMinimiser:
        values = {"ridge": ridge, "noise_std": noise_std, "solver_mu": 0.0} | changes
        return minimiser_profile(LOSSES[kind], neighbours=neighbours, **values)

    here = profile().delta(epsilon)
    assert 0.0 <= here <= 1.0
    assert profile().delta(epsilon + 0.1) <= here * (1 + 1e-12)
    assert profile(noise_std=2.0 * noise_std).delta(epsilon) <= here * (1 + 1e-12)
    assert profile(ridge=2.0 * ridge).delta(epsilon) <= here * (1 + 1e-12)
    assert profile(solver_mu=0.1).delta(epsilon) >= here * (1 - 1e-12)
    assert here >= gdp_delta(LOSSES[kind].slope_bound / noise_std, epsilon)  # never below the Gaussian mechanism of one gradient
    if (delta := max(here, 1e-9)) < 1.0:
        assert profile().delta(profile().epsilon(delta)) <= delta


@given(classes=st.integers(2, 20), determinant=st.floats(1e-6, 5.0), norm=st.floats(0.1, 10.0))
def test_the_ridge_for_a_determinant(classes: int, determinant: float, norm: float) -> None:
    for loss in (Logistic(feature_norm=1.0), Softmax(feature_norm=1.0, classes=classes)):
        ridge = ridge_for(loss.on_rows(norm), determinant=determinant)
        assert log_determinant(loss.on_rows(norm), ridge=ridge) == pytest.approx(determinant, rel=1e-9)


def test_the_determinant_of_softmax_is_bounded_and_reached() -> None:
    """Equal shares have the largest trace: log det(I + (diag p - p p^T)/ridge) is then the bound itself."""
    for classes, ridge in ((2, 0.3), (4, 0.3), (4, 10.0)):
        bound = log_determinant(Softmax(feature_norm=1.0, classes=classes), ridge=ridge)
        shares = np.random.default_rng(0).dirichlet(np.ones(classes), size=500)
        shares[0] = 1.0 / classes
        curvatures = shares[:, :, None] * (np.eye(classes) - shares[:, None, :])
        logs = np.linalg.slogdet(np.eye(classes) + curvatures / ridge)[1]
        assert logs.max() <= bound * (1 + 1e-12)
        assert logs[0] == pytest.approx(bound, rel=1e-12)


BOUND, NORM, RIDGE = 1.7, 1.3, 60.0
LOSS = LeastSquares(feature_norm=1.0, residual_bound=BOUND)
DETERMINANT = math.log1p(NORM**2 / RIDGE)
ANGLES = np.linspace(0.0, math.pi, 201)


def corners(angle: float, shorter: float = 1.0) -> np.ndarray:
    """Lengths of a u - b v over both signs of both slopes at their bound, u and v of the largest norm but for `shorter`; longest first."""
    first = NORM * np.array([1.0, 0.0])
    second = shorter * NORM * np.array([math.cos(angle), math.sin(angle)])
    ends = [a * first - b * second for a, b in itertools.product((-BOUND, BOUND), repeat=2)]
    return np.sort(np.linalg.norm(ends, axis=1))[::-1]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("noise_std", [0.5, 2.0, 8.0])
@pytest.mark.parametrize("beyond", [-DETERMINANT, -DETERMINANT / 2.0, 0.0, 0.2, 1.0, 3.0])
def test_the_profile_is_the_sum_over_the_four_corners_at_the_worst_angle(beyond: float, noise_std: float) -> None:
    profile = minimiser_profile(LOSS.on_rows(NORM), ridge=RIDGE, noise_std=noise_std, neighbours="replace_one", solver_mu=0.0)
    level = max(beyond, 0.0)

    def at(angle: float, shorter: float = 1.0) -> float:
        total = min(sum(gdp_delta(length / noise_std, level) for length in corners(angle, shorter).tolist()), 1.0)
        return total if beyond >= 0.0 else 1.0 - math.exp(beyond) * (1.0 - total)

    worst = max(at(angle) for angle in ANGLES.tolist())
    found = profile.delta(DETERMINANT + beyond)
    assert worst * (1.0 - 1e-9) <= found <= 1.05 * worst  # a cell is that much wider than its angles
    assert max(at(angle, 0.6) for angle in ANGLES.tolist()) <= found
