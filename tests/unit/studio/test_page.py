"""The page and its server: what must be in the parts, what must not; this computer only; threads beside the page."""

from __future__ import annotations

import asyncio
import re
from threading import Event
from typing import Any

import pytest

import lethe

pytest.importorskip("shiny", reason="the studio needs Shiny")

from lethe.studio import parts
from lethe.studio.answers import ALTERNATIVES, AlternativePrice, answer
from lethe.studio.app import WorkerThreads
from lethe.studio.controls import CONTROLS
from lethe.studio.server import LOOPBACK, OwnPagesOnly, listen
from lethe.studio.state import State


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
