"""Correlated noise for the sums of a network's gradients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lethe.errors import InputError
from lethe.run.noise.draws import Draws
from lethe.run.run import Run
from lethe.train.core.generators import step_generator
from lethe.train.core.noise_resolution import fresh_share, refuse_unstable
from lethe.train.core.tensors import checked_tensors
from lethe.train.network.noise.gaussian import NetworkNoise


class CorrelatedNetworkNoise:
    r"""Adds $\tau u_t$ to the sums of step t, $u = C^{-1}z$ with $z_t \sim N(0, I)$; asked once a step, for all tensors together.

    It keeps what the strategy's stream keeps, in float64: p - 1 numbers a parameter of a banded strategy, one a buffer of a buffered one.

    **Taken up again.** What is kept is in the checkpoint; no generator is. Steps that were released after the checkpoint, or may have
    been, are forgotten: their noise is not taken back from later steps, which would add it to a model that it is not in. What was executed
    is then a strategy with fewer entries, which protects no less, if none is negative.

    Args:
        run: with correlated noise.
        noise: makes $z_t$. Like it, this cannot be copied.
        dtype: the coarsest of the parameters.
        seed: the draws of each step come from a generator of that step's own; None: all from `noise`.
        part: see `step_generator`.
    Raises:
        LetheError: the noise would outgrow its draws.
    """

    __slots__ = ("_draws", "_noise", "_run", "_seed", "fresh_share", "part")

    def __init__(self, run: Run, noise: NetworkNoise, dtype: torch.dtype, *, seed: int | None = None, part: int = 0) -> None:
        assert run.noise is not None
        refuse_unstable(run, dtype)
        self._run, self._draws, self._noise, self._seed, self.part = run, Draws(run.noise), noise, seed, part
        self.fresh_share = fresh_share(run)

    def add_to(self, tensors: Iterable[Tensor], noise_std: float) -> None:
        """Add the noise of the next step.

        Args:
            tensors: the sums of all trained parameters, always in the same order.
            noise_std: of what is drawn anew, >= 0, in the tensors' own units; 0 draws nothing.
        Raises:
            InputError: as `NetworkNoise.add_to`.
        """
        checked = checked_tensors(tensors, device=self._noise.device)
        if noise_std == 0.0:
            self._draws.none()
            return
        size = sum(tensor.numel() for tensor in checked)
        if self._noise.device.type == "cpu":
            self._draws.reserve(lambda rows: _zeros(rows, size))
        self._of_this_step().add_to(checked, noise_std, through=lambda drawn, first: self._draws.part(drawn, first, size))
        self._draws.over()

    def _of_this_step(self) -> NetworkNoise:
        if self._seed is None:
            return self._noise
        return NetworkNoise(step_generator(self._seed, self._noise.device, part=self.part, step=self._draws.steps))

    def elsewhere(self, noise_std: float) -> None:
        """Another process adds the noise of the next step."""
        if noise_std == 0.0:
            self._draws.none()
        else:
            self._draws.elsewhere()

    def executed(self, recorded: Run, *, steps: int | None = None) -> Run:
        """`recorded`, of independent noise, with the strategy that made the noise.

        Args, Raises: as `Draws.executed`.
        """
        return self._draws.executed(recorded, steps=steps)

    @property
    def any_length(self) -> bool:
        """See `CorrelatedNoise`."""
        return self._draws.any_length

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps, as private as the data: whoever has seen the iterates learns the last gradients from it."""
        return state_of([self._draws])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned, of a process that is gone.

        Raises:
            InputError: it is not the state of this noise.
        """
        load_state([self._draws], state, self._noise.device)

    def forget(self, steps: int) -> None:
        """So many steps were released, or may have been, after the checkpoint.

        Raises:
            InputError: the strategy has negative entries.
        """
        forget([self._draws], self._run, steps)


def _zeros(rows: int, size: int) -> Tensor:
    """From NumPy, which asks for large pages, as PyTorch does not: a fifth faster to read."""
    return torch.from_numpy(np.zeros((rows, size)))


def state_of(draws: Sequence[Draws]) -> dict[str, Any]:
    """The state of one or several draws that take the same steps."""
    states = [one.state_dict() for one in draws]
    kept = [state["memory"] for state in states if state["memory"] is not None]
    return {"steps": states[0]["steps"], "drawn": states[0]["drawn"], "memory": [memory.detach().cpu().clone() for memory in kept]}


def load_state(draws: Sequence[Draws], state: Mapping[str, Any], device: torch.device) -> None:
    """Go on from what `state_of` returned; without its memory in a process that draws nothing.

    Args:
        draws: as many as it was made of.
        state: that was kept.
        device: of the noise.
    Raises:
        InputError: it is the state of other draws.
    """
    kept = [memory.to(device) for memory in state["memory"]] or [None] * len(draws)
    if len(kept) != len(draws):
        raise InputError("state: this is not what this noise noted.", source="checkpoints.folder")
    for one, memory in zip(draws, kept, strict=True):
        one.load_state_dict({"steps": state["steps"], "drawn": state["drawn"], "memory": memory})


def forget(draws: Sequence[Draws], run: Run, steps: int) -> None:
    """So many steps are lost to a kill.

    Args:
        draws: that go on without them.
        run: with correlated noise.
        steps: how many.
    Raises:
        InputError: the strategy has negative entries: with some of them dropped it may be more sensitive.
    """
    assert run.noise is not None
    if steps and run.noise.strategy(run.total_steps).min() < 0.0:
        raise InputError(
            f"noise: {steps} steps were released after the checkpoint, and their noise is gone; a strategy with negative entries must not "
            "go on without it.",
            source="run.noise, and a training that was killed between two checkpoints",
            remedy="count the steps that were released, and begin another run, of a strategy without negative entries.",
        )
    for one in draws:
        one.forget(steps)
