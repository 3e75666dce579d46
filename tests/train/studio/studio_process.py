"""The command `lethe studio` as a process of its own."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def studio(*words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command itself, on a free port: its process, and the address that it prints."""
    command = [sys.executable, "-m", "lethe", "studio", "--no-browser", "--port", "0", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:\d+/", line)
            assert found is not None, line
            yield process, found[0]
        finally:
            process.kill()
