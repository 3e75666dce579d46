"""A context that restores a model's state, flags and random generators after test calls."""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lethe.train.model_state.reachable import Reachable


class Rewind:
    """Sets the random generators back to where they were, and arguments to what they were, before each of several passes.

    Args:
        devices: numbers of the GPUs whose generators are watched.
        state: of the model, whose own generators are set back as well.
        arguments: of the calls.
    """

    def __init__(self, devices: Sequence[int], state: Reachable | None = None, arguments: Reachable | None = None) -> None:
        self._devices, self._state, self._arguments = devices, state, arguments
        self._states = self._now()
        self._others = random.getstate(), np.random.get_state()  # noqa: NPY002 - what models draw from

    def _now(self) -> list[Tensor]:
        return [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in self._devices)]

    def __call__(self) -> None:
        """Go back."""
        torch.set_rng_state(self._states[0])
        for device, state in zip(self._devices, self._states[1:], strict=True):
            torch.cuda.set_rng_state(state, device)
        random.setstate(self._others[0])
        np.random.set_state(self._others[1])  # noqa: NPY002 - what models draw from
        if self._state is not None:
            self._state.rewind()
        if self._arguments is not None:
            self._arguments.restore()

    def model(self) -> None:
        """Go back, and set the model's own state back as well."""
        if self._state is not None:
            self._state.restore()
        self()

    def drew(self) -> bool:
        """Whether numbers were drawn since."""
        if not all(torch.equal(now, before) for now, before in zip(self._now(), self._states, strict=True)):
            return True
        numpy_now, numpy_before = np.random.get_state(), self._others[1]  # noqa: NPY002 - what models draw from
        moved = numpy_now[2] != numpy_before[2] or not np.array_equal(numpy_now[1], numpy_before[1])  # pyright: ignore
        return moved or random.getstate() != self._others[0] or (self._state is not None and self._state.drew())


@contextmanager
def undisturbed(model: Any, arguments: Any = (), skipped: Sequence[Any] = ()) -> Generator[Rewind]:
    """Within: the model may be called; afterwards it and all that its code can reach, and random generators, are as before.

    Args:
        model: or a function, such as a loss.
        arguments: that it is called with, set back before every pass.
        skipped: objects that are left as they are.
    """
    parameters = model.parameters() if isinstance(model, nn.Module) else ()
    devices = sorted({parameter.device.index or 0 for parameter in parameters if parameter.device.type == "cuda"})
    given = Reachable(arguments, skipped=skipped)
    state = Reachable(model, skipped=skipped)
    with torch.random.fork_rng(devices):
        rewind = Rewind(devices, state, given)
        try:
            yield rewind
        finally:
            rewind.model()
