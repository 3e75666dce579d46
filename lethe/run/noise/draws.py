"""Draws: the correlated noise of one training, and the run that says that it was drawn.

`train.network.noise.correlated` makes one for a training and calls `next`, or `part`, once a step; afterwards `executed` puts the strategy
into the recorded Run.
"""

from collections.abc import Callable, Mapping
from typing import Any

from lethe.errors import HypothesisError, InputError
from lethe.run.noise.strategies import CorrelatedNoise


class Draws:
    """Correlates the draws of one training, one a step, and knows how many there were.

    Args:
        noise: correlated.
        product: to multiply what is given by C, instead of its inverse.

    Attributes:
        steps: how many there were so far.
    """

    __slots__ = ("_drawn", "_noise", "_stream", "steps")

    def __init__(self, noise: CorrelatedNoise, *, product: bool = False) -> None:
        self._noise, self._stream, self.steps, self._drawn = noise, noise.stream(product=product), 0, 0

    def next(self, fresh: Any) -> Any:
        """The noise of the next step, made of independent normal numbers (an array or a tensor) of standard deviation 1."""
        noise = self._stream.next(fresh)
        self.elsewhere()
        return noise

    def reserve(self, zeros: Callable[[int], Any]) -> None:
        """Where the noise is kept, before the first of it is drawn; `zeros` makes so many rows, each as long as the noise."""
        if self._stream.memory is None:
            self._stream.memory = zeros(self._stream.memory_rows)

    def part(self, fresh: Any, start: int, size: int) -> Any:
        """Coordinates from `start` on, of `size`, of the next noise, in the place of normal numbers of shape (m,); `over` ends the step."""
        return self._stream.part(fresh, start, size)

    @property
    def key(self) -> Any:
        """What `over` was last told to keep; None: nothing, or it was lost."""
        memory = self._stream.memory
        return memory[0] if memory is not None and memory.any() else None

    def over(self, key: Any = None) -> None:
        """All coordinates of the step were drawn, by a source that makes them again from a key, shape (1, m), if it is given one."""
        if key is not None:
            self._stream.memory = key
        self._stream.forward()
        self.elsewhere()

    def elsewhere(self) -> None:
        """The noise of the next step is drawn, here or in another process."""
        self.steps += 1
        self._drawn += 1

    def none(self) -> None:
        """The next step has no noise, as all steps of a run without noise."""
        self.steps += 1

    def forget(self, steps: int) -> None:
        """So many steps were released, or may have been, by a process that is gone; of their noise nothing is known any more.

        The later ones then have the noise of a strategy with fewer entries (`lethe.calculus.correlated.streams`).
        """
        self._stream.forget(steps)
        self.steps += steps
        self._drawn += steps

    def executed(self, recorded: Any, *, steps: int | None = None) -> Any:
        """The recorded Run, of independent noise, with the strategy that made the noise; HypothesisError unless each step took its draw."""
        steps_taken = recorded.total_steps if steps is None else steps
        if self.steps != steps_taken or self._drawn not in (0, steps_taken) or (self._drawn == 0) != (not recorded.noise_multipliers.any()):
            raise HypothesisError(
                f"correlated noise was drawn {self._drawn} times in {steps_taken} steps; a strategy describes one draw for each step.",
                source="run.noise",
                remedy="train with lethe.train as it is.",
            )
        return recorded.replace(noise=self._noise)

    def state_dict(self) -> dict[str, Any]:
        """How many steps there were, and what is kept of their noise; secret, as the noise is."""
        return {"steps": self.steps, "drawn": self._drawn, "memory": self._stream.memory}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned for the same noise, on its device."""
        memory = state["memory"]
        if memory is not None and len(memory) != self._stream.memory_rows:
            raise InputError("state: this is not what this noise noted.", source="checkpoints.folder")
        self.steps, self._drawn = int(state["steps"]), int(state["drawn"])
        self._stream.step, self._stream.memory = self._drawn, memory
