"""NetworkReport: what happened to the data in training, for whoever holds them; not a private release."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from lethe.train.clipping import Clipper


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkReport:
    """What happened to the data. It is private: for whoever holds the data, covered by no certificate, and not to be published.

    Args:
        contributed: False where no record of any step had a gradient that could be measured (all held NaN, or overflowed): what was trained
            is then the start and noise. None where no step had records. How many contributed is not said.
    """

    contributed: bool | None


def reported(clipper: Clipper) -> NetworkReport:
    """The report of a training that is over, with a warning where nothing contributed.

    Neither is an error: that there is no release would tell everybody. The warning is a message to whoever trains.
    """
    contributed = clipper.contributed
    if contributed is False:
        warnings.warn(
            "private: no record contributed to any step of this training, since no gradient was finite and measurable: the model is its "
            "start and noise. Look for NaN and huge numbers in the data. This message, unlike the model, is covered by no certificate.",
            stacklevel=3,
        )
    return NetworkReport(contributed=contributed)
