"""Schedules and the influence of noise: their values, their documents."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers import SCHEDULES, make_run
from hypothesis import given
from hypothesis import strategies as st

import lethe
from lethe.errors import InputError
from lethe.run.run import Run
from lethe.run.schedules import Constant, Explicit, Exponential, Influence, Repeated, as_schedule, parse_schedule, schedule_document

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
def test_repeated_documents_round_trip(inner: object) -> None:
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


RATED = Influence(rate=0.98, basis="curvature", detail="1 - mu/M with kappa = 50")
LISTED = Influence(weights=(1.0, 4.0, 2.0), basis="public", detail="digits")


def test_a_rate_counts_from_the_end() -> None:
    assert Influence(rate=0.5, basis="assumed").values(4).tolist() == [0.125, 0.25, 0.5, 1.0]
    assert Influence(rate=2.0, basis="assumed").values(4).tolist() == [1.0, 0.5, 0.25, 0.125]
    assert Influence(rate=1, basis="assumed").values(3).tolist() == [1.0, 1.0, 1.0]


def test_weights_are_scaled_to_their_largest() -> None:
    assert LISTED.values(3).tolist() == [0.25, 1.0, 0.5]
    assert Influence(weights=np.array([1e300, 1e-5]), basis="synthetic").values(2) == pytest.approx([1.0, 1e-305], rel=1e-14)
    assert Influence(weights=[5e-324, 5e-324], basis="synthetic").values(2).tolist() == [1.0, 1.0]


@pytest.mark.slow
@given(st.floats(0.9, 1.1), st.integers(1, 3000))
def test_ratios_are_those_of_the_rate_and_nothing_underflows(rate: float, steps: int) -> None:
    values = Influence(rate=rate, basis="assumed").values(steps)
    assert values.shape == (steps,)
    assert values.max() == 1.0
    assert values.min() > 1e-300
    assert values[:-1] / values[1:] == pytest.approx(np.full(steps - 1, rate), rel=1e-12)  # two powers and a quotient, each to an ulp


def test_one_line_for_people() -> None:
    assert RATED.describe() == "influence 0.98^(T-t) (curvature: 1 - mu/M with kappa = 50)"
    assert LISTED.describe() == "influence of 3 listed steps, the largest 4 times the smallest (public: digits)"
    assert Influence(weights=[5e-324, 1e308], basis="assumed").describe().count("\n") == 0


@pytest.mark.parametrize("influence", [RATED, LISTED])
@pytest.mark.parametrize("suffix", [".yaml", ".json"])
def test_influence_documents_round_trip(influence: Influence, suffix: str, tmp_path: Path) -> None:
    assert Influence.from_document(influence.to_document()) == influence
    influence.save(tmp_path / f"influence{suffix}")
    assert Influence.load(tmp_path / f"influence{suffix}") == influence


def test_a_bad_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("rate: -1\nbasis: assumed\n")
    with pytest.raises(InputError, match=r"bad\.yaml"):
        Influence.load(tmp_path / "bad.yaml")
    with pytest.raises(InputError, match="mapping of its fields"):
        Influence.from_document([1.0])  # pyright: ignore[reportArgumentType]
