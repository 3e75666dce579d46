"""The report of a network's training, with a warning where no record contributed."""

from __future__ import annotations

import warnings

import torch

from lethe.run.run import Run
from lethe.train.clip import Clipper
from lethe.train.data import BatchStream
from lethe.train.fitted import Report
from lethe.train.network.batch_shapes import warn_of_shapes

EARLY = (1, 10)
"""Steps of a training at which is looked whether anything contributes, while there is time."""
_UNSAID = "This message, unlike the model, is covered by no certificate."


def warn_early(clipper: Clipper, run: Run, device: torch.device, stream: BatchStream, *, step: int) -> None:
    """Say, while training is young, that nothing contributes, and that rounding tells how large a batch is.

    Args:
        clipper: that clips its gradients.
        run, device, stream: see `warn_of_shapes`.
        step: that was just taken, of this start; steps 1 and 10 are looked at.
    """
    if step == 1:
        warn_of_shapes(clipper, run, device, stream)
    if step == EARLY[1] and clipper.contributed is False:
        why, look = _reason(clipper)
        warnings.warn(
            f"private: no record contributed to any of the first {step} steps, since {why}: the model learns nothing. {look} {_UNSAID}",
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
        why, look = _reason(clipper)
        warnings.warn(
            f"private: no record contributed to any step of this training, since {why}: the model is its start and noise. {look} {_UNSAID}",
            stacklevel=3,
        )
    return Report.of(run, steps=steps, contributed=contributed, gradients=" and ".join(sorted(clipper.ways)) or None)


def _reason(clipper: Clipper) -> tuple[str, str]:
    """Why none did, and where to look."""
    if clipper.measured:
        return "every gradient was 0", "Look for labels that are all masked (-100), and for a loss that does not reach what is trained."
    return "no gradient was finite and measurable", "Look for NaN and huge numbers in the data."


def said_of(clipper: Clipper) -> str:
    """How it is known that records do not meet."""
    if clipper.isolation == "enforced" or clipper.ways <= {"vmap", "alone"} != set():
        return "each record passed through model and loss alone, as a batch of one"
    if clipper.isolation == "declared":
        return "nothing: isolation is declared"
    return "checked" if clipper.checked else "no batch had a record with a gradient"
