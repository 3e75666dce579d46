"""Memory for formed gradients that stays from one batch to the next."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from math import prod

import torch
from torch import Tensor

# Numbers that one batch may hold here: 2^27 float32 are 512 MiB.
_LIMIT = 2**27

# What is lent may be this many times as large next time. Memory that nothing was written to costs nothing.
_ROOM = 1.25


class Workspace:
    """Lends memory while it is open, and takes it all back when it is closed.

    On a CPU, memory that is fresh from the operating system costs more than the arithmetic on it. Other devices keep memory themselves.
    """

    def __init__(self) -> None:
        self._kept: list[Tensor] = []
        self._lent: list[Tensor] = []
        self._given: list[Tensor] = []
        self._numbers = 0
        self._scratch: Tensor | None = None

    @contextmanager
    def open(self) -> Generator[None]:
        """Within: `borrowed` takes from here. What was lent is empty afterwards, so that nobody reads what the next batch writes."""
        token = _OPEN.set(self)
        try:
            yield
        finally:
            _OPEN.reset(token)
            for tensor in self._given:
                tensor.set_()  # pyright: ignore[reportCallIssue] - torch tells of it with arguments only
            self._given.clear()
            # What this batch had no use for is let go.
            self._kept, self._lent, self._numbers = self._lent, [], 0

    def lend(self, shape: Sequence[int], like: Tensor) -> Tensor | None:
        """See `borrowed`."""
        numbers = prod(shape)
        if self._numbers + numbers > _LIMIT:
            return None
        self._numbers += numbers
        given = like.new_empty(shape) if like.device.type != "cpu" else self._found(numbers, like.dtype).view(*shape)
        self._given.append(given)
        return given

    def scratch(self, shape: Sequence[int], like: Tensor) -> Tensor:
        """See `scratch`."""
        if like.device.type != "cpu":
            return like.new_empty(shape)
        needed = prod(shape) * like.dtype.itemsize
        if self._scratch is None or len(self._scratch) < needed:
            self._scratch = torch.empty(needed, dtype=torch.uint8)
        return self._scratch[:needed].view(like.dtype).view(*shape)

    def _found(self, numbers: int, dtype: torch.dtype) -> Tensor:
        needed = numbers * dtype.itemsize
        places = [place for place, kept in enumerate(self._kept) if len(kept) >= needed]
        place = min(places, key=lambda place: len(self._kept[place]), default=-1)
        memory = self._kept.pop(place) if place >= 0 else torch.empty(int(_ROOM * needed), dtype=torch.uint8)
        self._lent.append(memory)
        return memory[:needed].view(dtype)


_OPEN: ContextVar[Workspace | None] = ContextVar("lethe_workspace", default=None)


def borrowed(shape: Sequence[int], like: Tensor) -> Tensor | None:
    """A tensor of the type and on the device of another, holding anything; None if the open workspace has lent all it may."""
    workspace = _OPEN.get()
    return like.new_empty(shape) if workspace is None else workspace.lend(shape, like)


def scratch(shape: Sequence[int], like: Tensor) -> Tensor:
    """A tensor of the type and on the device of another, holding anything, until the next one is asked for: all are the same memory."""
    workspace = _OPEN.get()
    return like.new_empty(shape) if workspace is None else workspace.scratch(shape, like)
