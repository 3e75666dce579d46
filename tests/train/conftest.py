"""Fixtures of more than one file of tests of training."""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from looks import the_same_batches_are_looked_at
from processes import Processes

from lethe.run.run import Run
from lethe.train import planning

__all__ = ["the_same_batches_are_looked_at"]


@pytest.fixture(scope="session")
def processes() -> Iterator[Processes]:
    """Three worker processes for all modules; a test may use fewer, and one that ends a process starts its own."""
    with Processes(3) as started:
        yield started


@pytest.fixture(scope="session", autouse=True)
def nobody_waits_for_the_disk() -> Iterator[None]:
    """A process that ends, unlike a power cut, loses nothing of what it wrote."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, lambda descriptor: None, raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def noise_is_found_once() -> Iterator[None]:
    """Many trainings are told the same epsilon: how much noise meets it is `lethe.plan`'s to test, and takes seconds."""
    found, plan = dict[tuple[Any, ...], Run](), planning.plan

    def planned(run: Run, *target: Any, **options: Any) -> Run:
        key = (json.dumps(run.to_document()), *target, *options.items())
        if key not in found:
            found[key] = plan(run, *target, **options)
        return found[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "plan", planned)
        yield
