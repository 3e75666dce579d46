"""Errors of a user's trainer or score function, reported with the place they came from."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lethe.errors import InputError, LetheError


@contextmanager
def errors_of(whose: str) -> Iterator[None]:
    """Say of an exception in which training it was raised and where; Lethe's own errors and interrupts pass.

    Raises:
        InputError: something else was raised.
    """
    try:
        yield
    except LetheError:
        raise
    except Exception as error:  # whatever the user's code raises
        at = traceback.extract_tb(error.__traceback__)[-1]
        raise InputError(
            f"{whose} raised {type(error).__name__}: {error}",
            source=f"{at.filename}, line {at.lineno}",
            remedy="mend it, and play again: an audit leaves out no training.",
        ) from error


def number(value: Any, whose: str) -> float:
    """The float that it is; whether it is finite is asked where scores are gathered.

    Raises:
        InputError: it is no number.
    """
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise InputError(f"{whose} returned {type(value).__name__}; it needs a number.") from error
