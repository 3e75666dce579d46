"""The preparation of network training, in `fit` and in a loop of one's own: model, noise, batches and processes, checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import nn

from lethe.run.known_fields import require_run
from lethe.run.run import Run
from lethe.train.checkpoints.checkpointing import Checkpointing
from lethe.train.clip import Clipper, per_layer
from lethe.train.clip.ways.isolated import Losses
from lethe.train.data import BatchStream, as_source
from lethe.train.data.sources import Source, fields_of
from lethe.train.data.users import members_of
from lethe.train.distributed.placement import Placement, reshard
from lethe.train.distributed.shared_start import refuse_other_start
from lethe.train.distributed.workers import Workers
from lethe.train.network.averaging import MovingAverage, kept_too, moving_average
from lethe.train.network.noise.budget import NetworkBudget, network_budget
from lethe.train.network.noise.shared import Noise
from lethe.train.network.noise.sources import placed_sources, sources_of
from lethe.train.network.options import NetworkOptions
from lethe.train.network.plan import as_clipped, clipper_of, refuse_for_shards, refuse_groups, refuse_optimizer, trained_parameters
from lethe.train.network.steps import refuse_start
from lethe.train.options import CommonOptions

# Of several processes all need the same.
_COMPARED = ("clip_groups", "proximal_groups", "physical_size", "secure", "isolation", "records_per_user", "views", "ema")


class PreparedNetwork(NamedTuple):
    """A network that is about to be trained.

    Args:
        run: with the clipping that is used, of the noise that is drawn anew at each step.
        asked: the same with the noise that it has, which may be correlated.
        clipper: of the model.
        named: the trained parameters.
        budget: of a run that has one.
        workers: all processes that train this model.
        seeded: whether somebody can make noise or secret batches again.
        kept: its checkpoints.
        noise: of all processes.
        source: of the data.
        stream: of the run's batches.
        average: of the iterates; None: none was asked for.
        placement: of the trained parameters: whole in every process, or in shards.
    """

    run: Run
    asked: Run
    clipper: Clipper
    named: dict[str, nn.Parameter]
    budget: NetworkBudget | None
    workers: Workers
    seeded: bool
    kept: Checkpointing
    noise: Noise
    source: Source
    stream: BatchStream
    average: MovingAverage | None
    placement: Placement


def prepared_network(
    model: nn.Module,
    losses: Callable[[Source], Losses],
    data: Any,
    run: Run,
    common: CommonOptions,
    options: NetworkOptions,
    *,
    own_loop: bool,
) -> PreparedNetwork:
    """Check all that can be checked before the first batch.

    Args:
        model, data, run: as given to `fit`.
        losses: (source of the records) -> the function of a batch to one loss a record.
        common, options: the rest.
        own_loop: whether the loop is the caller's own: it needs an optimiser, and asks no filter of a noise_budget.
    Raises:
        BudgetExceededError, InputError, HypothesisError, LetheError: as `fit`; the checkpoints are closed then.
    """
    if isinstance(model, nn.Module):
        reshard(model)
    groups = options.clip_groups
    if groups == "per_layer":
        groups = per_layer(model, require_run(run, correlated=True).clip_norm or 1.0)  # of a run without one, groups are refused
    asked = as_clipped(run, groups=groups, method=options.method)
    run = asked.uncorrelated
    given: dict[str, Any] = {"groups": groups, "isolation": options.isolation, "gradient_memory": options.gradient_memory}
    source = as_source(data, leave_out=(options.users,) if isinstance(options.users, str) else ())
    clipper = clipper_of(model, losses(source), run, budgeted=not own_loop, physical_size=options.physical_size, **given)
    named = trained_parameters(model)
    parameters = list(named.values())
    if own_loop or options.optimizer is not None:
        refuse_optimizer(options.optimizer, run, named, model)  # pyright: ignore[reportArgumentType]  None is refused there
    average = moving_average(options.ema, run, named)
    if options.proximal_groups is not None:
        refuse_groups(options.proximal_groups, run, model)
    refuse_start(parameters)
    budget = network_budget(run, parameters, common.noise_policy)
    device, workers = parameters[0].device, Workers.current()
    workers.refuse_device(device)
    placement = Placement(model, named, workers)
    if placement.sharded:
        averaged = average is not None and options.checkpoints is not None
        refuse_for_shards(run, policed=common.noise_policy is not None, grouped=options.proximal_groups is not None, averaged=averaged)
    seeded, policed = common.seeded(run), common.noise_policy is not None
    kept = Checkpointing(kept_too(options.checkpoints, average), asked, common.noise_generator, workers, seeded=seeded, policed=policed)
    try:
        own = sources_of(run, device, **common.randomness, secure=options.secure, start=kept.starts)
        batches, noise = placed_sources(asked, own, placement, workers, seed=common.seed, start=kept.starts)
        grouped = {"users": options.users, "records_per_user": options.records_per_user, "views": options.views}
        members = members_of(run, data, source, **grouped, seed=common.seed)
        sharing = {"rank": workers.rank, "world_size": workers.world_size}
        stream = BatchStream(run, source, batches, physical_size=options.physical_size, members=members, **sharing)
        compared = {name: getattr(options, name) for name in _COMPARED} | {"seeded": seeded}
        compared["users"] = None if members is None else members.digest()
        compared["fields"] = fields_of(source)
        refuse_other_start(workers, model, asked, source, optimizer=options.optimizer, options=compared, pays=common.callbacks.pays)
    except BaseException:
        kept.close()
        raise
    return PreparedNetwork(run, asked, clipper, named, budget, workers, seeded, kept, noise, source, stream, average, placement)
