"""Trained parameters that nothing but a step may write to, seen by the version counters that PyTorch keeps."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter

from torch import nn

from lethe.errors import HypothesisError
from lethe.train.core.tensors import local
from lethe.train.distributed.placement import Placement

_VERSION = attrgetter("_version")


class HeldParameters:
    """The trained parameters as the last step left them. What writes through `.data` is seen in checked batches alone (`clip/check/`).

    Args:
        named: the parameters.
        step: what may write to them, in words.
        placement: where they lie.
    """

    def __init__(self, named: Mapping[str, nn.Parameter], step: str, placement: Placement) -> None:
        self._named, self._step, self.placement, self._sharded = dict(named), step, placement, placement.sharded
        self._versions = self._now()

    def _now(self) -> list[int]:
        return list(map(_VERSION, map(local, self._named.values()) if self._sharded else self._named.values()))

    def keep(self) -> None:
        """A step was taken: they may be what they are now."""
        self._versions = self._now()

    def refuse_changes(self, when: str) -> None:
        """Refuse parameters that something else wrote to; `when` that is, in words."""
        now, moved = self._now(), self.placement.moved() if self._sharded else []
        if now != self._versions or moved:
            written = [name for name, one, other in zip(self._named, now, self._versions, strict=True) if one != other] + moved
            raise HypothesisError(
                f"the trained parameter {written[0]} ({len(written)} in all) was changed by something else than {self._step}, {when}.",
                source="the guarantee covers parameters that only noisy steps move",
                remedy="change parameters in the optimiser's step or after training, not between steps, in forward or in the loss.",
            )
