"""PrivacyEngine: private training in a user's loop; model, parameter names and optimiser stay as they are."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from lethe.certificates.counted_elsewhere import epsilon_of, planned
from lethe.certificates.training_record import HypothesisClaim, TrainingRecord
from lethe.documents.synonyms import answering, in_other_words
from lethe.errors import InputError, UnknownNameError
from lethe.run.run import Run
from lethe.train.callbacks.callback import TrainingCallback, TrainingEnd
from lethe.train.callbacks.paying import Spender, paying
from lethe.train.callbacks.telling import Telling
from lethe.train.checkpoints.file import Checkpoints
from lethe.train.clip.groups import Group
from lethe.train.clip.ways.isolated import Losses
from lethe.train.core.training_records import claims, network_record
from lethe.train.distributed.data_parallel import bare_module, bare_optimizer, without_reducer
from lethe.train.distributed.workers import Workers
from lethe.train.engine.opacus import ARGUMENTS, NAMES, OF_LOSSES, refuse_beside_a_run, run_of
from lethe.train.engine.state import LoopState, PrivateLoader
from lethe.train.engine.step_guard import refuse_another_engine
from lethe.train.network.trainer import Trainer
from lethe.train.options import TrainOptions

M = TypeVar("M", bound=nn.Module)
OptimizerT = TypeVar("OptimizerT", bound=torch.optim.Optimizer)
_MADE = {"resumed", "_average", "_batch", "_broken", "_clipper", "_counted", "_held", "_guard", "_placement", "_stream"}


class PrivacyEngine(LoopState):
    r"""Clips gradients, adds noise and records the run in a user's own loop; calls out of order are refused.

        engine = PrivacyEngine(run, physical_size=64)
        model, optimizer, loader = engine.make_private(module=model, optimizer=optimizer, losses=losses, data=dataset)
        for batch in loader:
            engine.backward(batch)
            optimizer.step()
            optimizer.zero_grad()
        certificate = lethe.certify(engine.record(), delta=1e-5)

    `backward` on the last micro-batch of a logical batch writes $\frac1b(\sum_i \mathrm{Clip}_C(\nabla f_i) + \zeta)$,
    $\zeta \sim N(0, z^2C^2I)$, into the parameters' `.grad`; on the others `.grad` stays None, so that `optimizer.step()` changes
    nothing and may be called after each. An empty Poisson batch comes as one row of zeros that does not count (`counted`), and takes its
    noisy step like any other.

    Refused, with the reason: a step without `backward`, or beside `loss.backward()`; a batch that is left out or used twice; gradients
    that are gone; a step beyond the run; trained parameters that anything but `optimizer.step()` writes to. What the optimiser's step, its
    own hooks included, and gradient clipping make of noisy gradients is their own affair. The function of the losses is compared with
    single records in some batches, as in `fit`.

    In a process group of `torch.distributed`, all processes run the same loop, each on its share of every batch. What is refused in one
    ends the loop in all. The model may be a `DistributedDataParallel`, or in shards (`fully_shard`), of which all processes call `record`
    and `recorded_run` together.

    `declared` says, statement by statement, what the certificate rests on and nobody checked: what the loop does to a batch before
    `backward`; where training begins (the model's weights and the optimiser's state must not depend on the private data, but by a training
    that is certified as well; the two then add up). Not seen is an optimiser that looks at private data besides its gradients, and what
    else a loop computes from the data and tells (a training loss that is printed is not certified).

    Args:
        run: as for `fit`; without regulariser and pass_weights. None: `make_private` makes it of a DataLoader, as Opacus does.
        clip_groups, method, physical_size, ema, gradient_memory, seed, batch_generator, noise_generator, secure, isolation: as for
            `fit`; the moving average is `engine.averaged`.
        checkpoints: as for `fit`. The training is saved when the loader is asked for the next batch, so all that a loop does after a step
            (a scheduler's step) is in it; schedulers are to be named in `Checkpoints(also=...)`.
        callbacks: as for `fit`; they are told of the end when the loop is asked for its record or its recorded run.
        ledger: as for `fit`; reserved in `make_private`, and settled when the loop is asked for its record or its recorded run.
    Raises:
        InputError: see `make_private`, which checks everything.
    """

    @in_other_words
    def __init__(
        self,
        run: Run | None = None,
        *,
        clip_groups: Sequence[Group] | str | None = None,
        method: str | None = None,
        physical_size: int | None = None,
        ema: float | None = None,
        gradient_memory: int | None = None,
        seed: int | None = None,
        batch_generator: torch.Generator | None = None,
        noise_generator: np.random.Generator | torch.Generator | None = None,
        secure: bool = False,
        isolation: str = "checked",
        checkpoints: Checkpoints | str | os.PathLike[str] | None = None,
        callbacks: TrainingCallback | Iterable[TrainingCallback] = (),
        ledger: Spender | None = None,
    ) -> None:
        self._run = run
        self._workers = Workers.current()
        self._told = Telling(callbacks, paying(ledger, checkpoints))
        self._options = TrainOptions(
            seed=seed,
            batch_generator=batch_generator,
            noise_generator=noise_generator,
            callbacks=self._told,
            clip_groups=clip_groups,
            method=method,
            physical_size=physical_size,
            ema=ema,
            gradient_memory=gradient_memory,
            secure=secure,
            isolation=isolation,
            checkpoints=checkpoints,
        )
        self._model: nn.Module | None = None

    @answering(ARGUMENTS)
    def make_private(
        self,
        *,
        module: M,
        optimizer: OptimizerT,
        losses: Losses | None = None,
        data: Any = None,
        data_loader: Any = None,
        noise_multiplier: float | None = None,
        max_grad_norm: float | None = None,
        users: Any = None,
        records_per_user: int | None = None,
        views: int = 1,
        epochs: int | None = None,
        steps: int | None = None,
    ) -> tuple[M, OptimizerT, PrivateLoader]:
        """The same model, the same optimiser, guarded, and a loader of the run's batches; of those after a checkpoint, if one was loaded.

        An engine without a run is given what Opacus' is, and how long training lasts; its loader gives an epoch each time it is iterated.

        Args:
            module: any model that `fit` takes, trained in place.
            optimizer: over its parameters; it sees noisy mean gradients only. run.release must be all.
            losses: (batch) -> one loss a record, shape (B,): `lambda batch: criterion(model(batch[0]), batch[1])`, of a criterion with
                reduction="none". It is given batches as the loader gives them, and parts of them, down to one record.
            data: what `fit` takes; of records that are mappings the loader gives dicts.
            data_loader: without a run: a DataLoader, of which data set, batch size, collate function and workers are used.
            noise_multiplier, max_grad_norm: without a run: of the noise on the sum of the gradients, relative to the norm that each
                record's is clipped to.
            users, records_per_user: of a run of unit "user": as for `fit`. A micro-batch then holds all rows of its users that take part
                in the step. The losses have one entry a row, in the rows' order, which tells whose each is; their mean over each user
                is clipped.
            views: as for `fit`: each record is so many rows of a micro-batch, next to one another, whose mean loss is clipped once.
            epochs, steps: without a run: one of them.
        Raises:
            InputError: anything that cannot be used, what the run says itself, or a second call.
            HypothesisError: the run asks for more than such training can be certified for.
        """
        grouped = {"users": users, "records_per_user": records_per_user}
        numbers = {"noise_multiplier": noise_multiplier, "max_grad_norm": max_grad_norm, "epochs": epochs, "steps": steps}
        with self._opening(losses):
            if (run := self._run) is not None:
                refuse_beside_a_run(data_loader=data_loader, **numbers)
            else:
                run, data = run_of(data_loader, optimizer, **numbers, data=data, **grouped)
                if noise_multiplier is None:
                    raise InputError(
                        "noise_multiplier: none was given, and the engine has no run.",
                        remedy="give one, or a target: make_private_with_epsilon(target_epsilon=..., target_delta=..., ...).",
                    )
            return self._start(module, optimizer, losses, run, data, data_loader, views=views, **grouped)

    @answering(ARGUMENTS)
    def make_private_with_epsilon(
        self,
        *,
        module: M,
        optimizer: OptimizerT,
        losses: Losses | None = None,
        data_loader: Any,
        target_epsilon: float,
        target_delta: float,
        max_grad_norm: float,
        epochs: int | None = None,
        steps: int | None = None,
        views: int = 1,
        allow_large_delta: bool = False,
    ) -> tuple[M, OptimizerT, PrivateLoader]:
        """`make_private` of an engine without a run, with the smallest noise that meets (target_epsilon, target_delta): as Opacus counts,
        for Poisson batches, every iterate released, and a record added or removed.

        Args, Raises: as `make_private`; a CalibrationError where no noise meets the target. allow_large_delta is as of `lethe.plan`.
        """
        with self._opening(losses):
            if self._run is not None:
                refuse_beside_a_run(target_epsilon=target_epsilon)
            run, source = run_of(data_loader, optimizer, noise_multiplier=None, max_grad_norm=max_grad_norm, epochs=epochs, steps=steps)
            run = planned(run, target_epsilon, target_delta, allow_large_delta=allow_large_delta)
            return self._start(module, optimizer, losses, run, source, data_loader, views=views)

    @contextmanager
    def _opening(self, losses: Losses | None) -> Iterator[None]:
        """Within: an error ends the start of all processes."""
        if self._model is not None:
            raise InputError("make_private: this engine has a model already; a run is carried out once.", remedy="make another engine.")
        self._workers.refuse_another_group()
        with self._workers.watched():
            if losses is None:
                raise InputError("losses: none was given; it needs the function of a batch to one loss a record.", remedy=OF_LOSSES)
            yield

    def _start(
        self, module: M, optimizer: OptimizerT, losses: Any, run: Run, data: Any, loader: DataLoader[Any] | None, **of_records: Any
    ) -> tuple[M, OptimizerT, PrivateLoader]:
        """Reserve what the run costs, check all that can be checked before the first batch, and begin."""
        bare, stepping = bare_module(module), bare_optimizer(optimizer)
        options, own = replace(self._options, optimizer=stepping, **of_records), without_reducer(module, losses)
        with self._told.preparing(run):
            refuse_another_engine(stepping)
            trainer = Trainer(bare, own, data, run, options, own_loop=True)
            try:
                self._begin(trainer, stepping)
            except BaseException:
                trainer.kept.close()
                raise
        self._run, self._model = trainer.asked, module
        self._workers.end()
        given, epoch = (data, None) if loader is None else (loader, len(loader))
        return module, optimizer, PrivateLoader(self, trainer, given, steps_per_epoch=epoch)

    @property
    def run(self) -> Run:
        """The run that is carried out."""
        if self._run is None:
            raise InputError("run: this engine has none yet.", remedy="call engine.make_private first, or give one: PrivacyEngine(run).")
        return self._run

    def recorded_run(self, *, steps_fixed_in_advance: bool = False) -> Run:
        r"""The run to certify: that of `record`.

        A certificate of T steps is for a T that is fixed in advance. A loop that ends at a step $\tau$ chosen along the way shows, by where
        it ends, what made it end, and no certificate of $\tau$ steps covers that. So before the last step the *planned* run is returned:
        all its iterates are covered.

        Args:
            steps_fixed_in_advance: True declares that the number of steps taken was settled before training, and by nothing of the private
                data: no released iterate, no accuracy, no time it took. Then the shorter run that was executed is returned.
        Raises:
            InputError: a gradient was written and no step taken with it, or the argument is neither True nor False.
            HypothesisError: no step was taken, or they are not the beginning of the plan; or something else moved the parameters.
            LetheError: the parameters overflowed, or noise was too small to survive rounding.
            StoppedElsewhere: another process had an error, or is gone.
        """
        return self.record(steps_fixed_in_advance=steps_fixed_in_advance).run

    def record(self, *, steps_fixed_in_advance: bool = False) -> TrainingRecord:
        """The training record: the recorded run, and the parameters and buffers that the model has now. Call it before another iterate or
        an average is loaded: these are functions of released iterates.

        `lethe.certify(engine.record(), delta)` certifies the run and seals it: it binds it to these weights.

        Args, Raises: as `recorded_run`.
        """
        run = self._placement.read(self._stated, steps_fixed_in_advance)
        record = network_record(run, bare_module(self._model), self._claims(), self.averaged, isolation=self._options.isolation)
        self._told.end(TrainingEnd(run=run, steps=self.steps, record=record, report=self.report))
        return record

    @property
    def averaged(self) -> dict[str, Tensor] | None:
        """The model's state dict with the moving average of the iterates so far, for `load_state_dict`; None without `ema`, or steps."""
        average = self._average
        return average.of(bare_module(self._model)) if average is not None and average.begun else None

    def get_epsilon(self, delta: float, *, allow_large_delta: bool = False) -> float:
        """What is spent so far: the epsilon of the steps whose noise was drawn, that of a step not yet taken included; 0.0 before them.

        It is for a moment that was fixed in advance, such as a number of steps, or this number, see `recorded_run`.

        Raises:
            InputError: the engine has no model yet, or a delta that is not in (0, 1), or not below 1/records and not allowed.
            HypothesisError: something else than a step moved the parameters.
        """
        run = self._spent()
        # Before the first step too, so that a delta that cannot be used is refused.
        spent = epsilon_of(self.run if run is None else run, delta, allow_large_delta=allow_large_delta)
        return 0.0 if run is None else spent

    @property
    def declared(self) -> tuple[str, ...]:
        """The assumptions of the certificate that nobody checked, one statement each."""
        return tuple(claim.detail for claim in self._claims())

    def _claims(self) -> tuple[HypothesisClaim, ...]:
        users = self.run.unit == "user"
        return claims(data=self._source, isolation=self._clipper.isolation, optimiser=True, loop=True, users=users)

    def __getattr__(self, name: str) -> Any:
        """What `make_private` makes, before it did, or what Opacus' engine has besides: an error with the line that does it here."""
        if name in _MADE:
            raise InputError("the engine has no model yet.", remedy="call engine.make_private(module=..., optimizer=..., ...) first.")
        raise UnknownNameError(f"PrivacyEngine has no {name!r}.", remedy=NAMES.get(name))
