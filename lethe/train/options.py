"""TrainOptions: the options of `fit`, as one object that is passed on as it is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import torch

from lethe.errors import InputError
from lethe.run.run import Run
from lethe.train.callbacks.telling import Telling
from lethe.train.checkpoints.file import Checkpoints
from lethe.train.clip.groups import Group
from lethe.train.core.budgeted_noise import NoisePolicy
from lethe.train.core.progress import Callback

OF_ALL = ("noise_policy", "seed", "batch_generator", "noise_generator", "progress", "callbacks")
"""The options that every model knows; the others are of networks."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainOptions:
    """The options of a training. `lethe.train.fit` says what each field is."""

    noise_policy: NoisePolicy | None = None
    seed: int | None = None
    batch_generator: torch.Generator | None = None
    noise_generator: np.random.Generator | torch.Generator | None = None
    progress: bool | Callback = False
    callbacks: Telling = field(default_factory=Telling)
    physical_size: int | None = None
    optimizer: torch.optim.Optimizer | None = None
    clip_groups: Sequence[Group] | str | None = None
    proximal_groups: Sequence[Any] | None = None
    method: str | None = None
    users: Any = None
    records_per_user: int | None = None
    views: int = 1
    ema: float | None = None
    gradient_memory: int | None = None
    secure: bool = False
    isolation: str = "checked"
    checkpoints: Checkpoints | str | os.PathLike[str] | None = None

    def seeded(self, run: Run) -> bool:
        """Whether noise or secret batches of `run` can be made again by somebody: under a seed, or from a generator that was given.

        Nobody can tell how a given generator was seeded, or who has a copy of it. One for the batches alone tells nothing where the design
        keeps nothing secret: all is as certified, whoever knows the batches.
        """
        drawn = self.noise_generator is not None or (self.batch_generator is not None and bool(run.batches.secret))
        return self.seed is not None or drawn

    def refuse_for(self, model: str, *understood: str) -> None:
        """Refuse options, beside `OF_ALL` and those understood, that are given and that a model, in words, does not know."""
        for one in fields(self):
            if one.name not in (*OF_ALL, *understood) and getattr(self, one.name) is not one.default:
                raise InputError(
                    f"{one.name}: given, and {model} does not know it.",
                    source=f"{one.name} in lethe.train.fit",
                    remedy=f"leave {one.name} out, or train the model as a torch.nn.Module.",
                )
