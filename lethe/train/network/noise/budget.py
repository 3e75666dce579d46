"""The noise of a network's steps under a privacy budget: decided, and paid for, before anything of the step is computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from lethe.errors import InputError, LetheError
from lethe.run.run import Run
from lethe.train.core.budgeted_noise import BudgetedNoise, Chosen, NoisePolicy


def planned_noise(run: Run) -> Callable[[int], Chosen]:
    """The noise that a run says of each step, from 1."""
    # As arrays: lists of so many Python numbers took 15 MB for 100 000 steps.
    multipliers, stds = run.noise_multipliers, run.noise_stds
    return lambda step: Chosen(float(multipliers[step - 1]), float(stds[step - 1]))


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

    def __init__(self, run: Run, parameters: Sequence[Tensor], policy: NoisePolicy | None) -> None:
        self._budgeted, self._parameters, self._steps = BudgetedNoise(run, policy), list(parameters), run.total_steps
        self._planned = planned_noise(run) if policy is None else None
        self.filter = self._budgeted.filter
        self._chosen, self._paid = Chosen(0.0, 0.0), 0

    def pays(self, step: int) -> bool:
        """Decide the noise of step number `step`, from 1, and pay for it; False if the budget does not reach, which ends the run.

        Raises:
            BudgetExceededError: not even the first step can be paid.
            InputError: the policy returned no finite number > 0.
            LetheError: the iterate overflowed.
        """
        if self._planned is not None:
            chosen = self._planned(step)
        else:
            chosen = self._budgeted.chosen(step, torch.cat([parameter.detach().reshape(-1) for parameter in self._parameters]))
        if not self._budgeted.pays(step, chosen.noise_std):
            return False
        self._chosen, self._paid = chosen, step
        return True

    def ends_after(self, step: int) -> bool:
        """Whether the budget does not reach the next step, as far as is known without asking a policy."""
        if self._planned is None or step == self._steps:
            return False
        return not self._budgeted.reaches(step + 1, self._planned(step + 1).noise_std)

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
