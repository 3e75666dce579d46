"""Warnings of released ranges and norms that tell little; they follow from what was released, and so tell nothing more."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from lethe.mechanisms.quantiles.located import LARGEST, SMALLEST


class ReleasedRangeWarning(UserWarning):
    """A released range or norm is not to be relied on."""


class RangeEndWarning(ReleasedRangeWarning):
    """A released quantile is at the end of the public range: values may lie beyond it."""


class UndetectedRangeWarning(ReleasedRangeWarning):
    """There are too few records for this epsilon: where the values lie can hardly be told from the noise, or not at all."""


def warn_of_end(what: str, *, beyond: str) -> None:
    """Say that values may be larger than the largest size.

    Args:
        what: is at the end.
        beyond: which values count as if they were at it.
    """
    _warn(
        f"{what}: released at the end of the public range, {LARGEST:.3g}. {beyond} count as if they were at it, and cannot be told apart. "
        "Rescale by a public constant before, or give a public bound in place of a released one.",
        RangeEndWarning,
    )


def warn_of_tiny(what: str, *, so: str) -> None:
    """Say that half of the values or more are next to 0, and that others are too few to be seen.

    Args:
        what: is tiny.
        so: what becomes of larger values.
    """
    _warn(
        f"{what}: at least half are below {SMALLEST:.3g}, and the others are too few to be told from the noise, so {so}. "
        "Rescale by a public constant before, give a public bound in place of a released one, or a larger epsilon.",
        RangeEndWarning,
    )


def warn_of_undetected(what: str, records: int, *, so: str, give: str) -> None:
    """Say that nothing could be told.

    Args:
        what: was to be released.
        records: n, public.
        so: what becomes of the values.
        give: the parameter that needs no release.
    """
    _warn(
        f"{what}: {records} records are too few at this epsilon to tell from the noise where the values lie, so {so}. "
        f"Give public bounds, {give}; or more records, or a larger epsilon.",
        UndetectedRangeWarning,
    )


def warn_of_few(what: str, records: int, *, give: str) -> None:
    """Say that what was detected is hardly more than noise; a public fact.

    Args:
        what: was released.
        records: n, public.
        give: the parameter that needs no release.
    """
    _warn(
        f"{what}: {records} records are few for this epsilon; the released range may be several times too wide, or too narrow. "
        f"Give public bounds, {give}; or more records, or a larger epsilon.",
        UndetectedRangeWarning,
    )


def _warn(text: str, category: type[ReleasedRangeWarning]) -> None:
    warnings.warn(text, category, stacklevel=6)  # at the line that called fit, for a target or a column


@contextmanager
def withheld() -> Iterator[list[tuple[str, type[Warning]]]]:
    """Show no warning of what runs inside; afterwards the list holds those above, which follow from what was released."""
    texts: list[tuple[str, type[Warning]]] = []
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        yield texts
    texts += [(str(one.message), one.category) for one in shown if isinstance(one.message, ReleasedRangeWarning)]
