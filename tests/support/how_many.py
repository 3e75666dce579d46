"""How many examples a test tries: as many as it says by night, a quarter of them by day, and never fewer than ten for that."""

from collections.abc import Sequence
from typing import TypeVar

from hypothesis import settings

Case = TypeVar("Case")


def by_night() -> bool:
    """Whether everything is tried, as `make nightly` does."""
    return settings().max_examples >= 100


def examples(by_night: int) -> int:
    """The number of examples under the profile in force, where a test needs `by_night` of them and the whole profile has a hundred."""
    return max(min(by_night, 10), by_night * settings().max_examples // 100)


def some(cases: Sequence[Case], most: int | None = None) -> list[Case]:
    """All of the cases by night, and by day as many of them as `examples` says, or `most`: evenly spread and the same ones every time."""
    count = examples(len(cases)) if most is None or by_night() else min(most, len(cases))
    return [cases[place * len(cases) // count] for place in range(count)]
