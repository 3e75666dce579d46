r"""The ends of the public ranges in which quantiles are released, and a warning where a release is at one.

Which range is taken follows from public facts alone. With $n\min(p, 1-p)\,\mu \ge 20$ (`quantile_method`) the wide one costs nothing that
could be measured; with less, the quantile is searched for, and in the wide range its cells are half as large again and the search is lost
farther out: of 1000 normal records at epsilon = 1 the released ranges were in the middle 97 times as wide as the true one, and 1.8 times
in the narrow range.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from lethe.calculus.guarantees import GDP
from lethe.mechanisms.quantiles.quantile import quantile_method

_NARROW, _WIDE = (1e-4, 1e6), (1e-9, 1e12)  # the smallest and largest size
_TELLING = 2.0  # n min(p, 1 - p) mu; with less the ends are reached by chance, whatever the values


class RangeEndWarning(UserWarning):
    """A released quantile is at the end of the public range: values may lie beyond it."""


def public_sizes(quantile: float, records: int, share: GDP, *, searched: bool = False) -> tuple[float, float]:
    """The smallest size told from 0, and the largest: the same for every data set of that many records.

    Args:
        quantile: p in (0, 1).
        records: n, public.
        share: what the release may cost.
        searched: whether a search is all that is possible, whose cells should be small.
    """
    return _WIDE if not searched and quantile_method(quantile, records, share) == "exponential" else _NARROW


def end_is_informative(quantile: float, records: int, share: GDP) -> bool:
    """Whether the noise is so small that a release at an end says something of the values; a public fact.

    Args:
        quantile: its level, in (0, 1).
        records: the public number of records.
        share: the budget of this one release.
    """
    return records * min(quantile, 1.0 - quantile) * share.mu >= _TELLING


def warn_of_end(what: str, end: float, *, beyond: str) -> None:
    """Say that a released number is at an end; the number was paid for, so this tells nothing more.

    Args:
        what: is at the end.
        end: of the public range.
        beyond: which values the range does not hold.
    """
    warnings.warn(
        f"{what}: released at the end of the public range, {end:g}. {beyond} count as if they were at it, and cannot be told apart. "
        "Rescale by a public constant before, or give a public bound in place of a released one; if no value is that far, "
        "there are too few records for this epsilon.",
        RangeEndWarning,
        stacklevel=5,  # at the line that called fit, for a target or a column
    )


@contextmanager
def withheld() -> Iterator[list[str]]:
    """Show no warning of what runs inside; afterwards the list holds the texts of those above, which follow from what was released."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        yield texts
    texts += [str(one.message) for one in shown if isinstance(one.message, RangeEndWarning)]
