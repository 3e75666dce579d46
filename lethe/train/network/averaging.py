r"""Exponential moving average of the iterates: post-processing, where all of them are released.

$$\bar x_t = \frac{1-\beta}{1-\beta^t} \sum_{s=1}^t \beta^{t-s} x_s$$
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from lethe.errors import HypothesisError, InputError
from lethe.run.run import Run

NAME = "lethe moving average"
"""Of its state in a checkpoint."""


class MovingAverage:
    r"""The average of the iterates so far; the start has no part in it.

    Args:
        decay: $\beta$ in (0, 1).
        named: the trained parameters.
        run: that is carried out.
    Raises:
        InputError: no number in (0, 1).
        HypothesisError: the run keeps its iterates to itself.
    """

    def __init__(self, decay: Any, named: Mapping[str, nn.Parameter], run: Run) -> None:
        if isinstance(decay, bool) or not isinstance(decay, int | float) or not 0.0 < decay < 1.0:
            raise InputError(f"ema: got {decay!r}; it needs a number between 0 and 1, such as 0.999, or None.")
        if run.release == "last":
            raise HypothesisError(
                f"ema: got {decay:g}, and release is last: an average of iterates tells of iterates that nobody may see.",
                source="ema, run.release",
                remedy="set release: all, whose certificate covers whatever is made of the iterates; or leave ema out.",
            )
        self._decay, self._named, self._steps = float(decay), named, 0
        self._sums = {name: torch.zeros_like(parameter, requires_grad=False) for name, parameter in named.items()}

    @property
    def begun(self) -> bool:
        """Whether there is an iterate in it."""
        return self._steps > 0

    @torch.no_grad()
    def add(self) -> None:
        """Take the parameters as they are now for the next iterate."""
        for name, parameter in self._named.items():
            self._sums[name].lerp_(parameter.detach(), 1.0 - self._decay)
        self._steps += 1

    def of(self, model: nn.Module) -> dict[str, Tensor]:
        """The model's state dict, with the average where trained parameters are; what is not trained is as it is."""
        share = -math.expm1(self._steps * math.log(self._decay))
        averages = {id(parameter): self._sums[name] / share for name, parameter in self._named.items()}
        kept = model.state_dict(keep_vars=True)
        # What modules keep in a state dict besides may be anything.
        others = {name: found.detach().clone() if isinstance(found, Tensor) else found for name, found in kept.items()}
        return {name: averages.get(id(kept[name]), found) for name, found in others.items()}

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain data, for a checkpoint."""
        sums = {name: found.detach().cpu().clone() for name, found in self._sums.items()}
        return {"decay": self._decay, "steps": self._steps, "sums": sums}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint; an error of one of another average."""
        if state["decay"] != self._decay:
            raise InputError(f"ema: got {self._decay:g}; the checkpoint's is {state['decay']:g}.", remedy="give what training began with.")
        for name, found in self._sums.items():
            found.copy_(state["sums"][name])
        self._steps = int(state["steps"])
