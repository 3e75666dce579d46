"""The planner: the parts of its page, its server, its threads, and the texts of its controls, as a link and as a run and back."""

import asyncio
import math
import re
from threading import Event
from typing import Any
from urllib.parse import urlencode
from xml.etree import ElementTree

import pytest
from helpers import make_run

import lethe
from lethe.studio.controls import CONTROLS, NAMED
from lethe.studio.state import State

pytest.importorskip("shiny", reason="the studio needs Shiny")

from lethe.studio import parts
from lethe.studio.answers import ALTERNATIVES, AlternativePrice, answer, epsilon_at, state_with
from lethe.studio.app import WorkerThreads
from lethe.studio.picture import price_svg
from lethe.studio.server import LOOPBACK, OwnPagesOnly, listen


def html(**texts: str) -> str:
    return str(parts.headline(answer(State({**State.first().texts, **texts}).query())))


def test_the_sentence_holds_the_whole_promise() -> None:
    last, every = html(neighbours="replace_one"), html(release="all")
    assert "(1, 1e-06)-DP for one record replaced by another, if only the final parameters are seen" in last
    assert "(1, 1e-06)-DP for one record left without gradient, whatever is seen of the training" in every
    assert "(1, 1e-06)-DP for one user replaced by another" in html(unit="user", neighbours="replace_one")
    assert "Void once" in last
    assert "Void once" not in every


def test_what_is_not_private_makes_no_promise() -> None:
    page = html(find="epsilon", noise="0")
    assert "NOT PRIVATE" in page
    assert "DP for one record" not in page
    assert ">infinity<" in page


def test_a_schedule_is_named_by_its_largest_noise() -> None:
    assert "largest noise multiplier" in html(noise="{schedule: exponential, first: 1, ratio: 0.999}")
    assert "largest" not in html()


def test_text_of_others_is_no_markup() -> None:
    evil = "<script>alert(1)</script>"
    price = AlternativePrice("", None, evil)
    pages = [parts.refusal(evil), parts.nothing(evil), parts.prices({"twice as long": price}, noise=True)]
    texts = {control.name: evil if control.words is None else control.default for control in CONTROLS}
    pages.append(parts.controls(texts))
    assert all("<script>alert" not in str(page) for page in pages)
    assert all("alert(1)" in str(page) for page in pages)


def test_rows_are_those_that_change_something() -> None:
    found = dict.fromkeys(ALTERNATIVES)
    assert "<tr" in str(parts.prices({}, noise=False))
    body = str(parts.prices(found, noise=False)).partition("<tbody>")[2]
    assert "<tr" not in body


def test_every_input_has_a_label() -> None:
    page = str(parts.controls(State.first().texts))
    for control in CONTROLS:
        assert f'for="{control.name}"' in page
        assert f'id="{control.name}"' in page


def asked(kind: str, host: str, origin: str | None) -> list[dict[str, Any]]:
    """What the guard sends of a request, where what it guards answers everything."""

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": f"{kind}.response.start", "status": 200, "headers": []})

    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request"}

    headers = [(b"host", host.encode()), *([] if origin is None else [(b"origin", origin.encode())])]
    asyncio.run(OwnPagesOnly(inner, 8000)({"type": kind, "method": "GET", "path": "/", "headers": headers}, receive, send))
    return sent


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:8000"])
@pytest.mark.parametrize("own_origin", [True, False])
def test_its_own_pages_are_answered_and_may_ask_no_other_host(host: str, own_origin: bool) -> None:
    (start,) = asked("http", host, f"http://{host}" if own_origin else None)
    assert start["status"] == 200
    policy = dict(start["headers"])[b"content-security-policy"].decode()
    assert "default-src 'self'" in policy
    assert set(re.findall(r"\w+://\S+?(?=[; ]|$)", policy)) == {f"ws://{host}"}


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("example.org:8000", None),
        ("127.0.0.1:8001", None),
        ("", None),
        ("127.0.0.1:8000", "http://example.org"),
        ("127.0.0.1:8000", "http://127.0.0.1:9000"),
        ("127.0.0.1:8000", "null"),
        ("127.0.0.1:8000", "https://127.0.0.1:8000"),
    ],
)
def test_other_names_and_other_sites_are_refused(host: str, origin: str | None) -> None:
    assert asked("http", host, origin)[0]["status"] == 403
    assert asked("websocket", host, origin) == [{"type": "websocket.close", "code": 1008}]


def test_only_this_computer_can_connect_and_a_taken_port_is_an_error() -> None:
    with listen(0) as one:
        assert one.getsockname()[0] == LOOPBACK == "127.0.0.1"
        with pytest.raises(lethe.InputError, match="--port"):
            listen(one.getsockname()[1])


def test_links_keep_their_port_where_it_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    with listen(0) as free:
        usual = free.getsockname()[1]
    monkeypatch.setattr("lethe.studio.server.USUAL_PORT", usual)
    with listen(None) as first, listen(None) as second:
        assert first.getsockname()[1] == usual
        assert second.getsockname()[1] not in (0, usual)


def test_results_and_errors_come_back() -> None:
    workers = WorkerThreads(2, "test")
    assert workers.submit(divmod, 7, 3).result(10) == (2, 1)
    with pytest.raises(ZeroDivisionError):
        workers.submit(divmod, 7, 0).result(10)
    assert workers.submit(divmod, 8, 3).result(10) == (2, 2)


def test_what_is_cancelled_before_its_turn_is_never_begun() -> None:
    workers, gate, begun = WorkerThreads(1, "test"), Event(), []
    first = workers.submit(gate.wait, 30)
    second, third = workers.submit(begun.append, 2), workers.submit(begun.append, 3)
    assert second.cancel()
    gate.set()
    third.result(10)
    assert first.result(10)
    assert begun == [3]


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


@pytest.mark.parametrize("noise", ["3", "{schedule: exponential, first: 1, ratio: 0.999}"])
@pytest.mark.parametrize("find", ["noise", "epsilon"])
def test_the_curve_is_what_certify_says_of_other_noise(noise: str, find: str) -> None:
    texts = state(noise=noise, find=find)
    run = texts.question().run if find == "epsilon" else lethe.plan(texts.question().run, 1.0, 1e-6)
    level, epsilon = epsilon_at(texts.query(), 2.0)
    assert level == pytest.approx(2.0 * run.noise_multipliers.max(), rel=1e-12)  # one rounding a product
    assert epsilon == pytest.approx(lethe.certify(run.with_noise_scaled(2.0), 1e-6).epsilon, rel=1e-9)


@pytest.mark.parametrize("find", ["noise", "epsilon"])
def test_the_dot_stands_where_the_answer_is_and_marks_are_numbered(find: str) -> None:
    got = answer(state(find=find).query())
    prices = {"Poisson batches": AlternativePrice("2", 0.5, ""), "half as long": AlternativePrice("", None, "<b>"), "twice as long": None}
    root = ElementTree.fromstring(price_svg(got, [(2 * got.noise, got.epsilon / 2)], prices))
    dot = root.find("circle[@class='chosen']")
    assert dot is not None
    field, low, high, start, end = (root.get(f"data-{name}", "") for name in ("field", "low", "high", "start", "end"))
    assert field == ("epsilon" if find == "noise" else "noise")
    at = float(dot.get("cy" if find == "noise" else "cx", ""))
    value = float(low) * (float(high) / float(low)) ** ((at - float(start)) / (float(end) - float(start)))
    assert value == pytest.approx(got.epsilon if find == "noise" else got.noise, rel=0.005)  # the dot is written to a tenth of a unit
    marks = root.findall("g[@class='mark']")
    assert [mark.get("data-alternative") for mark in marks] == ["Poisson batches"]
    assert [text.text for mark in marks for text in mark.findall("text")] == ["1"]


def test_no_noise_is_no_picture_and_constant_noise_no_schedule() -> None:
    assert price_svg(answer(state(find="epsilon", noise="0").query()), [(1.0, math.inf)], {}) == ""
    assert parts.schedule(answer(state().query())) is None
    assert "<svg" in str(parts.schedule(answer(state(noise="{schedule: exponential, first: 1, ratio: 0.999}").query())))


def test_an_alternative_that_is_taken_is_the_one_that_was_priced() -> None:
    before = state(release="all", epsilon="2", delta="1e-7")
    for label, change in ALTERNATIVES.items():
        after = state_with(before.query(), label)
        assert after.question().run == change(before.question().run)
        assert [after.texts[name] for name in ("find", "noise", "epsilon", "delta")] == ["noise", "10.0", "2", "1e-7"]


def test_theorems_that_do_not_apply_are_folded_away() -> None:
    used, _, others = str(parts.theorems(answer(state().query()))).partition("<details>")
    assert [("optimal-shift" in part, "sampled-gaussian" in part) for part in (used, others)] == [(True, False), (False, True)]
