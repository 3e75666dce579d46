"""Loaded batches of a Run: split into physical batches, prefetched, and resumable."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from inspect import GEN_CLOSED, getgeneratorstate
from itertools import islice
from typing import Any

import torch

from lethe.errors import InputError
from lethe.run.known_fields import require_run
from lethe.run.run import Run
from lethe.run.users import refuse_users
from lethe.train.core.generators import fresh_generator
from lethe.train.core.samplers import Batch, refuse_other_records
from lethe.train.data.draws import Anchor, draw_from
from lethe.train.data.fingerprint import Fingerprint
from lethe.train.data.members import Members
from lethe.train.data.micro_batches import part, pieces, shard
from lethe.train.data.prefetch import prefetched
from lethe.train.data.sources.base import Layout, Source, Tensors, length, require_rows, require_whole
from lethe.train.data.sources.map_style import MapStyleSource
from lethe.train.data.sources.reader import Padded
from lethe.train.data.sources.recognise import as_source
from lethe.train.data.stream_state import read_state, write_state

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Planned:
    """A micro-batch that is not loaded yet; `number` counts those of its step from 1, `rows` are the records to be read of `indices`."""

    indices: Batch
    rows: Batch
    places: torch.Tensor | None
    step: int
    number: int
    last: bool
    whole: Batch
    anchor: Anchor


class BatchStream:
    """The batches of a run, loaded: iterate over it once; after an interruption it goes on with the next batch that was not delivered.

    For one state of the generator the records of every step are those of `draw_batches`, whatever the physical size, the reading ahead and
    the number of processes. The gradient sum is to be divided by the run's nominal batch size, never by what was loaded. How many
    micro-batches a random batch fills, and so how long a step takes, depends on the secret draw: publish neither.

    Args:
        run: gives the design, records, size and number of steps.
        data: what `as_source` takes; as many records as the run says.
        generator: a CPU generator that nothing else draws from; None: fresh entropy. It runs ahead of what was delivered.
        physical_size: rows of every micro-batch; smaller batches are padded with zeros, larger ones split: into one a step where the
            design's truncate_at is no more. None: each step's records at once, as many as there are, none at all for an empty draw.
        prefetch: how many micro-batches wait, loaded, in a background thread; 0: none. A data set with worker processes reads ahead by
            those instead.
        rank, world_size: this process and their number. Each takes its `shard` of every batch, and all have equally many micro-batches
            a step; all must be given generators in the same state.
        members: of what records each unit is made, and which of them are read at a step: all of a unit's rows are in one micro-batch, and
            `physical_size` counts units, whose rows are not padded. None: a unit is a record.
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
        prefetch: int = 2,
        rank: int = 0,
        world_size: int = 1,
        members: Members | None = None,
    ) -> None:
        if members is None:
            refuse_users(require_run(run), "a stream of records")
        self._run = run
        self._physical_size = None if physical_size is None else require_whole("physical_size", physical_size, 1)
        if self._physical_size is not None and self._physical_size > _MOST_ROWS:
            raise InputError(f"physical_size: got more than {_MOST_ROWS}; smaller batches are padded to so many rows.")
        self._prefetch = require_whole("prefetch", prefetch, 0)
        shard(slice(0, 0), rank, world_size)  # refuses a rank out of range
        self._rank, self._world_size = rank, world_size
        self._generator = _on_cpu(generator)
        self._source = as_source(data)
        self._members = members
        refuse_other_records(run.records, len(self._source) if members is None else members.units)
        self._layout = Layout.of(self._source)
        self._fingerprint = Fingerprint.of(self._source, self._layout)
        self._anchor = Anchor(step=0, state=self._generator.get_state())
        self._steps_done = 0
        self._delivered = 0
        self._last: tuple[int, int] | None = None  # the two before the last delivery
        self.pads = False  # whether records were seen to be padded to the longest of their batch
        self._running: weakref.ref[Generator[LoadedBatch]] | None = None

    @property
    def filled(self) -> bool:
        """Whether every micro-batch is filled up to one number of rows."""
        return self._physical_size is not None and self.single

    @property
    def single(self) -> bool:
        """Whether each unit is one row: not where users have several."""
        return self._members is None or self._members.single

    @property
    def source(self) -> Source:
        """The source that the batches are read from."""
        return self._source

    @property
    def steps_done(self) -> int:
        """Steps whose last micro-batch was delivered."""
        return self._steps_done

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
            self._steps_done, self._delivered, self._last = *self._last, None

    def state_dict(self) -> dict[str, Any]:
        """The state from which the remaining batches follow: the generator at the start of the pass, steps done, and a fingerprint.

        Take it after a step is applied. It holds the secret of the batches and a hash of private records: keep it as private as the data,
        and destroy it in the end. Taking training up again from a checkpoint after later iterates were released repeats steps with new
        noise, which no certificate of the run covers.

        Raises:
            InputError: a step is only half delivered.
        """
        if self._delivered:
            raise InputError(
                f"state: step {self._steps_done + 1} is half delivered; its gradient sum is not in any state.",
                remedy="take the state after a batch whose `last` is True.",
            )
        self._fingerprint = self._fingerprint.with_whole(self._source)
        return write_state(self._run, self._anchor, self._steps_done, self._fingerprint, self._members)

    def load_state_dict(self, state: Any) -> None:
        """Go on where `state_dict` was taken: exactly the remaining batches follow, with any physical size and any number of processes.

        Raises:
            InputError: the state is none, or of another run or other data; the stream is then as it was.
        """
        self._refuse_running("load a state")
        anchor, steps_done = read_state(state, self._run, self._generator, self._source, self._layout, self._members)
        self._anchor, self._steps_done, self._delivered = anchor, steps_done, 0

    def skip(self, steps: int) -> list[Batch]:
        """Draw the batches of the next steps and load none of them: the stream then stands where it would if they had been delivered.

        Args:
            steps: how many, at most as many as are left.
        Returns:
            The records of each.
        Raises:
            InputError: so many are not left, or a step is only half delivered.
        """
        self._refuse_running("skip steps")
        steps = require_whole("steps", steps, 0)
        left = self._run.total_steps - self._steps_done
        if self._delivered or steps > left:
            half = f"step {self._steps_done + 1} is half delivered" if self._delivered else f"{left} steps are left"
            raise InputError(f"steps: got {steps} to skip, and {half}.", remedy="skip whole steps of the run.")
        skipped: list[Batch] = []
        for drawn in islice(draw_from(self._run, self._generator, self._anchor, self._steps_done), steps):
            skipped.append(drawn.batch)
            self._anchor, self._steps_done = drawn.anchor, drawn.step
        return skipped

    def _deliver(self) -> Generator[LoadedBatch]:
        plan = self._plan()
        by_workers = isinstance(self._source, MapStyleSource) and self._source.workers > 0
        with closing(prefetched(self._loaded(plan), 0 if by_workers else self._prefetch)) as ready:
            for planned, batch in ready:
                self._anchor, self._last = planned.anchor, (planned.step - 1, planned.number - 1)
                self._steps_done, self._delivered = (planned.step, 0) if planned.last else (planned.step - 1, planned.number)
                yield batch

    def _plan(self) -> Iterator[_Planned]:
        skipped = self._delivered
        for drawn in draw_from(self._run, self._generator, self._anchor, self._steps_done):
            mine = shard(drawn.batch, self._rank, self._world_size)
            count = pieces(length(drawn.batch), self._physical_size, self._world_size)
            size = self._physical_size or length(mine)
            for number in range(1 + skipped, count + 1):
                indices = part(mine, (number - 1) * size, number * size)
                rows, places = (indices, None) if self._members is None else self._members.rows_of(indices, drawn.step)
                yield _Planned(
                    indices=indices,
                    rows=rows,
                    places=places,
                    step=drawn.step,
                    number=number,
                    last=number == count,
                    whole=drawn.batch,
                    anchor=drawn.anchor,
                )
            skipped = 0

    def _loaded(self, plan: Iterator[_Planned]) -> Iterator[tuple[_Planned, LoadedBatch]]:
        """The plan, loaded. Micro-batches without records never reach the source."""
        waiting: deque[_Planned] = deque()

        def wanted() -> Iterator[Batch]:
            for planned in plan:
                waiting.append(planned)
                if length(planned.rows):
                    yield planned.rows

        for tensors in self._fetched(wanted()):
            while not length(waiting[0].rows):
                yield self._padded(waiting.popleft(), self._layout.zeros(0))
            planned = waiting.popleft()
            yield self._padded(planned, require_rows(tensors, length(planned.rows), type(self._source).__name__))
        while waiting:
            yield self._padded(waiting.popleft(), self._layout.zeros(0))

    def _fetched(self, batches: Iterator[Batch]) -> Iterator[Tensors]:
        if isinstance(self._source, MapStyleSource):
            return self._source.fetch_all(batches)
        return map(self._source.fetch, batches)

    def _padded(self, planned: _Planned, tensors: Tensors) -> tuple[_Planned, LoadedBatch]:
        counted = None
        alone = tensors.alone if isinstance(tensors, Padded) else {}
        self.pads = self.pads or bool(alone)
        if self._physical_size is not None and self.single:
            rows = len(tensors[0])
            tensors = tuple(_with_zeros(tensor, self._physical_size) for tensor in tensors)
            counted = torch.arange(self._physical_size, device=tensors[0].device) < rows
        loaded = LoadedBatch(
            tensors=tuple(tensors),
            counted=counted,
            indices=planned.indices,
            step=planned.step,
            last=planned.last,
            whole=planned.whole,
            alone=alone,
            places=planned.places,
        )
        return planned, loaded

    def _refuse_running(self, what: str) -> None:
        running = None if self._running is None else self._running()
        if running is not None and getgeneratorstate(running) != GEN_CLOSED:
            raise InputError(f"the batch stream is being iterated over; it cannot {what} meanwhile.", remedy="call close() on it first.")


def _with_zeros(tensor: torch.Tensor, rows: int) -> torch.Tensor:
    if len(tensor) == rows:
        return tensor
    padded = tensor.new_zeros((rows, *tensor.shape[1:]))
    padded[: len(tensor)] = tensor
    return padded


def _on_cpu(generator: object) -> torch.Generator:
    if generator is None:
        return fresh_generator(torch.device("cpu"))
    if not isinstance(generator, torch.Generator) or generator.device.type != "cpu":
        raise InputError(f"generator: got {generator!r}; it needs a torch.Generator on the CPU, or None.")
    return generator
