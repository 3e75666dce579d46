"""Which batches and records the check draws."""

import random

import pytest

from lethe.train.core.comparison import chance


@pytest.fixture(autouse=True)
def the_same_batches_are_looked_at(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """By day: which batches and records the check draws is left to chance by night only."""
    if request.node.get_closest_marker("nightly") is None:
        fixed = random.Random(0)
        monkeypatch.setattr(chance, "getrandbits", fixed.getrandbits)
        monkeypatch.setattr(chance, "random", fixed.random)
