"""Faults injected into trainers: a run is claimed, and another one is carried out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from lethe.audit.games.canaries import Data
from lethe.audit.trainers.linear import LinearTraining
from lethe.audit.trainers.networks import NetworkTraining, Watched
from lethe.run.run import Run


def less_noise(run: Run) -> Run:
    """A tenth of the noise."""
    return run.with_noise_scaled(0.1)


def no_clipping(run: Run) -> Run:
    """The same noise, and gradients as long as they are (of a network, up to a thousand times the norm that was stated)."""
    bound = run.loss.known_gradient_bound
    longer = 1000.0 * run.clip_bound if bound is None else bound
    return run.replace(clip_norm=longer if bound is None else None).with_noise_scaled(run.clip_bound / longer)


def noise_once_a_pass(run: Run) -> Run:
    """Noise at the last step of each pass only."""
    return run.replace(noise_at="pass_ends")


@dataclass(frozen=True, slots=True, eq=False)
class SameSeed:
    """The same batches and the same noise in every training."""

    training: Any

    def __call__(self, data: Data, seed: int) -> Any:
        """Train once."""
        return self.training(data, 0)


@dataclass(frozen=True, slots=True, eq=False)
class OwnDivisor:
    """Full batches whose sum is divided by however many records there are."""

    training: LinearTraining | NetworkTraining

    def __call__(self, data: Data, seed: int) -> Any:
        """Train once."""
        return replace(self.training, run=self.training.run.replace(records=len(data[0])))(data, seed)


@dataclass(frozen=True, slots=True, eq=False)
class Untrained:
    """A model with drawn weights, that never sees the data."""

    training: NetworkTraining

    def __call__(self, data: Data, seed: int) -> Watched:
        """Draw one."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = self.training.build()
        return Watched(model=model, displacement=np.zeros(0), shares=np.zeros((0, 0)))


class Shortness:
    """How short the displacement is: noise divided by more records is less."""

    def __call__(self, model: Any) -> float:
        """Minus the squared length of all that moved, from a start at 0 if the model is linear."""
        moved = model.displacement if isinstance(model, Watched) else model.model.weights
        return -float(np.square(moved).sum())
