r"""One step of a network's parameters from the sums of its records' clipped gradients, with the noise where it belongs.

Where every iterate is released, noise goes to the sums, $\tilde g_t = \frac1b(\sum_i \mathrm{Clip}_C(\nabla f_i) + \zeta_t)$ with
$\zeta_t \sim N(0, z_t^2C^2I)$, and what follows is a function of them: an optimiser, or the plain step. Where only the last iterate is, the
plain step adds it to the parameters, $\nu_t = -\lambda_t\zeta_t/b$, after the average that a pass may end at. Correlated noise goes to the
sums in both cases: what is certified of it is certified of all iterates, and the last is a function of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from lethe.errors import InputError
from lethe.run.run import Run
from lethe.train.checks.held_parameters import HeldParameters
from lethe.train.core.budgeted_noise import Chosen
from lethe.train.core.noise_resolution import refuse_drowned_in, refuse_overflow, smallest_noise
from lethe.train.core.pass_average import PassAverage
from lethe.train.core.tensors import as_part_of, local
from lethe.train.core.together.small_tensors import largest_size
from lethe.train.network.noise.budget import NetworkBudget
from lethe.train.network.noise.secure import grid_noise_std, least_move
from lethe.train.network.noise.shared import Noise, correlated_in, fresh_share_of, is_secure, noisy_dimension
from lethe.train.network.plan import refuse_other_recursion
from lethe.train.network.proximal.steps import NetworkProximal, ProximalGroup
from lethe.train.network.step_sizes import refuse_other_step_size

Sums = Mapping[nn.Parameter, Tensor]


class Executed(NamedTuple):
    """The step size and the noise, in parameter units, of a step that was taken."""

    step_size: float
    noise_std: float


class Update(Protocol):
    """Takes step number `step` (from 1), given the clipped sums, which it may overwrite."""

    pass_weights: tuple[float, ...] | None

    def __call__(self, step: int, sums: Sums) -> Executed:
        """See the class."""
        ...


class NoisySums:
    r"""$\frac1b(\sum_i v_i + \zeta_t)$, in place: the sums become the noisy mean gradient.

    Args:
        run: gives $z_t$, C and b.
        noise: secure noise is made so much larger that its grid costs nothing (`grid_noise_std`).
        budget: pays for each step, and then says its noise; None: the run's own.
    """

    __slots__ = ("_chosen", "_noise", "_run", "_step_sizes")

    def __init__(self, run: Run, noise: Noise, budget: NetworkBudget | None = None) -> None:
        self._run, self._noise = run, noise
        self._step_sizes = run.step_sizes
        self._chosen = budget.of if budget is not None else _planned(run)

    @torch.no_grad()
    def __call__(self, step: int, sums: Sequence[Tensor]) -> Executed:
        """Add the noise of step number `step`, from 1, and divide by b.

        Raises:
            LetheError: the noise drowns in the rounding of the sums.
        """
        multiplier, of_parameters = self._chosen(step)
        noise_std = multiplier * self._run.clip_bound
        secure, wider = is_secure(self._noise), noise_std
        if secure and noise_std > 0:
            wider = grid_noise_std(noise_std, least_move(self._run), noisy_dimension(self._noise, sums))
        self._noise.add_to(sums, wider)  # no noise is shared among processes as well
        # The noisy sums are released, in effect, only where all iterates are; with correlated noise they are certified as released.
        if not secure and _certified_as_released(self._run, self._noise):
            _refuse_drowned(noise_std * fresh_share_of(self._noise), sums)
        torch._foreach_div_(list(sums), self._run.batch_size)  # pyright: ignore[reportPrivateImportUsage]
        return Executed(float(self._step_sizes[step - 1]), of_parameters)


def _planned(run: Run) -> Callable[[int], Chosen]:
    # As arrays: lists of so many Python numbers took 15 MB for 100 000 steps.
    multipliers, stds = run.noise_multipliers, run.noise_stds
    return lambda step: Chosen(float(multipliers[step - 1]), float(stds[step - 1]))


class PlainDescent:
    r"""The recursion of a Run: $x \leftarrow \mathrm{prox}_{\lambda_t h}(x - \frac{\lambda_t}{b}\sum_i v_i + \nu_t)$, with pass averages.

    Args:
        named: the trained parameters.
        run: what to do.
        noise: of the sums if all iterates are released or it is correlated, else of the parameters.
        groups: with regularisers of their own, where the run has none (`refuse_groups`).
        budget: of the run, if it has one.
    Raises:
        InputError: the regularisers have no exact proximal step.
    """

    def __init__(
        self,
        named: Mapping[str, nn.Parameter],
        run: Run,
        noise: Noise,
        *,
        groups: Sequence[ProximalGroup] = (),
        budget: NetworkBudget | None = None,
    ) -> None:
        self._parameters = list(named.values())
        self._run, self._noise = run, noise
        on_sums = _certified_as_released(run, noise) and run.pass_weights is None
        self._on_sums = NoisySums(run, noise, budget) if on_sums else None
        self._planned = _planned(run) if self._on_sums is None else None
        self._step_sizes = run.step_sizes
        self._proximal = NetworkProximal(named, [ProximalGroup(regularisers=run.regularisers)] if run.regularisers else groups)
        self._averages = [PassAverage(run.pass_averages) for _ in self._parameters]
        self.pass_weights = self._averages[0].weights

    @torch.no_grad()
    def __call__(self, step: int, sums: Sums) -> Executed:
        """Take the step."""
        if self._on_sums is not None:
            executed = self._on_sums(step, list(sums.values()))
        else:
            assert self._planned is not None
            executed = Executed(float(self._step_sizes[step - 1]), self._planned(step).noise_std)
        scale = executed.step_size / (1 if self._on_sums is not None else self._run.batch_size)
        for parameter, average in zip(self._parameters, self._averages, strict=True):
            own = local(parameter)
            own.add_(sums[parameter], alpha=-scale)
            if (averaged := average(own)) is not own:
                own.copy_(averaged)
        if self._on_sums is None:
            self._noise.add_to([local(parameter) for parameter in self._parameters], executed.noise_std)
        self._proximal.step(executed.step_size)
        return executed


class ByOptimizer:
    r"""The noisy mean gradient, handed to an optimiser; then each group's proximal step, which is post-processing as the optimiser is.

    $x_t = \mathrm{prox}_{\lambda_t h}(\mathrm{opt}(x_{t-1}, \tilde g_t))$: in the Euclidean metric, whatever the optimiser's own metric.

    Args:
        named: the trained parameters.
        run: gives noise and step sizes; where the last iterate is to be certified, the optimiser is held to them at every step.
        noise: of the sums.
        optimizer: checked already.
        held: the same parameters; where the last iterate is to be certified, they must move by exactly the certified step.
        groups: with regularisers of their own; every iterate is released then.
        budget: of the run, if it has one.
    """

    pass_weights: tuple[float, ...] | None = None

    def __init__(
        self,
        named: Mapping[str, nn.Parameter],
        run: Run,
        noise: Noise,
        optimizer: torch.optim.Optimizer,
        *,
        held: HeldParameters,
        groups: Sequence[ProximalGroup] = (),
        budget: NetworkBudget | None = None,
    ) -> None:
        self._parameters = list(named.values())
        self._run, self._optimizer, self._held = run, optimizer, held
        self._noisy = NoisySums(run, noise, budget)
        self._proximal = NetworkProximal(named, groups)
        # What lies there already is no noisy gradient, on frozen parameters neither.
        optimizer.zero_grad(set_to_none=True)

    @torch.no_grad()
    def __call__(self, step: int, sums: Sums) -> Executed:
        """Take the step."""
        if self._run.release == "last":
            refuse_other_recursion(self._optimizer, self._run)
            refuse_other_step_size(self._optimizer, float(self._run.step_sizes[step - 1]), step)
        gradients = [sums[parameter] for parameter in self._parameters]
        executed = self._noisy(step, gradients)
        last, before = self._run.release == "last", dict[nn.Parameter, Tensor]()
        if last:
            before = {parameter: gradient.clone() for parameter, gradient in zip(self._parameters, gradients, strict=True)}
            self._held.expect(before, executed.step_size)
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = as_part_of(parameter, gradient)
        self._optimizer.step()
        if last:
            self._held.refuse_other_step(before, executed.step_size, step)
        self._optimizer.zero_grad(set_to_none=True)
        self._proximal.step(executed.step_size)
        return executed


def refuse_start(run: Run, parameters: Sequence[Tensor]) -> None:
    """Refuse, before training, noise of `run` as it was asked for that drowns in the start, where it will be added to parameters.

    Raises:
        InputError: the start is not finite.
        LetheError: the noise is too small.
    """
    parameters = [local(parameter) for parameter in parameters]
    if not all(bool(torch.isfinite(tensor).all()) for tensor in parameters):
        raise InputError("model: its parameters are not finite before training.", remedy="initialise them.")
    _refuse_where_added(run, parameters)


def refuse_end(run: Run, parameters: Sequence[Tensor]) -> None:
    """Refuse a last iterate that is not finite, or noise of `run` as it was asked for that is lost in its rounding.

    Raises:
        LetheError: it is not, or the noise is too small.
    """
    parameters = [local(parameter) for parameter in parameters]
    refuse_overflow(parameters, run)
    _refuse_where_added(run, parameters)


def _refuse_where_added(run: Run, parameters: Sequence[Tensor]) -> None:
    if (run.release == "last" and run.noise is None) or run.pass_weights is not None:
        _refuse_drowned(smallest_noise(run), parameters)


def _certified_as_released(run: Run, noise: Noise) -> bool:
    """Whether the noisy sums of all steps are, by the theorem on the run's noise: all are released, or it is correlated."""
    return run.release == "all" or correlated_in(noise) is not None


def _refuse_drowned(noise_std: float, tensors: Sequence[Tensor]) -> None:
    asked = [tensor.detach() for tensor in tensors if tensor.numel()] if noise_std < np.inf else []
    for dtype in {tensor.dtype for tensor in asked}:
        refuse_drowned_in(noise_std, dtype, largest_size([tensor for tensor in asked if tensor.dtype == dtype]))
