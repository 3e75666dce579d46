"""How many examples hypothesis tries: as many as a test says by night, a quarter of them by day, and never fewer than ten for that."""

from hypothesis import settings


def examples(by_night: int) -> int:
    """The number of examples under the profile in force, where a test needs `by_night` of them and the whole profile has a hundred."""
    return max(min(by_night, 10), by_night * settings().max_examples // 100)
