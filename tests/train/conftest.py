"""Fixtures of more than one file of tests of training."""

from collections.abc import Iterator

import pytest
from processes import Processes


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    """Three worker processes; a test may use fewer."""
    with Processes(3) as started:
        yield started
