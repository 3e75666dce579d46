"""Parts that are settled several at once, as long as what they hold until then is little."""

from __future__ import annotations

from lethe.train.clipping.rules.measuring import measure
from lethe.train.clipping.rules.parts import Part
from lethe.train.clipping.rules.rounding import Cancelling
from lethe.train.clipping.workspace import if_short
from lethe.train.core.tensors import on_cpu

# Bytes that parts may hold until they are settled: 1 MiB; on a GPU, where each question is to be waited for, 128 MiB.
_HELD, _HELD_ON_GPU = 2**20, 2**27


class Lot:
    """Parts that were begun and are not settled yet."""

    def __init__(self) -> None:
        self._parts: list[Cancelling] = []
        self._bytes = 0

    def add(self, part: Part) -> None:
        """Settle a part: now, or soon."""
        if not isinstance(part, Cancelling):
            part.settle()
            return
        with if_short(self._let_go):
            held = part.begin()
        if part.decided:
            part.settle()
            return
        self._parts.append(part)
        self._bytes += held
        if self._bytes > (_HELD if all(on_cpu(factor) for factor in part._factors()) else _HELD_ON_GPU):
            self.settle()

    def _let_go(self) -> None:
        if self._bytes:
            self.settle()

    def settle(self) -> None:
        """Settle those that are not."""
        parts, self._parts, self._bytes = self._parts, [], 0
        measure(parts)
        for part in parts:
            part.settle()
