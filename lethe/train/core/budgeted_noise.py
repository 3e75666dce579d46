r"""Noise drawn from a privacy budget: a policy chooses each step's noise, and may look at earlier releases; a filter counts the cost. For
runs whose noise is not fixed before training (`noise_budget`). `NoisySums` and the linear loop ask for each step's noise, which is paid
before anything is computed; training ends where the budget does. $s_t$ is the step's sensitivity, $\tau_t$ its noise's deviation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lethe.calculus.domains import outside, require_positive
from lethe.calculus.filters import BudgetFilter, gaussian_cost
from lethe.calculus.rounding import round_up
from lethe.calculus.upward_formatting import shown
from lethe.errors import BudgetExceededError, InputError, LetheError
from lethe.run.participation import Participation
from lethe.run.run import Run
from lethe.run.schedules import Explicit, as_schedule, parse_schedule


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Observed:
    """What a noise policy may look at: only what is public already, since every iterate counts as released.

    Args:
        step: the step about to be taken, from 1.
        steps_per_pass: l, public.
        parameters: the iterate before that step, a copy: of a linear model shape (d, k), or (d + 1, k) with the intercept's row last; of a
            network all trained parameters as one vector, shape (p,), in the order of `model.named_parameters()`.
        remaining: the zCDP budget that the records of this step's batch have left.
        last_multiplier: the noise multiplier of the step before; None at the first.
    """

    step: int
    steps_per_pass: int
    parameters: npt.NDArray[np.float64]
    remaining: float
    last_multiplier: float | None


NoisePolicy = Callable[[Observed], float]


def scheduled(schedule: Any, *, every: str = "step") -> NoisePolicy:
    """The noise multipliers of a schedule, whatever is seen: training lasts as long as the budget does.

    Args:
        schedule: as in `Run.noise_multiplier`: a number, a list, or {schedule: time_decay | step | polynomial | exponential, ...}.
        every: "step", or "pass" for one value a pass, as Yu et al. 2019 count time.
    Raises:
        InputError: no schedule, or another word than step and pass. The policy itself raises it at the end of a list.
    Reference: Yu et al. 2019, arXiv:1904.02200 (time, step, exponential and polynomial decay of the noise).
    """
    if every not in ("step", "pass"):
        raise outside("every", every, "step or pass")
    noise = as_schedule(parse_schedule(schedule))
    levels: list[float] = []

    def policy(observed: Observed) -> float:
        index = (observed.step - 1) // (observed.steps_per_pass if every == "pass" else 1)
        if index >= len(levels):
            levels[:] = noise.listed if isinstance(noise, Explicit) else noise.values(2 * index + 1).tolist()
        if index >= len(levels):
            raise InputError(
                f"noise_policy: the list of {len(levels)} multipliers ends before {every} {index + 1}.",
                remedy="list one for each, give the run fewer steps, or take a schedule that goes on.",
            )
        return levels[index]

    return policy


def refuse_policy(run: Run, policy: object) -> None:
    """Raise InputError for what is no noise policy, and for a policy where no filter pays for what it chooses."""
    if policy is not None and not callable(policy):
        raise InputError(f"noise_policy: got {type(policy).__name__}; it needs a function of Observed, or None.")
    if policy is not None and run.noise_budget is None:
        raise InputError(
            "noise_policy: given, and the run has no noise_budget: noise chosen along the way needs a filter to be private.",
            source="run.noise_budget = null",
            remedy="set noise_budget and release: all, or leave the policy out.",
        )


class Chosen(NamedTuple):
    """The noise of a step: relative to the clip norm, and its standard deviation in parameter units."""

    multiplier: float
    noise_std: float


class BudgetedNoise:
    r"""Decides each step's noise, and pays $\tfrac12(s_t/\tau_t)^2$ for it out of the run's `noise_budget` before anything is computed.

    Slots: the accounts of the run's design (`Batches.accounts`). Where a record keeps its place in every pass, as in cyclic and
    shuffled_once batches, each place has an account of its own. Else there is one: where a record comes once a pass, as by random
    allocation, a step pays for what it costs more than all before it in its pass; else every step pays, without credit for sampling. The
    policy, or else the run, says the multipliers.
    """

    def __init__(self, run: Run, policy: NoisePolicy | None) -> None:
        assert run.noise_budget is not None
        self._run, self._policy = run, policy
        if policy is None:
            run.noise_stds  # noqa: B018  refuses a run without noise
        self._slots = run.batches.accounts(run.records)
        self.filter = BudgetFilter(run.noise_budget, slots=self._slots)
        self._sensitivities = run.sensitivities.tolist()
        self._step_sizes = run.step_sizes.tolist()
        self._chosen, self._paid = Chosen(0.0, 0.0), 0
        self._once_a_pass = run.batches.participation is Participation.FRESH_SECRET_SLOT
        self._dearest = 0.0  # of the steps paid for in this pass

    def __call__(self, step: int, parameters: Tensor) -> float | None:
        """The noise's standard deviation, paid for; None if the budget does not reach. Raises as `pays`."""
        return self._chosen.noise_std if self.pays(step, parameters) else None

    def pays(self, step: int, parameters: Tensor | Sequence[Tensor]) -> bool:
        """Decide the noise of step number `step`, from 1, and pay for it; False if the budget does not reach, which ends the run."""
        chosen = self._planned(step) if self._policy is None else self._asked(step, parameters)
        cost, slot = self._cost(step, chosen)
        if self.filter.allows(cost, slot):
            self.filter.spend(cost, slot)
            self._dearest = self._paid_before(step) + cost
            self._chosen, self._paid = chosen, step
            return True
        if step == 1:
            run = self._run
            smallest_noise = run.touch_factor * run.touch_bound / run.clip_bound / (2 * self.filter.rho) ** 0.5
            raise BudgetExceededError(
                f"noise_budget: the first step costs rho = {cost:.6g} of a budget of {self.filter.rho:.6g}; nothing was trained.",
                source="run.noise_budget, and run.noise_multiplier or noise_policy",
                remedy=f"take a noise multiplier of at least {shown(smallest_noise, 6)}, which spends all in one step, or a larger budget.",
            )
        return False

    def pay_again(self, steps: int) -> None:
        """Pay for the first `steps` of a training that goes on: their noise was drawn, or may have been; no policy chose it."""
        for step in range(1, steps + 1):
            if not self.pays(step, ()):
                raise LetheError(
                    f"noise_budget: it pays for {step - 1} steps; {steps} were released.",
                    source="run.noise_budget, and the journal of the checkpoints",
                    remedy="count all of them, and do not train on in this folder.",
                )

    def ends_after(self, step: int) -> bool:
        """Whether the budget does not reach the next step, as far as is known without asking a policy."""
        if self._policy is not None or step == self._run.total_steps:
            return False
        return not self.filter.allows(*self._cost(step + 1, self._planned(step + 1)))

    def of(self, step: int) -> Chosen:
        """The noise that was paid for at a step; InputError where another step was."""
        if step != self._paid:
            raise InputError(f"noise_budget: step {step} was not paid for.", source="the order of the steps", remedy="ask `pays` first.")
        return self._chosen

    def _planned(self, step: int) -> Chosen:
        return Chosen(float(self._run.noise_multipliers[step - 1]), float(self._run.noise_stds[step - 1]))

    def _cost(self, step: int, chosen: Chosen) -> tuple[float, int]:
        """What a step adds to an account, and the account."""
        cost, before = gaussian_cost(chosen.noise_std / self._sensitivities[step - 1]), self._paid_before(step)
        more = round_up(cost - before, 5e-16) if cost > before > 0.0 else max(cost - before, 0.0)
        return more, (step - 1) % self._slots

    def _paid_before(self, step: int) -> float:
        """What the account has paid in this pass already, of which a record that comes once a pass pays the dearest step alone."""
        return self._dearest if self._once_a_pass and (step - 1) % self._run.steps_per_pass else 0.0

    def _asked(self, step: int, parameters: Tensor | Sequence[Tensor]) -> Chosen:
        """The noise that the policy chooses for a step; the iterate before it counts as released."""
        assert self._policy is not None
        point = parameters if isinstance(parameters, Tensor) else torch.cat([tensor.detach().reshape(-1) for tensor in parameters])
        if not bool(torch.isfinite(point).all()):
            raise LetheError(
                f"training overflowed before step {step}: the iterate is not finite.", remedy="take smaller steps or less noise."
            )
        observed = Observed(
            step=step,
            steps_per_pass=self._run.steps_per_pass,
            parameters=point.to(device="cpu", dtype=torch.float64, copy=True).numpy(),
            remaining=self.filter.remaining((step - 1) % self._slots) + self._paid_before(step),
            last_multiplier=self._chosen.multiplier if self._paid else None,
        )
        answer: Any
        try:
            answer = self._policy(observed)
        except StopIteration as error:  # a generator around it would make another error of it
            answer = error
        try:
            multiplier = require_positive("noise multiplier", answer)
            noise_std = require_positive("noise", self._step_sizes[step - 1] * multiplier * (self._run.clip_bound / self._run.batch_size))
        except InputError as error:
            raise InputError(
                f"noise_policy: returned {answer!r} at step {step}; it needs a finite noise multiplier > 0.",
                remedy="return one for every step of the run; to stop, ask for less noise than the budget pays for.",
            ) from error
        return Chosen(multiplier, noise_std)
