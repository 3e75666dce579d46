"""Fixtures of more than one file of tests of training."""

import random
from collections.abc import Iterator

import pytest
from processes import Processes

from lethe.train.core.comparison import chance


@pytest.fixture(scope="session")
def processes() -> Iterator[Processes]:
    """Three worker processes for all modules; a test may use fewer, and one that ends a process starts its own."""
    with Processes(3) as started:
        yield started


@pytest.fixture(autouse=True)
def the_same_batches_are_looked_at(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """By day: which batches and records the check draws is left to chance by night only."""
    if request.node.get_closest_marker("nightly") is None:
        fixed = random.Random(0)
        monkeypatch.setattr(chance, "getrandbits", fixed.getrandbits)
        monkeypatch.setattr(chance, "random", fixed.random)
