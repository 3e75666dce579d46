"""tools/beside.py: both commands run at once, what one says is printed whole after the other, and Ctrl-C leaves neither behind."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import beside
import pytest

TOOL = Path(beside.__file__)


@pytest.mark.parametrize(("unseen", "shown", "status"), [(0, 0, 0), (3, 0, 3), (0, 4, 4), (3, 4, 4)])
def test_either_failure_fails_and_the_unseen_command_is_printed_last(
    unseen: int, shown: int, status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    code = beside.beside(f"echo lint; echo more >&2; exit {unseen}", ["sh", "-c", f"sleep 0.1; echo tests; exit {shown}"])
    assert code == status
    assert capfd.readouterr().out == "tests\nlint\nmore\n"


def test_both_run_at_once(tmp_path: Path) -> None:
    """Each waits for the other."""
    one, two = tmp_path / "one", tmp_path / "two"
    wait = "touch {}; for _ in $(seq 1000); do test -e {} && exit 0; sleep 0.05; done; exit 1"
    assert beside.beside(wait.format(one, two), ["sh", "-c", wait.format(two, one)]) == 0


def test_a_command_that_a_signal_ends_has_failed() -> None:
    assert beside.beside("kill -TERM $$", ["true"]) == 143


def read(pipe: int, seconds: float, enough: bytes | None) -> bytes:
    """What is written to a pipe, until it is `enough` or, where that is None, until nobody holds its other end any more."""
    told, until = b"", time.monotonic() + seconds
    while told != enough:
        assert time.monotonic() < until, told
        time.sleep(0.01)
        with suppress(BlockingIOError):
            some = os.read(pipe, 100)
            told += some
            if enough is None and not some:
                break
    return told


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_stops_both_and_all_that_they_started(how: signal.Signals, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "held")
    pipe = os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK)
    start = f"exec 3> {tmp_path}/held; echo up >&3; exec sleep 300"
    nested = f'sh -c "{start}"; true'  # a shell with a child of its own
    with subprocess.Popen([sys.executable, TOOL, nested, "sh", "-c", start], start_new_session=True) as running:
        assert read(pipe, 60, b"up\nup\n")
        # A terminal sends Ctrl-C to every process of the group; whoever ends make sends SIGTERM to one.
        os.killpg(running.pid, how) if how is signal.SIGINT else running.send_signal(how)
        assert running.wait(60) == 130
    assert read(pipe, 60, None) == b""
    os.close(pipe)
