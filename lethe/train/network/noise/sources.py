"""Where the batches and the noise of a network's training come from."""

from __future__ import annotations

from typing import NamedTuple

import torch

from lethe.calculus.noise_generators import fresh_numpy_generator
from lethe.errors import HypothesisError, InputError
from lethe.run.run import Run
from lethe.train.core.generators import fresh_generator, refuse_predictable, seeded_generators, shard_generator
from lethe.train.distributed.collectives import control_device
from lethe.train.distributed.placement import Placement
from lethe.train.distributed.workers import Workers
from lethe.train.network.noise.correlated import CorrelatedNetworkNoise
from lethe.train.network.noise.correlated_secure import SecureCorrelatedNoise
from lethe.train.network.noise.gaussian import NetworkNoise
from lethe.train.network.noise.secure import SecureNoise
from lethe.train.network.noise.shared import Noise, OfOneProcess, ShardedNoise, SharedNoise, share_generator
from lethe.train.options import TrainOptions

_CPU = torch.device("cpu")


class Sources(NamedTuple):
    """A CPU generator for the batches, and the noise."""

    batches: torch.Generator
    noise: Noise


def shared_sources(sources: Sources, workers: Workers) -> Sources:
    """The sources of several processes, of which each has made its own: one noise, and process 0's batches; alone, as they are.

    Raises:
        StoppedElsewhere: another process had an error, or is gone.
    """
    if not workers.several:
        return sources
    assert not isinstance(sources.noise, SharedNoise | ShardedNoise)
    share_generator(sources.batches, workers)
    return Sources(sources.batches, SharedNoise(sources.noise, workers))


def placed_sources(run: Run, sources: Sources, placement: Placement, workers: Workers, *, seed: int | None, start: int) -> Sources:
    """`shared_sources`, correlated as the run says; of parameters in shards, noise of each process's own for these.

    Args:
        run: that is carried out.
        sources: that this process has made.
        placement: of the trained parameters.
        workers: all processes.
        seed: that they were made of; None: fresh entropy, or generators that were given.
        start: as `sources_of` was given it in process 0, which counts.
    Raises:
        InputError: two processes would draw the same noise.
        LetheError: correlated noise would outgrow its draws.
        StoppedElsewhere: another process had an error, or is gone.
    """
    assert isinstance(sources.noise, NetworkNoise | SecureNoise)
    whole = correlating(run, sources.noise, placement, seed=seed)
    shared = shared_sources(Sources(sources.batches, whole), workers)
    if not placement.sharded:
        return shared
    own, told = sources.noise, torch.tensor([start], device=control_device())
    workers.from_root([told])
    if seed is not None:
        own = NetworkNoise(shard_generator(seed, sources.noise.device, rank=workers.rank, start=int(told)))  # pyright: ignore
    digest = own.stream if isinstance(own, NetworkNoise) else ""
    remedy = "leave noise_generator out: each process then draws from fresh entropy of its own; or give each another generator."
    workers.refuse_agreement("noise_generator", digest, remedy=remedy)
    own = correlating(run, own, placement, seed=seed, part=workers.rank + 1)
    of_all = shared.noise if isinstance(shared.noise, SharedNoise) else SharedNoise(whole, workers)
    return Sources(shared.batches, ShardedNoise(own, of_all, placement.parts(), placement.dimension))


def correlating(run: Run, noise: NetworkNoise | SecureNoise, placement: Placement, *, seed: int | None, part: int = 0) -> OfOneProcess:
    """The noise that a run asks for, from what is drawn anew at each step.

    Args:
        run: whose noise may be correlated.
        noise: drawn anew at each step.
        placement: of the trained parameters.
        seed: that it was made of; None: no seed.
        part: see `step_generator`.
    Raises:
        LetheError: correlated noise would outgrow its draws.
    """
    if run.noise is None:
        return noise
    coarsest = max((parameter.dtype for parameter in placement.named.values()), key=lambda dtype: torch.finfo(dtype).eps)
    if isinstance(noise, SecureNoise):
        return SecureCorrelatedNoise(run, noise, coarsest, dimension=placement.dimension)
    return CorrelatedNetworkNoise(run, noise, coarsest, seed=seed, part=part)


def sources_of(run: Run, device: torch.device, options: TrainOptions, *, start: int = 0) -> Sources:
    """Generators from the operating system's entropy, unless a seed or generators are given.

    Args:
        run: what is to be trained.
        device: of the parameters.
        options: seed, generators, and whether noise is secure.
        start: how often this training was started before; under a seed, each start has noise of its own.
    Raises:
        InputError: a seed together with generators, a generator on another device, or one generator for both.
        HypothesisError: secure noise, and the run is not one of noisy sums alone.
    """
    seed, secure, noise_generator = options.seed, options.secure, options.noise_generator
    if not isinstance(secure, bool):
        raise InputError(f"secure: got {secure!r}; it needs True or False.")
    if secure and (run.release != "all" or run.pass_weights is not None):
        raise HypothesisError(
            f"secure: True, and release is {run.release}{', with pass_weights' if run.pass_weights is not None else ''}; rounding to a "
            "grid is not Lipschitz, so only composition covers it.",
            source="run.release, run.pass_weights",
            remedy="set release: all, or secure to False.",
        )
    refuse_predictable(seed, options.batch_generator, noise_generator, secure=secure)
    if seed is not None:
        first, second = seeded_generators(seed, (_CPU, device))
        if start:
            _, second = seeded_generators(seed, (_CPU, device), start=start)
        return Sources(first, NetworkNoise(second))
    batches = fresh_generator(_CPU) if options.batch_generator is None else options.batch_generator
    if secure:
        return Sources(batches, SecureNoise())
    if noise_generator is None:
        noise_generator = fresh_numpy_generator() if device.type == "cpu" else fresh_generator(device)
    noise = NetworkNoise(noise_generator)
    if noise.device.type != device.type:
        raise InputError(f"noise_generator: is on {noise.device}; the model is on {device}.", remedy="give one on the model's device.")
    return Sources(batches, noise)
