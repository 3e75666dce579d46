"""What a loop of one's own is refused, in words."""

from __future__ import annotations

from lethe.errors import InputError, LetheWarning
from lethe.run.run import Run

ALONE = (
    "leave them alone between two steps and in the model's forward pass; what is done to noisy iterates belongs into the optimiser's step, "
    "or comes after recorded_run."
)
"""What to do where something else than a step moves the parameters."""


def not_taken(steps: int) -> InputError:
    """The error of asking for the next batch before a noisy gradient was used."""
    return InputError(
        f"loader: step {steps + 1} was not taken.",
        source="a loop that left optimizer.step() out, or accelerate, which skips it within accelerator.accumulate(model)",
        remedy="call optimizer.step() after every engine.backward(losses); in the place of accumulate, physical_size= of the engine says "
        "how many records are on the device at once.",
    )


def all_delivered(run: Run) -> InputError:
    """The error of asking for more batches than the run has."""
    return InputError(
        f"loader: the batches of all {run.total_steps} steps of the run were delivered: iterating once gives all of them.",
        source="run.steps or run.passes",
        remedy="for a loop over epochs write: for epoch in loader.passes().",
    )


def no_more_epochs(steps: int) -> InputError:
    """The error of asking for an epoch after the last one."""
    return InputError(
        f"loader: the batches of all {steps} steps were delivered; another epoch would cost more privacy than was planned.",
        source="epochs= or steps= of make_private",
        remedy="plan as many epochs as you need from the beginning. To train on from here is another training, with another engine: the "
        "two certificates add up.",
    )


def left_out(step: int) -> InputError:
    """The error of asking for the next batch before the present one was used."""
    return InputError(
        f"loader: a batch of step {step} was left out: there was no engine.backward for it.",
        source="which records meet which step is part of the guarantee",
        remedy="use every batch, empty ones too; iterate over the loader anew to get this one again.",
    )


def nothing_left(resumed: int, steps: int) -> LetheWarning:
    """The warning of an epoch without batches, after training was resumed."""
    return LetheWarning(
        f"loader: no batch is left for this epoch: {resumed} of the run's {steps} steps were taken before training was resumed. "
        "for epoch in loader.passes() gives the epochs that are left, and engine.resumed says how many steps were taken."
    )


def scheduled_anew(resumed: int) -> LetheWarning:
    """The warning of a learning rate that starts again where training does not."""
    return LetheWarning(
        f"scheduler: training goes on after step {resumed}, and the learning rate's scheduler begins again, since it was not saved; give "
        'PrivacyEngine(checkpoints=Checkpoints(folder=..., also={"scheduler": scheduler})).'
    )


def torn(steps: int) -> InputError:
    """The error of going on after an interruption within a step."""
    return InputError(
        f"the loop was interrupted within step {steps + 1}: some of its records may have been counted.",
        remedy="certify what was done before with recorded_run, or begin again with another engine.",
    )
