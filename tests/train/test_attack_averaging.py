r"""An attacker against passes that end at an average: how far can one record move the mean of what is released?

Without noise a pass is one map of its starting point. Between two data sets it moves by at most $\max_k A_k s_k$ with
$A_k = \omega_k + \dots + \omega_\ell$ for steps that do not expand, so by at most $s_{\rm pass} = \max_k s_k$.
"""

import numpy as np
import pytest
from doors import fit_linear
from test_attack import FEATURES, exact_law, make_run, targets

from lethe.accounting.certify import certify
from lethe.run.run import Run

WEIGHTS = ([1.0, 1.0], [1.0, 0.0], [0.2, 0.8], [0.0, 1.0])
SIZE, BOUND = 4, 1.0


def averaged(weights: list[float], **changes: object) -> Run:
    return make_run("cyclic", "pass_ends").replace(pass_weights=weights, **changes)


def shares(weights: list[float]) -> np.ndarray:
    """A_k: the part of the average that a touch in batch k reaches."""
    return np.cumsum(weights[::-1])[::-1] / np.sum(weights)


@pytest.mark.slow
@pytest.mark.sampled(8)
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("record", [0, 7])
@pytest.mark.parametrize("step_size", [0.5, {"schedule": "exponential", "first": 2.0, "ratio": 0.6}])
def test_one_record_moves_a_pass_by_at_most_what_is_certified(weights: list[float], record: int, step_size: object) -> None:
    """From many starting points, with the record at its worst; least squares with features of norm 1, steps at most 2 / smoothness."""
    run = averaged(weights, passes=1, step_size=step_size, noise_multiplier=0.0)
    allowed = (shares(weights) * run.sensitivities)[record // SIZE]
    random, largest = np.random.default_rng(0), 0.0
    for start in [np.zeros((2, 1)), *(random.normal(size=(2, 1)) * scale for scale in (0.1, 1.0, 100.0) for _ in range(10))]:
        ends = []
        for sign in (-1.0, 1.0):
            features, values = FEATURES.copy(), targets(0)
            features[record] = sign * np.array([0.6, 0.8])
            values[record] = 1e6
            ends.append(fit_linear(run, features, values, seed=0, initial=start).model.weights)
        largest = max(largest, float(np.linalg.norm(ends[1] - ends[0])))
    # 1e-13: iterates of size 100 are rounded, which no certificate counts
    assert largest <= allowed + 1e-13
    assert largest <= run.sensitivities.max() + 1e-13
    assert largest >= 0.5 * allowed  # the attack is a real one


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("record", [3, 7])
def test_the_exact_privacy_of_a_linear_run_is_covered(weights: list[float], record: int) -> None:
    """Both laws are Gaussian with the same covariance; their distance is exact, and almost the worst case where the record's pass is."""
    run = averaged(weights)
    laws = []
    for sign in (-1.0, 1.0):
        values = np.append(targets(0)[:-1], 0.998)
        values[record] = sign * 0.998
        features = FEATURES.copy()
        features[record] = [0.6, 0.8]
        laws.append(law_of_averages(run, features, values))
    gap = laws[1][0] - laws[0][0]
    assert laws[0][1] == pytest.approx(laws[1][1], rel=1e-12)  # only a target differs
    mu = float(np.sqrt(gap @ np.linalg.solve(laws[0][1], gap)))
    certified = certify(run, 1e-5).guarantee.mu  # pyright: ignore[reportAttributeAccessIssue] - cyclic gives a GDP
    assert mu <= certified
    assert mu == pytest.approx(certified * shares(weights)[record // SIZE], rel=0.01)  # steps are tiny and touches in one direction


def law_of_averages(run: Run, features: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the last iterate, from the recursion: y_k = M_k y_{k-1} + c_k inside a pass, then the mean of the y_k."""
    mean, covariance, weights = np.zeros(2), np.zeros((2, 2)), run.pass_averages
    assert weights is not None
    for end in range(run.steps_per_pass, run.total_steps + 1, run.steps_per_pass):
        map_, shift = np.eye(2), np.zeros(2)
        mean_map, mean_shift = np.zeros((2, 2)), np.zeros(2)
        for place in range(run.steps_per_pass):
            rows, aims = (part[place * SIZE : (place + 1) * SIZE] for part in (features, values))
            share = run.step_sizes[end - 1] / SIZE
            move = np.eye(2) - share * rows.T @ rows
            map_, shift = move @ map_, move @ shift + share * rows.T @ aims
            assert (np.abs(rows @ (map_ @ mean + shift) - aims) < BOUND).all()  # nothing is truncated
            mean_map, mean_shift = mean_map + weights[place] * map_, mean_shift + weights[place] * shift
        mean, covariance = mean_map @ mean + mean_shift, mean_map @ covariance @ mean_map.T + run.noise_stds[end - 1] ** 2 * np.eye(2)
    return mean, covariance


def test_the_recursion_of_averages_is_the_plain_one_where_the_last_iterate_has_all_the_weight() -> None:
    mean, covariance = law_of_averages(averaged([0.0, 1.0]), FEATURES, targets(0))
    plain = exact_law(make_run("cyclic", "pass_ends"), 0)
    assert mean == pytest.approx(plain.mean, rel=1e-12)
    assert covariance == pytest.approx(plain.covariance, rel=1e-12)
