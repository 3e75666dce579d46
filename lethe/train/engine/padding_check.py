"""Check of padded batches in a user's loop."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map

from lethe.train.checks.padding import AloneCheck, among_others
from lethe.train.model_state.outputs import has_rows

_OTHERS = "the model or the loss is given other tensors than the loader's own, or these with what the loop wrote into them"
_LONG = "the model's outputs are as long as the batch is padded, and the loss was computed beside engine.losses"


@dataclass(frozen=True, slots=True, eq=False)
class LossCall:
    """Losses that `engine.losses` computed, with their loss function, what computes them again unchecked, outputs and targets."""

    losses: Tensor
    version: int
    criterion: Callable[[Any, Tensor], Tensor]
    unchecked: Callable[[Any, Tensor], Tensor]
    outputs: Any
    targets: Tensor


class LoopAlone:
    """Remembers the model's call on a padded batch, and makes it again for records alone.

    Args:
        model: that the loop calls.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._check = AloneCheck(model)
        self._depth = 0
        self._calls: list[tuple[tuple[Any, ...], dict[str, Any], Any]] = []
        self.missing: str | None = None

    @contextmanager
    def watched(self, wanted: bool) -> Generator[None]:
        """Within: calls of the model are remembered, if they are wanted."""
        self._calls.clear()
        self._depth = 0
        if not wanted:
            yield
            return
        # Before the clipper's own, whose self-check calls the model before the loop's call is made.
        before = self._model.register_forward_pre_hook(self._enter, prepend=True)
        after = self._model.register_forward_hook(self._note, with_kwargs=True, always_call=True)
        try:
            yield
        finally:
            before.remove()
            after.remove()

    def _enter(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        self._depth += 1

    def _note(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        self._depth -= 1
        if self._depth == 0:  # the self-check calls the model within the loop's call
            self._calls.append((args, kwargs, output))

    def require(self, delivered: Sequence[Tensor], alone: Mapping[int, Sequence[Tensor]], asked: LossCall | None, *, written: bool) -> None:
        """Refuse records whose gradients depend on how far their batch is padded.

        Args:
            delivered: the tensors that the loader gave.
            alone: some of its records alone.
            asked: where `engine.losses` computed the losses.
            written: whether the loop wrote into them, which nobody did into the records alone.
        Raises:
            InputError: see AloneCheck.
        """
        calls, rows = list(self._calls), len(delivered[0])
        self._calls.clear()
        if len(calls) != 1:
            self.missing = self.missing or "the model was not called once"
            return
        args, kwargs, output = calls[0]
        loss = asked if asked is not None and asked.outputs is output else None
        given = (args, kwargs, None if loss is None else loss.targets)
        if written or any(has_rows(entry, rows) and _place(entry, delivered) is None for entry in tree_flatten(given)[0]):
            self.missing = self.missing or _OTHERS
            return
        here = {record: [tensor.to(delivered[0].device) for tensor in own] for record, own in alone.items()}
        lone = {record: tree_map(lambda entry, own=own: _own(entry, delivered, own), given) for record, own in here.items()}

        def called(given: Any) -> list[Tensor]:
            outputs = self._model(*given[0], **given[1])
            if loss is not None:
                return [loss.unchecked(outputs, given[2])]
            return [entry for entry in tree_flatten(outputs)[0] if isinstance(entry, Tensor) and entry.is_floating_point() and entry.dim()]

        if loss is None:
            with torch.no_grad():
                short = called(next(iter(lone.values())))
            long = [entry for entry in tree_flatten(output)[0] if isinstance(entry, Tensor) and entry.is_floating_point() and entry.dim()]
            if [entry.shape[1:] for entry in short] != [entry.shape[1:] for entry in long]:
                self.missing = self.missing or _LONG
                return
        rows_of = among_others(list(alone), rows)
        some = tree_map(lambda entry: entry[rows_of] if has_rows(entry, rows) else entry, given)
        self._check.require(
            lambda: _numbers(called(some), len(alone)),
            {record: lambda single=single: _numbers(called(single), 1) for record, single in lone.items()},
        )
        self.missing = self.missing or self._check.missing


def _place(entry: Any, delivered: Sequence[Tensor]) -> int | None:
    if not isinstance(entry, Tensor):
        return None
    same = (place for place, tensor in enumerate(delivered) if tensor.data_ptr() == entry.data_ptr() and tensor.shape == entry.shape)
    return next(same, None)


def _own(entry: Any, delivered: Sequence[Tensor], own: Sequence[Tensor]) -> Any:
    place = _place(entry, delivered)
    return entry if place is None else own[place]


def _numbers(outputs: Sequence[Tensor], records: int) -> list[Tensor]:
    """One number of each of the first records' outputs, in which every entry counts differently."""
    rows = [[output[record].flatten() for output in outputs] for record in range(records)]
    return [torch.stack([(row * torch.linspace(0.5, 1.5, len(row)).to(row)).sum().double() for row in own]).sum() for own in rows]
