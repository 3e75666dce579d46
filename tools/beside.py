"""Run a command beside another one and print what it says, whole, after the other has ended; if either fails, both count as failed.

    python tools/beside.py "ruff check . && basedpyright" python -m pytest

The first is given to a shell and runs unseen; the rest is the command that is shown. Ctrl-C stops both.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress


def beside(unseen: str, shown: Sequence[str]) -> int:
    """The exit status of the shown command, or of the unseen one where the shown one succeeds; 130 if both were stopped."""
    stopped: list[int] = []
    before = {number: signal.signal(number, lambda number, _: stopped.append(number)) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with tempfile.TemporaryFile() as said:
            # In a session of its own, so that all it starts can be stopped together; a terminal's Ctrl-C does not reach it there.
            hidden = subprocess.Popen(
                unseen, shell=True, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
            )
            seen = subprocess.Popen(shown)
            while not stopped and None in (seen.poll(), hidden.poll()):
                time.sleep(0.05)
            if stopped:
                with suppress(ProcessLookupError):
                    os.killpg(hidden.pid, signal.SIGTERM)
                if signal.SIGINT not in stopped:  # a terminal sends it to every process
                    seen.terminate()
                seen.wait()  # it puts away what it started
                return 130
            said.seek(0)
            sys.stdout.buffer.write(said.read())
            sys.stdout.flush()
        return _status(seen.returncode) or _status(hidden.returncode)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _status(code: int) -> int:
    """As shells number it: 128 and the signal's number where a signal ended it."""
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(beside(sys.argv[1], sys.argv[2:]))
