"""Audits that train: canaries, games of two worlds and of one run, played in many processes, kept as they go.

All of it works on any callable `train(data, seed) -> model`, or on a `World` that can be watched. Games with Lethe's own trainers are in
`lethe.audit.trainers`.
"""

import importlib.util

from lethe.errors import MissingExtraError

if importlib.util.find_spec("joblib") is None:
    raise MissingExtraError("lethe.audit.games needs joblib, which is not installed.", remedy='pip install "lethe-dp[audit]"')

from lethe.audit.games.canaries import Data, Record, blank, least_moved_direction, mislabelled, random_directions, replaced
from lethe.audit.games.gradient_game import GradientGame
from lethe.audit.games.observed_steps import audit_steps, watch_steps
from lethe.audit.games.scores import OneRunScores, TwoWorldScores
from lethe.audit.games.trials import CanaryRun, FinalTrial, Observations, RecordTrial, StepsTrial, TrainFunction, World
from lethe.audit.games.two_worlds import SingleTrials, Trials, play
from lethe.audit.games.verdict import audit_canaries, audit_worlds, usual_guesses, usual_ranks
