"""Draws: the correlated noise of one training, and the run that says that it was drawn."""

from __future__ import annotations

from typing import Any

from lethe.errors import HypothesisError
from lethe.run.noise.base import CorrelatedNoise


class Draws:
    """Correlates the draws of one training, one a step, and knows how many there were.

    Args:
        noise: correlated.
    """

    __slots__ = ("_noise", "_steps", "_stream")

    def __init__(self, noise: CorrelatedNoise) -> None:
        self._noise, self._stream, self._steps = noise, noise.stream(), 0

    def next(self, fresh: Any) -> Any:
        """The noise of the next step, where a fresh draw has standard deviation 1.

        Args:
            fresh: independent normal numbers, an array or a tensor.
        """
        self._steps += 1
        return self._stream.next(fresh)

    def none(self) -> None:
        """The next step has no noise, as all steps of a run without noise."""
        self._steps += 1

    def executed(self, recorded: Any) -> Any:
        """The recorded Run, of independent noise, with the strategy that made the noise.

        Raises:
            HypothesisError: some step took none of it, or some of it was taken elsewhere.
        """
        steps, drawn = recorded.total_steps, self._stream.step
        if self._steps != steps or drawn not in (0, steps) or (drawn == 0) != (not recorded.noise_multipliers.any()):
            raise HypothesisError(
                f"correlated noise was drawn {drawn} times in {steps} steps; a strategy describes one draw for each step.",
                source="run.noise",
                remedy="train with lethe.train.fit or fit_linear as they are.",
            )
        return recorded.replace(noise=self._noise)
