"""Fixtures of more than one file of tests of training."""

import os
from collections.abc import Iterator

import pytest
from looks import the_same_batches_are_looked_at
from processes import Processes

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
