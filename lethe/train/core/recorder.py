"""Recorder: notes what was executed at each step (step size, noise, batch), and makes of it the Run that a certificate is computed from.
Every training loop calls `note` once a step and `run` at the end, so what is certified is what happened and not only what was planned.
"""

from array import array
from typing import Any, NamedTuple

import numpy as np
import torch

from lethe.errors import HypothesisError
from lethe.run.known_fields import require_run
from lethe.run.participation import KNOWN_SIZES, unknown_sizes
from lethe.run.run import Run
from lethe.run.schedules.shapes import Array
from lethe.train.core.samplers import Batch, length

_REMEDY = "train with lethe.train.fit as it is, or certify by hand a run that bounds this one."


class Noted(NamedTuple):
    """A step as it was noted, with noise in parameter units, and how many records its batch really held, which is private."""

    step_size: float
    noise_std: float
    records: int


class Recorder:
    """Notes what may differ from the plan in each executed step; `run` then builds the Run that was executed, from the notes.

    What bounds a gradient, what a sum is divided by and what a pass ends at are read from the plan itself by whoever takes the steps; here
    only its records and batch design are used.

    Attributes:
        seeded: whether somebody can make the noise or the secret batches again, of this process or of one before it.
        last: the step that was noted last, by this process.
    """

    def __init__(self, plan: Run, *, seeded: bool) -> None:
        require_run(plan)
        if plan.batches.sizes not in KNOWN_SIZES:  # no batch could be told from one of another design
            raise unknown_sizes(plan.batches.design, plan.batches.sizes)
        self.seeded = seeded
        design = plan.batches
        self._batch_size, self._exact_size, self._cap = plan.batch_size, design.exact_size, design.cap
        self._groups, self._repeats = design.groups_of_records, design.repeats
        self._step_sizes = array("d")
        self._noise_stds = array("d")
        self._irregular: int | None = None  # the first step whose batch is not of the plan's design
        self._slots: list[Batch | None] = [None] * (plan.steps_per_pass if plan.batches.fixed else 0)
        self._seen = torch.zeros(plan.records if plan.batches.fixed else 0, dtype=torch.bool)

    def note(self, *, step_size: float, noise_std: float, batch: Batch) -> None:
        """One executed step, with the numbers that were used in it. Noise is in parameter units, 0 if none was added."""
        records, step = length(batch), len(self._step_sizes)
        if self._irregular is None and not self._of_the_design(batch, records, step):
            self._irregular = step + 1
        self.last = Noted(step_size, noise_std, records)
        self._step_sizes.append(step_size)
        self._noise_stds.append(noise_std)

    def run(self, plan: Run, *, enforced: bool, whole: bool = False) -> Run:
        """The executed run: the plan's own fields where every noted number equals the plan's bit for bit, explicit lists elsewhere.

        Numbers that a list cannot hold exactly are rounded so that less noise is recorded than was added. `seeded` says whether somebody
        can make the noise again; a plan that says so already is taken at its word.

        Args:
            plan: the run that was to be executed.
            enforced: whether the pipeline made what the plan says of the loss true, by projecting the features, which is then its evidence;
                of a network it is "declared". Plan with the same word to get `recorded == planned`.
            whole: whether to return the whole plan, of which the executed steps must be the beginning: it covers a run that was stopped
                at a time chosen on the way. A certificate of all its iterates is about their beginning as well, wherever it ends and for
                whatever was seen in it; one of the executed steps alone supposes that their number did not depend on what was seen.
        Raises:
            HypothesisError: nothing was executed, or what no Run describes: batches that are not of the design, an unfinished pass or noise
                inside a pass where passes are averaged; or what was executed is not the beginning of a whole plan, number for number.
        """
        if not self.steps:
            raise HypothesisError("no step was executed: there is no run to record.", remedy=_REMEDY)
        if self._irregular is not None:
            raise HypothesisError(f"the batch of step {self._irregular} is not of the design {plan.batches.design}.", remedy=_REMEDY)
        if plan.pass_weights is not None:
            inside = np.arange(1, self.steps + 1) % plan.steps_per_pass != 0
            if inside[-1] or np.asarray(self._noise_stds)[inside].any():
                raise HypothesisError("a pass that ends at an average was left unfinished, or had noise inside.", remedy=_REMEDY)
        loss = plan.loss.model_copy(update={"evidence": "enforced" if enforced else "declared"})
        recorded = {"loss": loss, "seeded": self.seeded or plan.seeded}
        begins = plan.noise_multiplier is not None and self.steps <= plan.total_steps
        begins = begins and np.array_equal(self._step_sizes, plan.step_sizes[: self.steps])
        begins = begins and np.array_equal(self._noise_stds, plan.noise_stds[: self.steps])
        if whole and not begins:
            raise HypothesisError(
                f"the {self.steps} executed steps are not the first of the plan's {plan.total_steps}: a step size or noise differs.",
                remedy="take the steps of the plan, or fix their number in advance and certify the steps that were taken.",
            )
        if begins and (whole or self.steps == plan.total_steps):
            return plan.replace(**recorded)
        if self.steps != plan.total_steps:
            recorded["steps"] = self.steps
        if not np.array_equal(self._step_sizes, plan.step_sizes):
            recorded["step_size"] = list(self._step_sizes)
        noise_at = "every_step" if plan.pass_weights is None else "pass_ends"
        unplanned = plan.replace(**recorded, noise_multiplier=None, noise_at=noise_at)
        multipliers = plan.noise_multipliers if begins else _multipliers(np.asarray(self._noise_stds), unplanned)
        return unplanned.replace(noise_multiplier=multipliers[: self.steps][unplanned.noisy_steps].tolist())

    def state_dict(self) -> dict[str, Any]:
        """The notes so far, as tensors and plain data. They hold the batches of a secret design: keep them as private as the data."""
        return {
            "step_sizes": torch.tensor(self._step_sizes, dtype=torch.float64),
            "noise_stds": torch.tensor(self._noise_stds, dtype=torch.float64),
            "irregular": self._irregular,
            "slots": [[slot.start, slot.stop] if isinstance(slot, slice) else slot for slot in self._slots],
            "seen": self._seen.clone(),
            "seeded": self.seeded,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned for the same plan. What was seeded before stays so."""
        self._step_sizes, self._noise_stds = array("d", state["step_sizes"].tolist()), array("d", state["noise_stds"].tolist())
        self._irregular = state["irregular"]
        self._slots = [slice(*slot) if isinstance(slot, list) else slot for slot in state["slots"]]
        self._seen = state["seen"].clone()
        self.seeded = self.seeded or state["seeded"]

    @property
    def steps(self) -> int:
        """How many steps were noted."""
        return len(self._step_sizes)

    def _of_the_design(self, batch: Batch, records: int, step: int) -> bool:
        """Whether a batch of so many records may occur at a step (from 0) of the plan's design."""
        if (self._exact_size and records != self._batch_size) or (self._cap is not None and records > self._cap):
            return False
        if self._groups > 1:
            indices = torch.arange(batch.start, batch.stop) if isinstance(batch, slice) else batch
            return bool((indices % self._groups == step % self._groups).all())
        if not self._slots:
            return True
        slot = step % len(self._slots)
        slot_batch = self._slots[slot]
        if slot_batch is not None and self._repeats:
            return slot_batch is batch or _same(slot_batch, batch)
        if slot == 0:
            self._seen.zero_()
        indices = batch if isinstance(batch, slice) else batch.cpu()
        is_repeated = bool(self._seen[indices].any())
        self._seen[indices] = True
        self._slots[slot] = batch
        return not is_repeated


def _multipliers(noise_stds: Array, run: Run) -> Array:
    """The largest z with step_size * z * (C / b) <= the noise, in the arithmetic of `Run.noise_stds`."""
    unit = run.clip_bound / run.batch_size
    multipliers = noise_stds / (run.step_sizes * unit)
    while (above := run.step_sizes * multipliers * unit > noise_stds).any():
        multipliers = np.where(above, np.nextafter(multipliers, 0.0), multipliers)
    return multipliers


def _same(slot_batch: Batch, batch: Batch) -> bool:
    if isinstance(slot_batch, slice) or isinstance(batch, slice):
        return isinstance(slot_batch, slice) and isinstance(batch, slice) and slot_batch == batch
    return torch.equal(slot_batch, batch)
