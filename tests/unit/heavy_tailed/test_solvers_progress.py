"""Progress: a function that is called, a bar on a terminal that ends with whatever ends the computation, and nothing else."""

import io
import sys

import numpy as np
import pytest
from solver_problems import distances

from lethe.errors import InputError
from lethe.heavy_tailed import BallDomain, Moments, Problem
from lethe.heavy_tailed.localisation.descent import localised
from lethe.heavy_tailed.localisation.plans import localised_theory
from lethe.heavy_tailed.localisation.sampled import nominal_batch, sampled_localised
from lethe.heavy_tailed.progress import reporting

MOMENTS = Moments(order=4, bound=6.0, half=4.0, second=3.0, kind="uniform")
PROBLEM = Problem(gradient=distances, dimension=2, domain=BallDomain(radius=1.0), moments=MOMENTS)
RECORDS = np.random.default_rng(0).standard_normal((16, 2))
SCHEDULE = localised_theory(PROBLEM, 16, 0.5)


class Terminal(io.StringIO):
    """What is written to, as if by a person's side."""

    def isatty(self) -> bool:
        return True


def test_gradients_are_counted_up_to_those_that_the_schedule_said() -> None:
    cost = sum(phase.gradients for phase in SCHEDULE)
    calls: list[tuple[int, int]] = []
    solution = localised(PROBLEM, RECORDS, schedule=SCHEDULE, rho=0.5, progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (cost, cost) == (solution.diagnostics["gradients"],) * 2
    assert [done for done, _ in calls] == np.cumsum([phase.records for phase in SCHEDULE for _ in range(phase.steps)]).tolist()
    small = calls.clear() or localised_theory(PROBLEM, 16, 0.5)[1:]
    sampled_localised(PROBLEM, RECORDS, schedule=small, epsilon=1.0, delta=1e-3, progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (sum(nominal_batch(phase) * phase.steps for phase in small),) * 2


def test_an_interrupt_ends_the_run_and_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, steps = Terminal(), 0

    def interrupted(parameters: np.ndarray, records: np.ndarray) -> np.ndarray:
        nonlocal steps
        steps += 1
        if steps > 5:
            raise KeyboardInterrupt
        return distances(parameters, records)

    monkeypatch.setattr(sys, "stderr", terminal)
    problem = Problem(gradient=interrupted, dimension=2, domain=BallDomain(radius=1.0), moments=MOMENTS)
    with pytest.raises(KeyboardInterrupt):
        localised(problem, RECORDS, schedule=SCHEDULE, rho=0.5)
    assert f"{sum(phase.gradients for phase in SCHEDULE):.2g} gradients" in terminal.getvalue()
    with reporting(True, 3, "again") as finished:  # the one before is no longer live
        finished(3, 3)
    assert "again" in terminal.getvalue()
    with reporting(True, 2, "outer"), reporting(True, 2, "inner") as finished:
        finished(1, 2)


def test_what_is_no_progress_is_refused() -> None:
    with pytest.raises(InputError, match="True, False or a function"):
        localised(PROBLEM, RECORDS, schedule=SCHEDULE, rho=0.5, progress="bar")  # pyright: ignore[reportArgumentType]
    with reporting(False, 2, "quiet") as finished:
        finished(1, 2)
