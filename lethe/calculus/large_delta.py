r"""Which deltas are allowed for a number of records.

`certify`, reports and jobs call it with the delta that was asked for and the number of records n.

$(\epsilon, \delta)$-DP lets a mechanism that publishes each record whole with chance $\delta$ pass. With $\delta \ge 1/n$ that is a record
of the n on average, so such a statement promises nothing to somebody; practice stays at $\delta \le 1/(10n)$ or far below.
"""

import warnings
from fractions import Fraction

from lethe.calculus.domains import as_number, outside, require_switch
from lethe.calculus.upward_formatting import shown_down
from lethe.errors import InputError, LargeDeltaWarning

_NEEDED = "a number above 0 and below 1, about 1 / (10 records), such as 1e-5"
# 1/n as a float may be a little below 1/n, and is large; 0.1/n a little above, and is not.
_LARGE = 1 - Fraction(1, 10**12)
_LARGEST_USUAL = Fraction(1, 10) + Fraction(1, 10**12)


def open_delta(delta: object) -> float:
    r"""Return $\delta \in (0, 1)$ as a float, or raise InputError; for where no number of records is known."""
    number = as_number("delta", delta, _NEEDED)
    if not 0.0 < number < 1.0:
        raise outside("delta", delta, _NEEDED)
    return number


def delta_for(records: int, delta: object, *, allow_large_delta: bool = False) -> float:
    r"""Return a delta that is asked for of n records as a float.

    `allow_large_delta` says that $\delta \ge 1/n$ is meant; it is then shown with every number.

    Raises:
        InputError: delta is outside (0, 1), or at least 1/n and not allowed, or `allow_large_delta` is no truth value.
    Warns:
        LargeDeltaWarning: delta is above 1/(10 n), and no large one was allowed.
    """
    number = open_delta(delta)
    if require_switch("allow_large_delta", allow_large_delta):
        return number
    if is_large(number, records):
        raise InputError(
            f"delta: got {number:g}; with {records} records it needs to be below 1/records = {shown_down(1 / records, 3)}, or "
            "one may be published whole.",
            source=f"delta = {number:g}, records = {records}",
            remedy=f"give delta = {shown_down(_tenth(records), 2)} or less, 1/(10 records); or say allow_large_delta=True "
            "(--allow-large-delta).",
        )
    if (warning := unusual_delta_warning(number, records)) is not None:
        warnings.warn(warning, LargeDeltaWarning, stacklevel=3)
    return number


def unusual_delta_warning(delta: float, records: int) -> str | None:
    r"""What `delta_for` warns of where $\delta > 1/(10n)$; None if there is nothing to warn of."""
    if Fraction(delta) * records <= _LARGEST_USUAL:
        return None
    return (
        f"delta = {delta:g} is above 1/(10 records) = {shown_down(_tenth(records), 3)}: the chance that something fails for one of "
        f"{records} records is not small."
    )


def is_large(delta: float, records: int) -> bool:
    r"""Whether $\delta \ge 1/n$."""
    return Fraction(delta) * records >= _LARGE


def large_delta_note(delta: float, records: int) -> str | None:
    r"""The warning that must accompany a number at $\delta \ge 1/n$; None if there is none."""
    if not is_large(delta, records):
        return None
    return f"note: delta >= 1/records = {shown_down(1 / records, 3)}: such a delta allows one record in {records} to be published whole."


def usual_delta(records: int) -> float:
    r"""$\min(10^{-5}, 1/(10n))$, where none was asked for."""
    return min(1e-5, _tenth(records))


def _tenth(records: int) -> float:
    """1/(10 n), of a number that may be no float."""
    return 0.1 / records if records < 10**300 else float(Fraction(1, 10 * records))
