"""What the planner shows, against what certify and plan say of the same run; and any texts of its controls, as a link and back."""

import math
from contextlib import suppress
from itertools import product
from typing import Any

import pytest
from helpers import DESIGNS, LOSSES, NEIGHBOURS, REGULARISERS, SCHEDULES, batches, make_run
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import lethe
from lethe.documents.strict import parse_document
from lethe.studio.answers import ALTERNATIVES, answer, price, python_of, thinned
from lethe.studio.controls import CONTROLS
from lethe.studio.parts import schedule_svg
from lethe.studio.state import State
from lethe.utility import excess_risk_bound

DELTA = 1e-6


def query(**texts: str) -> str:
    return State({**State.first().texts, **texts}).query()


def of(run: lethe.Run, **texts: str) -> str:
    return State({**State.of_run(run).texts, "delta": str(DELTA), **texts}).query()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("design", DESIGNS)
def test_the_epsilon_is_the_one_that_certify_gives(design: str) -> None:
    run = make_run(batches=batches(design, 10), regulariser={"kind": "ridge", "strength": 0.1})
    got, certificate = answer(of(run)), lethe.certify(run, DELTA)
    assert got.epsilon == certificate.epsilon
    assert got.theorem == certificate.theorem
    assert got.explanation == certificate.explain()
    assert not got.found_noise
    rows = {row.theorem: row for row in got.theorems}
    assert [row.theorem for row in got.theorems if row.used] == [certificate.theorem]
    for other in certificate.others:
        assert rows[other.theorem].why == other.why
        assert (rows[other.theorem].epsilon == "") == (other.status == "refused")
    # What is shown is rounded up, never down.
    assert all(
        float(row.epsilon.replace("infinity", "inf")) >= (certificate.epsilon if row.used else 0.0) for row in rows.values() if row.epsilon
    )


@pytest.mark.parametrize("noise", ["", "7", "{schedule: exponential, first: 1.0, ratio: 0.999}"])
def test_the_noise_is_the_one_that_plan_gives(noise: str) -> None:
    texts = {"find": "noise", "epsilon": "0.7", "noise": noise}
    planned = lethe.plan(State.from_query(query(**texts)).question().run, 0.7, DELTA)
    got = answer(query(**texts))
    assert got.found_noise
    assert got.noise == planned.noise_multipliers.max()
    assert lethe.Run.from_document(parse_document(got.yaml, "run.yaml")) == planned
    assert got.epsilon == lethe.certify(planned, DELTA).epsilon <= 0.7


@pytest.mark.parametrize(
    ("texts", "error"),
    [
        ({"records": "0"}, "records"),
        ({"records": ""}, "records: missing"),
        ({"size": "70000"}, "cannot exceed records"),
        ({"step_size": "0"}, "step_size"),
        ({"loss": "unknown"}, "clip_norm: null"),
        ({"feature_norm": ""}, "feature_norm"),
        ({"ridge": "-1"}, "strength"),
        ({"neighbours": "add_or_remove"}, "does not go with cyclic"),
        ({"delta": "0.1"}, "(?s)below 1/records.*`lethe certify --allow-large-delta`"),
        ({"delta": "2"}, "delta"),
        ({"epsilon": ""}, "epsilon"),
        ({"epsilon": "0"}, "epsilon"),
        ({"find": "epsilon", "noise": ""}, "has no noise yet"),
        ({"find": "epsilon", "noise": "[1, 2]"}, "noise_multiplier"),
        ({"find": "epsilon", "delta": "0.1"}, "below 1/records"),
        ({"more": "{seeded: true}"}, "seeded"),
    ],
)
def test_no_number_where_an_input_is_bad(texts: dict[str, str], error: str) -> None:
    with pytest.raises(lethe.LetheError, match=error):
        answer(query(**texts))


def test_a_run_that_is_not_private_says_so() -> None:
    got = answer(query(find="epsilon", noise="0"))
    assert got.epsilon == math.inf
    assert any(note.startswith("NOT PRIVATE") for note in got.notes)
    assert got.theorems[0].epsilon == "infinity"


def test_a_doubtful_delta_and_what_must_stay_secret_are_told_and_warn_nobody_else() -> None:
    """Warnings are errors here: none may leave, since threads share them."""
    assert any("1/(10 records)" in note for note in answer(query(delta="1e-5")).notes)
    assert not any("1/(10 records)" in note for note in answer(query()).notes)
    assert any("permutation" in note for note in answer(query(design="shuffled")).notes)
    assert any("final parameters" in note for note in answer(query()).notes)
    assert answer(query(release="all")).notes == ()


@pytest.mark.parametrize("find", ["noise", "epsilon"])
def test_alternatives_cost_what_certify_and_plan_say(find: str) -> None:
    asked = query(find=find, count="6")
    run = State.from_query(asked).question().run
    same = {"noise at every step", "only the last iterate seen"}
    changes: dict[str, dict[str, Any]] = {
        "batches shuffled once": {"batches": lethe.batches.ShuffledOnce(600)},
        "shuffled anew every pass": {"batches": lethe.batches.Shuffled(600)},
        "Poisson batches": {"batches": lethe.batches.Poisson(600)},
        "noise at pass ends only": {"noise_at": "pass_ends"},
        "twice as long": {"passes": 12},
        "half as long": {"passes": 3},
        "every iterate may be seen": {"release": "all"},
    }
    assert {*changes, *same} == set(ALTERNATIVES)

    def number(one: lethe.Run) -> float:
        return lethe.plan(one, 1.0, DELTA).noise_multipliers.max() if find == "noise" else lethe.certify(one, DELTA).epsilon

    for label in same:
        assert price(asked, label) is None
    for label in changes if find == "epsilon" else ("batches shuffled once", "twice as long", "every iterate may be seen"):
        got, expected = price(asked, label), number(run.replace(**changes[label]))
        assert got is not None
        assert expected <= float(got.number) <= expected * 1.001  # four digits, rounded up
        assert got.ratio == pytest.approx(expected / number(run), rel=1e-12)


def test_an_alternative_that_does_not_exist_says_why() -> None:
    relation = price(query(find="epsilon", design="poisson", neighbours="add_or_remove"), "shuffled anew every pass")
    assert relation is not None
    assert relation.number == ""
    assert "add_or_remove does not go with shuffled" in relation.why
    odd = price(query(find="epsilon", count="7"), "half as long")
    assert odd is not None
    assert "no whole number" in odd.why


def test_risk_is_predicted_where_it_can_be() -> None:
    texts = {"find": "epsilon", "design": "full", "length": "steps", "count": "100", "noise": "30", "records": "10000", "ridge": "0.1"}
    texts |= {"step_size": "1.8", "delta": "1e-6"}
    run = State.from_query(query(**texts)).question().run
    bound = excess_risk_bound(run, dimension=650, initial_gap=2.303)
    got = answer(query(**texts, dimension="650", initial_gap="2.303")).risk
    assert bound.value <= float(got.value) <= bound.value * 1.001
    assert got.words == bound.explain()
    assert answer(query(**texts)).risk.value == ""
    refused = answer(query(dimension="650", initial_gap="2.303")).risk
    assert refused.value == ""
    assert "it needs full batches" in refused.words
    wrong = answer(query(**texts, dimension="-1", initial_gap="2.303")).risk
    assert wrong.value == ""
    assert "dimension" in wrong.words


def test_the_python_code_builds_the_same_run() -> None:
    runs = [make_run(batches=batches(design, 10), loss=loss) for design in DESIGNS for loss in LOSSES]
    runs += [make_run(regulariser=one) for one in REGULARISERS]
    runs += [make_run(noise_multiplier=one, step_size=one) for one in SCHEDULES if not isinstance(one, list)]
    runs += [
        make_run(clip_norm=1.0, clip_groups=[0.6, 0.8]),
        make_run(seeded=True),
        make_run(steps=7, passes=None, noise_multiplier=[1.0] * 7),
    ]
    for run in runs:
        code = python_of(run, DELTA)
        names: dict[str, Any] = {}
        exec(
            compile(
                code.replace("print(", "(lambda _: None)(").replace("lethe.certify(run, delta=1e-06).explain()", "None"), "run.py", "exec"
            ),
            names,
        )
        assert names["run"] == run, code


def test_the_python_code_prints_the_certificate(capsys: pytest.CaptureFixture[str]) -> None:
    got = answer(query())
    exec(compile(got.python, "run.py", "exec"), {})
    assert capsys.readouterr().out.strip() == got.explanation


def test_the_schedule_keeps_its_ends_and_extremes() -> None:
    levels = [2.0] * 5000
    levels[1234], levels[4321] = 9.0, 0.5
    run = make_run(records=5000, batches={"design": "cyclic", "size": 1}, passes=1, noise_multiplier=levels)
    points = answer(of(run, noise="{schedule: exponential, first: 1, ratio: 0.999}")).schedule
    assert points[0][0] == 1
    assert points[-1][0] == 5000
    assert len(points) <= 402
    kept = dict(
        thinned(  # the query of so long a list is no link
            run.noisy_steps + 1, run.noise_multipliers
        )
    )
    assert kept[1235] == 9.0
    assert kept[4322] == 0.5


def test_the_picture_is_sound_xml_that_says_its_numbers() -> None:
    from xml.etree import ElementTree

    for points, steps in (((((1, 3.0),)), 1), (((10, 2.0), (20, 4.0)), 20), (((1, 0.0),), 5)):
        root = ElementTree.fromstring(schedule_svg(points, steps))
        assert str(steps) in root.attrib["aria-label"]


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
