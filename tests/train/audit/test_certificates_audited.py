"""Audits of Lethe's own certificates: never above them, and above them as soon as there is far less noise than is certified."""

from __future__ import annotations

from dataclasses import replace

import pytest
from certificate_games import GAMES, NETWORKS, Game, cnn
from planted_faults import unverified

from lethe.audit.games.canaries import RecordTrial

DELTA = 0.05
# Where the certificate covers much worse than this canary, a quarter of the noise does not show yet.
TOO_LITTLE = {"fit_linear, ball": 0.1, "fit_linear, digits": 0.1, "fit_linear, digits, black box": 0.01}
# Trainings a world: the most that 180 can prove is 3.1, and less than 2.6 is certified but for the digits.
RUNS = {"fit_linear, digits": 300, "fit_linear, digits, black box": 300}
# Their closed forms are conservative: no attack comes near.
NEVER = ("ShuffledClippedMean", "ShuffledCoordinateMedian")
LINES = [name for name in GAMES if name not in NETWORKS]


def verdict(game: Game, runs: int) -> str:
    (page,) = game.pages([DELTA], runs=runs)
    return page.verdict


@pytest.mark.sampled(16)
@pytest.mark.parametrize("name", LINES)
def test_audits_stay_below_certificates_and_find_out_those_with_less_noise(name: str) -> None:
    runs = RUNS.get(name, 180)
    assert verdict(GAMES[name](1.0), runs) == "consistent"
    if name not in NEVER:
        assert verdict(GAMES[name](TOO_LITTLE.get(name, 0.25)), runs) == "refuted"


@pytest.mark.nightly(by_day="test_networks_are_told_apart")
@pytest.mark.filterwarnings("ignore:private. no record contributed")  # without the canary no picture has a label
def test_so_do_those_of_a_network_with_secret_batches() -> None:
    # More noise than in the table: 30 perfect guesses prove 1.28, and 0.69 is certified.
    sound, broken = (unverified_game(cnn(noise, "white_box", 2.0)) for noise in (1.0, 0.1))
    assert verdict(sound, 30) == "consistent"
    assert verdict(broken, 30) == "refuted"


def unverified_game(game: Game) -> Game:
    assert isinstance(game.trial, RecordTrial)
    return replace(game, trial=replace(game.trial, train=unverified(game.trial.train)))
