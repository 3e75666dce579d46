"""The ranges that the numbers of a risk bound live in."""

from __future__ import annotations

import math

from lethe.calculus.domains import as_number, outside


def require_condition_number(value: object) -> float:
    r"""Return $\kappa = M/\mu \ge 1$ as a float, or raise InputError."""
    return require_between("kappa", value, low=1.0, needed="a finite number >= 1, smoothness / PL constant")


def require_between(name: str, value: object, *, needed: str, low: float, high: float = math.inf) -> float:
    """Return a finite number in [low, high] as a float, or raise InputError that says `needed`."""
    number = as_number(name, value, needed)
    if not low <= number <= high or math.isinf(number):
        raise outside(name, value, needed)
    return number


def require_inside(name: str, value: object, *, high: float = 1.0) -> float:
    """Return a number strictly between 0 and `high` as a float, or raise InputError."""
    needed = f"a number above 0 and below {high:g}"
    number = as_number(name, value, needed)
    if not 0.0 < number < high:
        raise outside(name, value, needed)
    return number
