r"""Checkpointed training: it continues correctly after being killed at any moment.

**No generator is stored.** A training that goes on draws fresh noise. What was drawn before is gone with the process, and noise of a known
generator is refused a second time, so the same noise is never added to two different things. Correlated noise is stored as far as later
steps take it back; under a seed each of its steps has a generator of its own, and no step is taken twice. That of steps that are lost to
a kill is not taken back: its model is lost as well (`CorrelatedNetworkNoise`).

**release: all.** A noisy gradient counts as released from the moment its noise may have been drawn, and the journal says so before that
moment. With a checkpoint of step t and a journal up to step j, training goes on with step j + 1 from the parameters of step t: the batches
of t+1..j are drawn and dropped, and these steps are recorded as executed. So every noisy gradient is released once at most and counted
once, each record meets the steps that the run says and no others, and the parameters are a function of released gradients. What a kill
costs is the progress since the checkpoint.

**release: last.** Nobody saw the iterates that were lost. Steps t+1..j are taken again, on the same batches, with fresh noise, and the
steps that lead to the final model are those of the run, each taken once. Nobody may see the folder, then or later.

**A noise budget.** Without a policy, what its filter has paid for is a function of the number of steps: a training that goes on pays anew
for all that the journal counts, before it takes another.

**A finished run** may be asked for its model once more, since a process may be killed before the model is in a file: from the checkpoint
of the last step, and where all is released from any, nothing is drawn. A last iterate that was taken before the last step ends the folder.

**Where checkpoints may be.** Only after a step with noise. Take noise at pass ends, a checkpoint after step 2 of a pass of 4, and a kill
in step 4 once its noise is journaled: training would go on with step 5 from an iterate that the records of steps 1 and 2 have moved
without noise. They move it again in the next pass, and the noise of step 8 would hide two touches where the run counts one. After a step
with noise the iterate is one that the run itself has.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lethe.documents.strict import to_json
from lethe.errors import InputError
from lethe.run.run import Run
from lethe.train.checkpoints.file import Checkpoints, read_checkpoint, told, write_checkpoint
from lethe.train.checkpoints.journal import Journal
from lethe.train.checkpoints.sharded_state import drop_others, read_noise, read_shards, refuse_other_shards, write_shards
from lethe.train.checkpoints.training_state import AGAIN, PARTS, Training, refuse_others, set_right, taken_down, without_memory
from lethe.train.core.generators import same_stream, state_digest
from lethe.train.distributed.workers import Workers

NoiseGenerator = np.random.Generator | torch.Generator | None


class NoCheckpointing:
    """A training without checkpoints."""

    active = False
    starts = 0

    def begin(self, training: Training) -> int:
        """Begin: no step is done."""
        return 0

    def before_noise(self, step: int) -> None:
        """Nothing to write."""

    def after(self, step: int, *, last: bool = False) -> None:
        """Nothing to save."""

    def save(self, step: int) -> None:
        """Refuse.

        Raises:
            InputError: always.
        """
        raise InputError("save: there is no folder to save to.", remedy="give checkpoints=folder.")

    def finish(self) -> None:
        """Nothing to write."""

    def close(self) -> None:
        """Nothing to close."""


class Checkpointing:
    """A training with checkpoints: locks the folder, and refuses what cannot go on there.

    Of several processes, number 0 alone reads and writes; it tells the others what it found.

    Args:
        checkpoints: where and how often.
        run: that is carried out, with its noise.
        noise_generator: the user's, if one was given.
        seeded: whether somebody can make its noise or its secret batches again; what a process before this one drew counts as well.
        workers: the processes that train together.
    Raises:
        InputError: the folder is another run's, is in use, is finished, is damaged, or lacks its checkpoint; the noise was used already.
    """

    active = True

    def __init__(self, checkpoints: Checkpoints, run: Run, noise_generator: NoiseGenerator, workers: Workers, *, seeded: bool) -> None:
        self._seeded, self._asked, run = seeded, run, run.uncorrelated
        self._checkpoints, self._run, self._noise_generator, self._workers = checkpoints, run, noise_generator, workers
        self._noisy = np.isin(np.arange(run.total_steps), run.noisy_steps)
        self._path = Path(checkpoints.folder) / "checkpoint.pt"
        self._saved = 0
        self._training: Training | None = None
        released = (run.noisy_steps + 1).tolist() if run.release == "all" else []
        self._journal = _opened(self._path.parent, released) if workers.root else None
        try:
            self._noise_start = self._checked_noise()
            found = self._checked_folder() if self._journal else None
            self._memory, found = without_memory(found)  # what noise is taken back is no other process's business
            self._found, self._released = told(found, 0 if self._journal is None else self._journal.step, workers)
        except BaseException:
            self.close()
            raise

    @property
    def starts(self) -> int:
        """How many processes have trained here before this one; of several, number 0, which draws the noise, knows."""
        return 0 if self._journal is None else self._journal.starts

    def begin(self, training: Training) -> int:
        """Begin, or go on: the parts of the training are set right, and the journal says that a process trains.

        Returns:
            How many steps are done.
        Raises:
            InputError: the checkpoint is of another model, optimiser or clipping, or of other data; the model is as it was.
        """
        self._training, found = training, self._found
        if found is None:
            self._start()
            self.save(0)
            return 0
        step, also = int(found["step"]), self._checkpoints.also
        refuse_others(found, training, also)
        refuse_other_shards(found, training, self._path.parent, self._workers)
        training.stream.load_state_dict(found["stream"])
        training.recorder.load_state_dict(found["recorder"])
        least = step if self._run.release == "all" else 0
        if not training.stream.steps_done == training.recorder.steps == step or self._released < least:
            raise InputError(f"{self._path}: its parts and the journal are not of one step.", source="checkpoints.folder", remedy=AGAIN)
        lost = max(self._released - step, 0)
        if training.noise is not None:
            training.noise.load_state_dict({**found["noise"], "memory": self._memory})
            training.noise.forget(lost)
        if training.shard_noise is not None:
            training.shard_noise.load_state_dict(read_noise(found, self._path.parent, self._workers))
            training.shard_noise.forget(lost)
        self._start()
        shards = None
        if training.placement.sharded:
            self._workers.meet_to_gather()
            shards = read_shards(found, training, self._path.parent, self._workers)
        set_right(found, training, also, random=self._workers.root, shards=shards)
        self._saved, self._found = step, None
        return step + self._skip(training, step, lost)

    def before_noise(self, step: int) -> None:
        """Call before the noise of step number `step` is drawn: from here on it counts as released.

        Raises:
            LetheError: it was counted before, or cannot be written down; the noise must not be drawn then.
        """
        if self._journal and self._run.release == "all" and self._noisy[step - 1]:
            self._journal.release(step)

    def after(self, step: int, *, last: bool = False) -> None:
        """Call when step number `step` is over: saves, if it is time.

        Args:
            step: from 1.
            last: whether no step will follow, although the run has more: its budget ends here.
        Raises:
            InputError, LetheError: see `write_checkpoint`.
        """
        due = step - self._saved >= self._checkpoints.every or last or step == self._run.total_steps
        if due and step > self._saved and self._noisy[step - 1]:
            self.save(step)

    def save(self, step: int) -> None:
        """Save the training as it is after step number `step`.

        Raises:
            InputError: the step has no noise, or is only half done.
            LetheError: the file cannot be written.
        """
        if step and not self._noisy[step - 1]:
            raise InputError(
                f"save: step {step} has no noise of its own; from there training could not go on without meeting a record once too often.",
                source="run.noise_at",
                remedy="save after the last step of a pass.",
            )
        assert self._training is not None
        shards: dict[str, Any] = {}
        if self._training.placement.sharded:
            self._training.held.refuse_changes("before they were saved")
            shards["shards"] = write_shards(self._path.parent, step, self._training, self._workers)
        if self._journal:
            head = {"journal": self._journal.name, "run": _text(self._asked), "step": step}
            write_checkpoint(self._path, head | taken_down(self._training, self._checkpoints.also) | shards)
            if shards:
                drop_others(self._path.parent, shards["shards"]["folder"])
        self._saved = step

    def finish(self) -> None:
        """Mark the run as finished; its model may be released, and resuming gives the same model again, or an error.

        Raises:
            LetheError: it cannot be written.
        """
        if self._journal:
            self._journal.finish()

    def close(self) -> None:
        """Unlock the folder."""
        if self._journal:
            self._journal.close()

    def _start(self) -> None:
        if self._journal:
            self._journal.start(self._noise_start or ("seeded" if self._seeded else None))

    def _skip(self, training: Training, step: int, lost: int) -> int:
        """The steps that were released after the checkpoint: recorded as planned, their batches drawn and dropped; returns how many."""
        for number, batch in enumerate(training.stream.skip(lost), start=step):
            training.recorder.note(
                step_size=float(self._run.step_sizes[number]),
                noise_std=float(self._run.noise_stds[number]),
                batch=batch,
            )
        return lost

    def _checked_noise(self) -> str | None:
        """The digest of the given generator's state; None: there is none, or its noise is not used."""
        given = self._noise_generator
        if self._journal is None or not isinstance(given, np.random.Generator | torch.Generator):
            return None
        if any(same_stream(given, one) for one in (torch.default_generator, *_device_generators())):
            raise InputError(
                "noise_generator: in the same state as PyTorch's global generator, which a checkpoint keeps for dropout.",
                remedy="leave it out: noise from fresh entropy is not written anywhere.",
            )
        digest = state_digest(given)
        if any(digest.startswith(one) for one in self._journal.noise_starts):
            raise InputError(
                "noise_generator: in a state that training in this folder began with before; its noise was used.",
                source="checkpoints.folder",
                remedy="leave it out, so that noise comes from fresh entropy, or give another one.",
            )
        return digest

    def _checked_folder(self) -> dict[str, Any] | None:
        """What the checkpoint holds; None: there is none yet."""
        assert self._journal is not None
        journal, found = self._journal, read_checkpoint(self._path)
        if journal.finished and self._run.release == "last" and (found is None or found.get("step") != self._run.total_steps):
            raise InputError(
                f"{journal.path}: this run is finished before its last step, and its model may be released; from the checkpoint training "
                "would come to another model of the same records.",
                source="checkpoints.folder",
                remedy="give another folder for another run, and destroy this one when you have the model.",
            )
        if found is None and journal.step:
            raise InputError(
                f"{self._path} is gone; {journal.step} steps were released, and training cannot go on without it.",
                source="checkpoints.folder",
                remedy="put it back, or begin another run and count the released steps as well.",
            )
        if found is None:
            return None
        if set(found) - {"shards", "noise", "moved"} != PARTS | {"journal", "run", "step"} or found["journal"] != journal.name:
            raise InputError(
                f"{self._path} and {journal.path} do not belong together.",
                source="checkpoints.folder",
                remedy="keep the two files of a folder together; begin another run in another folder.",
            )
        if found["run"] != _text(self._asked):
            raise InputError(f"run: the checkpoint is not of run {self._run.run_id}.", source="checkpoints.folder", remedy=AGAIN)
        given = self._noise_generator
        if isinstance(given, torch.Generator) and torch.equal(given.get_state(), found["stream"]["anchor_state"]):
            raise InputError("noise_generator: in the state of the generator that the batches go on with.", remedy="leave it out.")
        if journal.seeded and isinstance(found["recorder"], dict):  # also by a process that never came to a checkpoint of its own
            found["recorder"]["seeded"] = True
        return found


def keeping(
    checkpoints: Checkpoints | str | os.PathLike[str] | None,
    run: Run,
    noise_generator: NoiseGenerator,
    workers: Workers,
    *,
    seeded: bool,
    policed: bool = False,
) -> Checkpointing | NoCheckpointing:
    """The checkpointing of a training; `NoCheckpointing` where no folder is given.

    Args:
        checkpoints, run, noise_generator, workers, seeded: see `Checkpointing`; None: no folder.
        policed: whether a policy chooses the noise along the way.
    Raises:
        InputError: see `Checkpoints` and `Checkpointing`; or a folder for noise that a policy chooses.
    """
    if checkpoints is not None and policed:
        raise InputError(
            "checkpoints: given together with noise_policy; what it chose for steps that a kill loses is nowhere written down.",
            source="noise_policy",
            remedy="train without checkpoints, or plan the noise in advance: a noise_budget with the run's own noise may be kept.",
        )
    return (
        NoCheckpointing()
        if checkpoints is None
        else Checkpointing(Checkpoints.of(checkpoints), run, noise_generator, workers, seeded=seeded)
    )


def _opened(folder: Path, steps: Sequence[int]) -> Journal:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder} cannot be made: {error.strerror or error}.", source="checkpoints.folder") from error
    return Journal(folder / "journal", steps)


def _text(run: Run) -> str:
    return to_json(run.to_document(), indent=None)


def _device_generators() -> tuple[torch.Generator, ...]:
    return torch.cuda.default_generators if torch.cuda.is_initialized() else ()
