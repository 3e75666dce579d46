"""The same values in every pass."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import make_run

from lethe.errors import InputError
from lethe.run.run import Run
from lethe.run.schedules import Constant, Explicit, Exponential, Repeated, as_schedule, parse_schedule, schedule_document

INNER = (
    [0.3, 0.2, 0.1],
    0.5,
    {"schedule": "exponential", "first": 1.0, "ratio": 0.5},
    {"schedule": "repeated", "every": 2, "of": [3.0, 4.0]},
)


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("count", [1, 2, 3, 4, 10])
def test_the_first_values_come_back_every_period(inner: object, count: int) -> None:
    own = as_schedule(parse_schedule(inner)).values(3)
    repeated = as_schedule(parse_schedule({"schedule": "repeated", "every": 3, "of": inner}))
    assert repeated.values(count).tolist() == [own[t % 3] for t in range(count)]
    assert repeated.scaled(3.0).values(count) == pytest.approx(3.0 * repeated.values(count), rel=1e-14)


@pytest.mark.parametrize("inner", INNER)
def test_documents_round_trip(inner: object) -> None:
    document = {"schedule": "repeated", "every": 3, "of": inner}
    assert schedule_document(parse_schedule(document)) == document
    assert parse_schedule(document) == parse_schedule(schedule_document(parse_schedule(document)))


def test_in_python_it_takes_a_schedule_a_number_or_a_list() -> None:
    assert Repeated(every=2, of=Exponential(first=1, ratio=0.5)).of == Exponential(first=1, ratio=0.5)
    assert Repeated(every=2, of=2).of == Constant(value=2.0)
    assert Repeated(every=2, of=np.float32(0.5)).of == Constant(value=0.5)
    assert Repeated(every=2, of=[1.0, 2.0]).of == Repeated(every=2, of=np.array([1.0, 2.0])).of == Explicit(listed=(1.0, 2.0))


def test_a_long_period_costs_no_memory() -> None:
    assert Repeated(every=10**15, of=Exponential(first=1, ratio=0.5)).values(3).tolist() == [1.0, 0.5, 0.25]


def test_a_run_whose_steps_decay_inside_each_pass() -> None:
    run = make_run(step_size={"schedule": "repeated", "every": 10, "of": {"schedule": "time_decay", "first": 0.5, "rate": 0.1}})
    passes = run.step_sizes.reshape(5, 10)
    assert np.all(passes == passes[0])
    assert passes[0] == pytest.approx(0.5 / (1 + 0.1 * np.arange(10)), rel=1e-15)
    assert Run.from_document(run.to_document()) == run


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"every": 3, "of": [1.0, 2.0]}, "lists 2 values, and every: 3"),
        ({"every": 0, "of": 1.0}, "every"),
        ({"every": 2.0, "of": 1.0}, "every"),
        ({"every": True, "of": 1.0}, "every"),
        ({"every": 3}, "of: missing"),
        ({"of": 1.0}, "every: missing"),
        ({"every": 3, "of": None}, "of"),
        ({"every": 3, "of": True}, "of"),
        ({"every": 3, "of": "1"}, "of"),
        ({"every": 3, "of": -1.0}, "of"),
        ({"every": 3, "of": float("nan")}, "of"),
        ({"every": 3, "of": []}, "of"),
        ({"every": 3, "of": [1.0, 2.0, -3.0]}, "of: entry 2"),
        ({"every": 3, "of": {"schedule": "expo"}}, "of: schedule"),
        ({"every": 3, "of": {"schedule": "step", "first": 1.0, "factor": 0.5, "period": 0}}, "period"),
        ({"every": 3, "of": 1.0, "offset": 1}, "unknown key"),
    ],
)
def test_bad_ones_are_refused(fields: dict[str, object], named: str) -> None:
    with pytest.raises(InputError, match=named):
        parse_schedule({"schedule": "repeated", **fields})


@pytest.mark.parametrize("inner", [True, None, "1", -1.0, [], [True], {"schedule": "constant", "value": 1.0}, object()])
def test_bad_ones_are_refused_in_python_too(inner: object) -> None:
    with pytest.raises(InputError, match="of"):
        Repeated(every=1, of=inner)
