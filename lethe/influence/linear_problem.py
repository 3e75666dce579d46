"""A run of a linear model on auxiliary data, carried out with noise that can be repeated, mirrored and traced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from lethe.errors import InputError, LetheError
from lethe.influence.data import AuxiliaryData
from lethe.run.descended import gradients_by
from lethe.run.losses.linear import LinearLoss, require_linear_loss
from lethe.run.run import Run
from lethe.run.schedules.base import Array
from lethe.train.core.generators import seeded_generators
from lethe.train.core.proximal import Proximal, proximal_step
from lethe.train.core.samplers import Batch, draw_batches
from lethe.train.linear.gradients import LinearModel, losses_of, refuse_other_clipping
from lethe.train.linear.loop import descend
from lethe.train.linear.models import prepare_features, prepare_targets

_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trajectory:
    """The batches of a training, the parameters before each step and after the last, shape (d, k), and before each proximal step."""

    batches: list[Batch]
    before: list[torch.Tensor]
    unproximated: list[torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearProblem:
    """A run, the linear model that its loss names, and data to train it on.

    The loop is that of `fit`; what differs is where noise comes from. Each step draws its normal numbers whether it uses them or not,
    so they depend on the seed and the step alone, not on which other steps are noisy, and a negative noise_std mirrors them.
    Rows are as the trainer prepares them, shape (n, d), targets of shape (n, 1), and the loss knows the number of its classes.
    """

    run: Run
    rows: torch.Tensor
    column: torch.Tensor
    loss: LinearLoss
    prox: Proximal

    def train(self, noise_stds: Array, seed: int) -> float:
        """The mean loss after the last step, without the regulariser, where step t adds noise_stds[t] times standard normal numbers.

        Noise is in parameter units and signed; a LetheError says that training overflowed.
        """
        last = self._descend(noise_stds, seed, self._batches(seed), self.prox)
        return float(_finite(losses_of(self.loss, self.rows @ last, self.column).mean(), self.run))

    def path(self, noise_stds: Array, seed: int) -> Trajectory:
        """All iterates of the training."""
        unproximated, before = list[torch.Tensor](), [self._start]

        def noted(parameters: torch.Tensor, step_size: float) -> torch.Tensor:
            unproximated.append(parameters)
            before.append(self.prox(parameters, step_size))
            return before[-1]

        batches = self._batches(seed)
        self._descend(noise_stds, seed, batches, noted)
        return Trajectory(batches=batches, before=before, unproximated=unproximated)

    @property
    def _start(self) -> torch.Tensor:
        return torch.zeros(self.rows.shape[1], self.loss.outputs, dtype=self.rows.dtype)

    def _batches(self, seed: int) -> list[Batch]:
        return list(draw_batches(self.run, seeded_generators(seed, (_CPU, _CPU))[0]))

    def _descend(self, noise_stds: Array, seed: int, batches: list[Batch], prox: Proximal) -> torch.Tensor:
        run, start, generator = self.run, self._start, seeded_generators(seed, (_CPU, _CPU))[1]
        model = LinearModel(self.loss, self.rows, self.column, clip_norm=run.clip_norm, method=gradients_by(run))

        def add_noise(tensors: Sequence[torch.Tensor], noise_std: float) -> None:
            tensors[0].add_(noise_std * torch.randn(start.shape, generator=generator, dtype=torch.float64))

        def of_step(step: int, _: torch.Tensor) -> float:
            return float(noise_stds[step - 1])

        return _finite(descend(run, start, model.clipped_gradient_sum, batches, add_noise, noise_of_step=of_step, prox=prox), run)


def _finite(values: torch.Tensor, run: Run) -> torch.Tensor:
    if not bool(torch.isfinite(values).all()):
        raise LetheError(
            "training overflowed on the auxiliary data: it did not end in finite numbers.",
            source=f"step_size up to {run.step_sizes.max():g}",
            remedy="take smaller steps or less noise.",
        )
    return values


def linear_problem(run: Run, data: AuxiliaryData) -> LinearProblem:
    """The run on the auxiliary data, checked as `fit` checks its arguments."""
    refuse_other_clipping(run)
    loss, prox, records = require_linear_loss(run.loss), proximal_step(run.regularisers), data.records(run)
    loss = loss.for_classes(records.classes)
    column = prepare_targets(records.targets, classes=loss.target_classes, records=run.records, device=_CPU)
    return LinearProblem(run=run, rows=prepared_rows(records.features, loss), column=column, loss=loss, prox=prox)


def prepared_rows(features: Array, loss: LinearLoss) -> torch.Tensor:
    """Features as the trainer prepares them, projected and with the intercept's column, in float64."""
    return prepare_features(features, feature_norm=loss.feature_norm, intercept=loss.intercept, dtype=torch.float64, device=_CPU).rows


def refuse_pass_averages(run: Run) -> None:
    """Raise InputError if the run's passes end at an average: a step then is not a map of the iterate before it alone."""
    if run.pass_averages is not None:
        raise InputError(
            "pass_weights: set; this estimate follows iterates, not averages of a pass.",
            source="run.pass_weights",
            remedy="use retraining_influence.",
        )


def repeat_seeds(seed: int, repeats: int) -> list[int]:
    """A seed for each repeat, unrelated to those of another `seed`."""
    return [int(child.generate_state(1, np.uint64)[0] >> np.uint64(1)) for child in np.random.SeedSequence(seed).spawn(repeats)]
