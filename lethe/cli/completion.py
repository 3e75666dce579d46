"""What a shell offers when Tab is pressed: names of theorems, of schedules, of what a sweep varies, of what can be reproduced."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

from lethe.certificates.swept import OVERS
from lethe.noise_allocation.allocate import SCHEDULES
from lethe.theorems.registry import ALL


def theorem_names(incomplete: str) -> list[str]:
    """Theorems for the last of some names with commas between them."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in _beginning(last, (theorem.name for theorem in ALL)) if name not in before.split(",")]


def schedule_names(incomplete: str) -> list[str]:
    """Shapes of noise."""
    return _beginning(incomplete, SCHEDULES)


def over_names(incomplete: str) -> list[str]:
    """What a sweep may vary."""
    return _beginning(incomplete, OVERS)


def reproduction_names(incomplete: str) -> list[str]:
    """Figures and tables, where the source is there."""
    if find_spec("lethe_experiments") is None:
        return []
    from lethe_experiments import REPRODUCTIONS

    return _beginning(incomplete, REPRODUCTIONS)


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
