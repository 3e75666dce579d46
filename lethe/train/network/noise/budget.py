"""The noise of a network's steps under a privacy budget: decided, and paid for, before anything of the step is computed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lethe.calculus.composition.budget import BudgetFilter
from lethe.errors import InputError, LetheError
from lethe.run.run import Run
from lethe.train.core.budgeted_noise import BudgetedNoise, Chosen, NoisePolicy, refuse_policy


class NetworkBudget:
    """The privacy filter of a network's run: each step asks it first, and the run ends when it refuses.

    A policy sees the trained parameters as one vector. They are what the step before left, so with every iterate released it sees nothing
    that is not public; the sums of the step it decides about do not exist yet.

    Args:
        run: with noise_budget set.
        parameters: the trained ones, in order.
        policy: gives the noise multiplier of the next step; None: the run's own, which must be set.
    Raises:
        InputError: no policy, and the run has no noise.
    """

    __slots__ = ("_budgeted", "_chosen", "_multipliers", "_noise_stds", "_paid", "_parameters", "_policed")

    def __init__(self, run: Run, parameters: Sequence[Tensor], policy: NoisePolicy | None) -> None:
        self._budgeted = BudgetedNoise(run, policy)
        self._parameters = list(parameters)
        self._policed = policy is not None
        self._multipliers: list[float] = [] if self._policed else run.noise_multipliers.tolist()
        self._noise_stds: list[float] = [] if self._policed else run.noise_stds.tolist()
        self._chosen = Chosen(0.0, 0.0)
        self._paid = 0

    @property
    def filter(self) -> BudgetFilter:
        """The privacy filter that pays."""
        return self._budgeted.filter

    def pays(self, step: int) -> bool:
        """Decide the noise of step number `step`, from 1, and pay for it; False if the budget does not reach, which ends the run.

        Raises:
            BudgetExceededError: not even the first step can be paid.
            InputError: the policy returned no finite number > 0.
            LetheError: the iterate overflowed.
        """
        if self._policed:
            chosen = self._budgeted.chosen(step, torch.cat([parameter.detach().reshape(-1) for parameter in self._parameters]))
        else:
            chosen = Chosen(self._multipliers[step - 1], self._noise_stds[step - 1])
        if not self._budgeted.pays(step, chosen.noise_std):
            return False
        self._chosen, self._paid = chosen, step
        return True

    def ends_after(self, step: int) -> bool:
        """Whether the budget does not reach the next step, as far as is known without asking a policy."""
        known = not self._policed and step < len(self._noise_stds)
        return known and not self._budgeted.reaches(step + 1, self._noise_stds[step])

    def pay_again(self, steps: int) -> None:
        """Pay for the first `steps` of a training that goes on: their noise was drawn, or may have been.

        Raises:
            LetheError: the budget does not reach them; the run that drew them was another.
        """
        for step in range(1, steps + 1):
            if not self.pays(step):
                raise LetheError(
                    f"noise_budget: it pays for {step - 1} steps; {steps} were released.",
                    source="run.noise_budget, and the journal of the checkpoints",
                    remedy="count all of them, and do not train on in this folder.",
                )

    def of(self, step: int) -> Chosen:
        """The noise that was paid for at a step.

        Raises:
            InputError: another step was.
        """
        if step != self._paid:
            raise InputError(f"noise_budget: step {step} was not paid for.", source="the order of the steps", remedy="ask `pays` first.")
        return self._chosen


def network_budget(run: Run, parameters: Sequence[Tensor], policy: NoisePolicy | None) -> NetworkBudget | None:
    """The noise budget of a run; None if the run has none.

    Args:
        run: may have a noise_budget.
        parameters: of the network, all trained ones.
        policy: chooses each step's noise; None where the run gives it.
    Raises:
        InputError: a policy that is none, a policy without a budget, or neither noise nor a policy.
    """
    refuse_policy(run, policy)
    return None if run.noise_budget is None else NetworkBudget(run, parameters, policy)
