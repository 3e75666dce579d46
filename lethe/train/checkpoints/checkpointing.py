"""Checkpointed training: it continues correctly after being killed at any moment.

`Trainer` calls `begin` before the first step, `before_noise` and `after` in each, `finish` at the end. The journal is a text file that
lists each step before its noise is drawn (`journal.py`); the checkpoint holds the model, the optimiser and the stream of batches.

**No generator is stored.** A training that goes on draws fresh noise. What was drawn before is gone with the process, and noise of a known
generator is refused a second time, so the same noise is never added to two different things. Correlated noise is stored as far as later
steps take it back; under a seed each of its steps has a generator of its own, and no step is taken twice. That of steps that are lost to
a kill is not taken back: its model is lost as well (`CorrelatedNetworkNoise`).

**release: all.** A noisy gradient counts as released from the moment its noise may have been drawn, and the journal says so before that
moment. With a checkpoint of step t and a journal up to step j, training goes on with step j + 1 from the parameters of step t: the batches
of t+1..j are drawn and dropped, and these steps are recorded as executed. So every noisy gradient is released once at most and counted
once, each record is used in the steps that the run says and no others, and the parameters are a function of released gradients. What a kill
costs is the progress since the checkpoint.

**release: last.** Nobody saw the iterates that were lost. Steps t+1..j are taken again, on the same batches, with fresh noise, and the
steps that lead to the final model are those of the run, each taken once. Nobody may see the folder, then or later.

**A noise budget.** Without a policy, what its filter has paid for is a function of the number of steps: a training that goes on pays anew
for all that the journal counts, before it takes another.

**A finished run** may be asked for its model once more, since a process may be killed before the model is in a file: from the checkpoint
of the last step, and where all is released from any, nothing is drawn. A last iterate that was taken before the last step ends the folder.

**Where checkpoints may be.** Only after a step with noise. Take noise at pass ends, a checkpoint after step 2 of a pass of 4, and a kill
in step 4 once its noise is journaled: training would go on with step 5 from an iterate that the records of steps 1 and 2 have moved
without noise. They move it again in the next pass, and the noise of step 8 would hide two uses where the run counts one. After a step
with noise the iterate is one that the run itself has.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lethe.documents.strict import to_json
from lethe.errors import InputError
from lethe.run.run import Run
from lethe.train.checkpoints.file import Checkpoints, read_checkpoint, write_checkpoint
from lethe.train.checkpoints.journal import Journal
from lethe.train.checkpoints.training_state import AGAIN, Training, as_told
from lethe.train.core.generators import same_stream, state_digest
from lethe.train.distributed.workers import Workers


class Checkpointing:
    """The checkpoints of a training: locks their folder, and refuses what cannot go on there; without a folder nothing is done.

    Of several processes, number 0 alone reads and writes; it tells the others what it found. Correlated noise of shards alone is kept by
    each process for itself, in a file beside that `checkpoint.pt` names: it is on disk before that points to it.

    Attributes:
        active, also: whether there is a folder, and what else the user has saved, by name.
    """

    def __init__(
        self,
        checkpoints: Checkpoints | str | os.PathLike[str] | None,
        run: Run,
        noise_generator: np.random.Generator | torch.Generator | None,
        workers: Workers,
        *,
        seeded: bool,
        policed: bool = False,
    ) -> None:
        self.active, self.also = checkpoints is not None, dict[str, Any]()
        self._journal: Journal | None = None  # of process 0
        self._asked, self._run, self._noise_generator, self._workers = run, run.uncorrelated, noise_generator, workers
        self._training: Training | None = None
        if checkpoints is None:
            return
        if policed:
            raise InputError(
                "checkpoints: given together with noise_policy; what it chose for steps that a kill loses is nowhere written down.",
                source="noise_policy",
                remedy="train without checkpoints, or plan the noise in advance: a noise_budget with the run's own noise may be kept.",
            )
        settings = Checkpoints.of(checkpoints)
        self._folder, self._every, self._saved, self.also = Path(settings.folder), settings.every, 0, dict(settings.also)
        self._path = self._folder / "checkpoint.pt"
        self._noisy = np.isin(np.arange(run.total_steps), self._run.noisy_steps)
        checkpoint: dict[str, Any] | None = None
        if workers.root:
            self._journal = self._opened()
        try:
            if self._journal is not None:
                self._noise_start = self._checked_noise(self._journal) or ("seeded" if seeded else None)
                checkpoint = self._checked_folder(self._journal)
            shared_state = checkpoint if checkpoint is None or not workers.several else as_told(checkpoint)
            shared_state, self._released = workers.told_by_root(
                "checkpoint", (shared_state, 0 if self._journal is None else self._journal.step)
            )
            self._found = checkpoint if workers.root else shared_state
        except BaseException:
            self.close()
            raise

    @property
    def starts(self) -> int:
        """How many processes have trained here before this one; of several, number 0, which draws the noise, knows."""
        return 0 if self._journal is None else self._journal.starts

    def begin(self, training: Training) -> int:
        """Begin, or go on: the parts of the training are set right, and the journal says that a process trains. Returns how many steps are
        done; a checkpoint of another training is refused, and the model is as it was.
        """
        if not self.active:
            return 0
        self._training, training.also = training, {**self.also, **training.also}
        if (checkpoint := self._found) is None:
            self._start()
            self.save(0)
            return 0
        step = int(checkpoint["step"])
        training.refuse_others(checkpoint)
        shard_noise = self._shard_noise(checkpoint, training)
        training.stream.load_state_dict(checkpoint["stream"])
        training.recorder.load_state_dict(checkpoint["recorder"])
        released_at_least = step if self._run.release == "all" else 0
        if not training.stream.steps_done == training.recorder.steps == step or self._released < released_at_least:
            raise InputError(f"{self._path}: its parts and the journal are not of one step.", source="checkpoints.folder", remedy=AGAIN)
        lost = max(self._released - step, 0)
        for noise, state in ((training.noise, checkpoint["noise"]), (training.shard_noise, shard_noise)):
            if noise is not None:
                noise.load_state_dict(state or {})
                noise.forget(lost)
        self._start()
        training.load_state_dict(checkpoint, root=self._workers.root)
        self._saved, self._found = step, None
        # Released after the checkpoint: recorded as planned, their batches drawn and dropped.
        for number, batch in enumerate(training.stream.skip(lost), start=step):
            executed = {"step_size": float(self._run.step_sizes[number]), "noise_std": float(self._run.noise_stds[number])}
            training.recorder.note(**executed, batch=batch)
        return step + lost

    def before_noise(self, step: int) -> None:
        """Call before the noise of step number `step` is drawn, which an error forbids: from here on it counts as released."""
        if self._journal is not None and self._run.release == "all" and self._noisy[step - 1]:
            self._journal.release(step)

    def after(self, step: int, *, last: bool = False) -> None:
        """Call when step number `step` is over: saves, if it is time, or if it is the last although the run has more."""
        if step <= self._saved or not self._noisy[step - 1]:
            return
        if step - self._saved >= self._every or last or step == self._run.total_steps:
            self.save(step)

    def save(self, step: int) -> None:
        """Save the training as it is after step number `step`, if that has noise, and nothing but a step moved the parameters."""
        if (training := self._training) is None:
            raise InputError("save: there is no folder to save to.", remedy="give checkpoints=folder.")
        if step and not self._noisy[step - 1]:
            raise InputError(
                f"save: step {step} has no noise of its own; from there training could not go on without meeting a record once too often.",
                source="run.noise_at",
                remedy="save after the last step of a pass.",
            )
        state = training.state_dict(root=self._workers.root)
        name, world = "", self._workers.world_size
        if training.shard_noise is not None:
            name = self._workers.told_by_root("name of its noise", f"noise-{os.urandom(8).hex()}")
            write_checkpoint(self._noise_file(name), training.shard_noise.state_dict())
            training.held.placement.meet()
        if self._journal is not None:
            head = {"journal": self._journal.name, "run": _text(self._asked), "step": step, "shard_noise": [name, world]}
            write_checkpoint(self._path, head | state)
            for noise_file in self._folder.glob("noise-*.pt"):
                if not noise_file.name.startswith(name or " "):
                    noise_file.unlink()
        self._saved = step

    def finish(self) -> None:
        """Mark the run as finished; its model may be released, and resuming gives the same model again, or an error."""
        if self._journal is not None:
            self._journal.finish()

    def close(self) -> None:
        """Unlock the folder."""
        if self._journal is not None:
            self._journal.close()

    def _opened(self) -> Journal:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{self._folder} cannot be made: {error.strerror or error}.", source="checkpoints.folder") from error
        return Journal(self._folder / "journal", (self._run.noisy_steps + 1).tolist() if self._run.release == "all" else [])

    def _start(self) -> None:
        if self._journal is not None:
            self._journal.start(self._noise_start)

    def _noise_file(self, name: str) -> Path:
        return self._folder / f"{name}-{self._workers.rank}.pt"

    def _shard_noise(self, checkpoint: dict[str, Any], training: Training) -> dict[str, Any] | None:
        """What this process kept of the noise of its shards; None: nothing, since it is not correlated."""
        if training.shard_noise is None:
            return None
        name, world = checkpoint["shard_noise"]
        if world != self._workers.world_size:
            raise InputError(
                f"shards: {world} processes have kept the correlated noise of their own shards; {self._workers.world_size} train now.",
                source="checkpoints.folder",
                remedy="go on with as many processes as before.",
            )
        if (noise := read_checkpoint(self._noise_file(name))) is None:
            raise InputError(
                f"{self._noise_file(name)} is gone, or cannot be seen by process {self._workers.rank}.",
                source="checkpoints.folder",
                remedy="give all processes the same folder; put back an intact copy: with the journal as it is that is safe.",
            )
        return noise

    def _checked_noise(self, journal: Journal) -> str | None:
        """The digest of the given generator's state; None: there is none."""
        generator = self._noise_generator
        if not isinstance(generator, np.random.Generator | torch.Generator):
            return None
        if any(
            same_stream(generator, default_generator) for default_generator in (torch.default_generator, *torch.cuda.default_generators)
        ):
            raise InputError(
                "noise_generator: in the same state as PyTorch's global generator, which a checkpoint keeps for dropout.",
                remedy="leave it out: noise from fresh entropy is not written anywhere.",
            )
        digest = state_digest(generator)
        if any(digest.startswith(start_digest) for start_digest in journal.noise_starts):
            raise InputError(
                "noise_generator: in a state that training in this folder began with before; its noise was used.",
                source="checkpoints.folder",
                remedy="leave it out, so that noise comes from fresh entropy, or give another one.",
            )
        return digest

    def _checked_folder(self, journal: Journal) -> dict[str, Any] | None:
        """What the checkpoint holds; None: there is none yet."""
        checkpoint = read_checkpoint(self._path)
        if journal.finished and self._run.release == "last" and (checkpoint is None or checkpoint.get("step") != self._run.total_steps):
            raise InputError(
                f"{journal.path}: this run is finished before its last step, and its model may be released; to train on would "
                "make another.",
                source="checkpoints.folder",
                remedy="give another folder for another run, and delete this one when you have the model.",
            )
        if checkpoint is None and journal.step:
            raise InputError(
                f"{self._path} is gone; {journal.step} steps were released, and training cannot go on without it.",
                source="checkpoints.folder",
                remedy="put it back, or begin another run and count the released steps as well.",
            )
        if checkpoint is None:
            return None
        if checkpoint.get("journal") != journal.name:
            raise InputError(
                f"{self._path} and {journal.path} do not belong together.",
                source="checkpoints.folder",
                remedy="keep the two files of a folder together; begin another run in another folder.",
            )
        if checkpoint["run"] != _text(self._asked):
            raise InputError(f"run: the checkpoint is not of run {self._run.run_id}.", source="checkpoints.folder", remedy=AGAIN)
        generator = self._noise_generator
        if isinstance(generator, torch.Generator) and torch.equal(generator.get_state(), checkpoint["stream"]["anchor_state"]):
            raise InputError("noise_generator: in the state of the generator that the batches go on with.", remedy="leave it out.")
        if journal.noise_starts:  # somebody can make again what a process drew, which may never have come to a checkpoint of its own
            checkpoint["recorder"]["seeded"] = True
        return checkpoint


def _text(run: Run) -> str:
    return to_json(run.to_document(), indent=None)
