"""Processes that stay for a whole test module, and train together over gloo; starting one takes longer than most tests."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist
from doors import arguments
from forked import forking
from networks import CROSS_ENTROPY, flat, make_data, make_network, make_network_run
from torch import Tensor

from lethe.train import fit

PATIENCE = timedelta(seconds=180)  # of a collective: far longer than any of these tests takes, far shorter than the default


def serve(orders: Connection) -> None:
    """Carry out (function, arguments, rank, world size, file) until told None; what is raised is sent back as it is."""
    torch.set_num_threads(1)
    while (order := orders.recv()) is not None:
        function, arguments, rank, world, path = order
        try:
            dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=world, timeout=PATIENCE)
            dist.barrier()  # a function that ends the group at once would break in on those that are still connecting
            orders.send(function(rank, *arguments))
        except Exception as error:
            orders.send(error)
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()


class Processes:
    """Some worker processes; `run` gives what a function of (rank, ...) returns, or raises, in each of the first few of them.

    Those from number `answering` on are not expected to live to tell.
    """

    def __init__(self, count: int) -> None:
        context = forking()
        self._folder = tempfile.TemporaryDirectory()
        self._pipes, self._processes = [], []
        self._orders = 0
        for _ in range(count):
            mine, theirs = context.Pipe()
            process = context.Process(target=serve, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(mine)
            self._processes.append(process)

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            with suppress(OSError):  # it may be dying
                pipe.send(None)
                process.join(5)
            if process.is_alive():
                process.kill()
                process.join()
            pipe.close()
        self._folder.cleanup()

    def run(self, world: int, function: Callable[..., Any], *arguments: Any, answering: int | None = None) -> list[Any]:
        self._orders += 1
        path = Path(self._folder.name) / f"store{self._orders}"
        for rank, pipe in enumerate(self._pipes[:world]):
            pipe.send((function, arguments, rank, world, os.fspath(path)))
        return [received(pipe) for pipe in self._pipes[: world if answering is None else answering]]


def received(pipe: Connection) -> Any:
    assert pipe.poll(300), "a process does not answer"
    return pipe.recv()


def all_raised(results: Sequence[Any], kind: type[Exception]) -> list[str]:
    """The messages, where each process raised an error of this kind."""
    for result in results:
        assert isinstance(result, kind), result
    return [str(result) for result in results]


def plain_fit(rank: int, **changes: Any) -> Tensor:
    model = changes.pop("model", None) or make_network()
    run = changes.pop("run", None) or make_network_run("shuffled", noise_multiplier=1.0)
    loss, data = changes.pop("loss", CROSS_ENTROPY), changes.pop("data", make_data())
    fit(model, loss, data, run, **arguments(changes))
    return flat(model)
