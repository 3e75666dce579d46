"""What processes do to a ledger at once; each function is run in a process of its own."""

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import lethe
from lethe.errors import BudgetExceededError, LedgerError
from lethe.ledger import Ledger


def at_once(function: Callable[..., None], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Run in one process each, begun together; returns what each put into its queue, exceptions as text."""
    context = multiprocessing.get_context("fork")
    gate, answers = context.Event(), context.Queue()
    processes = [context.Process(target=_run, args=(function, gate, answers, *one), daemon=True) for one in arguments]
    for process in processes:
        process.start()
    gate.set()
    found = [answers.get(timeout=120) for _ in processes]
    for process in processes:
        process.join(timeout=60)
    return found


def _run(function: Callable[..., Any], gate: Any, answers: Any, *arguments: Any) -> None:
    gate.wait()
    try:
        answers.put(function(*arguments))
    except Exception as error:  # told to the test, whatever it is
        answers.put(f"{type(error).__name__}: {error}")


def reserve_until_refused(place: str, mu: float, times: int) -> int:
    """How many reservations of mu-GDP were let through."""
    ledger, done = Ledger.open(place, timeout=60), 0
    try:
        for _ in range(times):
            ledger.reserve("patients", lethe.guarantees.GDP(mu), by=f"process {os.getpid()}")
            done += 1
    except BudgetExceededError:
        pass
    return done


def release_for_ever(place: str, diary: str) -> None:
    """Reserve, start, write the release into a diary, settle; again and again, until killed."""
    ledger = Ledger.open(place, timeout=60)
    with open(diary, "a", buffering=1, encoding="ascii") as file:
        while True:
            ticket = ledger.reserve("patients", lethe.guarantees.GDP(0.001), by="a")
            file.write(f"reserved {ticket.number}\n")
            ledger.start(ticket)
            file.write(f"released {ticket.number}\n")
            ledger.settle(ticket, lethe.guarantees.GDP(0.001))
            file.write(f"settled {ticket.number}\n")


def killed_after(function: Callable[..., None], seconds: float, *arguments: Any) -> None:
    """Run it in a process that is killed after so many seconds."""
    process = multiprocessing.get_context("fork").Process(target=function, args=arguments, daemon=True)
    process.start()
    time.sleep(seconds)
    process.kill()
    process.join()


def read_as_another(place: str) -> tuple[bool, int, int, str]:
    """What an account that may not write finds: whether it knows, how many reservations and entries, and what a reservation is answered."""
    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    ledger, said = Ledger.open(place), ""
    try:
        ledger.reserve("patients", lethe.guarantees.GDP(0.1), by="auditor")
    except LedgerError as error:
        said = str(error)
    return ledger.read_only, len(ledger.show("patients").lines), ledger.verify().entries, said
