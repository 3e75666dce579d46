"""The configuration of an audit: what it refuses, that it is plain frozen data, and that the command describes the same."""

import pickle
from pathlib import Path
from typing import Any

import pytest

from lethe.audit import AuditConfig, AuditSetting, Ranks, TwoWorldGame
from lethe.audit.config import OneRunGame
from lethe.audit.statistics.rules import FixedThreshold
from lethe.errors import InputError
from lethe.jobs.audit.job import AuditJob


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"delta": 1.0}, "delta"),
        ({"delta": -1e-9}, "delta"),
        ({"delta": float("nan")}, "delta"),
        ({"delta": "1e-5"}, "delta"),
        ({"delta": None}, "delta"),
        ({"game": "three_worlds"}, "game"),
        ({"game": {"kind": "three_worlds"}}, "did you mean 'two_world'|needs one of two_world, one_run"),
        ({"game": {"kind": "two_world", "canaries": 5}}, "canaries: unknown key"),
        ({"game": {"kind": "one_run", "runs": 5}}, "runs: unknown key"),
        ({"game": None}, "game"),
        ({"threat": "oracle"}, "threat"),
        ({"canary": "yellow"}, "canary"),
        ({"level": 0.6}, "level"),
        ({"level": 0.0}, "level"),
        ({"level": float("nan")}, "level"),
        ({"conditional": 1}, "conditional"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**64 + 1}, "seed"),
        ({"seed": True}, "seed"),
        ({"runs": 500}, "runs: unknown key"),
    ],
)
def test_what_no_audit_can_use_is_refused(change: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word):
        AuditConfig(**{"delta": 1e-5, **change})


@pytest.mark.parametrize(
    ("game", "change"),
    [
        (TwoWorldGame, {"runs": 1}),
        (TwoWorldGame, {"runs": 2.0}),
        (TwoWorldGame, {"runs": 1_000_001}),
        (TwoWorldGame, {"rule": 0.5}),
        (TwoWorldGame, {"position": -1}),
        (TwoWorldGame, {"chunk": 0}),
        (TwoWorldGame, {"workers": 0}),
        (TwoWorldGame, {"workers": 1.5}),
        (TwoWorldGame, {"workers": "two"}),
        (TwoWorldGame, {"workers": True}),
        (TwoWorldGame, {"score_file": 3}),
        (OneRunGame, {"canaries": 3}),
        (OneRunGame, {"guesses": ()}),
        (OneRunGame, {"guesses": 5}),
        (OneRunGame, {"guesses": [(1, 2, 3)]}),
        (OneRunGame, {"guesses": [(1.5, 0)]}),
    ],
)
def test_what_a_game_cannot_use_is_refused(game: Any, change: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(change))):
        game(**change)


def test_equal_descriptions_are_equal_and_survive_pickling() -> None:
    first = AuditConfig(delta=1e-5, game=TwoWorldGame(runs=50, rule=Ranks(ranks=(2, 5)), score_file=Path("scores.jsonl")))
    again = AuditConfig(delta=1e-5, game=TwoWorldGame(runs=50, rule=Ranks(ranks=(2, 5)), score_file="scores.jsonl"))
    assert first == again == pickle.loads(pickle.dumps(first))
    for other in (
        first.model_copy(update={"game": first.game.model_copy(update={"rule": FixedThreshold(threshold=1.0)})}),
        first.model_copy(update={"level": 0.01}),
        first.model_copy(update={"game": OneRunGame(canaries=50)}),
    ):
        assert other != first
    with pytest.raises(Exception, match="frozen"):
        first.delta = 0.5  # pyright: ignore[reportAttributeAccessIssue]


def test_a_game_may_be_a_mapping() -> None:
    config = AuditConfig(delta=1e-5, game={"kind": "one_run", "canaries": 40, "guesses": [[4, 4]]})  # pyright: ignore[reportArgumentType]
    assert config.game == OneRunGame(canaries=40, guesses=((4, 4),))


def test_the_statistics_are_told_what_the_configuration_says() -> None:
    config = AuditConfig(delta=1e-3, threat="white_box", level=0.01)
    assert config.setting("zero_out") == AuditSetting(delta=1e-3, neighbours="zero_out", threat="white_box", level=0.01)


def test_the_command_has_the_same_defaults() -> None:
    subject = {"kind": "run", "run": "run.json"}
    assert AuditJob(subject=subject).config(1e-5) == AuditConfig(delta=1e-5)
    assert AuditJob(subject=subject, game="one_run").config(1e-5) == AuditConfig(delta=1e-5, game=OneRunGame())


def test_the_command_leaves_nothing_out() -> None:
    fields: dict[str, Any] = {"threat": "black_box", "canary": "blank", "level": 0.2, "conditional": False, "seed": 3}
    allowed: dict[str, Any] = {**fields, "allow_large_delta": True}
    job = AuditJob(subject={"kind": "run", "run": "run.json"}, **allowed, runs=7, workers=2, score_file="s.jsonl")
    game = TwoWorldGame(runs=7, workers=2, score_file="s.jsonl")
    assert job.config(0.1) == AuditConfig(delta=0.1, game=game, **allowed)
    job = AuditJob(subject={"kind": "run", "run": "run.json"}, **fields, game="one_run", canaries=9, guesses=[[2, 1]])
    assert job.config(0.1) == AuditConfig(delta=0.1, game=OneRunGame(canaries=9, guesses=((2, 1),)), **fields)
