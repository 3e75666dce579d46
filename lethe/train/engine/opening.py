"""What make_private was given: a run and its data set, or what Opacus is given, of which a run is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.data import DataLoader

from lethe.certificates.counted_elsewhere import planned
from lethe.errors import InputError
from lethe.run.known_fields import require_run
from lethe.run.run import Run
from lethe.train.callbacks.telling import Telling
from lethe.train.engine.from_loader import facts_of, run_like_opacus
from lethe.train.engine.opacus_names import OF_USERS, refuse_arguments
from lethe.train.engine.state import LoopState
from lethe.train.engine.step_guard import refuse_another_engine
from lethe.train.network.options import NetworkOptions
from lethe.train.network.preparation import PreparedNetwork, prepared_network
from lethe.train.options import CommonOptions


class Opening(NamedTuple):
    """How a loop begins.

    Args:
        run: that is carried out.
        losses: of a batch, one a record.
        data: its records.
        dataset: that the user gave.
        steps_per_epoch: of the DataLoader that was given; None: the data set was, and the loader gives all batches at once.
        users, records_per_user, views: whose the records are, and how often each is read; see `lethe.train.fit`.
    """

    run: Run
    losses: Any
    data: Any
    dataset: Any
    steps_per_epoch: int | None
    users: Any = None
    records_per_user: int | None = None
    views: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """The arguments of `make_private` and `make_private_with_epsilon`; see there. `length` is (epochs, steps)."""

    losses: Any
    data: Any = None
    data_loader: Any = None
    noise_multiplier: float | None = None
    max_grad_norm: float | None = None
    users: Any = None
    records_per_user: int | None = None
    views: int = 1
    length: tuple[int | None, int | None] = (None, None)
    target: tuple[float, float] | None = None
    allow_large_delta: bool = False
    others: Mapping[str, Any] = field(default_factory=dict)

    def opening(self, run: Run | None, optimizer: Any, *, known: tuple[str, ...]) -> Opening:
        """The run that is carried out, and its records.

        Args:
            run: of the engine; None: it is made of the DataLoader.
            optimizer: the user's.
            known: the arguments that the method takes by name.
        Raises:
            InputError: arguments that contradict one another or the run, or that ask for another thing.
            CalibrationError: no noise meets the target.
        """
        refuse_arguments(self.others, known)
        return self._made(bare_optimizer(optimizer)) if run is None else self._of_the_run(run)

    def _of_the_run(self, run: Run) -> Opening:
        if self.target is not None:
            raise InputError(
                "make_private_with_epsilon: this engine has a run, whose noise is its own.",
                remedy="PrivacyEngine(lethe.plan(run, epsilon=..., delta=...)).make_private(module=..., optimizer=..., data=...), or an "
                "engine without a run: PrivacyEngine().make_private_with_epsilon(...).",
            )
        for name, value in zip(("data_loader", "epochs", "steps"), (self.data_loader, *self.length), strict=True):
            if value is not None:
                raise InputError(
                    f"{name}: given, and the engine has a run, which says how records are drawn and for how long.",
                    source="the run in PrivacyEngine(run)",
                    remedy="give the data set as data=...; or leave the run out: PrivacyEngine().make_private(data_loader=..., ...).",
                )
        _refuse_other_numbers(require_run(run, correlated=True).uncorrelated, self.noise_multiplier, self.max_grad_norm)
        dataset = self.data.dataset if isinstance(self.data, DataLoader) else self.data
        return Opening(run, self.losses, self.data, dataset, None, self.users, self.records_per_user, self.views)

    def _made(self, optimizer: Any) -> Opening:
        if self.data is not None or self.data_loader is None:
            raise InputError(
                "data_loader: this engine has no run, and needs a DataLoader that says how large batches are.",
                remedy="give data_loader=..., or a run: PrivacyEngine(run).make_private(module=..., optimizer=..., data=...).",
            )
        if self.noise_multiplier is None and self.target is None:
            raise InputError(
                "noise_multiplier: none was given, and the engine has no run.",
                remedy="give one, or a target: make_private_with_epsilon(target_epsilon=..., target_delta=..., ...).",
            )
        for name, value in (("users", self.users), ("records_per_user", self.records_per_user)):
            if value is not None:
                raise InputError(
                    f"{name}: given, and the engine has no run: batch_size of a DataLoader counts records, where batches of users count "
                    "users.",
                    source="the unit of privacy, which is part of a run",
                    remedy=OF_USERS,
                )
        facts = facts_of(self.data_loader)
        epochs, steps = self.length
        numbers = {"max_grad_norm": self.max_grad_norm, "noise_multiplier": self.noise_multiplier}
        run = run_like_opacus(facts, optimizer, epochs=epochs, steps=steps, **numbers)
        counted = run if self.target is None else planned(run, *self.target, allow_large_delta=self.allow_large_delta)
        return Opening(counted, self.losses, facts.source, self.data_loader.dataset, facts.steps_per_epoch, views=self.views)


def bare_optimizer(optimizer: Any) -> Any:
    """The optimiser within what accelerate wraps around it: that one takes the steps, and has the hooks that guard them."""
    inner = getattr(optimizer, "optimizer", None)
    wrapped = type(optimizer).__module__.partition(".")[0] == "accelerate" and isinstance(inner, torch.optim.Optimizer)
    return inner if wrapped else optimizer


def begun(
    module: nn.Module, optimizer: torch.optim.Optimizer, opening: Opening, common: CommonOptions, options: NetworkOptions, told: Telling
) -> tuple[LoopState, PreparedNetwork]:
    """The state of a loop that begins, whose callbacks are told of it, and the network as it was checked.

    Args:
        module, optimizer: the user's.
        opening: the run and its records.
        common, options: of the engine.
        told: of callbacks.
    Raises:
        InputError, HypothesisError, LetheError: as `prepared_network`; the checkpoints are closed then.
    """
    optimizer = bare_optimizer(optimizer)
    refuse_another_engine(optimizer)
    read = {"users": opening.users, "records_per_user": opening.records_per_user, "views": opening.views}
    options = replace(options, optimizer=optimizer, **read)
    ready = prepared_network(module, lambda source: opening.losses, opening.data, opening.run, common, options, own_loop=True)
    try:
        return LoopState(ready, optimizer, told), ready
    except BaseException as error:
        ready.kept.close()
        told.failed(type(error).__name__)
        raise


def _refuse_other_numbers(run: Run, noise_multiplier: float | None, max_grad_norm: float | None) -> None:
    if noise_multiplier is not None and not bool((run.noise_multipliers[run.noisy_steps] == noise_multiplier).all()):
        raise InputError(
            f"noise_multiplier: got {noise_multiplier!r}; the run says {run.to_document()['noise_multiplier']!r}.",
            source="run.noise_multiplier",
            remedy="leave it out: the run's is used, and certified.",
        )
    if max_grad_norm is not None and max_grad_norm != run.clip_norm:
        raise InputError(
            f"max_grad_norm: got {max_grad_norm!r}; the run says {run.clip_norm!r}.",
            source="run.clip_norm",
            remedy="leave it out: the run's is used, and certified.",
        )
