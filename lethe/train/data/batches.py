"""Loaded batches of a Run: split into micro-batches, read by PyTorch's DataLoader, and resumable."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from inspect import GEN_CLOSED, getgeneratorstate
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader

from lethe.errors import InputError
from lethe.run.known_fields import require_run
from lethe.run.run import Run
from lethe.run.users import refuse_users
from lethe.train.core.generators import fresh_generator
from lethe.train.core.samplers import Batch, refuse_other_records
from lethe.train.data.draws import Anchor, draw_from, part, shard
from lethe.train.data.fingerprint import fingerprint, refuse_others, whole
from lethe.train.data.members import Members
from lethe.train.data.sources.base import Source, Tensors, fetched, length, require_whole
from lethe.train.data.sources.recognise import as_source

_FORMAT = 3
_MOST_ROWS = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadedBatch:
    """The records of one micro-batch.

    Args:
        tensors: with one row for each place; with a physical size, so many rows always, the last of them zeros where records run out.
        counted: shape (rows,), True where a row is a record; None without a physical size, where every row is one.
        indices: the records among the rows, in order; of users, the users.
        places: where units are of several rows, the unit of each row, among `indices` counted from 0; None: each row is one by itself.
        step: the step of the run, from 1.
        last: whether the step's gradient sum is complete after this one.
        whole: all records of the step, over all micro-batches and processes.
        alone: of a batch that was looked at, some records that were padded, as they are alone, by their row.
    """

    tensors: Tensors
    counted: torch.Tensor | None
    indices: Batch
    step: int
    last: bool
    whole: Batch
    alone: Mapping[int, Tensors] = field(default_factory=dict)
    places: torch.Tensor | None = None


class _Planned(NamedTuple):
    """A micro-batch without its tensors, the records to read for them, its number in its step from 1, and what resuming begins at."""

    batch: LoadedBatch
    rows: Batch
    number: int
    anchor: Anchor


class BatchStream:
    """The batches of a run, loaded: iterate over it once; after an interruption it goes on with the next batch that was not delivered.

    For one state of the generator the records of every step are those of `draw_batches`, whatever the physical size, the workers and the
    number of processes. The gradient sum is to be divided by the run's nominal batch size, never by what was loaded. How many
    micro-batches a random batch fills, and so how long a step takes, depends on the secret draw: publish neither.

    Args:
        run: gives the design, records, size and number of steps.
        data: what `as_source` takes; as many records as the run says.
        generator: a CPU generator that nothing else draws from; None: fresh entropy. It runs ahead of what was delivered.
        physical_size: rows of every micro-batch; smaller batches are padded with zeros, larger ones split: into one a step where the
            design's truncate_at is no more. None: each step's records at once, as many as there are, none at all for an empty draw.
        rank, world_size: this process and their number. Each takes its `shard` of every batch, and all have equally many micro-batches
            a step; all must be given generators in the same state.
        members: of what records each unit is made, and which of them are read at a step: all of a unit's rows are in one micro-batch, and
            `physical_size` counts units, whose rows are not padded. None: a unit is a record.

    Attributes:
        source: that the batches are read from.
        steps_done: steps whose last micro-batch was delivered.
        pads: whether records were seen to be padded to the longest of their batch.

    Raises:
        InputError: an argument that cannot be used, or data that do not fit the run.
    """

    def __init__(
        self,
        run: Run,
        data: Any,
        generator: torch.Generator | None = None,
        *,
        physical_size: int | None = None,
        rank: int = 0,
        world_size: int = 1,
        members: Members | None = None,
    ) -> None:
        if members is None:
            refuse_users(require_run(run), "a stream of records")
        self._physical_size = None if physical_size is None else require_whole("physical_size", physical_size, 1)
        if self._physical_size is not None and self._physical_size > _MOST_ROWS:
            raise InputError(f"physical_size: got more than {_MOST_ROWS}; smaller batches are padded to so many rows.")
        shard(slice(0, 0), rank, world_size)  # refuses a rank out of range
        if generator is not None and (not isinstance(generator, torch.Generator) or generator.device.type != "cpu"):
            raise InputError(f"generator: got {generator!r}; it needs a torch.Generator on the CPU, or None.")
        self._run, self._rank, self._world_size, self._members = run, rank, world_size, members
        self._generator = fresh_generator(torch.device("cpu")) if generator is None else generator
        self.source: Source = as_source(data)
        refuse_other_records(run.records, len(self.source) if members is None else members.units)
        self._empty = tuple(tensor[:0] for tensor in fetched(self.source, slice(0, 1)))
        self._fingerprint = fingerprint(self.source)
        self._anchor = Anchor(0, self._generator.get_state())
        self.steps_done = self._delivered = 0
        self._last: tuple[int, int] | None = None  # the two before the last delivery
        self.pads = False
        self._running: weakref.ref[Generator[LoadedBatch]] | None = None

    @property
    def single(self) -> bool:
        """Whether each unit is one row: not where users have several."""
        return self._members is None or self._members.single

    @property
    def filled(self) -> bool:
        """Whether every micro-batch is filled up to one number of rows."""
        return self._physical_size is not None and self.single

    def __iter__(self) -> Iterator[LoadedBatch]:
        self._refuse_running("iterate over it again")
        running = self._deliver()
        self._running = weakref.ref(running)
        return running

    def close(self) -> None:
        """End the iteration that is under way, if there is one, and its reading ahead."""
        running = None if self._running is None else self._running()
        if running is not None:
            running.close()

    def put_back(self) -> None:
        """End the iteration that is under way; the micro-batch that was delivered last is read and delivered again by the next one."""
        self.close()
        if self._last is not None:
            self.steps_done, self._delivered, self._last = *self._last, None

    def state_dict(self) -> dict[str, Any]:
        """The state from which the remaining batches follow, as plain data and one tensor; `torch.load` reads it with weights_only=True.

        Take it after a step is applied. It holds the secret of the batches and a hash of private records: keep it as private as the data,
        and destroy it in the end. Taking training up again from a checkpoint after later iterates were released repeats steps with new
        noise, which no certificate of the run covers.

        Raises:
            InputError: a step is only half delivered.
        """
        if self._delivered:
            raise InputError(f"state: step {self.steps_done + 1} is half delivered; take the state after a batch whose `last` is True.")
        if "whole" not in self._fingerprint:
            self._fingerprint["whole"] = whole(self.source, self._fingerprint["key"])
        done = {"steps_done": self.steps_done, "anchor_step": self._anchor.step, "anchor_state": self._anchor.state.clone()}
        return {"format": _FORMAT, **self._fixed(), **done, "source": dict(self._fingerprint)}

    def load_state_dict(self, state: Any) -> None:
        """Go on where `state_dict` was taken: exactly the remaining batches follow, with any physical size and any number of processes.

        Raises:
            InputError: the state is none, or of another run or other data; the stream is then as it was.
        """
        self._refuse_running("load a state")
        names = {"format", "draws", "units", "steps_done", "anchor_step", "anchor_state", "source"}
        if not isinstance(state, dict) or set(state) != names or state["format"] != _FORMAT:
            raise InputError("state: this is not the state of a batch stream of this version.", remedy="give what state_dict returned.")
        mine, run, before = self._fixed(), self._run, self._generator.get_state()
        if state["draws"] != mine["draws"]:
            raise InputError(f"state: it belongs to the draws {state['draws']}; this stream's are {mine['draws']}.")
        if state["units"] != mine["units"]:
            raise InputError("state: it belongs to other users, or to another number of records or views of each.")
        done, first = state["steps_done"], state["anchor_step"]
        if any(type(step) is not int for step in (done, first)) or not 0 <= first <= done <= run.total_steps or first % run.steps_per_pass:
            raise InputError(f"state: {done!r} steps done since a pass that began after step {first!r}; the run has {run.total_steps}.")
        try:
            anchor = Anchor(first, state["anchor_state"].cpu().clone())
            self._generator.set_state(anchor.state)
            found = fingerprint(self.source, bytes.fromhex(state["source"]["key"]).hex())
            found["whole"] = whole(self.source, found["key"])
        except (RuntimeError, TypeError, ValueError, LookupError, AttributeError) as error:
            raise InputError(f"state: the generator's state or the key of the data is damaged: {type(error).__name__}.") from error
        finally:
            self._generator.set_state(before)
        refuse_others(state["source"], found)
        self._anchor, self.steps_done, self._delivered = anchor, done, 0

    def _fixed(self) -> dict[str, Any]:
        """Everything that the draws and the rows depend on besides the generator and the data."""
        draws = {"records": self._run.records, "batches": self._run.batches.to_document(), "steps": self._run.total_steps}
        return {"draws": draws, "units": None if self._members is None else self._members.digest()}

    def skip(self, steps: int) -> list[Batch]:
        """Draw and return the batches of the next steps and load none: the stream then stands where it would if they had been delivered.

        Raises:
            InputError: so many are not left, or a step is only half delivered.
        """
        self._refuse_running("skip steps")
        steps = require_whole("steps", steps, 0)
        left = self._run.total_steps - self.steps_done
        if self._delivered or steps > left:
            half = f"step {self.steps_done + 1} is half delivered" if self._delivered else f"{left} steps are left"
            raise InputError(f"steps: got {steps} to skip, and {half}.", remedy="skip whole steps of the run.")
        skipped: list[Batch] = []
        for drawn in islice(draw_from(self._run, self._generator, self._anchor, self.steps_done), steps):
            skipped.append(drawn.batch)
            self._anchor, self.steps_done = drawn.anchor, drawn.step
        return skipped

    def _refuse_running(self, what: str) -> None:
        running = None if self._running is None else self._running()
        if running is not None and getgeneratorstate(running) != GEN_CLOSED:
            raise InputError(f"the batch stream is being iterated over; it cannot {what} meanwhile.", remedy="call close() on it first.")

    def _deliver(self) -> Generator[LoadedBatch]:
        size = self._physical_size if self.single else None
        waiting: deque[_Planned] = deque()
        loader: DataLoader[Any] = DataLoader(
            _MicroBatches(self.source, self._empty, size),  # pyright: ignore[reportArgumentType]
            batch_sampler=self._keys(waiting),  # pyright: ignore[reportArgumentType]
            collate_fn=_as_it_is,
            generator=fresh_generator(torch.device("cpu")),  # so that PyTorch's global generator stays where it is
            **getattr(self.source, "reading", {}),
        )
        ahead = iter(loader)
        try:
            for tensors, alone in ahead:
                batch, rows, number, self._anchor = waiting.popleft()
                self._last = batch.step - 1, number - 1
                self.steps_done, self._delivered = (batch.step, 0) if batch.last else (batch.step - 1, number)
                self.pads = self.pads or bool(alone)
                counted = None if size is None else torch.arange(size, device=tensors[0].device) < length(rows)
                yield replace(batch, tensors=tuple(tensors), counted=counted, alone=alone)
        finally:
            if hasattr(ahead, "_shutdown_workers"):  # at once, not when the last traceback that holds the iterator is gone
                ahead._shutdown_workers()  # pyright: ignore[reportAttributeAccessIssue]

    def _keys(self, waiting: deque[_Planned]) -> Iterator[Any]:
        """What the DataLoader takes for the indices of each micro-batch; the plan waits for what it loads."""
        for planned in self._plan():
            waiting.append(planned)
            yield planned.rows if isinstance(planned.rows, slice) else planned.rows.numpy()

    def _plan(self) -> Iterator[_Planned]:
        skipped = self._delivered
        for step, batch, anchor in draw_from(self._run, self._generator, self._anchor, self.steps_done):
            mine = shard(batch, self._rank, self._world_size)
            size = self._physical_size or max(1, length(mine))
            largest_share = -(-length(batch) // self._world_size)
            count = 1 if self._physical_size is None else max(1, -(-largest_share // size))  # the same in all processes
            for number in range(1 + skipped, count + 1):
                indices = part(mine, (number - 1) * size, number * size)
                rows, places = (indices, None) if self._members is None else self._members.rows_of(indices, step)
                of_step = {"step": step, "last": number == count, "whole": batch}
                yield _Planned(LoadedBatch(tensors=(), counted=None, indices=indices, places=places, **of_step), rows, number, anchor)
            skipped = 0


class _MicroBatches:
    """What the DataLoader takes for a data set: whole micro-batches, by their keys. A class, so that processes can be sent it."""

    def __init__(self, source: Source, empty: Tensors, size: int | None) -> None:
        self._source, self._empty, self._size = source, empty, size

    def __len__(self) -> int:
        return len(self._source)

    def __getitems__(self, key: Any) -> tuple[Tensors, Mapping[int, Tensors]]:
        rows = key if isinstance(key, slice) else torch.from_numpy(key)
        tensors = fetched(self._source, rows) if length(rows) else self._empty  # the source is never asked for no records
        alone = getattr(tensors, "alone", {})
        return tuple(tensors if self._size is None else (_filled(tensor, self._size) for tensor in tensors)), alone


def _filled(tensor: torch.Tensor, rows: int) -> torch.Tensor:
    if len(tensor) == rows:
        return tensor
    padded = tensor.new_zeros((rows, *tensor.shape[1:]))
    padded[: len(tensor)] = tensor
    return padded


def _as_it_is(batch: Any) -> Any:
    return batch
