"""What no page of its own sends: refused in words, with no traceback on the console, and the page lives on."""

from __future__ import annotations

import asyncio
import json
import os
import select
import socket
from collections.abc import Iterator
from subprocess import Popen
from typing import Any

import pytest
from studio_process import studio

pytest.importorskip("shiny", reason="the studio needs Shiny")
pytest.importorskip("websockets", reason="the studio's pages talk by them")

import websockets

from lethe.studio.controls import CONTROLS

pytestmark = pytest.mark.slow

_OUTPUTS = ("headline", "said")
_FIRST: dict[str, Any] = {control.name: control.default or (next(iter(control.words)) if control.words else "") for control in CONTROLS}


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Popen[str], str]]:
    with studio() as (process, address):
        yield process, address


def on_the_console(process: Popen[str]) -> str:
    assert process.stderr is not None
    text = b""
    while select.select([process.stderr], [], [], 0.3)[0] and (more := os.read(process.stderr.fileno(), 2**16)):
        text += more
    return text.decode()


async def _until(address: str, sent: dict[str, Any], shown: str) -> bool:
    """Whether the page shows `shown` after it sent these values, and still answers when it sends good ones again."""
    async with websockets.connect(address.replace("http", "ws") + "websocket/", origin=address.rstrip("/"), close_timeout=0.1) as page:
        seen = {f".clientdata_output_{name}_hidden": False for name in _OUTPUTS} | {".clientdata_pixelratio": 1}
        await page.send(json.dumps({"method": "init", "data": _FIRST | seen}))
        for values, wanted in ((sent, shown), (dict(_FIRST, records="54321", find="epsilon"), "epsilon")):
            await page.send(json.dumps({"method": "update", "data": values}))
            async with asyncio.timeout(60):
                while wanted not in await page.recv():
                    pass
    return True


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ({"find": "1e400"}, "find: got '1e400'; it needs one of noise, epsilon"),
        ({"loss": "nope"}, "loss: got 'nope'; it needs one of"),
        ({"design": None}, "design: got ''; it needs one of"),
        ({"unit": 7}, "unit: got '7'; it needs one of"),
        ({"epsilon": {"a": 1}}, "epsilon"),
        ({"size": ["1", "2"]}, "batches.size: got"),
        ({"opened": 5}, "opened: it needs the name and the text of a file"),
        ({"opened": {"name": 3, "text": "records: 5"}}, "opened: it needs the name and the text of a file"),
        ({"opened": {"name": "run.yaml", "text": "records: 5"}}, "batches: missing"),
    ],
)
def test_values_that_no_control_sends_are_refused_and_the_page_lives_on(
    served: tuple[Popen[str], str], sent: dict[str, Any], shown: str
) -> None:
    process, address = served
    assert asyncio.run(_until(address, sent, shown))
    assert on_the_console(process) == ""


@pytest.mark.parametrize(
    "broken",
    [
        b"POST / HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: HOST\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nabc",
        b"nonsense\r\n\r\n",
    ],
    ids=["no chunk", "two lengths", "nonsense"],
)
def test_requests_that_contradict_themselves_are_refused_and_the_server_lives_on(served: tuple[Popen[str], str], broken: bytes) -> None:
    process, address = served
    port = int(address.rstrip("/").rpartition(":")[2])
    for request in (broken, b"GET / HTTP/1.1\r\nHost: HOST\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(request.replace(b"HOST", f"127.0.0.1:{port}".encode()))
            assert connection.recv(10).startswith(b"HTTP/1.1 4" if request == broken else b"HTTP/1.1 2")
    on_the_console(process)
