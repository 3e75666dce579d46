"""Independent trainings through joblib: in the order of the jobs wherever they ran, and none is dropped."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

joblib = pytest.importorskip("joblib")
from joblib.parallel import ThreadingBackend  # noqa: E402

from lethe.audit.games import trainings  # noqa: E402  # after the optional joblib is seen to be there
from lethe.audit.games.trainings import all_trained  # noqa: E402
from lethe.errors import InputError, LetheError  # noqa: E402


def slower_at_first(place: int) -> tuple[int, int]:
    time.sleep(0.02 / (1 + place))
    return place, threading.get_ident()


def test_results_stand_in_the_order_of_the_jobs_and_each_is_told_of() -> None:
    told, meeting = list[None](), threading.Barrier(2)

    def together(place: int) -> tuple[int, int]:
        if place < 2:
            meeting.wait(60)  # on a busy machine one thread might do all
        return slower_at_first(place)

    with joblib.parallel_config(backend="threading", n_jobs=3):
        found = all_trained(together, ((place,) for place in range(9)), finished=lambda: told.append(None))
    assert [place for place, _ in found] == list(range(9))
    assert len({thread for _, thread in found}) > 1
    assert len(told) == 9
    assert all_trained(slower_at_first, []) == []


class AllAtOnce(ThreadingBackend):
    """A backend that hands over all results when the last is there, as Ray's does."""

    @property
    def supports_return_generator(self) -> bool:
        return False


def test_a_backend_that_hands_over_all_at_once_gives_the_same() -> None:
    joblib.register_parallel_backend("all at once", AllAtOnce)
    with joblib.parallel_config(backend="all at once", n_jobs=2):
        assert [place for place, _ in all_trained(slower_at_first, ((place,) for place in range(5)))] == list(range(5))


def test_a_training_that_is_lost_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = trainings.as_they_end

    def losing(tasks: Any, workers: int | None = None, *, what: str) -> Any:
        return (answer for answer in whole(tasks, workers, what=what) if answer[0] != 2)

    monkeypatch.setattr(trainings, "as_they_end", losing)
    with pytest.raises(LetheError, match="1 of 4 trainings gave no result, the first number 3; nothing is said of the others alone"):
        all_trained(slower_at_first, ((place,) for place in range(4)))


def test_a_training_that_fails_is_raised_and_one_that_cannot_be_sent_is_named() -> None:
    with pytest.raises(ZeroDivisionError):
        all_trained(lambda place: 1 // place, [(1,), (0,)])
    with joblib.parallel_config(backend="loky", n_jobs=2), pytest.raises(InputError, match="trainings: they cannot be handed"):
        all_trained(slower_at_first, [(threading.Lock(),), (threading.Lock(),)])
