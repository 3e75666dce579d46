"""Where the trained parameters lie: whole in every process, or as shards (see `shards.py`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import ParamSpec, TypeVar

from torch import Tensor, nn

from lethe.errors import InputError
from lethe.train.core.tensors import dimension
from lethe.train.distributed.workers import Workers

Given = ParamSpec("Given")
Result = TypeVar("Result")


class Placement:
    """Parameters that are whole in every process, which the model computes with as they are.

    Args:
        named: the trained parameters, as the optimiser has them.
        workers: the processes that train them together.
    """

    def __init__(self, named: Mapping[str, nn.Parameter], workers: Workers) -> None:
        self.named, self._workers = dict(named), workers

    @property
    def computing(self) -> Collection[nn.Parameter]:
        """The parameters that the model computes with."""
        return self.named.values()

    @property
    def whole(self) -> list[nn.Parameter]:
        """The parameters that every process holds whole."""
        return list(self.named.values())

    @property
    def sharded(self) -> bool:
        """Whether any parameter lies in shards."""
        return False

    @property
    def dimension(self) -> int:
        """How many numbers are trained, over all processes."""
        return dimension(self.named.values())

    def parts(self) -> list[bool]:
        """Of each parameter, whether this process holds a shard of it, with noise of its own."""
        return [False] * len(self.named)

    def meet(self) -> None:
        """Before whole parameters are read, which all processes do together if they are in shards: wait for all to be about to.

        Raises:
            StoppedElsewhere: another process had an error, or is gone.
        """

    def read(self, before: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs) -> Result:
        """Do what comes before such a reading: an error is told to the other processes, and at the end all meet."""
        return before(*args, **kwargs)

    def refuse_others(self, sums: Mapping[nn.Parameter, Tensor]) -> None:
        """Refuse sums that are not of the parameters that the model computes with.

        Raises:
            InputError: they are of others.
        """
        if set(sums) != set(self.computing):
            raise InputError(
                "the model's trained parameters are not those that make_private saw.",
                source="requires_grad, or parameters added since",
                remedy="freeze and unfreeze before make_private; or end this training, and begin another one, by another engine, from the "
                "model that it left: the two certificates add up.",
            )

    def gather(self) -> None:
        """Before the records of a step, and before the model's numbers are read: have the model whole here.

        Raises:
            StoppedElsewhere: another process had an error, or is gone.
        """

    def let_go(self, *, refuse: bool = True) -> None:
        """After the records of a step: the model is as the user gave it. Nothing is exchanged.

        Args:
            refuse: gradients that somebody wrote meanwhile.
        Raises:
            InputError: there are some; they are gone.
        """

    def moved(self) -> list[str] | None:
        """While the model is gathered: the trained parameters that were changed since; None: it is not."""
        return None

    def collect(self, take: Callable[[], Mapping[nn.Parameter, Tensor]]) -> None:
        """After a micro-batch that more of its step follow: add its sums up already, where that saves memory.

        Args:
            take: takes the sums so far, which begin anew.
        Raises:
            InputError, StoppedElsewhere: as `refuse_others` and `add_up`.
        """

    def add_up(self, sums: Mapping[nn.Parameter, Tensor]) -> dict[nn.Parameter, Tensor]:
        """The sums over all processes, where the noise is to be added: by the parameters that the optimiser has.

        Args:
            sums: of this process's records, by the parameters that the model computed with; may be overwritten.
        Raises:
            LetheError: the processes' parameters have come apart.
            StoppedElsewhere: another process had an error, or is gone.
        """
        self._workers.add_up(list(sums.values()), parameters=list(self.named.values()))
        return dict(sums)
