"""Memory for formed gradients: how much of it there may be, and what stays from one batch to the next."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from math import prod

import torch
from torch import Tensor
from torch.utils.weak import TensorWeakRef

from lethe.errors import InputError
from lethe.train.core.tensors import on_cpu

# Bytes that one batch may hold here besides what takes the place of something else, 8 MiB, on a GPU 64 MiB.
_LEAST, _LEAST_ON_GPU = 2**23, 2**26

# Bytes that stay from one batch to the next, 1 MiB; and all, where a batch took no more than 16 MiB, as of a small convolutional network,
# to which 8 MiB fresh from the operating system cost half as much as its step.
_STAYS, _ALL_STAYS = 2**20, 2**24

# Formed gradients may take as many times the bytes of the layers' inputs and output gradients that a backward pass has let go of: about
# what it has let go of in all, of attention, activations, normalisation and dropout too. And, once, as many times those of the largest
# output gradient that is held: to make it took the gradient behind it and what was kept for that, such as a softmax over words.
_IN_PLACE = 2

# Numbers that may be formed at once where no workspace is open: 2^24 float32 are 64 MiB.
_HELD = 2**24

# Numbers that a GPU forms at once, at least: 2^23 float32 are 32 MiB.
_ON_GPU = 2**23

# What is lent may be this many times as large next time. Memory that nothing was written to costs nothing.
_ROOM = 1.25


def limit_of(given: object) -> int | None:
    """How many bytes a batch's formed gradients may take, as the user says it.

    Raises:
        InputError: it is no number of bytes, and not None.
    """
    if given is None or (isinstance(given, int) and not isinstance(given, bool) and given >= 0):
        return given
    raise InputError(f"gradient_memory: got {given!r}; it needs a whole number of bytes >= 0, or None.")


class Workspace:
    """Lends memory while it is open, and takes it all back when it is closed.

    On a CPU, memory that is fresh from the operating system costs more than the arithmetic on it, so a little of it stays. Other devices
    keep memory themselves.

    Args:
        limit: how many bytes one batch may hold here; None: 8 MiB (on a GPU 64), and twice what layers let go of meanwhile,
            see `freed` and `arrived`.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._kept: list[Tensor] = []
        self._lent: list[Tensor] = []
        self._given: list[TensorWeakRef] = []
        self._bytes, self._stays, self._earned, self._swing = 0, 0, 0, 0
        self._may_stay = _STAYS
        self._counted: set[int] = set()
        self._scratch: Tensor | None = None

    @contextmanager
    def open(self) -> Generator[None]:
        """Within: `borrowed` takes from here. What was lent is empty afterwards, so that nobody reads what the next batch writes."""
        token = _OPEN.set(self)
        try:
            yield
        finally:
            _OPEN.reset(token)
            for given in self._given:
                if (tensor := given()) is not None:
                    tensor.set_()  # pyright: ignore[reportCallIssue] - torch tells of it with arguments only
            self._given.clear()
            # What this batch had no use for is let go.
            self._kept, self._lent = self._lent, []
            self._may_stay = _ALL_STAYS if self._bytes <= _ALL_STAYS else _STAYS
            self._bytes, self._stays, self._earned, self._swing = 0, 0, 0, 0
            self._counted.clear()
            if self._scratch is not None and len(self._scratch) > _STAYS:
                self._scratch = None

    def free(self, inputs: Tensor, gradients: Tensor, *, kept: int) -> None:
        """What `freed` does, of this workspace.

        Args:
            inputs, gradients: of a layer, any shape; they are not held any more.
            kept: bytes of them that still are.
        """
        place = inputs.untyped_storage().data_ptr()
        count = gradients.nbytes + (0 if place in self._counted else inputs.nbytes) - kept
        self._counted.add(place)
        self._earned += _IN_PLACE * max(0, count)

    def arrived(self, count: int) -> None:
        """See `arrived`."""
        self._swing = max(self._swing, _IN_PLACE * count)

    def lend(self, shape: Sequence[int], like: Tensor) -> Tensor | None:
        """See `borrowed`."""
        needed = prod(shape) * like.dtype.itemsize
        if self._is_short(needed, like) and (more := _MORE.get()) is not None:
            more()
        if self._is_short(needed, like):
            return None
        self._bytes += needed
        stays = on_cpu(like) and self._stays + needed <= self._may_stay
        given = self._found(needed).view(like.dtype).view(*shape) if stays else like.new_empty(shape)
        self._given.append(TensorWeakRef(given))
        return given

    def _is_short(self, needed: int, like: Tensor) -> bool:
        least = _LEAST if on_cpu(like) else _LEAST_ON_GPU
        return self._bytes + needed > (least + self._earned + self._swing if self._limit is None else self._limit)

    def scratch(self, shape: Sequence[int], like: Tensor) -> Tensor:
        """See `scratch`."""
        if not on_cpu(like):
            return like.new_empty(shape)
        needed = prod(shape) * like.dtype.itemsize
        if self._scratch is None or len(self._scratch) < needed:
            self._scratch = torch.empty(needed, dtype=torch.uint8)
        return self._scratch[:needed].view(like.dtype).view(*shape)

    def _found(self, needed: int) -> Tensor:
        self._stays += needed
        places = [place for place, kept in enumerate(self._kept) if kept.numel() >= needed]
        place = min(places, key=lambda place: self._kept[place].numel(), default=-1)
        memory = self._kept.pop(place) if place >= 0 else torch.empty(int(_ROOM * needed), dtype=torch.uint8)
        self._lent.append(memory)
        return memory[:needed]


_OPEN: ContextVar[Workspace | None] = ContextVar("lethe_workspace", default=None)
_MORE: ContextVar[Callable[[], object] | None] = ContextVar("lethe_workspace_more", default=None)


@contextmanager
def if_short(more: Callable[[], object]) -> Generator[None]:
    """Within: where the open workspace has lent all it may, this is called, which may let go of something, before it says so."""
    token = _MORE.set(more)
    try:
        yield
    finally:
        _MORE.reset(token)


def freed(inputs: Tensor, gradients: Tensor, *, kept: int = 0) -> None:
    """Note that a layer's inputs and output gradients are not held any more, in whose place others may be.

    Inputs that several layers are given, as queries, keys and values are made of one tensor, count once.

    Args:
        inputs: that were held, any shape.
        gradients: of its outputs, any shape.
        kept: bytes of them that still are.
    """
    if (workspace := _OPEN.get()) is not None:
        workspace.free(inputs, gradients, kept=kept)


def arrived(count: int) -> None:
    """Note that a gradient of so many bytes has come that will be held: what it was made of, as large and more, is not held any more."""
    if (workspace := _OPEN.get()) is not None:
        workspace.arrived(count)


def borrowed(shape: Sequence[int], like: Tensor) -> Tensor | None:
    """A tensor of the type and on the device of another, holding anything; None if the open workspace has lent all it may."""
    workspace = _OPEN.get()
    if workspace is None:
        return like.new_empty(shape) if prod(shape) <= _HELD else None
    return workspace.lend(shape, like)


def at_once(numbers: int, like: Tensor) -> int:
    """How many numbers to form at once: on a CPU so many that their memory is fast, on a GPU more, in fewer operations.

    Args:
        numbers: on a CPU.
        like: a tensor on the device.
    """
    return numbers if on_cpu(like) else max(numbers, _ON_GPU)


def scratch(shape: Sequence[int], like: Tensor) -> Tensor:
    """A tensor of the type and on the device of another, holding anything, until the next one is asked for: all are the same memory."""
    workspace = _OPEN.get()
    return like.new_empty(shape) if workspace is None else workspace.scratch(shape, like)
