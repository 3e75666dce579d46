r"""An optimiser for users: momentum whose average of gradients is not biased towards its start at 0. It reads noisy gradients only, so it
costs no privacy. $\beta$ is the momentum, $\lambda$ the step size.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from lethe.calculus.domains import require_positive
from lethe.errors import InputError
from lethe.run.schedules.momentum import momentum_of


class DebiasedMomentum(torch.optim.Optimizer):
    r"""Steps along the debiased average of the (noisy) gradients, $x_t = x_{t-1} - \lambda m_t$ with

    $$m_t = \frac{\beta(1-\beta^{t-1})\,m_{t-1} + (1-\beta)\,g_t}{1-\beta^t}$$

    a mean of $g_1..g_t$ whose weights add up to 1: $m_1 = g_1$, and at $\beta = 0$ it is SGD. t counts each parameter's own steps, so a
    parameter without a gradient waits.

    Args:
        params: as for every PyTorch optimiser.
        lr: $\lambda > 0$.
        beta: $\beta \in [0, 1)$.
    Raises:
        InputError: an argument is outside its range.
    Reference: Hong, Wang, Zhou 2022 (FAccT), Algorithm 1. Noise for it: `lethe.schedules.Influence.of_momentum`.
    """

    def __init__(self, params: Iterable[Any], lr: float, beta: float = 0.9) -> None:
        super().__init__(params, {"lr": require_positive("lr", lr), "beta": momentum_of(beta)})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One step from the gradients in `.grad`.

        Raises:
            InputError: a closure is given: what it would compute again is not the noisy gradient.
        """
        if closure is not None:
            raise InputError("closure: given; the gradients must be clipped and noised first.", remedy="call step() without arguments.")
        for group in self.param_groups:
            lr, beta = require_positive("lr", group["lr"]), momentum_of(group["beta"])
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.sub_(self._averaged(parameter, parameter.grad, beta), alpha=lr)

    def _averaged(self, parameter: Tensor, gradient: Tensor, beta: float) -> Tensor:
        state = self.state[parameter]
        if not state:
            state["step"], state["average"] = 1, gradient.clone()
            return state["average"]
        state["step"] += 1
        return state["average"].lerp_(gradient, _newest(beta, state["step"]))


def _newest(beta: float, step: int) -> float:
    r"""$(1-\beta)/(1-\beta^t)$; one minus it is $\beta(1-\beta^{t-1})/(1-\beta^t)$, so a step of the average is an interpolation."""
    return 1.0 if beta == 0.0 else (1.0 - beta) / -math.expm1(step * math.log(beta))
