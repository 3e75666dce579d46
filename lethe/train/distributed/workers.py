"""Workers: the processes that train one model over `torch.distributed`; with one process, methods do nothing.

`Trainer` and `Placement` exchange sums by it. Before anything is exchanged all processes wait for each other (`meet`), and each tells what
it is about to do. So an error in one of them reaches all others there, instead of leaving them waiting, and processes that do different
things find out before their sums are mixed.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from lethe.errors import InputError, LetheError
from lethe.train.distributed.collectives import StoppedElsewhere, device_types, exchange, reached

# How far the norms of the parameters may lie apart, in units of their rounding: unlike machines round differently.
_ROUNDINGS = 64
# How long a process that stops waits for the others to hear of it: they may be in the middle of a step, or may never come.
_PATIENCE = timedelta(seconds=20)
_SHOWN = 60
_TOLD = "_told_to_others"

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Doing(IntEnum):
    """What a process is about to do; an error says it by the name."""

    STOPPED_BY_AN_ERROR = 0
    COMPARING_WHAT_THEY_BEGIN_WITH = 1
    TAKING_WHAT_PROCESS_0_SENDS = 2
    ADDING_UP_CLIPPED_SUMS = 3
    ADDING_UP_A_PART_OF_A_BATCH = 4
    GATHERING_THE_MODEL = 5
    ENDING_THE_RUN = 6

    @property
    def words(self) -> str:
        """The name in plain words, for an error."""
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """The processes that train one model together; alone, none of the methods does anything.

    Every process must call the same methods in the same order, from one thread. Each of them that exchanges something raises a
    StoppedElsewhere where another process had an error, or is gone. Process 0 is the root: of what all hold whole it alone has the sums,
    and draws the noise.
    """

    rank: int = 0
    world_size: int = 1

    @classmethod
    def current(cls) -> Workers:
        """The default process group, if `torch.distributed` is initialised; else this process alone."""
        if dist.is_available() and dist.is_initialized():
            return cls(rank=dist.get_rank(), world_size=dist.get_world_size())
        world_size = os.environ.get("WORLD_SIZE", "")
        if world_size.isdecimal() and int(world_size) > 1:
            raise InputError(
                f"torch.distributed: one of {world_size} processes, and no process group is initialised: each would train and release a "
                "model of its own.",
                source=f"the environment variable WORLD_SIZE = {world_size}, which torchrun sets",
                remedy="call torch.distributed.init_process_group first; or start one process without torchrun, or unset WORLD_SIZE.",
            )
        return cls()

    @property
    def several(self) -> bool:
        """Whether there is more than one."""
        return self.world_size > 1

    @property
    def root(self) -> bool:
        """Whether this is process 0."""
        return self.rank == 0

    def refuse_another_group(self) -> None:
        """Refuse to go on where the process group was initialised, destroyed or replaced since training was prepared."""
        if (now := Workers.current()) != self:
            raise InputError(
                f"torch.distributed: process {now.rank} of {now.world_size}; the engine was made in process {self.rank} of "
                f"{self.world_size}.",
                source="init_process_group or destroy_process_group, called since the engine was made",
                remedy="call torch.distributed.init_process_group first, and make the engine then.",
            )

    def refuse_device(self, device: torch.device) -> None:
        """Refuse a process group that has no backend for tensors of the model's device, or would talk through another GPU than its."""
        if not self.several:
            return
        if device.type not in (supported := device_types()):
            raise InputError(
                f"torch.distributed: the process group exchanges tensors on {', '.join(supported)}; the model is on {device}.",
                source="the backend given to init_process_group",
                remedy='initialise it with backend "nccl" for GPUs, or "gloo".',
            )
        if "cpu" not in supported and device.type == "cuda" and device.index != (present := torch.cuda.current_device()):
            raise InputError(
                f"torch.distributed: the model is on {device}, and the present GPU of this process is {present}.",
                source="torch.cuda.set_device, which was not called",
                remedy="call torch.cuda.set_device(local_rank) in each process first.",
            )

    @contextmanager
    def watched(self, *, awaited: Callable[[], bool] = lambda: True) -> Iterator[None]:
        """Within: an error is sent to the other processes, at their next `meet`, before it is raised here.

        `awaited`: whether the others will still call `meet`; if not nothing is sent.
        """
        try:
            yield
        except (StoppedElsewhere, GeneratorExit):
            raise
        except BaseException as error:
            if self.several and awaited() and not getattr(error, _TOLD, False):
                setattr(error, _TOLD, True)  # one of these within another must not tell it twice
                with suppress(RuntimeError):  # where nobody is there to hear it, the error itself is what matters
                    self._gathered(Doing.STOPPED_BY_AN_ERROR, 0.0, _PATIENCE)
            raise

    def meet(self, doing: Doing, value: float = 0.0) -> list[float]:
        """Wait until all processes are about to do the same; returns all processes' values."""
        if not self.several:
            return [value]
        with reached():
            answers = self._gathered(doing, value)
        done = [Doing(int(answer[0])) for answer in answers]
        if stopped := [rank for rank, did in enumerate(done) if did == Doing.STOPPED_BY_AN_ERROR]:
            raise StoppedElsewhere(
                f"process {' and '.join(map(str, stopped))} of {self.world_size} stopped with an error, and this one with it.",
                source=f"process {self.rank}, {doing.words}",
                remedy=f"read what process {stopped[0]} wrote; the model holds an unfinished iterate, which must not be released.",
            )
        if len(set(done)) > 1:
            raise LetheError(
                f"the processes are not at the same point of the loop: {_listed([doing_of_rank.words for doing_of_rank in done])}.",
                remedy="run the same loop in every process, over all batches of its loader.",
            )
        return [answer[1] for answer in answers]

    def end(self) -> None:
        """Wait for all to have come to the end of the run without an error."""
        self.meet(Doing.ENDING_THE_RUN)

    @torch.no_grad()
    def add_up(self, tensors: Sequence[Tensor], *, parameters: Sequence[Tensor] = ()) -> None:
        r"""$x \leftarrow \sum_r x^{(r)}$ in process 0, in place; 0 in the others, which are to be given what process 0 makes of it.

        Nobody but process 0 learns the sum, and so nobody can tell the noise from it afterwards. Parameters must be the same in all
        processes, up to rounding.
        """
        if not self.several:
            return
        norms = self.meet(Doing.ADDING_UP_CLIPPED_SUMS, _norm(parameters))
        precision = max((torch.finfo(parameter.dtype).eps for parameter in parameters), default=0.0)
        if all(map(math.isfinite, norms)) and max(norms) - min(norms) > _ROUNDINGS * precision * max(norms):
            raise LetheError(
                f"the processes do not hold the same parameters any more: their norms are {_listed(norms)}.",
                source="an optimiser, a schedule or a callback that is not the same in all processes, or unlike machines",
                remedy="do in every process what is done in one.",
            )
        exchange(tensors, lambda flat: dist.reduce(flat, dst=0))
        if not self.root:
            for tensor in tensors:
                tensor.zero_()

    def from_root(self, tensors: Sequence[Tensor], noise_std: float = 0.0) -> None:
        """Process 0's tensors, of the same shapes and types, in place, bit for bit, given the standard deviation of the noise on them."""
        if not self.several:
            return
        noise_stds = self.meet(Doing.TAKING_WHAT_PROCESS_0_SENDS, noise_std)
        if len(set(noise_stds)) > 1:
            raise LetheError(
                f"the processes would record different noise: its standard deviations are {_listed(noise_stds)}.",
                source="the noise multiplier of this step",
                remedy="let it depend on nothing that differs between processes.",
            )
        exchange(tensors, lambda flat: dist.broadcast(flat, src=0))

    def told_by_root(self, what: str, value: Result) -> Result:
        """Process 0's value, which can be pickled, in all processes; what it is called is compared."""
        if not self.several:
            return value
        self.meet(Doing.TAKING_WHAT_PROCESS_0_SENDS)
        sent: list[object] = [what, value] if self.root else [None, None]
        with reached():
            dist.broadcast_object_list(sent, src=0)
        if sent[0] != what:
            raise LetheError(
                f"process 0 sends its {sent[0]}, and process {self.rank} expects its {what}.",
                source="arguments, such as checkpoints, that are not given to all of them",
                remedy="call with the same arguments in every process.",
            )
        return sent[1]  # pyright: ignore[reportReturnType]

    def gathered(self, what: dict[str, str]) -> list[dict[str, str]]:
        """What all processes say, in the order of their ranks."""
        if not self.several:
            return [what]
        self.meet(Doing.COMPARING_WHAT_THEY_BEGIN_WITH)
        texts: list[dict[str, str]] = [{}] * self.world_size
        with reached():
            dist.all_gather_object(texts, what)
        return texts

    def refuse_disagreement(self, what: Mapping[str, str]) -> None:
        """Refuse processes that do not begin alike, by names with the whole of what must agree, as text; empty where it cannot be told."""
        texts = self.gathered({name: _short(value) for name, value in what.items()})
        for name in dict.fromkeys(name for rank_texts in texts for name in rank_texts):
            values = [rank_texts.get(name, "nothing") for rank_texts in texts]
            if len(set(values)) > 1 and "" not in values:
                raise InputError(
                    f"{name}: not the same in all processes: {_listed(values)}.",
                    source="torch.distributed, processes in the order of their ranks",
                    remedy="begin with the same run, model, options and data in every process; each then takes its share of every batch.",
                )

    def _gathered(self, doing: Doing, value: float, patience: timedelta | None = None) -> list[list[float]]:
        supported = device_types()  # without a number it is the present GPU
        own_state = torch.tensor([doing, value], dtype=torch.float64, device="cpu" if "cpu" in supported else supported[0])
        states = [torch.empty_like(own_state) for _ in range(self.world_size)]
        work = dist.all_gather(states, own_state, async_op=True)
        assert work is not None  # this process is in the default group
        _ = work.wait() if patience is None else work.wait(patience)
        return torch.stack(states).tolist()


def ending_together(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A function that returns only where it returns in all processes; an error in one of them is one in all."""

    @wraps(function)
    def together(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        workers = Workers.current()
        with workers.watched():
            result = function(*args, **kwargs)
            workers.end()
            return result

    return together


def _listed(values: Sequence[object]) -> str:
    return ", ".join(f"{value} in process {rank}" for rank, value in enumerate(values))


def _norm(parameters: Sequence[Tensor]) -> float:
    if not parameters:
        return 0.0
    # A sum is rounded pairwise, unlike vector_norm, which loses thousands of roundings in a large tensor, or takes ten times as long.
    return float(torch.stack([parameter.detach().square().sum().double() for parameter in parameters]).sum().sqrt())


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"(hash {hashlib.blake2b(text.encode(), digest_size=16).hexdigest()})"
