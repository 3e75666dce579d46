"""The noise of one training: which source makes it, and which process adds it to which tensors, so that no number gets it twice or never.
`NoisySums` and `Descent` call `add_to` once a step; `sources_of` makes it of the run and the options (secure, correlated, seeded).
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from lethe.calculus.noise_generators import fresh_numpy_generator
from lethe.errors import HypothesisError, InputError
from lethe.run.run import Run
from lethe.train.core.generators import OF_SHARDS, fresh_generator, same_stream, seeded_generators, stream_generator
from lethe.train.core.tensors import dimension
from lethe.train.distributed.placement import Placement
from lethe.train.distributed.workers import Workers
from lethe.train.network.noise.correlated import CorrelatedNetworkNoise
from lethe.train.network.noise.gaussian import NetworkNoise
from lethe.train.network.noise.secure import SecureNoise
from lethe.train.options import TrainOptions

_CPU = torch.device("cpu")
OfOneProcess = NetworkNoise | SecureNoise | CorrelatedNetworkNoise


class TrainingNoise:
    r"""Adds $N(0, \tau^2 I)$ to tensors, once to each number, in all processes that train together.

    **Whole tensors**: process 0 adds the noise to what it holds, and gives all processes the result, bit for bit. What the others held is
    overwritten, with $\tau = 0$ too: of the sums they have nothing (`Workers.add_up`), and parameters stay equal. Their own noise is never
    drawn, and nobody but process 0 knows what was, unless a seed was given to all.

    **Shards** get noise of their own process's stream, which no other process has; each number is in one shard, so all together they are
    one Gaussian. The processes wait for each other before any draws: process 0 arrives once it has written down that the step counts.
    `parts`: of each tensor that noise is added to, whether it is a shard; `dimension` numbers are trained, over all processes.

    Attributes:
        add_to: (tensors, noise_std) -> None, within `torch.no_grad()`: adds the noise, in all processes. The tensors are float32 or
            float64, in the order of `parts`, shards as this process holds them; the deviation is as of `NetworkNoise.add_to`. Raises a
            LetheError where the processes ask for different noise, or what the noise raises, in its process; and a StoppedElsewhere where
            another process had an error, or is gone.
        by_rows: what makes it, where sums of large tables may come by their rows; None: they must be whole.
        secure: whether it is on a grid, and to be made so much larger that the grid costs nothing; correlated noise sees to that itself.
    """

    def __init__(
        self,
        whole: OfOneProcess,
        workers: Workers | None = None,
        *,
        shards: OfOneProcess | None = None,
        parts: Sequence[bool] | None = None,
        dimension: int | None = None,
    ) -> None:
        self._whole, self._workers = whole, Workers() if workers is None else workers
        self._shards, self._parts, self._dimension = shards, parts, dimension
        self._add = whole.add if isinstance(whole, NetworkNoise) else whole.add_to
        self.add_to: Callable[[Sequence[Tensor], float], None] = self._add
        if shards is not None or self._workers.several:
            self.add_to = self._add_to_all
        self.secure = isinstance(whole, SecureNoise)
        self.by_rows = whole if isinstance(whole, NetworkNoise) and shards is None and not self._workers.several else None

    def _add_to_all(self, tensors: Sequence[Tensor], noise_std: float) -> None:
        parts = self._parts or [False] * len(tensors)
        whole = [tensor for tensor, part in zip(tensors, parts, strict=True) if not part]
        if self._workers.root:
            self._add(whole, noise_std)
        elif isinstance(self._whole, CorrelatedNetworkNoise):
            self._whole.elsewhere(noise_std)
        self._workers.from_root(whole, noise_std)
        if self._shards is not None:
            self._shards.add_to([tensor for tensor, part in zip(tensors, parts, strict=True) if part and tensor.numel()], noise_std)

    def dimension_of(self, tensors: Sequence[Tensor]) -> int:
        """How many numbers noise is added to, over all processes, where it is added to these tensors of this one."""
        return dimension(tensors) if self._dimension is None else self._dimension

    @property
    def correlated(self) -> CorrelatedNetworkNoise | None:
        """What correlates it in this process; None: it is independent."""
        sampler = self._whole if self._shards is None else self._shards
        return sampler if isinstance(sampler, CorrelatedNetworkNoise) else None

    def correlated_states(self) -> dict[str, Any]:
        """What a checkpoint keeps of correlated noise: `noise` of whole parameters, and `shard_noise` of this process's shards."""
        samplers = {"noise": self._whole, "shard_noise": self._shards}
        return {name: sampler if isinstance(sampler, CorrelatedNetworkNoise) else None for name, sampler in samplers.items()}

    def executed(self, recorded: Run, *, steps: int | None = None) -> Run:
        """The run with the strategy of its noise, from what was recorded of each step; as `Draws.executed`."""
        return recorded if self.correlated is None else self.correlated.executed(recorded, steps=steps)


def sources_of(
    run: Run, options: TrainOptions, placement: Placement, workers: Workers, *, start: int = 0
) -> tuple[torch.Generator, TrainingNoise]:
    """A CPU generator for the batches, in the same state in all processes, and the noise that the run asks for.

    Under a seed, each start of a training has noise of its own.
    """
    parameters = list(placement.named.values())
    seed, device = options.seed, parameters[0].device
    batches, sampler = own_sources(run, device, options, start=start)
    coarsest = max((parameter.dtype for parameter in parameters), key=lambda dtype: torch.finfo(dtype).eps)

    def correlating(noise: NetworkNoise | SecureNoise, part: int) -> OfOneProcess:
        if run.noise is None:
            return noise
        return CorrelatedNetworkNoise(run, noise, coarsest, dimension=placement.dimension, seed=seed, part=part)

    whole = correlating(sampler, 0)
    if workers.several:
        batches.set_state(workers.told_by_root("generator of batches", batches.get_state()))
    if not placement.sharded:
        return batches, TrainingNoise(whole, workers, dimension=placement.dimension)
    start = workers.told_by_root("count of starts", start)
    if seed is not None:
        sampler = NetworkNoise(stream_generator(seed, device, OF_SHARDS, start, workers.rank))
    stream = sampler.stream if isinstance(sampler, NetworkNoise) else ""
    same = [rank for rank, rank_streams in enumerate(workers.gathered({"stream": stream})) if stream and rank_streams["stream"] == stream]
    if len(same) > 1:
        raise InputError(
            f"noise_generator: the same in process {same[1]} and in process {same[0]}; each needs its own.",
            source="torch.distributed",
            remedy="leave noise_generator out: each process then draws from fresh entropy of its own; or give each another generator.",
        )
    shards = correlating(sampler, workers.rank + 1)
    return batches, TrainingNoise(whole, workers, shards=shards, parts=placement.parts(), dimension=placement.dimension)


def own_sources(
    run: Run, device: torch.device, options: TrainOptions, *, start: int = 0
) -> tuple[torch.Generator, NetworkNoise | SecureNoise]:
    """A CPU generator for the batches, and what makes the noise, of this process alone, where it is drawn anew at each step."""
    seed, secure, generator = options.seed, options.secure, options.noise_generator
    if secure and (run.release != "all" or run.pass_weights is not None):
        raise HypothesisError(
            f"secure: True, and release is {run.release}{', with pass_weights' if run.pass_weights is not None else ''}; rounding to a "
            "grid is not Lipschitz, so only composition covers it.",
            source="run.release, run.pass_weights",
            remedy="set release: all, or secure to False.",
        )
    if seed is not None and (options.batch_generator is not None or generator is not None or secure):
        raise InputError(
            "seed: given together with a generator or secure noise; a seed makes both generators.", remedy="give the seed or the others."
        )
    if secure and generator is not None:
        raise InputError("noise_generator: given together with secure noise, which has a source of its own.", remedy="leave it out.")
    if same_stream(options.batch_generator, generator):
        raise InputError(
            "noise_generator: in the same state as batch_generator; noise must not be predictable from batches.",
            remedy="give two generators.",
        )
    if seed is not None:
        batches, _ = seeded_generators(seed, (_CPU, device))  # the same at every start
        return batches, NetworkNoise(seeded_generators(seed, (_CPU, device), start=start)[1])
    given = options.batch_generator
    if given is not None and (not isinstance(given, torch.Generator) or given.device.type != "cpu"):
        raise InputError(f"batch_generator: got {given!r}; it needs a torch.Generator on the CPU, or None.")
    batches = fresh_generator(_CPU) if given is None else given
    if secure:
        return batches, SecureNoise()
    if generator is None:
        generator = fresh_numpy_generator() if device.type == "cpu" else fresh_generator(device)
    noise = NetworkNoise(generator)
    if noise.device.type != device.type:
        raise InputError(f"noise_generator: is on {noise.device}; the model is on {device}.", remedy="give one on the model's device.")
    return batches, noise
