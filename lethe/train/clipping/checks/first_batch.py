"""Self-check of a model's memory: outputs must not depend on which records the model saw before."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from lethe.errors import HypothesisError
from lethe.train.clipping.anchors import unaccumulated
from lethe.train.clipping.checks.replaced_batch import CarefulNumbers, Given, has_rows
from lethe.train.core.comparison import ALLOWED_IN_SHAPE, FAILURES, close, first_line, sample
from lethe.train.model_state.quiet import Quiet
from lethe.train.model_state.undisturbed import Rewind, undisturbed

_SHOWN = 16  # records of the first batch that are shown to the copies
_FEW = 8  # records whose gradients are compared, in a batch of their own


class FirstBatch:
    """Two copies of a model that has seen no data: one is shown the first batch, the other one other records in its place.

    Then both are given the first batch: its outputs must be the same, and so must the gradients of a few records, which tell of what
    lies before a head of zeros as well. The copies draw the same random numbers, so that a model which keeps what it drew passes, as one
    does that keeps what follows from shapes.

    What a model keeps somewhere else than in itself, or fits at a later batch, is not seen.

    Args:
        model: whose parameters the copies share.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._fresh: nn.Module | None = None
        self._reason: str | None = None
        self._over = False

    def begin(self) -> None:
        """Before a batch: copy the model, if it has not been."""
        if self._over or self._fresh is not None or self._reason is not None:
            return
        try:
            self._fresh = _copied(self._model)
        except Exception as error:  # whatever a module's own attributes make of being copied
            self._reason = f"the model cannot be copied: {first_line(error)}"

    def check(self, given: Given) -> str | None:
        """Compare the copies, once.

        Args:
            given: what the model was called with.
        Returns:
            Why nothing could be compared; None if all agreed, now or before.
        Raises:
            HypothesisError: the model remembers records.
        """
        if self._over or self._fresh is None:
            return self._reason
        if given.records > _SHOWN:
            given = given.taken(sample(range(given.records), _SHOWN))
        if all(torch.equal(one, before) for one, before in zip(next(_others(given)).rows(), given.rows(), strict=True)):
            return None  # its records are all alike; another batch may tell
        try:
            expected, records = self._told(given, [given], None)
            if not records:
                return None
            told, _ = self._told(given, _others(given), records)
        except FAILURES as error:
            return f"the model could not be called again: {first_line(error)}"
        if not _agree(told, expected, given.precision):
            raise HypothesisError(
                "the model makes other outputs or gradients of the same records when it was shown others first: it keeps what it saw, of "
                "which nothing is clipped or noised.",
                source="the clipper's self-check: a layer that fits itself to its first batch, or otherwise remembers records, in an "
                "attribute of its own",
                remedy="take that layer out, or let public data pass through it before training; build the model anew: this one has seen "
                "the batch.",
            )
        self._over, self._fresh = True, None
        return None

    def _told(self, given: Given, before: Iterator[Given] | list[Given], few: list[int] | None) -> tuple[list[Tensor], list[int]]:
        """A copy's outputs for all records, and its gradients for a few, after the first of `before` that it accepts; and which few."""
        assert self._fresh is not None
        for place, shown in enumerate(before):
            model = _copied(self._fresh)
            with undisturbed(model, (given.args, given.kwargs), skipped=given.tensors()) as rewind, Quiet() as mode:
                try:
                    with nullcontext() if place or shown is given else CarefulNumbers():
                        _show(model, shown, rewind, mode)
                except FAILURES:
                    continue
                outputs = _called(model, given, rewind, mode)
                few = _finite(outputs, given.records)[:_FEW] if few is None else few
                return [*outputs, *_gradients(model, given.taken(few), rewind, mode)], few
        raise ValueError("it does not accept them, or others in their place")


def _copied(model: nn.Module) -> nn.Module:
    """A copy with the same parameters, and everything else its own."""
    own: dict[int, Any] = {id(parameter): parameter for parameter in model.parameters()}
    for module in model.modules():
        for value in vars(module).values():
            if isinstance(value, Tensor) and not value.is_leaf:
                own[id(value)] = value.detach().clone()  # torch copies leaves only
    return copy.deepcopy(model, own)


def _others(given: Given) -> Iterator[Given]:
    """Half the records twice, far from where they are; and where they are. Not in another order only, which no mean would show."""

    def halved(entry: Tensor) -> Tensor:
        return entry[given.records - 1 - torch.arange(given.records, device=entry.device) // 2]

    yield given.mapped(lambda entry: 1 - 3 * halved(entry) if entry.is_floating_point() else halved(entry))
    yield given.mapped(halved)


def _show(model: nn.Module, shown: Given, rewind: Rewind, mode: Quiet) -> None:
    """As in training, a few with gradients: some models look where these are enabled only."""
    _called(model, shown, rewind, mode)
    _called(model, shown.taken(list(range(min(_FEW, shown.records)))), rewind, mode, gradients=True)


def _called(model: nn.Module, given: Given, rewind: Rewind, mode: Quiet, *, gradients: bool = False) -> list[Tensor]:
    rewind()
    mode.begin()
    with torch.set_grad_enabled(gradients):
        output = given.called(model)
    entries = list(output.values()) if isinstance(output, dict) else tree_flatten(output)[0]
    return [entry for entry in entries if has_rows(entry, given.records) and entry.is_floating_point()]


def _gradients(model: nn.Module, given: Given, rewind: Rewind, mode: Quiet) -> list[Tensor]:
    """Of a sum in which every output counts differently; one row for each parameter that gets any, so that they compare by themselves."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    outputs = [output.flatten() for output in _called(model, given, rewind, mode, gradients=True) if output.requires_grad]
    if not outputs:
        return []
    total = torch.stack([(output * torch.linspace(0.5, 1.5, len(output)).to(output)).sum().double() for output in outputs]).sum()
    with unaccumulated({parameter: name for name, parameter in model.named_parameters()}):
        found = torch.autograd.grad(total, trained, allow_unused=True)
    return [torch.zeros(1) if gradient is None else gradient.detach()[None] for gradient in found]


def _finite(outputs: list[Tensor], records: int) -> list[int]:
    found = [torch.isfinite(output).reshape(records, -1).all(1).cpu() for output in outputs]
    return torch.stack(found).all(0).nonzero()[:, 0].tolist() if found else []


def _agree(told: list[Tensor], expected: list[Tensor], precision: torch.dtype) -> bool:
    return [entry.shape for entry in told] == [entry.shape for entry in expected] and all(
        bool(close(one, other, other, ALLOWED_IN_SHAPE, precision).all()) for one, other in zip(told, expected, strict=True)
    )
