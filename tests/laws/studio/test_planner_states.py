"""The texts of the planner's controls, whatever they are: as a link and back, as a run and back, or refused."""

from __future__ import annotations

from contextlib import suppress
from itertools import product
from typing import Any

from helpers import DESIGNS, LOSSES, NEIGHBOURS, REGULARISERS, SCHEDULES, batches, make_run
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import lethe
from lethe.studio.controls import CONTROLS
from lethe.studio.state import State

STATES = st.fixed_dictionaries(
    {control.name: st.text(max_size=12) if control.words is None else st.sampled_from(list(control.words)) for control in CONTROLS}
).map(State)
# What people type, half-typed and mistyped.
TYPED = st.one_of(
    st.sampled_from(["", "1", "0.5", "-1", "1e-6", "1e", "{", "[1, 2", "{schedule: }", "&a *a", "nan", ".inf", "0x10", "1e400"])
)
TYPED_STATES = st.fixed_dictionaries(
    {control.name: TYPED if control.words is None else st.sampled_from(list(control.words)) for control in CONTROLS}
).map(State)
RARE: tuple[dict[str, Any], ...] = (
    {"noise_at": "pass_ends"},
    {"clip_norm": 0.7, "clip_method": "automatic"},
    {"clip_norm": 1.0, "clip_groups": [0.6, 0.8]},
    {"noise_at": "pass_ends", "pass_weights": 1.0, "batches": {"design": "cyclic", "size": 10}},
    {"noise_budget": 0.5, "release": "all"},
    {"seeded": True},
    {"batches": {"design": "poisson", "size": 10, "truncate_at": 60}},
    {"loss": {"kind": "softmax_regression", "feature_norm": 1.0, "evidence": "enforced"}},
    {"steps": 50, "passes": None},
)


@given(STATES)
@settings(max_examples=examples(40))
def test_a_link_says_the_whole_state(one: State) -> None:
    assert State.from_query(one.query()) == one


@given(TYPED_STATES)
def test_what_makes_no_run_is_refused_and_nothing_else_happens(one: State) -> None:
    try:
        question = one.question()
    except lethe.LetheError:
        return
    assert isinstance(question.run, lethe.Run)


def runs() -> list[lethe.Run]:
    made = []
    for design, loss, neighbours in product(DESIGNS, LOSSES, NEIGHBOURS):
        with suppress(lethe.InputError):  # a relation that the design or the loss does not admit
            made.append(make_run(batches=batches(design, 10), loss=loss, neighbours=neighbours))
    assert len(made) > 200
    made += [make_run(regulariser=one) for one in REGULARISERS]
    made += [make_run(**{field: one}) for field in ("step_size", "noise_multiplier") for one in SCHEDULES if not isinstance(one, list)]
    lists = make_run().total_steps
    made += [make_run(**{field: [0.1 * (1 + k) for k in range(lists)]}) for field in ("step_size", "noise_multiplier")]
    return made + [make_run(**changes) for changes in (*RARE, {"unit": "user"})]


def test_every_run_comes_back_from_the_controls_that_show_it() -> None:
    for run in runs():
        shown = State.of_run(run)
        assert State.from_query(shown.query()) == shown
        question = shown.question()
        assert question.run == run
        assert not question.find_noise
