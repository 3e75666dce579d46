"""The texts of the planner's controls: as a link and back, as a run and back, and refused where they are none."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from helpers import make_run

import lethe
from lethe.studio.controls import CONTROLS, NAMED
from lethe.studio.state import State


def state(**texts: str) -> State:
    return State({**State.first().texts, **texts})


def test_a_run_without_noise_asks_for_it() -> None:
    run = make_run(noise_multiplier=None)
    question = State.of_run(run).question()
    assert question.find_noise
    assert question.run == run


def test_a_number_is_no_shape_and_a_schedule_is() -> None:
    assert state(find="noise", noise="3.0").question().run.noise_multiplier is None
    shape = state(find="noise", noise="{schedule: exponential, first: 1, ratio: 0.99}").question().run.noise_multiplier
    assert isinstance(shape, lethe.schedules.Exponential)


def test_a_link_that_was_cut_says_no_number() -> None:
    query = state(find="epsilon").query()
    for field in ("records", "size", "count", "step_size"):
        shorter = "&".join(part for part in query.split("&") if not part.startswith(f"{field}="))
        assert State.from_query(shorter).texts[field] == ""
        with pytest.raises(lethe.InputError, match=r"missing|exactly one"):
            State.from_query(shorter).question()


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (State.first().query().replace("cyclic", "cyclc"), "design: got 'cyclc'"),
        ("colour=red", "colour"),
        ("find=noise&find=epsilon", "twice"),
        ("records=10", "missing"),
    ],
)
def test_a_link_that_nobody_wrote_is_refused(query: str, words: str) -> None:
    with pytest.raises(lethe.InputError, match=words):
        State.from_query(query)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("{release: all}", "release is set by a control"),
        ("{clip_norm: 2}", "clip_norm is set by a control"),
        ("{noise_multiplier: 2}", "noise_multiplier is set by a control"),
        ("{passes: 2}", "passes is set by a control"),
        ("{batches: {size: 2}}", "batches is set by a control"),
        ("{loss: {kind: unknown}}", "loss is set by a control"),
        ("{learning_rate: 1}", "learning_rate"),
        ("{neighbors: zero_out}", "given as 'neighbours' and as 'neighbors'"),
        ("{seeded: true, seeded: false}", "twice"),
        ("0", "fields of a run"),
        ("{", "no YAML value"),
    ],
)
def test_no_field_is_set_in_two_places(more: str, words: str) -> None:
    with pytest.raises(lethe.InputError, match=words):
        state(more=more, length="steps").question()


def test_two_regularisers_are_not_set_in_two_places() -> None:
    with pytest.raises(lethe.InputError, match="regulariser is set"):
        state(ridge="0.1", more="{regulariser: {kind: ball, radius: 1}}").question()
    question = state(more="{regulariser: [{kind: ridge, strength: 0.1}, {kind: ball, radius: 1}]}").question()
    assert len(question.run.regularisers) == 2


def test_what_a_run_does_not_say_stays_as_it_was() -> None:
    base = state(delta="1e-9", epsilon="3", dimension="7")
    shown = State.of_run(make_run(), base)
    assert {name: shown.texts[name] for name in ("delta", "epsilon", "dimension")} == {"delta": "1e-9", "epsilon": "3", "dimension": "7"}


def test_a_hidden_control_says_nothing() -> None:
    """The size of a batch does not matter to full batches, nor a width to a loss without one."""
    assert state(design="full", size="none of them", width="abc").question().run.batches == lethe.batches.Full()


def test_every_control_has_a_label_and_a_default_that_it_knows() -> None:
    assert len(NAMED) == len(CONTROLS)
    assert all(control.label for control in CONTROLS)
    assert State.first().question().run.records == 60000
    assert State.from_query("") == State.first()
    assert urlencode({"find": "noise"}) in State.first().query()


def test_a_link_of_before_is_about_records() -> None:
    state = State.first()
    old = state.query().replace("unit=record&", "")
    assert "unit" not in old
    assert State.from_query(old) == state
    users = State(dict(state.texts) | {"unit": "user"})
    assert State.from_query(users.query()).question().run.unit == "user"
    assert "unit" not in state.question().run.to_document()
