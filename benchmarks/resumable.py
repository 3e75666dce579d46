"""Files of results, one JSON object a line, that a stopped benchmark goes on from."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Lines of a file of results; one that was cut off in the middle is dropped from the file."""
    if not path.is_file():
        return []
    text = path.read_text()
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole)
    return [json.loads(line) for line in whole.splitlines()]


def options(description: str | None, results: Path) -> argparse.Namespace:
    """What was asked for: data, an existing file or None; seeds; results, the file to go on from.

    Args:
        description: of the benchmark.
        results: the file, if none is given.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="mnist.npz")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--results", type=Path, default=results)
    asked = parser.parse_args()
    if asked.data is not None and not asked.data.is_file():
        sys.exit(f"{asked.data}: there is no such file.")
    return asked


def required(data: Path | None) -> Path:
    """The file of data, or the end of the benchmark."""
    return data or sys.exit("--data: what is missing of the results needs mnist.npz.")
