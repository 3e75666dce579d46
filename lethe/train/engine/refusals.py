"""What a loop of one's own is refused, in words."""

from __future__ import annotations

from lethe.errors import HypothesisError, InputError, LetheWarning
from lethe.run.run import Run

ALONE = {
    "all": "leave them alone between two steps and in the model's forward pass; what is done to noisy iterates belongs into the "
    "optimiser's step, or comes after recorded_run.",
    "last": "leave them alone between two steps and in the model's forward pass. Another iterate, or an average of them, is not the last "
    "one: to release it train with release: all, and load it after recorded_run.",
}
"""What to do where something else than a step moves the parameters, by what is released."""


def not_the_end(run: Run, steps: int) -> HypothesisError:
    """The error of recording the run after so many steps."""
    return HypothesisError(
        f"recorded_run: {steps} of the run's {run.total_steps} steps were taken, and release is last: a certificate of "
        "the last iterate is for a number of steps that is fixed in advance.",
        source="run.release, and a loop that ended before run.steps or run.passes",
        remedy="take the remaining steps; or say recorded_run(steps_fixed_in_advance=True), if their number was settled before "
        "training and by nothing of the data; or train with release: all, which covers any end.",
    )


def nothing_spent_yet(run: Run, steps: int) -> HypothesisError:
    """The error of asking what so many steps have cost."""
    return HypothesisError(
        f"get_epsilon: {steps} of the run's {run.total_steps} steps were taken, and release is last: nothing may be released before the "
        "end, and what the end costs is a matter of all steps.",
        source="run.release",
        remedy="ask at the end; lethe.certify(engine.run, delta) says what the planned run will have cost; or train with release: all, of "
        "which every step has a cost of its own.",
    )


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


def over(steps: int) -> InputError:
    """The error of going on after the last iterate was recorded."""
    return InputError(
        f"the last iterate was recorded after step {steps}, and may be released: another step would make another last iterate "
        "of the same records, and the two certificates would add up.",
        source="recorded_run(steps_fixed_in_advance=True) before the last step of a run with release: last",
        remedy="call it once, at the end; or train with release: all, which covers every iterate.",
    )


def torn(steps: int) -> InputError:
    """The error of going on after an interruption within a step."""
    return InputError(
        f"the loop was interrupted within step {steps + 1}: some of its records may have been counted.",
        remedy="certify what was done before with recorded_run, or begin again with another engine.",
    )
