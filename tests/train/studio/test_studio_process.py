"""The planner as a process: what no page of its own sends is refused in words, the page lives on, and Ctrl-C ends it without an error."""

import asyncio
import json
import os
import platform
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import Popen
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from helpers import make_run
from studio_process import studio

pytest.importorskip("shiny", reason="the studio needs Shiny")
pytest.importorskip("websockets", reason="the studio's pages talk by them")

import websockets

from lethe.studio.controls import CONTROLS

_OUTPUTS = ("headline", "notes")
_FIRST: dict[str, Any] = {control.name: control.default or (next(iter(control.words)) if control.words else "") for control in CONTROLS}
_HELD = """
import time
from pathlib import Path
import numpy as np
from lethe.studio.app import WorkerThreads

def megabytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20

def work():
    np.ones(10**6)  # glibc takes arrays of this size from the heap, once one was freed
    rows = [np.ones(10**5) for _ in range(300)]
    return bytes(10**5)  # lies above them, so that they do not end at the heap's end

workers, before = WorkerThreads(2, "test"), megabytes()
kept = [future.result() for future in [workers.submit(work) for _ in range(4)]]
deadline = time.monotonic() + 20.0
while megabytes() > before + 60.0:
    assert time.monotonic() < deadline, (before, megabytes())
    time.sleep(0.05)
workers.submit(time.sleep, 600)  # at which the program ends all the same
time.sleep(0.2)
"""


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
        ({"design": None}, "design: got ''; it needs one of"),
        ({"epsilon": {"a": 1}}, "epsilon"),
        ({"size": ["1", "2"]}, "batches.size: got"),
        ({"opened": 5}, "opened: it needs the name and the text of a file"),
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
    "broken", [b"GET / HTTP/1.1\r\nHost: HOST\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nabc", b"nonsense\r\n\r\n"]
)
def test_requests_that_contradict_themselves_are_refused_and_the_server_lives_on(served: tuple[Popen[str], str], broken: bytes) -> None:
    process, address = served
    port = int(address.rstrip("/").rpartition(":")[2])
    for request in (broken, b"GET / HTTP/1.1\r\nHost: HOST\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(request.replace(b"HOST", f"127.0.0.1:{port}".encode()))
            assert connection.recv(10).startswith(b"HTTP/1.1 4" if request == broken else b"HTTP/1.1 2")
    on_the_console(process)


def test_the_page_begins_with_the_run_that_was_given_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    make_run(records=4321).save(tmp_path / "run.yaml")
    with studio(str(tmp_path / "run.yaml")) as (process, address):
        assert 'value="4321"' in urlopen(address, timeout=30).read().decode()
        broken = urlopen(f"{address}?design=cyclc", timeout=30).read().decode()
        assert "Start afresh" in broken
        assert "shiny-html-output" not in broken
        with pytest.raises(HTTPError, match="403"):
            urlopen(Request(address, headers={"Host": "example.org"}), timeout=30)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 0, errors
        assert "Traceback" not in errors


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other libraries give memory back by themselves, or not at all")
def test_what_large_runs_took_is_given_back_and_a_thread_at_work_holds_no_exit_up() -> None:
    subprocess.run([sys.executable, "-c", _HELD], check=True, timeout=60)
