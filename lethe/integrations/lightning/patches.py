"""Functions put in the place of others on single objects, and taken off again."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


class Patches:
    """What was put on objects while training lasts."""

    def __init__(self) -> None:
        self._put: list[tuple[Any, str, bool, Any]] = []

    def put(self, owner: Any, name: str, value: Callable[..., Any]) -> Any:
        """Set a method of an object.

        Args:
            owner, name: where.
            value: what.
        Returns:
            What was there.
        """
        before, own = getattr(owner, name), name in vars(owner)

        @functools.wraps(before)  # whoever asks for its signature is told that of before
        def replaced(*args: Any, **kwargs: Any) -> Any:
            return value(*args, **kwargs)

        self._put.append((owner, name, own, before))
        setattr(owner, name, replaced)
        return before

    def take_off(self) -> None:
        """Everything is as it was."""
        for owner, name, own, before in reversed(self._put):
            if own:
                setattr(owner, name, before)
            else:
                delattr(owner, name)
        self._put.clear()


def step_after_its_closure(patches: Patches, optimizer: Any, skipped: Callable[[], bool]) -> None:
    """Let an optimiser's step call the closure first, which computes the noisy gradient, and then step without one, once.

    Args:
        patches: by which it is put there.
        optimizer: of the module.
        skipped: whether the step that the closure belongs to was taken before.
    """

    def step(closure: Callable[[], Any] | None = None) -> Any:
        result = closure() if closure is not None else None
        if not skipped():
            inner()
        return result

    inner = patches.put(optimizer, "step", step)
