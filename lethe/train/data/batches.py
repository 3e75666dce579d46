"""BatchStream: the batches of a run, loaded as micro-batches (parts of a step's batch that fit on the device), resumable at any step. The
training loops and `PrivacyEngine` iterate over it; checkpoints store its state, from which exactly the remaining batches follow.
"""

from collections import deque
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from lethe.calculus.domains import require_count
from lethe.errors import InputError
from lethe.run.known_fields import refuse_users, require_run
from lethe.run.run import Run
from lethe.train.core.generators import fresh_generator
from lethe.train.core.samplers import Batch, draw_batches, length, refuse_other_records
from lethe.train.data.loaders import as_source
from lethe.train.data.sources import Source, Tensors, fetched, fingerprint, refuse_others, whole
from lethe.train.data.users import Members

_FORMAT = 3


class Anchor(NamedTuple):
    """A point from which the draws can be resumed. Whoever has it knows every later batch."""

    step: int  # that was drawn last, the end of a pass, or 0
    state: Tensor  # of the generator then


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
    counted: Tensor | None
    indices: Batch
    step: int
    last: bool
    whole: Batch
    alone: Mapping[int, Tensors] = field(default_factory=dict)
    places: Tensor | None = None


class BatchStream:
    """The batches of a run, loaded. After an interruption iteration goes on with the next batch that was not delivered.

    For one state of the generator the records of every step are those of `draw_batches`, whatever the physical size, the workers and the
    number of processes. The gradient sum is to be divided by the run's nominal batch size, never by what was loaded. How many
    micro-batches a random batch fills, and so how long a step takes, depends on the secret draw: publish neither.

    Args:
        run: gives the design, records, size and number of steps.
        data: what `as_source` takes; as many records as the run says.
        generator: a CPU generator that nothing else draws from; None: fresh entropy. It runs ahead of what was delivered.
        physical_size: rows of every micro-batch; smaller batches are padded with zeros, larger ones split: into one a step where the
            design's truncate_at is no more. None: each step's records at once, as many as there are, none at all for an empty draw.
        rank, world_size: this process r and their number W, which need generators in the same state. Of a batch of k it takes the places
            from kr/W to k(r + 1)/W, rounded down; all have equally many micro-batches a step.
        members: of what records each unit is made, and which of them are read at a step: all of a unit's rows are in one micro-batch, and
            `physical_size` counts units, whose rows are not padded. None: a unit is a record.

    Attributes:
        steps_done: steps whose last micro-batch was delivered.
        single: whether each unit is one row: not where users have several.
        filled: whether every micro-batch is filled up to one number of rows.
        pads: whether records were seen to be padded to the longest of their batch.
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
        self._physical_size = None if physical_size is None else require_count("physical_size", physical_size, high=2**31 - 1)
        self._run, self._rank, self._world_size, self._members = run, rank, world_size, members
        self._generator = fresh_generator(torch.device("cpu")) if generator is None else generator
        self.source: Source = as_source(data)
        refuse_other_records(run.records, len(self.source) if members is None else members.units)
        self.single = members is None or members.single
        self.filled = self._physical_size is not None and self.single
        self._fingerprint = fingerprint(self.source)
        draws = {"records": run.records, "batches": run.batches.to_document(), "steps": run.total_steps}
        self._fixed = {"draws": draws, "units": members and members.digest()}  # all that batches depend on but the data and the generator
        self._anchor = Anchor(0, self._generator.get_state())
        self.steps_done = self._delivered = 0
        self._last: tuple[int, int] | None = None  # the two before the last delivery
        self.pads = False
        self._running: Generator[LoadedBatch] | None = None

    def __iter__(self) -> Iterator[LoadedBatch]:
        """An iteration over what was not delivered yet; one that was under way ends."""
        self.close()
        self._running = self._deliver()
        return self._running

    def close(self) -> None:
        """End the iteration that is under way, if there is one, and its reading ahead."""
        if self._running is not None:
            self._running.close()

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
        return {"format": _FORMAT, **self._fixed, **done, "source": dict(self._fingerprint)}

    def load_state_dict(self, state: Any) -> None:
        """Go on where `state_dict` was taken: exactly the remaining batches follow, with any physical size and any number of processes."""
        expected, names = self._fixed, {"format", "steps_done", "anchor_step", "anchor_state", "source", "draws", "units"}
        if not isinstance(state, dict) or set(state) != names or state["format"] != _FORMAT:
            raise InputError("state: this is not the state of a batch stream of this version.", remedy="give what state_dict returned.")
        if state["draws"] != expected["draws"]:
            raise InputError(f"state: it belongs to the draws {state['draws']}; this stream's are {expected['draws']}.")
        if state["units"] != expected["units"]:
            raise InputError("state: it belongs to other users, or to another number of records or views of each.")
        key = state["source"]["key"]
        refuse_others(state["source"], {**fingerprint(self.source, key), "whole": whole(self.source, key)})
        self.close()
        self._anchor = Anchor(state["anchor_step"], state["anchor_state"].cpu().clone())
        self.steps_done, self._delivered, self._last = state["steps_done"], 0, None

    def skip(self, steps: int) -> list[Batch]:
        """Draw and return the batches of the next steps and load none: the stream then stands where it would if they had been delivered."""
        steps = require_count("steps", steps, low=0, high=self._run.total_steps - self.steps_done)
        self.close()
        drawn = list(islice(draw_from(self._run, self._generator, self._anchor, self.steps_done), steps))
        if drawn:
            self.steps_done, _, self._anchor = drawn[-1]
        return [batch for _, batch, _ in drawn]

    def _deliver(self) -> Generator[LoadedBatch]:
        waiting: deque[tuple[Anchor, int, dict[str, Any]]] = deque()
        batches, sampler = _MicroBatches(self.source, self._physical_size if self.filled else None), self._sampler(waiting)
        ahead: Iterator[Any] = map(batches.__getitems__, sampler)
        if reading := getattr(self.source, "reading", {}):
            loader: DataLoader[Any] = DataLoader(
                batches,  # pyright: ignore[reportArgumentType]
                batch_sampler=sampler,  # pyright: ignore[reportArgumentType]
                collate_fn=tuple,  # they are collated
                generator=fresh_generator(torch.device("cpu")),  # so that PyTorch's global generator stays where it is
                **reading,
            )
            ahead = iter(loader)
        try:
            for tensors, counted, single_records in ahead:
                self._anchor, number, planned = waiting.popleft()
                step = planned["step"]
                self._last = step - 1, number
                self.steps_done, self._delivered = (step, 0) if planned["last"] else (step - 1, number + 1)
                self.pads = self.pads or bool(single_records)
                yield LoadedBatch(tensors=tuple(tensors), counted=counted, alone=single_records, **planned)
        finally:
            if hasattr(ahead, "_shutdown_workers"):  # at once, not when the last traceback that holds the iterator is gone
                ahead._shutdown_workers()  # pyright: ignore[reportAttributeAccessIssue]

    def _sampler(self, waiting: deque[tuple[Anchor, int, dict[str, Any]]]) -> Iterator[Any]:
        """The records of each micro-batch, for the DataLoader; what else is known of it waits for what is loaded."""
        first = self._delivered
        for step, batch, anchor in draw_from(self._run, self._generator, self._anchor, self.steps_done):
            records, world = length(batch), self._world_size
            rank_part = _part(batch, records * self._rank // world, records * (self._rank + 1) // world)
            size = self._physical_size or max(1, records)
            count = max(1, -(-records // (world * size)))  # of the largest share: the same in all processes
            for number in range(first, count):
                indices = _part(rank_part, number * size, (number + 1) * size)
                rows, view_indices = (indices, None) if self._members is None else self._members.rows_of(indices, step)
                last = number == count - 1
                waiting.append((anchor, number, {"indices": indices, "places": view_indices, "step": step, "last": last, "whole": batch}))
                yield rows if isinstance(rows, slice) else rows.numpy()
            first = 0


class _MicroBatches:
    """What the DataLoader takes for a data set: whole micro-batches, by their records. A class, so that processes can be sent it."""

    def __init__(self, source: Source, size: int | None) -> None:
        self._source, self._size = source, size

    def __getitems__(self, key: Any) -> tuple[Tensors, Tensor | None, Mapping[int, Tensors]]:
        batch = key if isinstance(key, slice) else torch.from_numpy(key)
        records, size = length(batch), self._size
        tensors = fetched(self._source, batch if records else slice(0, 1))  # a source is never asked for no records
        single_records = getattr(tensors, "alone", {})
        if not records:
            tensors = tuple(tensor[:0] for tensor in tensors)
        if size is None:
            return tuple(tensors), None, single_records
        counted = torch.arange(size, device=tensors[0].device) < records
        if records < size:
            tensors = [torch.cat([tensor, tensor.new_zeros((size - records, *tensor.shape[1:]))]) for tensor in tensors]
        return tuple(tensors), counted, single_records


def draw_from(run: Run, generator: torch.Generator, anchor: Anchor, done: int) -> Iterator[tuple[int, Batch, Anchor]]:
    """The steps after `done`, each with its batch, which is that of `draw_batches`, and the last anchor before it.

    The generator is put in the state of `anchor`, a pass before `done` at most where passes do not repeat, and what was drawn since is
    drawn again.
    """
    generator.set_state(anchor.state)
    # Beyond the anchor there is no memory of earlier draws, so the batches of a new run are those of the old run's later steps.
    batches, repeats, per_pass = draw_batches(run, generator), run.batches.repeats, run.steps_per_pass
    for step in range(anchor.step + 1, run.total_steps + 1):
        if not repeats and (step - 1) % per_pass == 0:
            anchor = Anchor(step - 1, generator.get_state())
        batch = next(batches)
        if step > done:
            yield step, batch, anchor


def _part(batch: Batch, first: int, stop: int) -> Batch:
    """The records of a batch at positions of a range, `stop` excluded, as far as the batch has them."""
    if isinstance(batch, slice):
        return slice(min(batch.start + first, batch.stop), min(batch.start + stop, batch.stop))
    return batch[first:stop]
