"""fit: carry out a Run on any PyTorch model. `steps_of` and the loop in `fit` are the whole algorithm on one screen."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from lethe.calculus.composition.odometer import Odometer
from lethe.certificates.training_record import TrainingRecord
from lethe.errors import InputError
from lethe.run.run import Run
from lethe.train.checkpoints.checkpointing import keeping
from lethe.train.checkpoints.file import Checkpoints
from lethe.train.checkpoints.training_state import Training
from lethe.train.checks.held_parameters import HeldParameters
from lethe.train.checks.loss import CheckedLoss, LossFunction
from lethe.train.checks.padding import AloneCheck
from lethe.train.clipping import Clipper, Group
from lethe.train.core.budgeted_noise import NoisePolicy
from lethe.train.core.declared import claims, declared_of, of_loss
from lethe.train.core.generators import is_seeded
from lethe.train.core.progress import Callback, reporting
from lethe.train.core.recorder import Recorder
from lethe.train.core.samplers import Batch
from lethe.train.core.vouching import network_record
from lethe.train.data import BatchStream, as_source
from lethe.train.distributed.shared_start import refuse_other_start
from lethe.train.distributed.workers import Workers, ending_together
from lethe.train.model_state.untouched_state import UntouchedState
from lethe.train.network.noise.budget import NetworkBudget, network_budget
from lethe.train.network.noise.sources import shared_sources, sources_of
from lethe.train.network.plan import as_clipped, clipper_of, refuse_groups, refuse_optimizer, trained_parameters
from lethe.train.network.proximal.steps import ProximalGroup
from lethe.train.network.report import NetworkReport, reported
from lethe.train.network.steps import ByOptimizer, PlainDescent, Sums, Update, refuse_end, refuse_start

_ALONE = "let the model's forward pass, the loss, the data set and `progress` read the parameters and never write them."


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fitted:
    """A trained network.

    What a certificate of `run` covers is the model's state dict: release that. What is computed from private data besides (accuracy, mean
    loss) is not covered. Nor is what the modules hold in plain attributes, their containers and hooks, which `torch.save(model)` writes
    too: training refuses tensors, arrays, bytes and containers of numbers that are new or changed there, after the first step and at the
    end; numbers by themselves, texts, and what lies in classes and globals are not looked at.

    Args:
        model: the model that was given, with the last iterate in it.
        run: the run that was executed, as recorded: what to certify.
        record: what this training vouches for: `lethe.certify(fitted, delta)` certifies and seals it. It is of the parameters and buffers
            as they were when training ended; the model that is sealed is the one whose state dict still has them.
        checked: what the clipping engine's self-check could say of the model; of several processes, each from its own records.
        declared: what the certificate rests on besides, and nobody checked, statement by statement; of several processes, each its own.
        report: what happened to the data; private.
        spent, odometer: under a noise_budget, as in the report of `fit_linear`: the most that a record has spent, and what it is good for;
            of a seeded run for nothing, and the odometer is None.
    """

    model: nn.Module
    run: Run
    record: TrainingRecord
    checked: str
    declared: tuple[str, ...]
    report: NetworkReport
    spent: float | None = None
    odometer: Odometer | None = None


@ending_together
def fit(
    model: nn.Module,
    loss: LossFunction,
    data: Any,
    run: Run,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    clip_groups: Sequence[Group] | None = None,
    proximal_groups: Sequence[ProximalGroup] | None = None,
    noise_policy: NoisePolicy | None = None,
    method: str | None = None,
    physical_size: int | None = None,
    prefetch: int = 2,
    seed: int | None = None,
    batch_generator: torch.Generator | None = None,
    noise_generator: np.random.Generator | torch.Generator | None = None,
    secure: bool = False,
    progress: bool | Callback = False,
    verify: bool = True,
    checkpoints: Checkpoints | str | os.PathLike[str] | None = None,
) -> Fitted:
    r"""Train a model as `run` says, and record the run that was executed.

    Without an optimiser the steps are those of the certificate,
    $x_t = \mathrm{prox}_{\lambda_t h}(x_{t-1} - \frac{\lambda_t}{b}\sum_i \mathrm{Clip}_C(\nabla f_i) + \nu_t)$, on the concatenation of
    all trained parameters. With one, it is given the noisy mean gradient, and may do with it what it likes: that is post-processing.

    The model is trained as it stands. In train mode dropout draws a mask for each record (from PyTorch's global generator, so a result
    then depends on `physical_size`); in eval mode there is no dropout, and batch normalisation, which train mode refuses, uses its stored
    statistics. What is trained must be float32 or float64, on one device. If an error is raised after the first step, the model holds an
    unfinished iterate, which must not be released.

    In a process group of `torch.distributed`, all processes are to call it alike, each with the bare model. Each takes its share of every
    batch; clipped sums are added up in process 0, which adds the noise once and gives the others the result, so that all take the same
    step and record the same run. An error in one process ends all.

    What is certified is this training. The model's parameters before it must not depend on the private data, but by a training that is
    certified as well: a second training from a privately trained start adds its certificate to the first one's.

    Args:
        model: any module whose records do not meet; what does not require grad stays as it is. It is trained in place.
        loss: (outputs, targets) -> one loss a record, shape (B,), such as `nn.CrossEntropyLoss(reduction="none")`.
        data: arrays, memory maps, a Parquet source or a map-style Dataset (`lethe.train.data.as_source`); the last tensor of a record is
            its target, the others are the model's arguments.
        run: clip_norm and noise_multiplier must be set (noise 0 is allowed: no privacy), the latter unless a policy chooses it. What it
            says of the loss is declared. With noise_budget set, every step is paid for before it is computed, and the first that the
            budget does not reach ends training.
        optimizer: over the model's parameters; needs run.release = all, unless it is SGD without momentum or weight decay, with
            run.step_size as its learning rate at every step. Its learning rate may be scheduled between steps by `progress`.
            A new one: what its state already holds of private data is not accounted for.
        clip_groups: parameter groups with norms of their own, whose squares sum to at most clip_norm^2: those of run.clip_groups, if it
            says any; None: one norm for all.
        proximal_groups: disjoint groups of parameters with regularisers of their own; needs run.release = all and no run.regulariser.
            $x_t = \arg\min_u \sum_g h_g(u_g) + \frac{1}{2\lambda_t}\|u - y_t\|^2$ with $y_t$ what the noisy step, or the optimiser,
            made: in the Euclidean metric, with the run's $\lambda_t$, whatever the optimiser's metric and learning rate are.
        noise_policy: chooses each step's noise multiplier from what was released so far (see `Observed`), by public data besides; it must
            see nothing else of the private data. Needs run.noise_budget. None: the run's own noise.
        method: None: run.clip_method. "clip" is a projection; "normalise" and "automatic" are none, and need release = all.
        physical_size: how many records are on the device at once; None: a whole batch. The result does not depend on it but for rounding.
        prefetch: batches read ahead.
        seed: makes batches and noise repeatable, for tests: whoever knows the seed knows the noise, and two fits under one seed share it.
            The recorded run is then `seeded`, and its certificate: no release.
        batch_generator, noise_generator: instead of a seed, and as seeded: nobody can tell who could make their numbers again. The noise's
            is on the model's device. One for the batches alone is no harm where the design keeps nothing secret.
        secure: noise from the operating system's cryptographic source, exact on a grid, some six times slower (see `SecureNoise`); needs
            release = all. It is enlarged by what the grid costs, so that the run's certificate holds as it is.
        progress: True: a bar on standard error if that is a terminal; or a function of (step, steps), which must leave the parameters as
            they are.
        verify: check the first batches, and some later ones, against plain autograd and single records, and the loss against itself.
        checkpoints: a folder, or more than that, to save the training to. If there is one in it already, training goes on from there,
            with fresh noise: call `fit` again as before. The folder is as private as the data.
    Returns:
        The model, the recorded run (equal to `run` if its loss's evidence is "declared", it says method and clip groups itself, and nothing
        was seeded) and what the self-check said.
    Raises:
        BudgetExceededError: the first step alone costs more than run.noise_budget.
        InputError: anything that cannot be used; nothing is trained then, or, where the model itself is at fault, no step is taken.
        HypothesisError: the run asks for more than such training can be certified for; the model keeps what it saw, in buffers or
            attributes; or something else than the step (the forward pass, the loss, `progress`, a second optimiser) moved the parameters.
        LetheError: the parameters overflowed, or noise was too small to survive rounding.
    """
    if not callable(loss):
        raise InputError(f"loss: got {type(loss).__name__}; it needs a function of (outputs, targets) to one loss a record.")
    run = as_clipped(run, groups=clip_groups, method=method)
    clipper = clipper_of(model, run, groups=clip_groups, verify=verify, budgeted=True)
    named = trained_parameters(model)
    parameters = list(named.values())
    if optimizer is not None:
        refuse_optimizer(optimizer, run, named, model)
    if proximal_groups is not None:
        refuse_groups(proximal_groups, run, model)
    refuse_start(run, parameters)
    budget = network_budget(run, parameters, noise_policy)
    device = parameters[0].device
    workers = Workers.current()
    workers.refuse_device(device)
    seeded = is_seeded(run, seed=seed, batch_generator=batch_generator, noise_generator=noise_generator)
    with closing(keeping(checkpoints, run, noise_generator, workers, seeded=seeded, policed=noise_policy is not None)) as kept:
        own = sources_of(
            run, device, seed=seed, batch_generator=batch_generator, noise_generator=noise_generator, secure=secure, start=kept.starts
        )
        batches, noise = shared_sources(own, workers)
        source = as_source(data)
        stream = BatchStream(
            run, source, batches, physical_size=physical_size, prefetch=prefetch, rank=workers.rank, world_size=workers.world_size
        )
        options: dict[str, Any] = {
            "clip_groups": clip_groups,
            "proximal_groups": proximal_groups,
            "physical_size": physical_size,
            "secure": secure,
            "verify": verify,
            "seeded": seeded,
        }
        refuse_other_start(workers, model, run, source, optimizer=optimizer, options=options)
        extras: dict[str, Any] = {"groups": proximal_groups or (), "budget": budget}
        held = HeldParameters(model, named, step="fit's own step", remedy=_ALONE)
        update: Update = (
            PlainDescent(named, run, noise, **extras)
            if optimizer is None
            else ByOptimizer(named, run, noise, optimizer, held=held, **extras)
        )
        untouched = UntouchedState(model, attributes=True)
        losses, alone = CheckedLoss(loss, clipper), AloneCheck(model)
        recorder = Recorder(run, seeded=seeded)
        try:
            done = kept.begin(
                Training(
                    named=named,
                    clipper=clipper,
                    stream=stream,
                    recorder=recorder,
                    held=held,
                    optimizer=optimizer,
                    pass_weights=update.pass_weights,
                )
            )
            held.keep()
            if budget is not None:
                budget.pay_again(done)
            with reporting(progress if workers.root or progress is not True else False, run.total_steps) as finished:
                for step, records, sums in steps_of(clipper, losses, stream, device, held, budget, alone if verify else None):
                    untouched.refuse_changes_after(step - done)
                    workers.add_up(list(sums.values()), parameters=parameters)
                    kept.before_noise(step)
                    executed = update(step, sums)
                    held.keep()
                    recorder.note(
                        step_size=executed.step_size,
                        noise_std=executed.noise_std,
                        clip_norm=run.clip_norm,
                        divisor=run.batch_size,
                        batch=records,
                        pass_weights=update.pass_weights,
                    )
                    finished(step)
                    kept.after(step, last=budget is not None and budget.ends_after(step))
        finally:
            stream.close()
        held.refuse_changes("after the last step")
        untouched.refuse_changes()
        workers.from_root(parameters)
        refuse_end(run, parameters)
        loss_said = of_loss(optimiser=optimizer is not None and run.release == "all")
        recorded = recorder.run(run, enforced=False)
        kept.finish()
        model.zero_grad(set_to_none=True)  # what the forward pass may have put there has no noise
        return Fitted(
            model=model,
            run=recorded,
            record=network_record(recorded, model, claims(data=source, verify=verify, loss=loss_said)),
            checked=losses.said(clipper.verified) or "no batch had two records with gradients",
            declared=declared_of(
                data=source,
                verify=verify,
                checked=clipper.verified,
                loss=loss_said,
                missing=(losses.missing, alone.missing),
                attributes=untouched.declared,
            ),
            report=reported(clipper),
            spent=None if budget is None else budget.spent,
            odometer=None if budget is None or recorded.seeded else budget.odometer,
        )


class Summed(NamedTuple):
    """A step's number, its records, and the sums of their clipped gradients."""

    step: int
    records: Batch
    sums: Sums


def steps_of(
    clipper: Clipper,
    loss: LossFunction,
    stream: BatchStream,
    device: torch.device,
    held: HeldParameters,
    budget: NetworkBudget | None = None,
    alone: AloneCheck | None = None,
) -> Iterator[Summed]:
    """The clipped sums of each step of the stream, over all of its micro-batches; 0 for an empty batch. Ends where the budget does.

    Records of padded batches are compared with the same records alone, where `alone` is given.

    Raises:
        HypothesisError: something else than a step moved the parameters.
    """
    begun = 0
    for batch in stream:
        if batch.step != begun:
            begun = batch.step
            if budget is not None and not budget.pays(begun):
                return
            held.refuse_changes(f"before step {begun}")
        *inputs, targets = (tensor.to(device) for tensor in batch.tensors)
        if not inputs:
            raise InputError(
                "data: a record is one tensor; it needs inputs and a target.",
                remedy="give (features, targets), or the same array twice where a model is to reproduce its input.",
            )
        if len(targets):
            with clipper.recording():
                outputs = _outputs(clipper.model, inputs)
            clipper.backward(loss(outputs, targets), None if batch.counted is None else batch.counted.to(device))
            del outputs
            if alone is not None and batch.alone:
                _require_alone(alone, clipper.model, loss, [*inputs, targets], batch.alone, device)
        if batch.last:
            held.refuse_changes(f"in the forward pass or the loss of step {begun}")
            yield Summed(batch.step, batch.whole, clipper.take())


def _require_alone(
    check: AloneCheck,
    model: nn.Module,
    loss: LossFunction,
    batch: list[Tensor],
    alone: Mapping[int, Sequence[Tensor]],
    device: torch.device,
) -> None:
    def losses(tensors: Sequence[Tensor]) -> Tensor:
        *inputs, targets = (tensor.to(device) for tensor in tensors)
        return loss(_outputs(model, inputs), targets)

    singles = {record: lambda own=own: losses(own) for record, own in alone.items()}
    check.require(lambda: losses(batch)[list(alone)], singles)


def _outputs(model: nn.Module, inputs: Sequence[Tensor]) -> Any:
    try:
        return model(*inputs)
    except RuntimeError as error:
        known = {parameter.dtype for parameter in model.parameters()}
        strange = [str(tensor.dtype) for tensor in inputs if tensor.is_floating_point() and tensor.dtype not in known]
        if not strange:
            raise
        raise InputError(
            f"data: {', '.join(strange)} does not go into this model of {', '.join(map(str, known))}: {str(error).splitlines()[0]}",
            remedy="convert the features first, as by features.astype(numpy.float32), or the model by model.double().",
        ) from error
