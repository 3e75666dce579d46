import numpy as np
import pytest
from helpers import SCHEDULES

import lethe
from lethe.run.schedules import as_schedule, parse_schedule, schedule_document

# schedules.md section 12.10: the methods of Yu et al. 2019 from 10, at t = 0, 10, 25.
PUBLISHED = [
    (lethe.schedules.TimeDecay(first=10, rate=0.05), [10, 6.666667, 4.444444]),
    (lethe.schedules.Exponential(first=10, ratio=float(np.exp(-0.01))), [10, 9.048374, 7.788008]),
    (lethe.schedules.Step(first=10, factor=0.6, period=10), [10, 6, 3.6]),
    (lethe.schedules.Polynomial(first=10, last=2, power=3, period=100), [10, 7.832, 5.375]),
]


@pytest.mark.parametrize(("schedule", "values"), PUBLISHED)
def test_published_values(schedule: lethe.schedules.Constant, values: list[float]) -> None:
    assert schedule.values(26)[[0, 10, 25]] == pytest.approx(values, abs=5e-7)  # six digits are printed


@pytest.mark.parametrize("document", SCHEDULES)
def test_documents_round_trip(document: object) -> None:
    assert parse_schedule(schedule_document(parse_schedule(document))) == parse_schedule(document)


@pytest.mark.parametrize("document", SCHEDULES)
def test_scaling_scales_every_value(document: object) -> None:
    schedule = as_schedule(parse_schedule(document))
    assert schedule.scaled(3.0).values(50) == pytest.approx(3.0 * schedule.values(50), rel=1e-14)


def test_polynomial_stays_at_its_last_value() -> None:
    assert lethe.schedules.Polynomial(first=4, last=1, power=2, period=3).values(6).tolist()[3:] == [1, 1, 1]


def test_an_explicit_list_has_one_length() -> None:
    with pytest.raises(lethe.InputError, match="lists 2 values; this run needs 3"):
        lethe.schedules.Explicit((1.0, 2.0)).values(3)


@pytest.mark.parametrize(
    "bad",
    [
        {"schedule": "exponential", "first": 1.0},
        {"schedule": "exponential", "first": -1.0, "ratio": 0.5},
        {"schedule": "exponential", "first": 1.0, "ratio": 0.0},
        {"schedule": "step", "first": 1.0, "factor": 0.5, "period": 0},
        {"schedule": "step", "first": 1.0, "factor": 0.5, "period": 1.5},
        {"schedule": "cosine", "first": 1.0},
        {"first": 1.0},
        [1.0, -1.0],
        [1.0, "2"],
        "1.0",
        None,
        float("nan"),
    ],
)
def test_bad_schedules_are_refused(bad: object) -> None:
    with pytest.raises(lethe.InputError):
        parse_schedule(bad)
