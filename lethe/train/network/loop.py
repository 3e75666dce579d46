"""Training of a network: `train_network` and `steps_of` are the whole algorithm, each on one screen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple, TypeVar

import torch
from torch import nn

from lethe.run.known_fields import require_run
from lethe.run.run import Run
from lethe.train.callbacks.telling import Telling
from lethe.train.checkpoints.held_parameters import HeldParameters
from lethe.train.checkpoints.training_state import Training
from lethe.train.clip import Clipper
from lethe.train.core.noise_resolution import refuse_overflow
from lethe.train.core.progress import reporting
from lethe.train.core.recorder import Recorder
from lethe.train.core.samplers import Batch
from lethe.train.core.tensors import local
from lethe.train.core.training_records import claims, network_record
from lethe.train.data import BatchStream
from lethe.train.data.sources import Source
from lethe.train.distributed.data_parallel import bare_module
from lethe.train.distributed.placement import Placement
from lethe.train.distributed.workers import ending_together
from lethe.train.fitted import Fitted, spending
from lethe.train.network.batch_losses import BatchLosses, LossFunction, add_batch
from lethe.train.network.noise.budget import NetworkBudget
from lethe.train.network.noise.shared import executed_with, kept_noise
from lethe.train.network.options import NetworkOptions
from lethe.train.network.preparation import prepared_network
from lethe.train.network.report import EARLY, reported, said_of, warn_early
from lethe.train.network.steps import ByOptimizer, PlainDescent, Sums, Update
from lethe.train.options import CommonOptions

Module = TypeVar("Module", bound=nn.Module)


@ending_together
def train_network(model: Module, loss: LossFunction, data: Any, run: Run, common: CommonOptions, options: NetworkOptions) -> Fitted[Module]:
    """Train a module in place, as `lethe.train.fit` says: checks, the loop, checks.

    Args:
        model, loss, data, run: as given to `fit`.
        common, options: the rest.
    Raises:
        BudgetExceededError, InputError, HypothesisError, LetheError: as `fit`.
    """
    require_run(run, correlated=True)
    model = bare_module(model)

    def losses_of(source: Source) -> BatchLosses:
        return BatchLosses(model, loss, source, options.users if isinstance(options.users, str) else None)

    ready = prepared_network(model, losses_of, data, run, common, options, own_loop=False)
    run, clipper, named, budget, workers, stream = ready.run, ready.clipper, ready.named, ready.budget, ready.workers, ready.stream
    parameters, optimizer, placement = list(named.values()), options.optimizer, ready.placement
    device = parameters[0].device
    with closing(ready.kept) as kept:
        extras: dict[str, Any] = {"groups": options.proximal_groups or (), "budget": budget}
        held = HeldParameters(named, "fit's own step", placement)
        update: Update = (
            PlainDescent(named, run, ready.noise, **extras)
            if optimizer is None
            else ByOptimizer(named, run, ready.noise, optimizer, **extras)
        )
        recorder = Recorder(run, seeded=ready.seeded)
        try:
            done = kept.begin(
                Training(
                    named=update.iterate,
                    clipper=clipper,
                    stream=stream,
                    recorder=recorder,
                    held=held,
                    optimizer=optimizer,
                    recursion=update,
                    **kept_noise(ready.noise),
                )
            )
            update.show()
            held.keep()
            if budget is not None:
                budget.pay_again(done)
            told = common.callbacks
            asked = ready.asked if update.precision is None else ready.asked.replace(precision=update.precision)
            told.begin(asked, seeded=recorder.seeded, done=done, budget=None if budget is None else budget.filter)
            with reporting(common.progress if workers.root or common.progress is not True else False, run.total_steps) as finished:
                heard, steps = told if told else None, run.total_steps
                several = workers.several or placement.sharded
                for step, records, found in steps_of(clipper, stream, device, held, budget, heard, placement=placement):
                    sums = placement.add_up(found) if several else found
                    del found
                    if kept.active:
                        kept.before_noise(step)
                    executed = update(step, sums)
                    del sums
                    held.keep()
                    if ready.average is not None:
                        ready.average.add()
                    recorder.note(step_size=executed.step_size, noise_std=executed.noise_std, batch=records)
                    finished(step, steps)
                    if step - done in EARLY:
                        warn_early(clipper, run, device, stream, step=step - done)
                    if kept.active:
                        kept.after(step, last=budget is not None and budget.ends_after(step))
                    if heard is not None:
                        told.step(recorder)
        finally:
            stream.close()
            placement.let_go(refuse=False)
        held.refuse_changes("after the last step")
        workers.from_root(placement.whole)
        refuse_overflow(map(local, parameters), run)
        optimised, users = optimizer is not None and run.release == "all", run.unit == "user"
        recorded = executed_with(ready.noise, recorder.run(run, enforced=False)).replace(precision=update.precision)
        kept.finish()
        averaged = None if ready.average is None else ready.average.of(model)
        model.zero_grad(set_to_none=True)  # what the forward pass may have put there has no noise
        placement.meet()
        said = claims(data=ready.source, isolation=options.isolation, optimiser=optimised, users=users)
        return Fitted(
            model=model,
            run=recorded,
            record=network_record(recorded, model, said, averaged, isolation=options.isolation),
            averaged=averaged,
            checked=said_of(clipper),
            report=reported(clipper, run, steps=recorded.total_steps),
            **spending(None if budget is None else budget.filter, seeded=recorded.seeded),
        )


class Summed(NamedTuple):
    """A step's number, its records, and the sums of their clipped gradients."""

    step: int
    records: Batch
    sums: Sums


def steps_of(
    clipper: Clipper,
    stream: BatchStream,
    device: torch.device,
    held: HeldParameters,
    budget: NetworkBudget | None = None,
    told: Telling | None = None,
    *,
    placement: Placement,
) -> Iterator[Summed]:
    """The clipped sums of each step of the stream, over all of its micro-batches; 0 for an empty batch. Ends where the budget does.

    Args:
        clipper: of the model, whose losses are a `BatchLosses`.
        stream: micro-batches of the run.
        device: of the model.
        held: knows the parameters that the last step left.
        budget: is asked before each step; None: the run has none.
        told: is given the losses, for callbacks that ask for what is private; None: nobody is.
        placement: of the parameters, which are gathered for each step where they are in shards.
    Raises:
        HypothesisError: something else than a step moved the parameters.
    """
    begun, sharded = 0, placement.sharded
    for batch in stream:
        if batch.step != begun:
            begun = batch.step
            if budget is not None and not budget.pays(begun):
                return
            held.refuse_changes(f"before step {begun}")
            if sharded:
                placement.gather()
        if len(batch.tensors[0]):
            values = add_batch(clipper, batch, device)
            if told is not None:
                told.add_losses(values, batch.counted)
            del values
        if not batch.last and sharded:
            placement.collect(clipper.take)
        if batch.last:
            held.refuse_changes(f"in the forward pass or the loss of step {begun}")
            sums = clipper.take()
            if sharded:
                placement.let_go()
            yield Summed(batch.step, batch.whole, sums)
            del sums  # they would be there beside those of the next step
