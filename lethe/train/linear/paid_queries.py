"""The two private queries of DP-AGD, each charged to the budget before it is answered."""

from __future__ import annotations

import math

import torch

from lethe.calculus.composition.budget import BudgetFilter
from lethe.calculus.rounding import round_down, round_up
from lethe.train.linear.adaptive_descent import AdaptiveDescent
from lethe.train.linear.gradients import GradientSums
from lethe.train.linear.noisy_min import noisy_min

_EVERYTHING = slice(None)


class PaidQueries:
    """Noisy gradients and noisy comparisons of all records, out of one budget.

    Args:
        plan: gives the budget, the clip norms, the neighbouring relation and the cost of a comparison.
        model: the data, with the plan's gradient_clip.
        generator: for the noise.
    """

    __slots__ = ("_epsilon", "_generator", "_model", "_plan", "budget")

    def __init__(self, plan: AdaptiveDescent, model: GradientSums, generator: torch.Generator) -> None:
        self.budget = BudgetFilter(plan.rho)
        self._plan = plan
        self._model = model
        self._generator = generator
        # Rounded down: the Laplace noise of a slightly smaller epsilon is a little more than is paid for.
        self._epsilon = round_down(math.sqrt(2.0 * plan.selection_rho), 1e-15)

    def gradient(self, parameters: torch.Tensor, rho: float) -> torch.Tensor:
        r"""$\sum_i \mathrm{Clip}_{C_g}(\nabla f_i) + N(0, \Delta^2/(2\rho)\,I)$ with $\Delta = fC_g$: a Gaussian mechanism of cost `rho`.

        Raises:
            BudgetExceededError: the budget does not reach.
        """
        self.budget.spend(rho)
        noise_std = round_up(self._plan.touch_factor * self._plan.gradient_clip / math.sqrt(2.0 * rho), 1e-15)
        noise = torch.randn(parameters.shape, generator=self._generator, dtype=parameters.dtype)
        return self._model.clipped_gradient_sum(parameters, _EVERYTHING) + noise_std * noise

    def best(self, parameters: torch.Tensor, direction: torch.Tensor, lengths: torch.Tensor) -> int:
        """The index of the step length that lowers the sum of clipped losses most, as far as `selection_rho` can tell.

        Args:
            parameters: shape (d, k).
            direction: shape (d, k); a step of length a leads to `parameters` - a `direction`.
            lengths: the step lengths to compare, shape (K,).
        Raises:
            BudgetExceededError: the budget does not reach.
        """
        self.budget.spend(self._plan.selection_rho)
        return noisy_min(
            self._model.clipped_losses_along(parameters, direction, lengths, self._plan.loss_clip),
            bound=self._plan.loss_clip,
            epsilon=self._epsilon,
            touch_factor=self._plan.touch_factor,
            generator=self._generator,
        )
