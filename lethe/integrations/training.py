"""What the integrations of other trainers share: planning the run, its batches in the form of a DataLoader, the record at the end. The
Lightning callback and the transformers Trainer derive from `RecordedTraining` and ask `Target` for the run. Their loops iterate over
`LogicalBatches` (all records of one step each), because the run, not the loop's sampler, must draw the records.
"""

from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from lethe.accounting.certify import certify
from lethe.accounting.plan import plan
from lethe.calculus.large_delta import delta_for, open_delta
from lethe.certificates.certificate import Certificate
from lethe.certificates.records import TrainingRecord
from lethe.errors import InputError
from lethe.run.known_fields import refuse_users, require_run
from lethe.run.participation import Neighbours
from lethe.run.run import Run
from lethe.train import PrivacyEngine
from lethe.train.data.users import owners_of
from lethe.train.planning import shuffled_run, steps_per_epoch


class PlannedTraining(NamedTuple):
    """A run with its noise, how many records are on the device at once, and how many logical batches make an epoch."""

    run: Run
    physical_size: int
    steps_per_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a trainer is asked for: (epsilon, delta), or a run; `call` says in errors how the trainer is made.

    A run that is made here is about these neighbours. It is an error to leave out delta, or to give neither or both of epsilon and run.
    """

    call: str
    epsilon: float | None
    delta: float
    run: Run | None
    neighbours: Neighbours
    allow_large_delta: bool

    def __post_init__(self) -> None:
        remedy = f"{self.call.replace('...', '..., epsilon=3.0, delta=1e-5')}, or run=run, delta=1e-5; delta below 1/records."
        if self.delta is None:  # pyright: ignore[reportUnnecessaryComparison]
            raise InputError("delta: none was given.", remedy=remedy)
        open_delta(self.delta)
        if (self.epsilon is None) == (self.run is None):
            raise InputError(
                f"epsilon: got {self.epsilon!r}, run: {'none' if self.run is None else 'a run'}; it needs one of them.", remedy=remedy
            )

    def planned(
        self,
        records: int,
        sizes: tuple[int, int, int],
        steps: Callable[[int], int],
        rate: Any,
        *,
        clip_norm: float | None,
        users: Any = None,
    ) -> PlannedTraining:
        """The run. Without one, a logical batch is as many records (expected) as the three sizes multiplied (records on a device at once,
        such batches a step, processes), and an epoch has as many steps as without privacy. With users, all numbers count users.

        `steps` goes from steps an epoch to all of them; `rate` is the first learning rate; `clip_norm` is None where a run is given.
        """
        units = records if users is None else int(owners_of(users).max()) + 1
        physical, accumulated, processes = sizes
        if not units:
            raise InputError("train_dataset: it has no records; it needs at least one.", remedy="look at len(train_dataset).")
        if self.run is None:
            size = physical * accumulated * processes
            per_epoch = steps_per_epoch(units, size)
            unit: dict[str, Any] = {"neighbours": self.neighbours, "of_users": users is not None}
            shuffled = shuffled_run(units, size, steps(per_epoch), rate, clip_norm=clip_norm, **unit)
            noisy = plan(shuffled, self.epsilon, self.delta, allow_large_delta=self.allow_large_delta)  # pyright: ignore[reportArgumentType]
            return PlannedTraining(noisy, physical, per_epoch)
        delta_for(require_run(self.run, correlated=True).records, self.delta, allow_large_delta=self.allow_large_delta)
        if users is None:
            refuse_users(self.run, f"{self.call.partition('(')[0]} without users=")
        per_epoch = steps_per_epoch(units, self.run.batch_size)
        return PlannedTraining(self.run, min(physical, self.run.batch_size), per_epoch)


class LogicalBatch:
    """One step's records: iterating gives its micro-batches, each to be used before the next is asked for."""

    def __init__(self, batches: Iterator[Any], engine: PrivacyEngine) -> None:
        self._batches, self._engine = batches, engine

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield next(self._batches)
            if self._engine.batch_complete:
                return


class LogicalBatches:
    """What a loop takes for its DataLoader: logical batches, epoch by epoch; where training goes on, those that are left."""

    def __init__(self, dataset: Sized, steps_per_epoch: int) -> None:
        self.dataset, self.batch_size = dataset, None
        self._steps_per_epoch = steps_per_epoch
        self._engine: PrivacyEngine | None = None
        self._batches: Iterator[Any] = iter(())
        self._taken = 0

    def __len__(self) -> int:
        return self._steps_per_epoch

    def open(self, engine: PrivacyEngine, steps_taken: int | None = None) -> None:
        """Name the engine whose batches these are; how many the loop has had, None: as many as there were steps."""
        self._engine, self._batches, self._taken = engine, engine.deliver(), engine.steps if steps_taken is None else steps_taken

    def __iter__(self) -> Iterator[LogicalBatch]:
        """Those of an epoch that are left; an engine may be named between this and the first of them."""
        assert self._engine is not None
        remaining = self._steps_per_epoch - self._taken % self._steps_per_epoch
        for _ in range(min(remaining, self._engine.run.total_steps - self._taken)):
            self._taken += 1
            yield LogicalBatch(self._batches, self._engine)

    def state_dict(self) -> dict[str, int]:
        """How many were taken: what the engine's own checkpoint knows as well, and more of."""
        return {"given": self._taken}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Nothing: `open` says where the run is."""

    def drain(self) -> None:
        """After the last step: end the reading, so that what is saved at the end is saved."""
        if self._engine is not None and self._taken == self._engine.run.total_steps == self._engine.steps:
            next(self._batches, None)


class RecordedTraining:
    """One training by an engine that leaves a record when it is over; what trains sets `engine`, and `_record` at the end."""

    _TRAIN: ClassVar[str]  # the call that trains
    _target: Target
    _record: TrainingRecord | None = None
    _certificate: Certificate | None = None
    engine: PrivacyEngine | None = None

    def record(self) -> TrainingRecord:
        """The training record: `lethe.certify(self.record(), delta)` certifies and seals it.

        Raises:
            InputError: nothing was trained to its end.
        """
        if self._record is None:
            raise InputError("record: there is none before training is over.", remedy=f"call {self._TRAIN} first.")
        return self._record

    @property
    def certificate_(self) -> Certificate:
        """The sealed certificate of what was trained, at the delta that was given."""
        if self._certificate is None:
            self._certificate = certify(self.record(), self._target.delta, allow_large_delta=self._target.allow_large_delta)
        return self._certificate

    @property
    def averaged(self) -> dict[str, Tensor] | None:
        """The model's state dict with the moving average of the iterates so far, for `load_state_dict`; None without `ema`, or steps."""
        return None if self.engine is None else self.engine.averaged

    @property
    def _engine(self) -> PrivacyEngine:
        assert self.engine is not None
        return self.engine

    def _epsilon(self) -> float:
        """What the steps so far cost, of a number of steps that was fixed before."""
        return self._engine.epsilon(self._target.delta, steps_fixed_in_advance=True, allow_large_delta=self._target.allow_large_delta)

    def _on_device(self, micro_batch: Any) -> Any:
        """What is made of a micro-batch before its losses are computed, each row of its own record."""
        return micro_batch

    def _noisy_gradient(
        self, batch: LogicalBatch, losses: bool, add_up: Callable[[Tensor], Tensor] | None, device: torch.device
    ) -> Tensor | None:
        """Compute the noisy gradient of a logical batch, and where it is asked for the mean loss of its records, which is private."""
        total = torch.zeros(2, dtype=torch.float64)  # of this process: the sum of the losses, and of how many records
        for micro_batch in batch:
            each = self._engine.backward(self._on_device(micro_batch))
            if losses:
                own = each.detach()[self._engine.counted].double()
                total += torch.stack([own.sum(), own.new_tensor(len(own))]).cpu()
        if not losses:
            return None
        total = total if add_up is None else add_up(total.to(device)).cpu()
        return (total[0] / total[1].clamp(min=1)).to(device, torch.float32)
