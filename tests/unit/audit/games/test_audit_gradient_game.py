"""Gradient canaries against what is known of the mechanism: hidden state, every step, a domain; and what others can do to it."""

import math
from typing import Any

import numpy as np
import pytest

from lethe.audit import AuditSetting, TwoWorldGame, two_world
from lethe.audit.games.gradient_game import GradientGame
from lethe.audit.games.two_worlds import play
from lethe.audit.statistics.curves import gaussian_epsilon
from lethe.audit.statistics.rules import Split
from lethe.audit.truths import periodic_canary_mus, projected_walk_epsilon
from lethe.errors import InputError

E1 = np.array([1.0, 0.0])


def separation(game: GradientGame, runs: int = 1500) -> float:
    """Of the means in standard deviations, whose own deviation is about sqrt(2 / runs)."""
    played = play(game, TwoWorldGame(runs=runs, chunk=2000), seed=5)
    return float((played.in_scores.mean() - played.out_scores.mean()) / played.out_scores.std())


@pytest.mark.slow
@pytest.mark.parametrize("every", [1, 5, 7])
def test_without_others_both_adversaries_see_what_is_known(every: int) -> None:
    hidden, shown = periodic_canary_mus(steps=50, every=every, noise_multiplier=5.0)
    game = {"steps": 50, "direction": E1, "noise_multiplier": 5.0, "every": every, "step_size": 0.3, "divisor": 7.0, "clip_norm": 2.0}
    assert separation(GradientGame(**game)) == pytest.approx(hidden, abs=0.12)
    assert separation(GradientGame(**game, sees="white_box")) == pytest.approx(shown, abs=0.12)


@pytest.mark.slow
def test_a_landscape_that_pulls_back_forgets_and_one_that_holds_on_does_not() -> None:
    game: dict[str, Any] = {"steps": 40, "every": 40, "direction": E1, "noise_multiplier": 2.0}
    alone = separation(GradientGame(**game))
    first = {**game, "steps": 79}  # the canary at step 40 of 79
    pulled = separation(GradientGame(**first, others=lambda parameters, step: 0.3 * parameters))
    pushed = separation(GradientGame(**first, others=lambda parameters, step: -0.3 * parameters if step > 40 else 0.9 * parameters))
    assert pulled < 0.05 < alone
    assert pushed > 0.7 * periodic_canary_mus(steps=1, every=1, noise_multiplier=2.0)[0] * math.sqrt(0.5)


def test_others_are_no_secret_from_whoever_sees_the_steps() -> None:
    """They are subtracted exactly, so that the scores are those without them."""
    game: dict[str, Any] = {"steps": 10, "direction": E1, "noise_multiplier": 2.0, "sees": "white_box"}
    alone, among = (
        play(GradientGame(**game, others=others), TwoWorldGame(runs=20), seed=0) for others in (None, lambda parameters, step: parameters)
    )
    assert np.allclose(alone.in_scores, among.in_scores)


@pytest.mark.nightly(by_day="test_a_chosen_start_matters_on_a_domain")
@pytest.mark.slow
def test_the_projected_walk_is_not_exceeded_and_nearly_reached() -> None:
    """As in the exact computation: diameter 1, steps of 0.05, noise of 0.2, from the middle."""
    truth = projected_walk_epsilon(steps=20, diameter=1.0, shift=0.05, noise_std=0.2, start=0.5, delta=1e-5)
    game = GradientGame(steps=20, direction=np.ones(1), noise_multiplier=4.0, step_size=0.05, radius=0.5)
    played = play(game, TwoWorldGame(runs=40_000, chunk=20_000), seed=2)
    setting = AuditSetting(delta=1e-5, level=1e-3, neighbours="zero_out", threat="final_model")
    result = two_world(played.out_scores, played.in_scores, setting, rule=Split(seed=0))
    assert 0.75 * truth < result.epsilon < truth


@pytest.mark.slow
def test_a_chosen_start_matters_on_a_domain() -> None:
    """Against the wall that the canary pushes to, its push is lost."""
    game: dict[str, Any] = {"steps": 3, "direction": E1, "noise_multiplier": 0.5, "step_size": 0.2, "radius": 1.0}
    assert separation(GradientGame(**game, start=E1)) < 0.7 * separation(GradientGame(**game, start=-0.5 * E1))


def test_simulations_find_the_quiet_coordinate() -> None:
    game = GradientGame(
        steps=30, direction=E1, noise_multiplier=1.0, step_size=0.1, others=lambda parameters, step: parameters * np.array([0.0, 5.0])
    )
    moved = game.displacements(200, seed=0)
    assert moved.shape == (200, 2)
    assert moved[:, 1].std() < 0.6 * moved[:, 0].std()


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 0},
        {"every": 11},
        {"noise_multiplier": -1.0},
        {"noise_multiplier": float("nan")},
        {"clip_norm": 0.0},
        {"step_size": float("inf")},
        {"divisor": -1.0},
        {"direction": [1.0, 1.0]},
        {"start": np.zeros(3)},
        {"radius": 0.0},
        {"sees": "everything"},
    ],
)
def test_what_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        GradientGame(**{"steps": 10, "direction": E1, "noise_multiplier": 1.0, **change})


def test_others_of_another_shape_are_refused() -> None:
    game = GradientGame(steps=2, direction=E1, noise_multiplier=1.0, others=lambda parameters, step: parameters[:, :1])
    with pytest.raises(InputError, match="shape"):
        play(game, TwoWorldGame(runs=2), seed=0)


def test_the_bound_of_the_exact_case_is_what_the_formula_says() -> None:
    """Full batches, every step seen: mu = sqrt(T) / z, and one hidden step of T costs less."""
    hidden, shown = periodic_canary_mus(steps=16, every=16, noise_multiplier=4.0)
    assert shown == 0.25
    assert gaussian_epsilon(hidden, 1e-5) < gaussian_epsilon(shown, 1e-5)
