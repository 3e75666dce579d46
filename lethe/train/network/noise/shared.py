"""Noise for several processes: drawn once and broadcast bit for bit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from lethe.run.run import Run
from lethe.train.core.tensors import dimension
from lethe.train.distributed.workers import Workers
from lethe.train.network.noise.correlated import CorrelatedNetworkNoise
from lethe.train.network.noise.correlated_secure import SecureCorrelatedNoise
from lethe.train.network.noise.gaussian import NetworkNoise
from lethe.train.network.noise.secure import SecureNoise

Correlated = CorrelatedNetworkNoise | SecureCorrelatedNoise
OfOneProcess = NetworkNoise | SecureNoise | Correlated


class SharedNoise:
    r"""Adds $N(0, \tau^2 I)$ once to what process 0 holds, and gives all processes the result.

    What the others held is overwritten, with $\tau = 0$ too: of the sums they have nothing (`Workers.add_up`), and parameters stay equal
    bit for bit. Their own generators are never drawn from, and nobody but process 0 knows the noise, unless a seed was given to all.

    Args:
        noise: of process 0; the others' is not used.
        workers: all processes, which must add noise at the same places.
    """

    __slots__ = ("_noise", "_workers")

    def __init__(self, noise: OfOneProcess, workers: Workers) -> None:
        self._noise, self._workers = noise, workers

    @property
    def own(self) -> OfOneProcess:
        """Of this process; in process 0 alone it is drawn from."""
        return self._noise

    @property
    def secure(self) -> bool:
        """Whether the noise is on a grid, from a cryptographic source."""
        return isinstance(self._noise, SecureNoise)

    def add_to(self, tensors: Iterable[Tensor], noise_std: float) -> None:
        """As `NetworkNoise.add_to`, in all processes.

        Raises:
            InputError, LetheError: what the noise raises, in process 0.
            LetheError: the processes ask for different noise.
            StoppedElsewhere: another process had an error, or is gone.
        """
        tensors = list(tensors)
        if self._workers.root:
            self._noise.add_to(tensors, noise_std)
        elif isinstance(self._noise, Correlated):
            self._noise.elsewhere(noise_std)
        self._workers.from_root(tensors, noise_std)


class ShardedNoise:
    r"""Adds $N(0, \tau^2 I)$ to parameters of which each process holds a shard, and once to those that all hold whole.

    A shard gets noise of its own process's stream, which no other process has; each number is in one shard, so all together they are one
    Gaussian. The processes meet before any of them draws: process 0 comes to that meeting once it has written down that the step counts.

    Args:
        own: of this process, for its shards.
        shared: of all processes, for what all hold whole.
        parts: of each tensor that noise is added to, whether it is a shard.
        dimension: how many numbers there are, over all processes.
    """

    __slots__ = ("_own", "_parts", "_shared", "dimension")

    def __init__(self, own: OfOneProcess, shared: SharedNoise, parts: Sequence[bool], dimension: int) -> None:
        self._own, self._shared, self._parts, self.dimension = own, shared, list(parts), dimension

    @property
    def secure(self) -> bool:
        """Whether the noise is on a grid, from a cryptographic source."""
        return isinstance(self._own, SecureNoise)

    @property
    def own(self) -> OfOneProcess:
        """Of this process's shards."""
        return self._own

    @property
    def shared(self) -> SharedNoise:
        """Of what all processes hold whole."""
        return self._shared

    def add_to(self, tensors: Iterable[Tensor], noise_std: float) -> None:
        """As `SharedNoise.add_to`, of this process's shards and all that is whole, in the order of `parts`."""
        found = list(zip(tensors, self._parts, strict=True))
        self._shared.add_to([tensor for tensor, part in found if not part], noise_std)
        self._own.add_to([tensor for tensor, part in found if part and tensor.numel()], noise_std)


Noise = OfOneProcess | SharedNoise | ShardedNoise


def correlated_in(noise: Noise) -> Correlated | None:
    """What correlates noise in this process; None: it is independent."""
    own = noise.own if isinstance(noise, SharedNoise | ShardedNoise) else noise
    return own if isinstance(own, Correlated) else None


def fresh_share_of(noise: Noise) -> float:
    """How much of a step's own draw is in its noise, at the least; infinity where no rounding hides it."""
    correlated = correlated_in(noise)
    return 1.0 if correlated is None else correlated.fresh_share


def kept_noise(noise: Noise) -> dict[str, Correlated | None]:
    """What a checkpoint keeps of correlated noise: `noise` of whole parameters, and `shard_noise` of this process's shards."""
    if isinstance(noise, ShardedNoise):
        return {"noise": correlated_in(noise.shared), "shard_noise": correlated_in(noise)}
    return {"noise": correlated_in(noise), "shard_noise": None}


def any_length(noise: Noise) -> bool:
    """Whether it is the noise of a run of any number of steps."""
    correlated = correlated_in(noise)
    return correlated is None or correlated.any_length


def executed_with(noise: Noise, recorded: Run, *, steps: int | None = None) -> Run:
    """The run with the strategy of its noise, from what was recorded of each step.

    Args:
        noise: of the training.
        recorded: of independent noise.
        steps: that were taken; None: all of that run.
    Raises:
        HypothesisError: correlated noise was not drawn at every step, so that no Run describes what was executed.
    """
    correlated = correlated_in(noise)
    return recorded if correlated is None else correlated.executed(recorded, steps=steps)


def is_secure(noise: Noise) -> bool:
    """Whether noise is on a grid, from a cryptographic source; such noise is made so much larger that its grid costs nothing."""
    return noise.secure if isinstance(noise, SharedNoise | ShardedNoise) else isinstance(noise, SecureNoise)


def noisy_dimension(noise: Noise, tensors: Sequence[Tensor]) -> int:
    """How many numbers the noise is added to, over all processes, where it is added to these tensors of this one."""
    return noise.dimension if isinstance(noise, ShardedNoise) else dimension(tensors)


def share_generator(generator: torch.Generator, workers: Workers) -> None:
    """Put a CPU generator of batches into the state that process 0's is in, so that all processes draw the same batches.

    Raises:
        StoppedElsewhere: another process had an error, or is gone.
    """
    generator.set_state(workers.told_by_root("generator of batches", generator.get_state()))
