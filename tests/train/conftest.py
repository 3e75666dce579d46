"""Fixtures of more than one file of tests of training."""

from collections.abc import Iterator

import pytest
from processes import Processes


@pytest.fixture(scope="session")
def processes() -> Iterator[Processes]:
    """Three worker processes for all modules; a test may use fewer, and one that ends a process starts its own."""
    with Processes(3) as started:
        yield started
