r"""One step of a network's parameters from the sums of its records' clipped gradients, with the noise where it belongs.

`Trainer` and `LoopState` call `NoisySums` (an optimiser follows) or `Descent` (the plain step) once a step. b is the batch size, C the clip
norm, z the noise multiplier, $v_i$ a clipped gradient, x the parameters, $\lambda_t$ the step size.

Noise goes to the sums, $\tilde g_t = \frac1b(\sum_i \mathrm{Clip}_C(\nabla f_i) + \zeta_t)$ with $\zeta_t \sim N(0, z_t^2C^2I)$, before
anything is rounded at the size of the parameters: what one record changes is then hidden already, and what follows, an optimiser or the
plain step, is a function of noisy sums. Only where passes end at an average is it added to the parameters, after the average.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lethe.errors import LetheError
from lethe.run.fields import COUNT_SHARE
from lethe.run.losses import Holder
from lethe.run.precision import Precision, parse_precision
from lethe.run.run import Run
from lethe.train.clip.adaptive import AdaptiveNorm
from lethe.train.clip.parts.selection import SelectedTables, selection_multipliers
from lethe.train.clip.sum_error import largest_batch
from lethe.train.core.budgeted_noise import BudgetedNoise
from lethe.train.core.comparison import arithmetic, coarser
from lethe.train.core.iterates import PassAverage, joint_norm, keep_within, most_records, precision_of, radius_of
from lethe.train.core.proximal import NetworkProximal, ProximalGroup, bounded
from lethe.train.core.tensors import as_part_of, dimension, is_shard, local
from lethe.train.network.noise.gaussian import ROUNDINGS
from lethe.train.network.noise.secure import grid_noise_std, least_move
from lethe.train.network.noise.training_noise import TrainingNoise
from lethe.train.network.optimizers import usable_by

Sums = Mapping[nn.Parameter, Tensor]
DESCENT = "lethe steps"
"""Of the state of `Descent` in a checkpoint."""


class NoisySums:
    r"""$\frac1b(\sum_i v_i + \zeta_t)$, in place: the sums become the noisy mean gradient. That of a large table that comes by its rows
    becomes a tensor of the parameter's type, or, of a run with sparse_selection, a COO tensor of the rows that are selected.

    Secure noise is made so much larger that its grid costs nothing (`grid_noise_std`); a budget pays for each step, and says its noise.
    The count of an adaptive norm gets its noise with the sums, and the mean gradient is brought to the norm in force.
    """

    def __init__(
        self,
        run: Run,
        noise: TrainingNoise,
        budget: BudgetedNoise | None = None,
        adaptive: AdaptiveNorm | None = None,
        selected: SelectedTables | None = None,
    ) -> None:
        self._run, self._noise, self._budget, self._adaptive, self._selected = run, noise, budget, adaptive, selected
        self._clip_bound, self._divisor = run.clip_bound, run.batch_size
        fresh = 1.0 if noise.correlated is None else noise.correlated.fresh_share
        # added to float64 sums as large as a batch's; of correlated noise its fresh share alone counts
        self._least = ROUNDINGS * torch.finfo(torch.float64).eps * largest_batch(run) * run.clip_bound / fresh

    @torch.no_grad()
    def __call__(self, step: int, sums: dict[nn.Parameter, Tensor]) -> float:
        """Add the noise of step number `step`, from 1, and divide by b; returns its standard deviation in parameter units: with a
        selection, of both releases as one."""
        multiplier, of_parameters = self.chosen(step)
        row_multiplier = math.inf
        if self._run.sparse_selection is not None:
            row_multiplier, multiplier = selection_multipliers(multiplier, self._run.sparse_selection)
        adaptive = self._adaptive
        noise_std = wider = multiplier * self._clip_bound / (1.0 if adaptive is None else math.sqrt(1.0 - COUNT_SHARE))
        if self._noise.secure and noise_std > 0:
            numbers = self._noise.dimension_of(list(sums.values())) + (adaptive is not None)
            wider = grid_noise_std(noise_std, least_move(self._run), numbers)
        elif 0 < (smallest_std := min(noise_std, row_multiplier * self._clip_bound)) < self._least:
            raise LetheError(
                f"noise of standard deviation {smallest_std:.3g} drowns in the rounding of the sums; it needs {self._least:.3g}.",
                source="noise_multiplier, and the records of a batch",
                remedy="plan more noise, or none at all at the steps where it is this small.",
            )
        if adaptive is not None:
            sums[adaptive.key] = adaptive.count
        for sparse, group in groupby(list(sums.items()), key=lambda entry: entry[1].is_sparse):  # in their order, as the noise is drawn
            if not sparse:
                whole = [total for _, total in group]
                self._noise.add_to(whole, wider)  # no noise is shared among processes as well
                torch._foreach_div_(whole, self._divisor)  # pyright: ignore[reportPrivateImportUsage]
                continue
            by_rows = self._noise.by_rows
            assert by_rows is not None
            for parameter, total in group:
                mean_options = {"noise_std": wider, "divisor": self._divisor, "dtype": parameter.dtype}
                if self._selected is None or parameter not in self._selected.tables:
                    sums[parameter] = by_rows.dense_mean(total, **mean_options)
                else:
                    row_std = row_multiplier * math.hypot(*self._selected.tables.values())
                    sums[parameter] = by_rows.selected_mean(total, row_std=row_std, threshold=self._selected.threshold, **mean_options)
        if adaptive is not None:
            del sums[adaptive.key]
            factor = adaptive.update()
            for mean in sums.values():
                mean.mul_(factor)
        return of_parameters

    def chosen(self, step: int) -> tuple[float, float]:
        """The noise of step number `step`, from 1: relative to the clip norm, and its standard deviation in parameter units."""
        if self._budget is not None:
            return self._budget.of(step)
        return float(self._run.noise_multipliers[step - 1]), float(self._run.noise_stds[step - 1])


class Descent:
    r"""The recursion of a Run: $x \leftarrow \mathrm{prox}_{\lambda_t h}(x - \frac{\lambda_t}{b}(\sum_i v_i + \zeta_t))$.

    Where only the last iterate is released, x is kept in float64 and within a ball (`core.iterates`), since the rounding of what nobody
    sees is counted; the model has it rounded to its own type, where it computes the gradients (`shown_rounding`). With pass averages the
    noise is added to the average. The start is projected on the domains among the regularisers, where there are any.

    With an optimiser $x_t = \mathrm{prox}_{\lambda_t h}(\mathrm{opt}(x_{t-1}, \tilde g_t))$, in the Euclidean metric, whatever the
    optimiser's own metric: its step and the proximal one are post-processing of the noisy mean gradient.

    Attributes:
        iterate: x, by the names of the parameters: their own memory, or float64 beside it.
        precision: of the recorded run; None: every iterate is released, and rounding them costs nothing.
    """

    def __init__(
        self,
        named: Mapping[str, nn.Parameter],
        run: Run,
        noise: TrainingNoise,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        groups: Sequence[ProximalGroup] = (),
        budget: BudgetedNoise | None = None,
        adaptive: AdaptiveNorm | None = None,
        selected: SelectedTables | None = None,
    ) -> None:
        self._named, self._run, self._noise, self._optimizer = named, run, noise, optimizer
        self._noisy, self._step_sizes = NoisySums(run, noise, budget, adaptive, selected), run.step_sizes
        self._averages = None if run.pass_averages is None else [PassAverage(run.pass_averages) for _ in named]
        self.iterate: Mapping[str, Tensor] = named
        self.precision: Precision | None = None
        hidden = run.release == "last" and noise.correlated is None  # correlated noise releases all iterates
        if hidden:
            self.iterate = {name: parameter.detach().to(torch.float64, copy=True) for name, parameter in named.items()}
        groups = [ProximalGroup(regularisers=run.regularisers)] if run.regularisers else groups
        self._proximal = NetworkProximal(self.iterate, groups) if groups else None
        domains = [replace(group, regularisers=bounded(group.regularisers)) for group in groups if bounded(group.regularisers)]
        NetworkProximal(self.iterate, domains).step(1.0)  # the start
        if hidden:
            coarsest = reduce(coarser, (parameter.dtype for parameter in named.values()), arithmetic(next(iter(named.values())).device))
            self._error = partial(shown_rounding, run, coarsest)
            start = list(self.iterate.values())
            self.precision = precision_of(run, float(joint_norm(start)), dimension(start), self._error)
            warn_of_rounding(run, self.precision)
            self.show()
        self._sharded = any(map(is_shard, named.values()))
        if optimizer is not None:  # what lies there already is no noisy gradient, on frozen parameters neither
            optimizer.zero_grad(set_to_none=True)

    @torch.no_grad()
    def __call__(self, step: int, sums: Sums) -> float:
        """Take step number `step`, from 1, given the clipped sums, which may be overwritten; returns the noise in parameter units."""
        step_size = float(self._step_sizes[step - 1])
        totals = {parameter: sums[parameter] for parameter in self._named.values()}
        if self.precision is not None or self._averages is not None:
            totals = {parameter: total.to_dense() if total.is_sparse else total for parameter, total in totals.items()}
        tensors = [tensor.detach() for tensor in self.iterate.values()]
        if self._sharded:
            tensors = list(map(local, tensors))  # a shard's memory is another one once it was gathered
        if self._averages is not None:
            noise_std = self._noisy.chosen(step)[1]
            for tensor, move, average in zip(tensors, totals.values(), self._averages, strict=True):
                tensor.copy_(average(tensor.sub_(move, alpha=step_size / self._run.batch_size)))
            self._noise.add_to(tensors, noise_std)
        else:
            noise_std = self._noisy(step, totals)
            if self._optimizer is None:
                moves = [move.to(tensor.dtype) for move, tensor in zip(totals.values(), tensors, strict=True)]
                torch._foreach_add_(tensors, moves, alpha=-step_size)  # pyright: ignore[reportPrivateImportUsage]
            else:
                while totals:  # let go of, one by one
                    parameter = next(iter(totals))
                    parameter.grad = as_part_of(parameter, usable_by(self._optimizer, parameter, totals.pop(parameter)))
                self._optimizer.step()
                self._optimizer.zero_grad(set_to_none=True)
        if self.precision is not None:
            keep_within(tensors, radius_of(self.precision))
        if self._proximal is not None:
            self._proximal.step(step_size)
        if self.precision is not None:
            self.show()
        return noise_std

    @torch.no_grad()
    def show(self) -> None:
        """Give the model the iterate, rounded to its type, where it is kept beside it."""
        if self.precision is not None:
            parameters = [local(parameter) for parameter in self._named.values()]
            torch._foreach_copy_(parameters, list(self.iterate.values()))  # pyright: ignore[reportPrivateImportUsage]

    def state_dict(self) -> dict[str, Any]:
        """The precision, for a checkpoint: it follows from the start, which a training that goes on has no more."""
        return {"precision": None if self.precision is None else self.precision.to_document()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the precision of a checkpoint: the ball of its start, and no smaller error than this model's type has in it."""
        if (precision := parse_precision(state["precision"])) is not None:
            error = max(precision.gradient_error, self._error(radius_of(precision)))
            precision = precision.model_copy(update={"gradient_error": error})
        self.precision = precision


def shown_rounding(run: Run, dtype: torch.dtype, parameter_norm: float) -> float:
    r"""$\frac Kb H(uN)^p$: how far a mean gradient is off because a model has the iterates rounded, in loss per parameter unit.

    The gradient of a record at rounded parameters is that of others, at most uN away: $HuN$ of a smooth loss (p = 1), whose H is the larger
    of its two curvatures. Of a loss that is neither, no theorem compares gradients at two places but by their bound. N is `parameter_norm`;
    of float64 the iterates are shown as they are.
    """
    if dtype == torch.float64:
        return 0.0
    moved = torch.finfo(dtype).eps / 2 * parameter_norm
    curvature = run.loss.curvature
    if isinstance(run.loss, Holder):
        change = run.loss.constant * moved**run.loss.exponent
    else:
        change = 0.0 if curvature is None else max(curvature) * moved
    return most_records(run) / run.batch_size * change * (1.0 + 2.0**-40)


def warn_of_rounding(run: Run, precision: Precision) -> None:
    r"""Warn of a coarser type that a plan kept no room for, where it costs more than a hundredth of what one use of a record does.

    The errors since the noise before, hidden by the noise that comes next: $\mu = \sqrt{\sum_s(\sum_{t \le s}2\lambda_tG/\tau_s)^2}$.
    """
    ends = run.noisy_steps
    stds = run.noise_stds[ends]
    if run.precision is not None or precision.gradient_error == 0.0 or not (stds > 0.0).all():
        return
    errors = np.add.reduceat(2.0 * precision.gradient_error * run.step_sizes[: ends[-1] + 1], np.append(0, ends[:-1] + 1))
    cost, touch = float(np.linalg.norm(errors / stds)), float((run.sensitivities[ends] / stds).max())
    if cost > 0.01 * touch:
        warnings.warn(
            f"release: last: the model rounds the parameters to a type of its own, and what that does to gradients is counted: about "
            f"mu = {cost:.2g}, where one record in one step costs {touch:.2g}. A plan keeps no room for it, and the certificate will say "
            "more than was planned. Train a float64 copy (model.double()), or plan with a precision that states a smaller ball.",
            stacklevel=2,
        )
