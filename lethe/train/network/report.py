"""The report of a network's training, with a warning where no record contributed."""

from __future__ import annotations

import warnings

from lethe.run.run import Run
from lethe.train.clipping import Clipper
from lethe.train.fitted import Report

_EARLY = 10  # steps after which it is said already, while there is time


def warn_early(clipper: Clipper, *, step: int) -> None:
    """Say, while training is young, that nothing contributes.

    Args:
        clipper: that clips its gradients.
        step: that was just taken; step 10 is the one that is looked at.
    """
    if step == _EARLY and clipper.contributed is False:
        warnings.warn(
            f"private: no record contributed to any of the first {_EARLY} steps, since no gradient was finite and measurable: the model "
            "learns nothing. Look for NaN and huge numbers in the data. This message, unlike the model, is covered by no certificate.",
            stacklevel=3,
        )


def reported(clipper: Clipper, run: Run, *, steps: int) -> Report:
    """The report of a training that is over, with a warning where nothing contributed.

    Neither is an error: that there is no release would tell everybody. The warning is a message to whoever trains.

    Args:
        clipper: that clipped its gradients.
        run: that was carried out.
        steps: that were executed.
    """
    contributed = clipper.contributed
    if contributed is False:
        warnings.warn(
            "private: no record contributed to any step of this training, since no gradient was finite and measurable: the model is its "
            "start and noise. Look for NaN and huge numbers in the data. This message, unlike the model, is covered by no certificate.",
            stacklevel=3,
        )
    return Report.of(run, steps=steps, contributed=contributed, gradients=clipper.formed)
