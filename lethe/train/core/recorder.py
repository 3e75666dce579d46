"""Recorder: what was executed at each step, and the Run that states it."""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple

import numpy as np
import torch

from lethe.errors import HypothesisError, InputError
from lethe.run.known_fields import require_run
from lethe.run.participation import BatchSizes, unknown_sizes
from lethe.run.run import Run
from lethe.run.schedules import Array
from lethe.train.core.samplers import Batch


class Noted(NamedTuple):
    """A step as it was noted: step size, noise in parameter units, and how many records it really met, which is private."""

    step_size: float
    noise_std: float
    records: int


class Recorder:
    """Notes each executed step; `run` then builds the Run that was executed, from the notes.

    Args:
        plan: the run that is about to be executed; only its records and batch design are used while recording.
        seeded: whether somebody can make its noise or its secret batches again (`lethe.train.core.generators.is_seeded`).
    Raises:
        InputError: a word of the plan is not known, or nothing is known of the sizes of its batches.
    """

    __slots__ = (
        "_averages",
        "_cap",
        "_clip_norms",
        "_divisors",
        "_exact",
        "_groups",
        "_irregular",
        "_known_averages",
        "_met",
        "_noise_stds",
        "_records",
        "_repeats",
        "_seeded",
        "_seen",
        "_slots",
        "_step_sizes",
    )

    def __init__(self, plan: Run, *, seeded: bool) -> None:
        require_run(plan)
        self._seeded = seeded
        self._records = plan.records
        self._step_sizes = array("d")
        self._noise_stds = array("d")
        self._clip_norms: set[float | None] = set()
        self._divisors: set[float] = set()
        self._averages: list[tuple[float, ...] | None] = []
        self._known_averages: set[int] = set()
        self._irregular: int | None = None
        self._met = 0
        self._cap = plan.batches.cap
        self._exact = _exact_size(plan)
        self._repeats = plan.batches.repeats
        self._groups = plan.batches.groups_of_records
        self._slots: list[Batch | None] = [None] * (plan.steps_per_pass if plan.batches.fixed else 0)
        self._seen = torch.zeros(plan.records if plan.batches.fixed else 0, dtype=torch.bool)

    def note(
        self,
        *,
        step_size: float,
        noise_std: float,
        clip_norm: float | None,
        divisor: float,
        batch: Batch,
        pass_weights: tuple[float, ...] | None = None,
    ) -> None:
        """One executed step, with the numbers that were used in it.

        Args:
            step_size: the factor of the mean gradient.
            noise_std: of the noise added, in parameter units; 0 if none was.
            clip_norm: the norm each record's gradient was clipped to; None if there was no clipping.
            divisor: what the sum of gradients was divided by.
            batch: the records of the step.
            pass_weights: the weights of the average that the step's pass ends at; None if there was no averaging.
        """
        if self._irregular is None and not self._of_the_design(batch):
            self._irregular = len(self._step_sizes) + 1
        self._met = _length(batch)
        self._step_sizes.append(step_size)
        self._noise_stds.append(noise_std)
        self._clip_norms.add(clip_norm)
        self._divisors.add(divisor)
        # By identity: comparing all the weights at every step would cost the square of a pass's length.
        if id(pass_weights) not in self._known_averages:
            self._known_averages.add(id(pass_weights))
            self._averages.append(pass_weights)

    def run(self, plan: Run, *, enforced: bool) -> Run:
        """The executed run: the plan's own fields where every noted number equals the plan's bit for bit, explicit lists elsewhere.

        Numbers that a list cannot hold exactly are rounded so that less noise is recorded than was added. `seeded` says whether somebody
        can make the noise again; a plan that says so already is taken at its word.

        Args:
            plan: the run that was to be executed.
            enforced: whether the pipeline made what the plan says of the loss true, by projecting the features: the evidence becomes
                "enforced". False, as for a network: it becomes "declared". Plan with the same word to get `recorded == planned`.
        Raises:
            HypothesisError: no Run describes what was executed: nothing was, another divisor, batches that are not of the design,
                another average, or an unfinished pass or noise inside a pass where passes are averaged.
        """
        self._refuse(plan)
        steps = len(self._step_sizes)
        said = {
            "loss": plan.loss.model_copy(update={"evidence": "enforced" if enforced else "declared"}),
            "seeded": self._seeded or plan.seeded,
        }
        changes: dict[str, Any] = {}
        clip_norm = self._loosest_clip_norm()
        if clip_norm != plan.clip_norm:
            changes["clip_norm"] = clip_norm
        if steps != plan.total_steps:
            changes["steps"] = steps
        if not np.array_equal(self._step_sizes, plan.step_sizes):
            changes["step_size"] = list(self._step_sizes)
        if not changes and plan.noise_multiplier is not None and np.array_equal(self._noise_stds, plan.noise_stds):
            return plan.replace(**said)
        noise_at = "every_step" if plan.pass_weights is None else "pass_ends"
        unplanned = plan.replace(**said, **changes, noise_multiplier=None, noise_at=noise_at)
        begun = "clip_norm" not in changes and self._begins(plan)
        multipliers = plan.noise_multipliers[:steps] if begun else _multipliers(np.asarray(self._noise_stds), unplanned)
        multipliers = multipliers[unplanned.noisy_steps]
        return unplanned.replace(noise_multiplier=multipliers.tolist())

    def beginning_of(self, plan: Run, *, enforced: bool) -> Run:
        """The whole plan, if the executed steps are its beginning: it covers a run that was stopped at a time chosen on the way.

        A certificate of all iterates of the plan is about their beginning as well, wherever it ends and for whatever was seen in it: what
        is left of them is a function of them. One of the executed steps alone supposes that their number did not depend on what was seen.

        Args:
            plan, enforced: as for `run`.
        Raises:
            HypothesisError: no Run describes what was executed, or it is not the beginning of the plan, number for number.
        """
        executed, steps = self.run(plan, enforced=enforced), len(self._step_sizes)
        if not (executed.clip_norm == plan.clip_norm and self._begins(plan)):
            raise HypothesisError(
                f"the {steps} executed steps are not the first of the plan's {plan.total_steps}: a step size, noise or clip norm differs.",
                remedy="take the steps of the plan, or fix their number in advance and certify the steps that were taken.",
            )
        return plan.replace(loss=executed.loss, seeded=executed.seeded)

    def _begins(self, plan: Run) -> bool:
        """Whether the noted steps are the first of the plan, in step sizes and noise, number for number."""
        steps = len(self._step_sizes)
        return (
            plan.noise_multiplier is not None
            and steps <= plan.total_steps
            and np.array_equal(self._step_sizes, plan.step_sizes[:steps])
            and np.array_equal(self._noise_stds, plan.noise_stds[:steps])
        )

    def state_dict(self) -> dict[str, Any]:
        """The notes so far, as tensors and plain data. They hold the batches of a secret design: keep them as private as the data."""
        return {
            "step_sizes": torch.tensor(self._step_sizes, dtype=torch.float64),
            "noise_stds": torch.tensor(self._noise_stds, dtype=torch.float64),
            "clip_norms": list(self._clip_norms),
            "divisors": list(self._divisors),
            "averages": [None if average is None else list(average) for average in self._averages],
            "irregular": self._irregular,
            "slots": [[slot.start, slot.stop] if isinstance(slot, slice) else slot for slot in self._slots],
            "seen": self._seen.clone(),
            "seeded": self._seeded,
        }

    def load_state_dict(self, state: Any) -> None:
        """Go on from what `state_dict` returned for the same plan. What was seeded before stays so.

        Raises:
            InputError: it is the state of no recorder, or of another plan's; this one is then as it was.
        """
        names = {"step_sizes", "noise_stds", "clip_norms", "divisors", "averages", "irregular", "slots", "seen", "seeded"}
        if (
            not isinstance(state, dict)
            or set(state) != names
            or len(state["step_sizes"]) != len(state["noise_stds"])
            or len(state["slots"]) != len(self._slots)
            or state["seen"].shape != self._seen.shape
            or not isinstance(state["seeded"], bool)
        ):
            raise InputError("state: this is not what a recorder of this run noted.", remedy="give what state_dict returned.")
        self._step_sizes, self._noise_stds = array("d", state["step_sizes"].tolist()), array("d", state["noise_stds"].tolist())
        self._clip_norms, self._divisors = set(state["clip_norms"]), set(state["divisors"])
        self._averages = [None if average is None else tuple(average) for average in state["averages"]]
        self._irregular = state["irregular"]
        self._slots = [slice(*slot) if isinstance(slot, list) else slot for slot in state["slots"]]
        self._seen = state["seen"].clone()
        self._seeded = self._seeded or state["seeded"]

    @property
    def steps(self) -> int:
        """How many steps were noted."""
        return len(self._step_sizes)

    @property
    def seeded(self) -> bool:
        """Whether somebody can make the noise or the secret batches again, of this process or of one before it."""
        return self._seeded

    @property
    def last(self) -> Noted:
        """The step that was noted last, by this process."""
        return Noted(self._step_sizes[-1], self._noise_stds[-1], self._met)

    def _of_the_design(self, batch: Batch) -> bool:
        if self._exact is not None and _length(batch) != self._exact:
            return False
        if self._cap is not None and _length(batch) > self._cap:
            return False
        if self._groups > 1:
            here = torch.arange(batch.start, batch.stop) if isinstance(batch, slice) else batch
            return bool((here % self._groups == len(self._step_sizes) % self._groups).all())
        if not self._slots:
            return True
        slot = len(self._step_sizes) % len(self._slots)
        known = self._slots[slot]
        if known is not None and self._repeats:
            return known is batch or _same(known, batch)
        if slot == 0:
            self._seen.zero_()
        here = batch if isinstance(batch, slice) else batch.cpu()
        again = bool(self._seen[here].any())
        self._seen[here] = True
        self._slots[slot] = batch
        return not again

    def _refuse(self, plan: Run) -> None:
        remedy = "train with lethe.train.fit or fit_linear as they are, or certify by hand a run that bounds this one."
        if not self._step_sizes:
            raise HypothesisError("no step was executed: there is no run to record.", remedy=remedy)
        if self._divisors != {plan.batch_size}:
            raise HypothesisError(
                f"the gradient sum was divided by {sorted(self._divisors)}; a run divides by its nominal batch size {plan.batch_size}.",
                remedy=remedy,
            )
        if self._irregular is not None:
            raise HypothesisError(f"the batch of step {self._irregular} is not of the design {plan.batches.design}.", remedy=remedy)
        planned = None if plan.pass_averages is None else tuple(plan.pass_averages.tolist())
        if any(average != planned for average in self._averages):
            raise HypothesisError("the passes did not end at the averages that pass_weights says.", source="pass_weights", remedy=remedy)
        if plan.pass_weights is not None:
            inside = np.arange(1, len(self._noise_stds) + 1) % plan.steps_per_pass != 0
            if inside[-1] or np.asarray(self._noise_stds)[inside].any():
                raise HypothesisError("a pass that ends at an average was left unfinished, or had noise inside.", remedy=remedy)

    def _loosest_clip_norm(self) -> float | None:
        norms = [norm for norm in self._clip_norms if norm is not None]
        return None if None in self._clip_norms else max(norms)


def _multipliers(noise_stds: Array, run: Run) -> Array:
    """The largest z with step_size * z * (C / b) <= the noise, in the arithmetic of `Run.noise_stds`."""
    unit = run.clip_bound / run.batch_size
    multipliers = noise_stds / (run.step_sizes * unit)
    while (above := run.step_sizes * multipliers * unit > noise_stds).any():
        multipliers = np.where(above, np.nextafter(multipliers, 0.0), multipliers)
    return multipliers


def _exact_size(plan: Run) -> int | None:
    """How many records each batch of the design holds; None: a number left to chance."""
    match plan.batches.sizes:
        case BatchSizes.EXACT:
            return plan.batch_size
        case BatchSizes.BINOMIAL:
            return None
        case BatchSizes.UNKNOWN:  # no batch could be told from one of another design
            raise unknown_sizes(plan.batches.design, plan.batches.sizes)
    raise unknown_sizes(plan.batches.design, plan.batches.sizes)


def _length(batch: Batch) -> int:
    return batch.stop - batch.start if isinstance(batch, slice) else len(batch)


def _same(known: Batch, batch: Batch) -> bool:
    if isinstance(known, torch.Tensor) and isinstance(batch, torch.Tensor):
        return torch.equal(known, batch)
    return isinstance(known, slice) and isinstance(batch, slice) and known == batch
