"""Trainings in several processes: the same scores, and errors that say what happened in which of them."""

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

joblib = pytest.importorskip("joblib")

from lethe.audit import TwoWorldGame  # noqa: E402  # after the optional joblib is seen to be there
from lethe.audit.games.trainings import all_trained  # noqa: E402
from lethe.audit.games.two_worlds import play  # noqa: E402
from lethe.errors import InputError  # noqa: E402


@dataclass(frozen=True)
class Shifted:
    """A Gaussian mechanism."""

    def __call__(self, inside: bool, seed: int) -> float:
        return float(inside + np.random.default_rng(seed).normal())


class Locked(Shifted):
    """Cannot be handed to another process."""

    def __reduce__(self) -> str:
        raise TypeError("locked")


def failing(inside: bool, seed: int) -> float:
    raise ZeroDivisionError(f"of {seed}")


def test_processes_change_nothing() -> None:
    plain, again = play(Shifted(), TwoWorldGame(runs=20), seed=3), play(Shifted(), TwoWorldGame(runs=20, workers=2), seed=3)
    assert (again.out_scores == plain.out_scores).all()
    assert (again.in_scores == plain.in_scores).all()
    assert not np.isin(play(Shifted(), TwoWorldGame(runs=20), seed=4).out_scores, plain.out_scores).any()


@pytest.mark.parametrize(("trial", "word"), [(failing, "raised ZeroDivisionError"), (Locked(), "trials: they cannot be handed")])
def test_what_goes_wrong_between_processes_is_said(trial: Any, word: str) -> None:
    with pytest.raises(InputError, match=word):
        play(trial, TwoWorldGame(runs=2, workers=2), seed=0)


def test_arguments_that_cannot_be_sent_are_said() -> None:
    with joblib.parallel_config(backend="loky", n_jobs=2), pytest.raises(InputError, match="trainings: they cannot be handed"):
        all_trained(print, [(threading.Lock(),), (threading.Lock(),)])
