"""TrainOptions: settings that few trainings need, as one object; `fit`, `PrivacyEngine` and the integrations take it as `options`. So
their signatures stay short; an option that a kind of training would ignore is refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch

from lethe.errors import InputError
from lethe.errors.names import SYNONYMS
from lethe.run.run import Run
from lethe.train.callbacks.ledger_callback import Spender
from lethe.train.callbacks.progress import Progress
from lethe.train.checkpoints.file import Checkpoints
from lethe.train.clip.groups import Group
from lethe.train.clip.parts.selection import SparseSelection
from lethe.train.core.budgeted_noise import NoisePolicy
from lethe.train.core.proximal import ProximalGroup

LR_SCHEDULES = ("cosine", "linear")
"""Learning-rate schedules by name."""

_OF_ALL = ("noise_policy", "seed", "batch_generator", "noise_generator", "progress", "ledger", "allow_large_delta")
"""The options that every model knows; the others are of networks."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainOptions:
    r"""What a training is told besides its model, loss, records and run; of `lethe.train.fit` and `lethe.train.PrivacyEngine`.

    Args:
        progress: True: a bar on standard error if that is a terminal, with the mean loss, which is private, and epsilon so far; a function
            of (step, steps), which must leave the parameters as they are; or False. Of `fit`.
        physical_size: how many records are on the device at once; None: a whole batch, and 256 through a backbone. The result does not
            depend on it but for rounding.
        lr_scheduler: of `fit` with an optimiser: "cosine" or "linear", from the learning rate down to 0 over all steps; or a function of
            the optimiser to a scheduler of PyTorch's, which is stepped once a step and saved in checkpoints.
        validation_data: of `fit`: public records, in the form of the data. Their mean loss is computed after each epoch, in eval mode, and
            kept in `fitted.validation_losses`. Needs run.release = all.
        patience: training ends after so many epochs without a smaller loss of the validation data, and is certified for all of its steps;
            None: it takes them all.
        checkpoints: a folder, or more than that, to save the training to. If there is one in it already, training goes on from there,
            with fresh noise: make the same call again. The folder is as private as the data.
        ledger: what pays for the training: `lethe.ledger.Spending(ledger, "patients")`. What the run costs is reserved before a record is
            read, and replaced by the cost of the recorded run.
        users: of a run of unit "user", whose records are whose: an id for each, or the name of the column that holds them.
        records_per_user: how many of a user's records take part in a step, drawn at random anew each time; None: all.
        views: how often each record is read in a step, K: with a data set that augments at random, a record's gradient is that of the mean
            loss of K views (De et al. 2022, arXiv:2204.13650), clipped once. The certificate does not change.
        ema: $\beta$ in (0, 1), such as 0.999: `fitted.averaged` is then the average
            $\frac{1-\beta}{1-\beta^T}\sum_t \beta^{T-t} x_t$ of the iterates, beside the last one; the certificate covers both. Needs
            run.release = all.
        method: "clip", or another of the run's clip_method; None: the run's. "adaptive": clip_norm is the first norm, and the next follow
            the median of the gradients' norms, by a count with noise that the certificate covers (Andrew et al. 2019, arXiv:1905.03871).
            "directional", of `fit`: slopes along random directions, by two forward passes (Zhang et al. 2024, arXiv:2310.09639).
        smoothing: of the method "directional" the step h of its differences.
        clip_groups: parameter groups with norms of their own, whose squares sum to at most clip_norm^2: those of run.clip_groups, if it
            names some; or "per_layer", equal norms of all layers.
        sparse_selection: of a run with sparse_selection, the tables of which only selected rows get noise and a step, in one process: takes
            a fraction of the time where tables have millions of rows.
        proximal_groups: of `fit`: regularisers of parts of the parameters, where the run has none and release is all.
        noise_policy: of `fit`: chooses each step's noise multiplier from what was released so far, by public data besides; it must see
            nothing else of the private data. Needs run.noise_budget. None: the run's own noise.
        isolation: how it is known that records are independent. "checked": records of some batches are compared with the same
            records alone; a model that differs is trained on each record alone, or refused. "enforced": each record always passes
            through model and loss alone, which is slower, and the certificate says enforced. "declared": nothing is compared.
        gradient_memory: how many bytes the gradients of single records may take at a time, beside what the backward pass has let go of by
            then; 0: none is kept, each is formed twice, which is slower. None: 8 MiB, on a GPU 64.
        secure: noise from the operating system's cryptographic source, exact on a grid, some six times slower; needs release = all. It is
            enlarged by what the grid costs, so that the run's certificate holds as it is.
        seed: makes batches and noise repeatable, for tests: whoever knows the seed knows the noise, and two fits under one seed share it.
            The recorded run is then `seeded`, and its certificate: no release. None: fresh entropy.
        batch_generator, noise_generator: instead of a seed, and as seeded: nobody can tell who could make their numbers again. The batches'
            is on the CPU, the noise's on the model's device, or NumPy's where that is the CPU. One for the batches alone is no harm where
            the design keeps nothing secret.
        allow_large_delta: whether a target with a delta of 1/records or more is meant, as of `lethe.plan`.

    Examples:
        >>> from lethe.train import TrainOptions
        >>> TrainOptions(physical_size=64).physical_size
        64
    """

    progress: bool | Progress = True
    physical_size: int | None = None
    lr_scheduler: str | Callable[[torch.optim.Optimizer], Any] | None = None
    validation_data: Any = None
    patience: int | None = None
    checkpoints: Checkpoints | str | os.PathLike[str] | None = None
    ledger: Spender | None = None
    users: Any = None
    records_per_user: int | None = None
    views: int = 1
    ema: float | None = None
    method: str | None = None
    smoothing: float = 1e-3
    clip_groups: Sequence[Group] | str | None = None
    sparse_selection: SparseSelection | None = None
    proximal_groups: Sequence[ProximalGroup] | None = None
    noise_policy: NoisePolicy | None = None
    isolation: str = "checked"
    gradient_memory: int | None = None
    secure: bool = False
    seed: int | None = None
    batch_generator: torch.Generator | None = None
    noise_generator: np.random.Generator | torch.Generator | None = None
    allow_large_delta: bool = False

    @classmethod
    def of(cls, options: TrainOptions | None) -> TrainOptions:
        """The options, or those of a training that names none; InputError for anything else."""
        if options is None:
            return cls()
        if not isinstance(options, cls):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(
                f"options: got {type(options).__name__}; it needs TrainOptions.", remedy="options=TrainOptions(physical_size=64)."
            )
        return options

    def seeded(self, run: Run) -> bool:
        """Whether noise or secret batches of `run` can be made again by somebody: under a seed, or from a generator that was given.

        Nobody can tell how a given generator was seeded, or who has a copy of it. One for the batches alone tells nothing where the design
        keeps nothing secret: all is as certified, whoever knows the batches.
        """
        drawn = self.noise_generator is not None or (self.batch_generator is not None and bool(run.batches.secret))
        return self.seed is not None or drawn

    def refuse(self, owner: str, *unknown: str) -> None:
        """Refuse the options among those unknown that are set, since nothing would come of them; `owner` is for errors what knows none."""
        for field in fields(self):
            if field.name in unknown and getattr(self, field.name) is not field.default:
                raise InputError(
                    f"{field.name}: {owner} does not know it.",
                    source=f"TrainOptions({field.name}=...)",
                    remedy=f"leave {field.name} out, or train the model as a torch.nn.Module by lethe.train.fit.",
                )

    def refuse_for(self, model: str, *understood: str) -> None:
        """Refuse options of networks, but for those understood, that are set for a model, in words, that is none."""
        self.refuse(model, *(field.name for field in fields(self) if field.name not in (*_OF_ALL, *understood)))


def in_options(call: str) -> dict[str, str]:
    """Option, or what other libraries call it -> where it is written, for a call that takes options=TrainOptions(...)."""
    names = {field.name for field in fields(TrainOptions)}
    words = {word: name for word, meant in SYNONYMS.items() if "batches" not in meant.names for name in meant.names if name in names}
    words |= {name: name for name in names}
    return {word: f"write {call.replace('...', f'options=TrainOptions({name}=...)')}." for word, name in words.items()}
