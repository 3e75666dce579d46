"""The planner's server: this computer only, pages of its own only, and an end that is no error."""

from __future__ import annotations

import asyncio
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from helpers import make_run
from studio_process import studio
from typer.testing import CliRunner

import lethe
from lethe.cli.app import app

pytest.importorskip("shiny", reason="the studio needs Shiny")

from lethe.studio.server import LOOPBACK, OwnPagesOnly, listen


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


def test_a_run_that_is_none_is_one_message(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("records: 0\n")
    result = CliRunner().invoke(app, ["studio", str(file), "--no-browser"])
    assert isinstance(result.exception, lethe.InputError)
    assert "http" not in result.output


@pytest.mark.slow
def test_the_page_begins_with_the_run_that_was_given_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    file = tmp_path / "run.yaml"
    make_run(records=4321).save(file)
    with studio(str(file)) as (process, address):
        text = urlopen(address, timeout=30).read().decode()
        assert 'value="4321"' in text
        broken = urlopen(f"{address}?design=cyclc", timeout=30).read().decode()
        assert "Start afresh" in broken
        assert "shiny-html-output" not in broken
        with pytest.raises(HTTPError, match="403"):
            urlopen(Request(address, headers={"Host": "example.org"}), timeout=30)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 0, errors
        assert "Traceback" not in errors
