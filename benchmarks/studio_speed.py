"""How long the planner works on one change of a control: the answer and the page's parts, on the server, without the browser.

    python benchmarks/studio_speed.py [--steps 10000] [--repeat 7]

Each change is one that was not asked before (another step size), so that nothing is remembered but what any earlier run leaves behind.
The table of alternatives is computed after the answer, a row at a time, and is timed by itself.
"""

from __future__ import annotations

import argparse
import statistics
import time

from rich.console import Console
from rich.table import Table

from lethe.run.batches import DESIGNS
from lethe.studio import parts
from lethe.studio.answers import ALTERNATIVES, answer, price
from lethe.studio.state import State

GOAL = 0.3  # seconds a change
PARTS = (parts.headline, parts.theorems, parts.schedule, parts.prediction, parts.documents)


def query(change: int, steps: int, **texts: str) -> str:
    first = {"length": "steps", "count": str(steps), "size": "600", "step_size": str(0.5 - 0.001 * change)}
    return State({**State.first().texts, **first, **texts}).query()


def answer_seconds(change: int, steps: int, **texts: str) -> float:
    asked = query(change, steps, **texts)
    start = time.perf_counter()
    got = answer(asked)
    for part in PARTS:
        str(part(got))
    return time.perf_counter() - start


def price_seconds(change: int, steps: int, **texts: str) -> float:
    asked = query(change, steps, **texts)
    start = time.perf_counter()
    for label in ALTERNATIVES:
        price(asked, label)
    return time.perf_counter() - start


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--steps", type=int, default=10_000)
    arguments.add_argument("--repeat", type=int, default=7)
    given = arguments.parse_args()
    table = Table(title=f"seconds a change, {given.steps} steps, median of {given.repeat} (alternatives: one)")
    for heading in ("design", "find", "answer", "slowest", f"within {GOAL:g} s", "remembered", "alternatives"):
        table.add_column(heading, justify="left" if heading in ("design", "find") else "right")
    for design in DESIGNS:
        for find in ("epsilon", "noise"):
            texts = {"design": design, "find": find, "noise": "10"}
            answer_seconds(99, given.steps, **texts)  # imports of the first time
            times = [answer_seconds(change, given.steps, **texts) for change in range(given.repeat)]
            again = answer_seconds(0, given.steps, **texts)
            middle = statistics.median(times)
            rows = (f"{middle:.3f}", f"{max(times):.3f}", "yes" if middle < GOAL else "NO", f"{again:.3f}")
            table.add_row(design, find, *rows, f"{price_seconds(0, given.steps, **texts):.1f}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
