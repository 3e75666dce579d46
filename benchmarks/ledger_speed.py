"""How many reservations a second a ledger takes, how much processor time of the writers one takes, and how long an account of many
releases takes to show.

`python benchmarks/ledger_speed.py [PLACE...]` prints Markdown; a PLACE is a SQLite file that is not there yet, or the URL of an
empty PostgreSQL database; default: a temporary SQLite file. Each number of writers has the same time, and a data set of its own; every
writer is a process.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from pathlib import Path
from typing import Any

import lethe
from lethe.ledger import Budget, Ledger

WRITERS = (1, 8, 32)


def reserve_for(place: str, data_set: str, seconds: float, ready: Any, answers: Any) -> None:
    """Reserve until the time is over; how often, and the seconds of processor time that it took, are put into the queue."""
    ledger, done = Ledger.open(place, timeout=120.0), 0
    ledger.reserve(data_set, lethe.guarantees.GDP(1e-4), by="a")  # connects
    ready.wait()
    began = time.process_time()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        ledger.reserve(data_set, lethe.guarantees.GDP(1e-4), by="a")
        done += 1
    answers.put((done, time.process_time() - began))


def rate(place: str, writers: int, seconds: float) -> tuple[float, float]:
    """Reservations a second of so many processes together, and milliseconds of their processor time for one."""
    data_set = f"writers {writers}"
    ledger = Ledger.open(place, make=True)
    ledger.create(data_set, neighbours="replace_one", budget=Budget(mu=10.0), by="keeper")
    ledger.close()
    context = multiprocessing.get_context("spawn")
    ready, answers = context.Barrier(writers), context.Queue()
    processes = [context.Process(target=reserve_for, args=(place, data_set, seconds, ready, answers)) for _ in range(writers)]
    for process in processes:
        process.start()
    found = [answers.get() for _ in processes]
    for process in processes:
        process.join()
    total = sum(done for done, _ in found)
    return total / seconds, 1000.0 * sum(used for _, used in found) / total


def shown(folder: str, releases: int) -> tuple[float, float]:
    """Seconds to show an account of so many releases, and to verify its ledger."""
    place = Path(folder) / f"many-{releases}.sqlite"
    ledger = Ledger.open(place, make=True)
    ledger.create("many", neighbours="replace_one", budget=Budget(epsilon=8, delta=1e-6), by="keeper")
    for number in range(releases):
        ledger.reserve("many", lethe.guarantees.GDP(1e-3 + 1e-8 * number), by="a")
    start = time.perf_counter()
    epsilon = ledger.show("many").epsilon()
    middle = time.perf_counter()
    ledger.verify()
    assert epsilon > 0.0
    return middle - start, time.perf_counter() - middle


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("places", nargs="*", metavar="PLACE")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--releases", type=int, default=10_000)
    parser.add_argument("--writers", type=int, nargs="*", default=WRITERS)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        places = asked.places or [str(Path(folder) / "ledger.sqlite")]
        heads = " | ".join(f"{count} writers" for count in asked.writers)
        print(f"| reservations a second (ms of processor time each) | {heads} |\n|---{'|---:' * len(asked.writers)}|")
        for place in places:
            kind = "PostgreSQL" if "://" in place else "SQLite"
            rates = [rate(place, count, asked.seconds) for count in asked.writers]
            print(f"| {kind} | {' | '.join(f'{each:.0f} ({used:.1f})' for each, used in rates)} |", flush=True)
        seconds, checked = shown(folder, asked.releases)
        print(f"\nAn account of {asked.releases} releases: {seconds:.2f} s to show, {checked:.2f} s to verify.")


if __name__ == "__main__":
    main()
